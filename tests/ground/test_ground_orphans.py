"""A step's process ends when the run's process is killed, whatever way it was started."""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from geo_assets.lineage.orphans import leave_with_the_run

# A "run" that starts a "step" in a process of its own, says its pid and then does nothing.
RUN = """
import multiprocessing, sys, time
from geo_assets.lineage.orphans import leave_with_the_run

def step(sink):
    sink.send(leave_with_the_run())
    time.sleep(600)

if __name__ == "__main__":
    source, sink = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context(sys.argv[1]).Process(target=step, args=(sink,))
    child.start()
    assert source.recv()
    print(child.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_step_ends_with_its_run(method: str, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    run = subprocess.Popen([sys.executable, str(script), method], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    step = psutil.Process(int(run.stdout.readline()))
    assert step.is_running()
    run.kill()
    run.wait()
    deadline = time.monotonic() + 30
    while step.is_running() and step.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the step outlived its run"
        time.sleep(0.05)


def test_in_the_runs_own_process_there_is_nothing_to_watch() -> None:
    assert multiprocessing.parent_process() is None
    assert leave_with_the_run() is False
