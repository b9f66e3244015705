"""A Hub on loopback whose jobs really run, as processes of this machine, with faults on demand.

The routes are those that huggingface_hub 1.33.0 asks for jobs and for a look at a model. A job's process
gets the variables of its request and nothing of ours but the way to Python, as a container would. Ports
that a job exposes are reached through the Hub's own address, with the token, and stand for a free port of
this machine.
"""

import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fake_faults import Faults

USER = "tester"
LABEL = re.compile(r"[A-Za-z0-9_-]{0,100}")
ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETED")
PAGE = 3
POLL_S = 0.02
KEEP_ALIVE_S = 0.5


@dataclass
class FakeJob:
    """One job: what was asked for, and the process that does it."""

    id: str
    spec: dict[str, Any]
    log: Path
    ports: dict[int, int]
    created: float
    labels: dict[str, str]
    stage: str = "SCHEDULING"
    message: str | None = None
    started: float | None = None
    finished: float | None = None
    process: "subprocess.Popen[bytes] | None" = None

    def lines(self) -> list[str]:
        """Whole lines that it has printed; an ended one's last piece too."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines = text.split("\n")
        return lines if self.stage in ENDED and lines[-1] else lines[:-1]


@dataclass
class FakeHub:
    """The server; enter it to start it, leave it to end it and every job.

    Attributes:
        folder: where logs of jobs are kept.
        token: the only one it takes.
        scheduling_s: how long a job waits for hardware.
        faults: what goes wrong; see `Faults`.
        models: repositories by name, {revision or branch: commit}.
        jobs: all that were ever started, by id.
        asked: (method, path, status) of every request.
    """

    folder: Path
    token: str = "hf_fakehubtoken"
    scheduling_s: float = 0.0
    faults: Faults = field(default_factory=Faults)
    models: dict[str, dict[str, str]] = field(default_factory=dict)
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    def __enter__(self) -> "FakeHub":
        self.lock = threading.RLock()
        self.server = _Quiet(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for job in list(self.jobs.values()):
            self.end(job, "CANCELED")
        self.server.shutdown()
        self.server.server_close()

    @property
    def environ(self) -> dict[str, str]:
        """Variables with which a child of the test talks to this Hub."""
        return {"HF_ENDPOINT": self.url, "HF_TOKEN": self.token}

    def launches(self) -> int:
        """Requests that started a job."""
        return len(self.jobs)

    def start(self, spec: dict[str, Any]) -> FakeJob:
        """Take a job in, and run it once its hardware is there."""
        number = uuid.uuid4().hex[:24]
        ports = {port: _free_port() for port in spec.get("expose", {}).get("ports", [])}
        labels = dict(spec.get("labels", {}))
        job = FakeJob(number, spec, self.folder / f"{number}.log", ports, time.time(), labels)
        self.jobs[number] = job
        threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return job

    def end(self, job: FakeJob, stage: str, message: str | None = None) -> None:
        """Stop a job that has not ended."""
        with self.lock:
            if job.stage in ENDED:
                return
            job.stage, job.message, job.finished = stage, message, time.time()
            if job.process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(job.process.pid, signal.SIGKILL)

    def vanish(self, job: FakeJob) -> None:
        """Lose a job without a trace: its process too."""
        self.end(job, "DELETED")

    def _run(self, job: FakeJob) -> None:
        time.sleep(self.scheduling_s)
        command = [sys.executable if word == "python" else word for word in job.spec["command"]]
        for port, free in job.ports.items():
            command = [str(free) if word == str(port) else word for word in command]
        own = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
        with self.lock, job.log.open("wb") as log:
            if job.stage in ENDED:
                return
            job.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**own, **job.spec["environment"], **job.spec.get("secrets", {})},
                start_new_session=True,
            )
            job.stage, job.started = "RUNNING", time.time()
        try:
            code = job.process.wait(timeout=job.spec.get("timeoutSeconds", 1800))
        except subprocess.TimeoutExpired:
            self.end(job, "ERROR", "Job timeout")
            job.process.wait()
            return
        with self.lock:
            if job.stage not in ENDED:
                job.finished = time.time()
                job.stage = "ERROR" if code else "COMPLETED"
                job.message = f"Job failed with exit code: {code}" if code else None

    def info(self, job: FakeJob) -> dict[str, Any]:
        """A job as the Hub describes it; values of secrets are not part of that."""
        now = time.time()
        ran = None if job.started is None else int((job.finished or now) - job.started)
        urls = [f"{self.url}/exposed/{job.id}/{port}" for port in job.ports] or None
        return {
            "id": job.id,
            "createdAt": _stamp(job.created),
            "startedAt": _stamp(job.started),
            "finishedAt": _stamp(job.finished),
            "dockerImage": job.spec.get("dockerImage"),
            "spaceId": job.spec.get("spaceId"),
            "command": job.spec["command"],
            "arguments": job.spec["arguments"],
            "environment": job.spec["environment"],
            "secrets": dict.fromkeys(job.spec.get("secrets", {}), ""),
            "flavor": job.spec["flavor"],
            "labels": job.labels,
            "status": {"stage": job.stage, "message": job.message, "exposeUrls": urls},
            "durations": {"schedulingSecs": 0, "runningSecs": ran, "totalSecs": int(now - job.created)},
            "owner": {"id": "5e9ecfc04957053f60648a3e", "name": USER, "type": "user"},
            "initiator": {"type": "user", "id": "5e9ecfc04957053f60648a3e", "name": USER},
        }


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked may leave, or be killed, in the middle of an answer; that is no fault of the Hub's."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def log_message(self, *args: Any) -> None:
        """Kept in `asked` instead."""

    def _answer(self) -> None:
        hub, split = self.hub, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        lost = hub.faults.lost_reply(self.command, split.path)
        fault = hub.faults.status(self.command, split.path)
        if fault:
            self._send(fault, {"error": "Something is wrong on our side"})
        elif self.headers.get("authorization") != f"Bearer {hub.token}":
            self._send(401, {"error": "Invalid credentials in Authorization header"})
        elif split.path.startswith("/exposed/"):
            self._exposed(split.path, split.query, body)
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", split.path):
            self._model(*match.groups())
        elif split.path == "/api/whoami-v2":
            self._send(200, {"name": USER, "type": "user", "auth": {"type": "access_token"}})
        elif split.path == f"/api/jobs/{USER}":
            status, value = self._jobs(split.query, body)
            self._send(503 if lost else status, value)
        elif match := re.fullmatch(rf"/api/jobs/{USER}/(\w+)(?:/(cancel|labels|logs))?", split.path):
            self._job(match.group(1), match.group(2) or "", body)
        else:
            self._send(404, {"error": "Not found"})

    def _jobs(self, query: str, body: bytes) -> tuple[int, Any]:
        if self.command == "POST":
            spec = json.loads(body)
            words = [word for pair in spec.get("labels", {}).items() for word in pair]
            if bad := [word for word in words if not LABEL.fullmatch(word)]:
                return 400, {"error": f"Invalid label {bad[0]}"}
            job = self.hub.start(spec)
            if self.hub.faults.hold_launch is not None:
                self.hub.faults.hold_launch.wait(60)
            return 200, self.hub.info(job)
        wanted = parse_qsl(query)
        found = [
            job
            for job in self.hub.jobs.values()
            if all(tuple(v.split("=", 1)) in job.labels.items() for k, v in wanted if k == "label")
            and ("stage" not in dict(wanted) or ("stage", job.stage) in wanted)
            and job.stage != "DELETED"
        ]
        page = int(dict(wanted).get("page", 0))
        rest = [f"{k}={v}" for k, v in wanted if k != "page"]
        if len(found) > PAGE * (page + 1):
            after = "&".join([*rest, f"page={page + 1}"])
            self.next_page = f'<{self.hub.url}/api/jobs/{USER}?{after}>; rel="next"'
        return 200, [self.hub.info(job) for job in found[PAGE * page : PAGE * (page + 1)]]

    def _job(self, number: str, verb: str, body: bytes) -> None:
        job = self.hub.jobs.get(number)
        if job is None or job.stage == "DELETED":
            self._send(404, {"error": "Job not found"})
        elif verb == "logs":
            self._logs(job)
        elif verb == "cancel":
            self.hub.end(job, "CANCELED")
            self._send(200, self.hub.info(job))
        else:
            if verb == "labels":
                job.labels = dict(json.loads(body)["labels"])
            self._send(200, self.hub.info(job))

    def _logs(self, job: FakeJob) -> None:
        """Server-sent events from the first line; the stream stays open until the job ends."""
        self._note(200)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        stalled, cut = self.hub.faults.stall_logs, self.hub.faults.cut_log()
        sent, quiet = 0, time.monotonic()
        self._event("===== Job started =====")
        while True:
            ended = job.stage in ENDED
            for line in [] if stalled else job.lines()[sent:]:
                if cut is not None and sent >= cut:
                    return
                self._event(line)
                sent, quiet = sent + 1, time.monotonic()
            if ended:
                return
            if time.monotonic() - quiet > KEEP_ALIVE_S:
                self.wfile.write(b": keep-alive\n\n")
                quiet = time.monotonic()
            time.sleep(POLL_S)

    def _event(self, line: str) -> None:
        event = json.dumps({"data": line, "timestamp": _stamp(time.time())})
        self.wfile.write(f"data: {event}\n\n".encode())
        self.wfile.flush()

    def _exposed(self, path: str, query: str, body: bytes) -> None:
        _, _, number, port, *rest = path.split("/")
        job = self.hub.jobs.get(number)
        if job is None or job.stage != "RUNNING" or int(port) not in job.ports:
            self._send(502, {"error": "Nothing listens there"})
            return
        with closing(HTTPConnection("127.0.0.1", job.ports[int(port)], timeout=60)) as upstream:
            try:
                headers = {"content-type": self.headers.get("content-type", "application/json")}
                target = f"/{'/'.join(rest)}{f'?{query}' if query else ''}"
                upstream.request(self.command, target, body or None, headers)
                answer = upstream.getresponse()
                self._raw(answer.status, answer.read(), answer.getheader("content-type", ""))
            except OSError:
                self._send(502, {"error": "Nothing listens there yet"})

    def _model(self, repo: str, revision: str) -> None:
        commit = self.hub.models.get(repo, {}).get(revision)
        files = [{"rfilename": "config.json"}, {"rfilename": "model.safetensors"}]
        known = {"id": repo, "sha": commit, "siblings": files, "lastModified": _stamp(0.0), "config": {}}
        self._send(200 if commit else 404, known if commit else {"error": "Revision not found"})

    def _send(self, status: int, value: Any) -> None:
        self._raw(status, json.dumps(value).encode(), "application/json")

    def _raw(self, status: int, body: bytes, kind: str) -> None:
        self._note(status)
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if link := self.__dict__.pop("next_page", None):
            self.send_header("link", link)
        self.end_headers()
        self.wfile.write(body)

    def _note(self, status: int) -> None:
        self.hub.asked.append((self.command, self.path, status))


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stamp(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
