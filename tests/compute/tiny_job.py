"""A job that trains nothing: it says lines, waits where a test wants it to, stores a file and reports it.

    python -m tiny_job --payload ADDRESS

Its payload says how many lines, where it waits (for a file to appear), and how it ends.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

from env_service.errors import GeoError
from resources.compute.inside import job_side, read_payload


def main() -> int:
    """Do as the payload says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--payload", required=True)
    address = parser.parse_args().payload
    with job_side() as job, tempfile.TemporaryDirectory() as scratch:
        wish = read_payload(address, Path(scratch) / "payload")
        for number in range(wish["lines"]):
            job.say(f"line {number}")
            job.progress({"number": number})
            if number == wish.get("gate_at"):
                _wait_for(Path(wish["gate"]))
        print(f"a plain line, with a token in it: {os.environ.get('HF_TOKEN', 'none')}", flush=True)
        if wish.get("explains"):
            raise GeoError(wish["explains"], "Do something else")
        if wish.get("exits"):
            print("these are my last words", flush=True)
            os._exit(wish["exits"])
        out = Path(scratch) / "out"
        out.mkdir()
        (out / "made.txt").write_text(wish["text"])
        version = hashlib.sha256(wish["text"].encode()).hexdigest()[:32]
        job.finish(out, version, {"pid": os.getpid()})
        if wish.get("gate_after"):
            _wait_for(Path(wish["gate_after"]))
    return 0


def _wait_for(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
