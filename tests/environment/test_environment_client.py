"""Our client, and OpenEnv's own, against a real server."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets.sync.server
from environment_lab import REPOSITORY, Server, World, serve, until

from env_service import client as clients
from env_service.client import (
    AsyncGeoGuessrEnv,
    BadSelection,
    CapacityReached,
    EpisodeDone,
    GeoGuessrEnv,
    NotReset,
    NotSendable,
    ServerError,
    SessionExpired,
    SessionLost,
    StepTimeout,
    Unreadable,
)
from env_service.models import GeoAction

LOOK = GeoAction(op="look", heading_deg=90)
GUESS = {"op": "guess", "response": "<guess>48.86, 2.29</guess>"}


def test_an_episode(server: Server) -> None:
    with GeoGuessrEnv(server.url) as env:
        first = env.reset(split="eval", index=0, episode_id="mine")
        assert first.reward is None and not first.done and first.observation.image_base64
        second = env.step(LOOK)
        assert second.observation.heading_deg == 90 and second.reward == 0
        state = env.state()
        assert (state.episode_id, state.task_index, state.step_count) == ("mine", 0, 1)
        last = env.step(GUESS)
        assert last.done and last.observation.reward == last.reward and (last.reward or 0) > 0.98
        with pytest.raises(EpisodeDone):
            env.step(LOOK)
        env.reset(seed=6)
        assert env.state().task_index == 1
    with pytest.raises(SessionLost):
        env.step(LOOK)


def test_an_episode_with_asyncio(server: Server) -> None:
    async def play() -> float | None:
        async with AsyncGeoGuessrEnv(server.url) as env:
            with pytest.raises(NotReset):
                await env.step(LOOK)
            await env.reset(index=0)
            assert (await env.step(LOOK)).observation.steps_remaining == 11
            assert (await env.state()).step_count == 1
            return (await env.step(GUESS)).reward

    assert (asyncio.run(play()) or 0) > 0.98


def test_errors_have_names(server: Server) -> None:
    with GeoGuessrEnv(server.url) as env:
        with pytest.raises(NotReset):
            env.step(LOOK)
        for wrong in ({"index": 99}, {"split": "train"}):
            with pytest.raises(BadSelection):
                env.reset(**wrong)
        env.reset()
        for wrong_value in (float("nan"), float("inf"), b"bytes", {1, 2}, object()):
            with pytest.raises(NotSendable, match=r"cannot be written as JSON .*\. Give finite numbers"):
                env.step({"op": "look", "heading_deg": wrong_value})
        with pytest.raises(NotSendable, match="not int"):
            env.step(5)  # type: ignore[arg-type]
        with pytest.raises(NotSendable, match="this reset"):
            env.reset(seed=object())  # type: ignore[arg-type]
        assert env.step({"op": "fly"}).observation.steps_remaining == 11
    with pytest.raises(SessionLost, match="cannot be reached"):
        GeoGuessrEnv("http://127.0.0.1:9", timeout_s=2)


def test_a_server_in_production_mode_is_told_from_none_at_all(production: Server) -> None:
    words = r"answers, but not on /ws \(HTTP 403\).*production mode"
    with pytest.raises(SessionLost, match=words):
        GeoGuessrEnv(production.url)

    async def connect() -> None:
        async with AsyncGeoGuessrEnv(production.url):
            pass

    with pytest.raises(SessionLost, match=words):
        asyncio.run(connect())


def test_one_too_many_expiry_and_timeouts(lab: Server) -> None:
    until(lambda: lab.metric("geo_sessions") == 0, 60)
    with GeoGuessrEnv(lab.url) as holder, GeoGuessrEnv(lab.url) as other:
        holder.reset()
        other.reset()
        for _ in range(3):
            with GeoGuessrEnv(lab.url) as third, pytest.raises(CapacityReached):
                third.reset()
        until(lambda: lab.metric("geo_sessions") == 0, 60)
        with pytest.raises(SessionExpired):
            holder.step(LOOK)
        with pytest.raises(SessionExpired):
            holder.reset()
    with GeoGuessrEnv(lab.url) as slow:
        slow.reset()
        with pytest.raises(StepTimeout):
            slow.step({"op": "nap", "seconds": 30})
        with pytest.raises(SessionExpired):
            slow.reset()
    with GeoGuessrEnv(lab.url, timeout_s=0.5) as hasty:
        hasty.reset()
        with pytest.raises(SessionLost, match="no answer"):
            hasty.step({"op": "nap", "seconds": 1})
        with pytest.raises(SessionLost):
            hasty.step(LOOK)


@contextlib.contextmanager
def answering(*frames: str | bytes, after_s: float = 0.0) -> Iterator[str]:
    """A service that gives these frames, one for each message, each after a while. Yields its address."""

    def handle(connection: websockets.sync.server.ServerConnection) -> None:
        for _, frame in zip(connection, frames, strict=False):
            time.sleep(after_s)
            connection.send(frame)

    with websockets.sync.server.serve(handle, "127.0.0.1", 0) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.socket.getsockname()[1]}"
        finally:
            served.shutdown()
            thread.join()


def answer(**data: Any) -> str:
    return json.dumps({"type": "observation", "data": data})


SEEN = answer(observation={"feedback": "first"}, reward=0.0, done=False)
END = answer(observation={"feedback": "second"}, reward=0.9, done=True)


@pytest.mark.parametrize("broken_off_by", ["timeout", "cancelled task", "another call"])
def test_a_call_that_was_broken_off_never_answers_the_next(broken_off_by: str) -> None:
    async def play(url: str) -> None:
        env = await AsyncGeoGuessrEnv(url).connect()
        call = asyncio.ensure_future(env.step(LOOK))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        if broken_off_by == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.01)
        elif broken_off_by == "cancelled task":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            with pytest.raises(websockets.exceptions.ConcurrencyError):
                await env.step(LOOK)
            with pytest.raises(SessionLost):
                await call
        assert time.monotonic() - began < 0.7, "whoever cancels a call must not wait for its answer"
        await asyncio.sleep(1.0)
        for ask in (env.step(GUESS), env.reset(), env.state()):
            with pytest.raises(SessionLost, match=r"broken off before its answer.*new client"):
                await ask
        await env.close()

    with answering(SEEN, END, END, after_s=1.0) as url:
        asyncio.run(play(url))


def test_an_interrupted_call_never_answers_the_next() -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with answering(SEEN, END, after_s=0.6) as url, GeoGuessrEnv(url) as env:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Interrupted):
                env.step(LOOK)
            time.sleep(0.6)
            with pytest.raises(SessionLost, match="broken off before its answer"):
                env.step(GUESS)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (answer(observation=None), "holds no observation"),
        (answer(), "holds no observation"),
        ('{"type": "observation", "data": null}', "holds no data"),
        (answer(observation={"pins": 5, "image_kind": "hologram"}), r"cannot be read \(image_kind, pins\)"),
        (answer(observation={}, reward="plenty"), r"cannot be read \(reward\)"),
        (answer(observation={}, done=[1]), r"cannot be read \(done\)"),
        ("[1]", "not a JSON object"),
        ("{" * 9, "not JSON"),
        ("[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
    ],
)
def test_an_answer_that_cannot_be_read_is_a_named_error(frame: str | bytes, words: str) -> None:
    async def play(url: str) -> None:
        async with AsyncGeoGuessrEnv(url) as env:
            with pytest.raises(Unreadable, match=f"{words}.*server's own version"):
                await env.step(LOOK)
            assert (await env.step(LOOK)).observation.feedback == "first"

    with answering(frame, SEEN) as url, GeoGuessrEnv(url) as env:
        with pytest.raises(ServerError, match=words):
            env.step(LOOK)
        assert env.step(LOOK).observation.feedback == "first"
        asyncio.run(play(url))


def test_a_state_that_cannot_be_read_is_a_named_error() -> None:
    words = r"cannot be read \(mode, step_count\)"
    frame = answer(step_count=-1, mode=7)
    with answering(frame) as url, GeoGuessrEnv(url) as env, pytest.raises(Unreadable, match=words):
        env.state()


def test_a_server_that_dies_is_a_lost_session(world: World, tmp_path: Path) -> None:
    with serve(tmp_path, *world.arguments) as mortal:
        env = GeoGuessrEnv(mortal.url)
        env.reset()
        mortal.process.kill()
        mortal.process.wait()
        for _ in range(2):
            with pytest.raises(SessionLost):
                env.step(LOOK)


def test_discovery_helpers(server: Server) -> None:
    assert clients.splits(server.url) == ["eval"] and clients.num_tasks(server.url, "eval") == 5
    assert clients.get_task(server.url, "eval", 1)["index"] == 1
    assert clients.metadata(server.url)["version"] and len(clients.schema(server.url)["tools"]) == 11
    with pytest.raises(ServerError):
        clients.num_tasks(server.url, "nope")
    with GeoGuessrEnv(server.url) as env:
        assert (
            env.splits() == ["eval"] and env.num_tasks("eval") == 5 and env.get_task("eval", 4)["index"] == 4
        )
        assert env.schema() == clients.schema(server.url) and env.metadata()["name"] == "geoguesser_env"


def test_importing_the_client_brings_in_neither_openenv_nor_numpy() -> None:
    heavy = "('openenv', 'gradio', 'fastapi', 'fastmcp', 'starlette', 'numpy', 'uvicorn')"
    code = f"import sys, env_service.client; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )
    assert done.stdout.strip() == "[]"


def test_openenvs_generic_client_plays(server: Server) -> None:
    from openenv.core import GenericEnvClient  # type: ignore[import-untyped]

    import env_service.light_openenv  # noqa: F401  (keeps gradio, which takes seconds, out of this process)

    async def play() -> None:
        async with GenericEnvClient(base_url=server.url) as env:
            first = await env.reset(split="eval", index=0)
            assert first.observation["image_kind"] == "view" and first.reward is None
            seen = await env.step({"op": "look", "heading_deg": 90})
            assert seen.observation["heading_deg"] == 90 and seen.metadata["split"] == "eval"
            assert (await env.state())["task_index"] == 0
            last = await env.step(GUESS)
            assert last.done and last.reward > 0.98
            with pytest.raises(RuntimeError, match="EPISODE_DONE"):
                await env.step({"op": "list_pins"})

    asyncio.run(play())


def test_openenvs_runtime_check_passes(server: Server) -> None:
    from openenv.validation.runtime import contracts  # type: ignore[import-untyped]
    from openenv.validation.runtime.collector import (  # type: ignore[import-untyped]
        collect_runtime_evidence,
    )

    plan = contracts.RuntimePlan.model_validate(
        {
            "plan_schema_version": "1",
            "reset": {"seed": 7, "episode_id": "e", "options": {"split": "eval"}},
            "actions": [{"op": "look", "heading_deg": 1}, {"op": "guess", "lat": 1, "lon": 2}],
        }
    )
    evidence = collect_runtime_evidence(server.url, plan, episode_timeout_s=20)
    assert evidence.failure_reason is None and len(evidence.exchanges) == 6
