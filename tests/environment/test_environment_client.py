"""Our client, and OpenEnv's own, against a real server."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
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
