"""A small eval environment of real servers: tasks at real towns, pictures of noise, no two alike."""

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from env_service.geography import geography
from env_service.store import PanoramaStore
from env_service.tasks import Frame, Task, write_tasks
from env_service.views import encode_jpeg
from geo_assets.config.arms import ArmSpec, load_arms
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage, StageRun
from geo_assets.lineage.folders import AssetFolder
from geo_assets.sweeps.guards import guarded
from geo_assets.sweeps.harness import Swept, make_plan, run_sweep
from geo_assets.sweeps.lock import WriterLock
from geo_assets.sweeps.store import SweepStore
from resources.endpoints import ChatEndpoint, Dialect

KM = 1 / 111.195


def make_tasks(count: int, seed: int = 5) -> list[Task]:
    """Tasks of three frames a few metres apart near towns, at most two per country, spread over the Earth."""
    earth, rng = geography(), np.random.default_rng(seed)
    tasks: list[Task] = []
    used: dict[str, int] = {}
    for pick in rng.permutation(min(len(earth.places), 6000)):
        place = earth.places[int(pick)]
        lat, lon = place.lat + float(rng.uniform(-30, 30)) * KM, place.lon
        country = earth.country_at(lat, lon)
        if country is None or used.get(country.code, 0) >= 2:
            continue
        used[country.code] = used.get(country.code, 0) + 1
        index = len(tasks)
        frames = tuple(
            Frame(
                image_id=f"{index:05d}-{step}",
                lat=lat + step * 0.01 * KM,
                lon=lon,
                compass_angle=float(index * 7 % 360),
                captured_at="2024-05",
            )
            for step in range(3)
        )
        tasks.append(
            Task(
                task_index=index,
                task_id=f"lab-{index:03d}",
                country=country.name,
                country_code=country.code,
                sequence_id=f"sequence-{index:03d}",
                provider="mapillary",
                start_frame=0,
                frames=frames,
            )
        )
        if len(tasks) == count:
            return tasks
    raise AssertionError(f"the lab has no {count} towns")


def build_environment(home: Path, count: int, *, version: str = "lab-1", max_turns: int = 12) -> Path:
    """Publish an `eval_environment` under `home`; returns its configuration file."""
    folder = AssetFolder(home, "eval_environment")
    tasks = make_tasks(count)
    write_tasks(folder.file("tasks.jsonl"), tasks)
    store = PanoramaStore(str(folder.path / "panos"))
    for task in tasks:
        for step, frame in enumerate(task.frames):
            noise = np.random.default_rng([task.task_index, step]).integers(0, 256, (16, 32, 3), np.uint8)
            store.put(frame.image_id, encode_jpeg(np.kron(noise, np.ones((16, 16, 1), np.uint8))))
    config = folder.file("config.json")
    body = {
        "splits": {"eval": {"tasks": "tasks.jsonl", "panos": "panos"}},
        "max_turns": max_turns,
        "view_px": 128,
        "environment_version": version,
    }
    config.write_text(json.dumps(body))
    folder.publish(version, {"tasks": len(list(tasks))})
    return config


def lab_stage(home: Path) -> Stage:
    """The sandbox stage with its home moved."""
    return Stage(replace(load_settings({"GEO_PROFILE": "sandbox"}), home=home), stage_specs("sandbox"))


def lab_run(home: Path, name: str, said: list[str] | None = None) -> StageRun:
    """A run of one asset that keeps what it says."""
    return StageRun(lab_stage(home), name, (said if said is not None else []).append)


def lab_arm(slug: str, **changes: object) -> ArmSpec:
    """A sandbox arm with some fields changed, quick to give up."""
    arm = load_arms("sandbox").get(slug)
    runtime = arm.runtime.model_copy(update={"workers": 2, "attempts": 2, "backoff_s": 0.01, "timeout_s": 20})
    return arm.model_copy(update={"runtime": runtime, **changes})


@dataclass(frozen=True)
class Lab:
    """A served environment and the policies behind it."""

    home: Path
    env_url: str
    policy_url: str

    @property
    def config(self) -> Path:
        """The environment's configuration file."""
        return self.home / "eval_environment" / "config.json"

    def endpoint(self, arm: ArmSpec, url: str = "") -> ChatEndpoint:
        """The arm's model, at the policy server or at another address."""
        runtime = arm.runtime
        return ChatEndpoint(
            f"{url or self.policy_url}/v1",
            arm.model,
            timeout_s=runtime.timeout_s,
            attempts=runtime.attempts,
            backoff_s=runtime.backoff_s,
        )

    def sweep(self, arm: ArmSpec, folder: Path, url: str = "", workers: int = 2) -> Swept:
        """Play an arm into a folder."""
        plan = make_plan(arm, self.env_url, "lab-1", "harness-1")
        with WriterLock(folder, arm.slug) as lock:
            store = SweepStore(folder, lock, {"arm": arm.identity()})
            return run_sweep(plan, self.env_url, self.endpoint(arm, url), store, lambda _: None, workers)

    def guarded(
        self,
        arm: ArmSpec,
        folder: Path,
        endpoint: ChatEndpoint,
        env_url: str = "",
        said: list[str] | None = None,
    ) -> Swept:
        """Play an arm into a folder with a look at the endpoint before and after."""
        plan = make_plan(arm, env_url or self.env_url, "lab-1", "harness-1")
        say = (said if said is not None else []).append
        with WriterLock(folder, arm.slug, say=say) as lock:
            store = SweepStore(folder, lock, {"arm": arm.identity()}, say)
            return guarded(plan, env_url or self.env_url, endpoint, store, say)


def double_arm(slug: str = "double", **changes: object) -> ArmSpec:
    """An arm of an OpenAI-compatible endpoint that serves the model `m`."""
    served: dict[str, object] = {"slug": slug, "provider": "openai_compatible", "model": "m"}
    return lab_arm("best_fixed_point").model_copy(update=served | changes)


def endpoint_at(
    url: str, arm: ArmSpec, dialect: Dialect = "compatible", timeout_s: float = 60.0, attempts: int = 6
) -> ChatEndpoint:
    """An arm's model at an address that ends before `/v1`, quick to try again."""
    return ChatEndpoint(
        f"{url}/v1", arm.model, timeout_s=timeout_s, attempts=attempts, backoff_s=0.01, dialect=dialect
    )


Fault = tuple[int, dict[str, str], bytes]
Script = Callable[[int, dict[str, Any]], Fault | None]


@contextmanager
def faulty(target: str, script: Script) -> Iterator[str]:
    """A real HTTP server before the policies: it answers by script, or passes the request on.

    The script is given the number of the request, from 1, and its body.
    """
    counter, lock = iter(range(1, 1_000_000)), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                number = next(counter)
            fault = script(number, json.loads(body))
            self._send(*(fault or self._forward(body)))

        def _forward(self, body: bytes) -> Fault:
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{target}{self.path}", body, headers)
            with urllib.request.urlopen(request) as answer:
                return answer.status, headers, answer.read()

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(
    text: str = "", calls: Sequence[tuple[str, str]] = (), finish: str | None = "stop", model: str = ""
) -> Fault:
    """A chat completion with the words and calls given, each call a name and its raw arguments."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls)
        ]
    body = {
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


HTML: Fault = (200, {"Content-Type": "text/html"}, b"<html>gateway</html>")
EMPTY: Fault = (200, {"Content-Type": "application/json"}, b'{"choices": []}')
BUSY: Fault = (
    429,
    {"Retry-After": "0", "Content-Type": "application/json"},
    b'{"error": {"message": "slow down"}}',
)
BROKEN: Fault = (503, {"Content-Type": "text/plain"}, b"upstream down")
