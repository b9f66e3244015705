"""A server that says which model it serves, as vLLM would, and nothing else.

python -m tiny_server --model ID --root ROOT --port PORT [--dies | --says-token]
"""

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


def main() -> int:
    """Serve until stopped."""
    parser = argparse.ArgumentParser()
    for name in ("--model", "--root"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dies", action="store_true")
    parser.add_argument("--says-token", action="store_true")
    options = parser.parse_args()
    if options.dies:
        print("CUDA out of memory", flush=True)
        return 3
    if options.says_token:
        print(f"my token is {os.environ.get('HF_TOKEN')}", flush=True)
        return 3
    body = json.dumps({"data": [{"id": options.model, "root": options.root, "parent": None}]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    time.sleep(0.2)
    HTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
