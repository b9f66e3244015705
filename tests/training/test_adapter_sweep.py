"""An adapter's sweep: real environment, real model server, real weights; and what it refuses."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

LAB = Path(__file__).parent
sys.path[:0] = [str(LAB), str(LAB.parent / "sweeps")]

from sweeps_lab import build_environment, lab_run, lab_stage  # noqa: E402
from vlm_lab import ADAPTER, BASE, opening_of, publish_adapter, publish_base  # noqa: E402

from env_service.errors import GeoError  # noqa: E402
from geo_assets.config.runs import load_runs  # noqa: E402
from geo_assets.lineage.folders import AssetFolder, MissingUpstream, Published  # noqa: E402
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweep_of, adapter_sweeps  # noqa: E402
from geo_assets.sweeps.adapter_serving import (  # noqa: E402
    Pair,
    check_lineage,
)
from geo_assets.sweeps.adapter_sweep import adapter_sweep_asset, adapter_sweep_assets, sweep_pair  # noqa: E402
from geo_assets.sweeps.served_models import (  # noqa: E402
    AdapterChangesNothing,
    Card,
    ServedModels,
    WrongBaseServed,
    check_served,
    probe,
)
from geo_assets.sweeps.serving import served_environment  # noqa: E402
from geo_assets.training.weights import weights_sha256  # noqa: E402

TASKS = 2
NAME = f"sweep_{ADAPTER}"


def lab_sweep() -> AdapterSweep:
    return adapter_sweeps("sandbox")[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with environment, base model and adapter, none of them swept."""
    home = tmp_path_factory.mktemp("world")
    config = build_environment(home, TASKS)
    with served_environment(config, 2) as served:
        opening, tools = opening_of(served.url)
    publish_base(home, opening, tools)
    publish_adapter(home)
    return home


@pytest.fixture
def home(world: Path, tmp_path: Path) -> Path:
    """A copy of the world to do what one likes with."""
    shutil.copytree(world, tmp_path / "world")
    return tmp_path / "world"


@pytest.fixture(scope="module")
def swept(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], Any]:
    """The world swept once, what was said, and what was made."""
    home = tmp_path_factory.mktemp("swept") / "world"
    shutil.copytree(world, home)
    said: list[str] = []
    return home, said, sweep_pair(lab_run(home, NAME, said), lab_sweep())


def lines(home: Path, arm: str) -> list[dict[str, Any]]:
    text = (home / "sweeps" / ADAPTER / arm / "episodes.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_the_arms_follow_from_the_run() -> None:
    run = load_runs("sandbox").get("run3")
    sweep = adapter_sweep_of(run, "sandbox")
    assert [(arm.slug, arm.kind, arm.k) for arm in sweep.arms] == [(BASE, "base", 4), (ADAPTER, "trained", 4)]
    for arm in sweep.arms:
        assert arm.sampling.temperature == run.temperature
        assert arm.sampling.max_tokens == run.max_turn_length
        assert arm.max_turns == run.max_turns
        assert (arm.sampling.top_p, arm.sampling.extra["top_k"]) == (1.0, 0)
    assert (sweep.board.base, sweep.board.ladder) == (BASE, (ADAPTER, BASE))


def test_one_asset_per_adapter_whose_parents_are_all_it_needs(tmp_path: Path) -> None:
    stage = lab_stage(tmp_path)
    assets = adapter_sweep_assets(stage)
    assert [asset.names[0] for asset in assets] == [NAME, f"{NAME}_seed1"]
    assert assets[0].deps == ("eval_environment", BASE, ADAPTER)
    assert assets[0].folders == {NAME: f"sweeps/{ADAPTER}"}
    hotter = load_runs("sandbox").get("run3").model_copy(update={"temperature": 0.5})
    assert adapter_sweep_asset(adapter_sweep_of(hotter, "sandbox")).code_version(stage) != assets[
        0
    ].code_version(stage)


def test_declaring_it_imports_no_torch() -> None:
    code = "import sys, geo_assets.sweeps.adapter_sweep; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_both_arms_are_played_from_one_endpoint(swept: tuple[Path, list[str], Any]) -> None:
    home, said, made = swept
    assert any("base and adapter are served, and they differ" in line for line in said)
    for arm in (BASE, ADAPTER):
        records = lines(home, arm)
        assert len(records) == TASKS * 4
        assert {record["provenance"]["model_asked"] for record in records} == {arm}
        assert {tuple(record["provenance"]["models_reported"]) for record in records} == {(arm,)}
        assert (home / "sweeps" / ADAPTER / arm / "outcomes.parquet").is_file()
        assert made.facts["arms"][arm]["episodes"] == TASKS * 4
    assert made.facts["complete"]
    assert made.facts["base_version"] == "base-1"
    assert made.checks[0].passed
    turns = [turn for record in lines(home, BASE) for turn in record["turns"]]
    assert {turn["tool"] for turn in turns} >= {"look", "submit_guess"}
    found = json.loads((home / "sweeps" / ADAPTER / "endpoint.json").read_text())["probe"]
    assert found["replies_differ"] or found["difference"] > 1e-6
    assert "data:image/jpeg;base64," in str(made.metadata[f"episode_{ADAPTER}"].value)


def test_finished_it_starts_nothing(swept: tuple[Path, list[str], Any], tmp_path: Path) -> None:
    home = tmp_path / "again"
    shutil.copytree(swept[0], home)
    shutil.rmtree(home / BASE / "model")  # whatever were started would find no weights
    said: list[str] = []
    made = sweep_pair(lab_run(home, NAME, said), lab_sweep())
    assert said == [f"{ADAPTER}: all {TASKS * 8} episodes are there; nothing is asked again"]
    assert made.data_version == swept[2].data_version
    assert made.facts == swept[2].facts
    assert (swept[2].metadata["made_share"], made.metadata["made_share"]) == (1.0, 0.0)


def test_a_new_adapter_keeps_the_base_arms_episodes(
    swept: tuple[Path, list[str], Any], tmp_path: Path
) -> None:
    home = tmp_path / "again"
    shutil.copytree(swept[0], home)
    AssetFolder(home, f"sweeps/{ADAPTER}").publish(swept[2].data_version, swept[2].facts)
    publish_adapter(home, "adapter-2", seed=9)
    said: list[str] = []
    made = sweep_pair(lab_run(home, NAME, said), lab_sweep())
    assert f"{BASE}: {TASKS * 4} of {TASKS * 4} episodes are there" in said
    assert f"{ADAPTER}: 0 of {TASKS * 4} episodes are there" in said
    assert not (home / "sweeps" / ADAPTER / "_asset.json").exists()
    before, after = swept[2].facts["arms"], made.facts["arms"]
    assert after[BASE]["sweep_version"] == before[BASE]["sweep_version"]
    assert after[ADAPTER]["sweep_version"] != before[ADAPTER]["sweep_version"]
    assert len(list((home / "sweeps" / ADAPTER / ADAPTER / "superseded").iterdir())) == 1


def test_killed_and_resumed_on_other_threads_it_is_the_same_bytes(
    home: Path, swept: tuple[Path, list[str], Any]
) -> None:
    """The noise of a reply hangs on its request alone, so company and order of play leave no trace."""
    code = (
        f"import sys; sys.path[:0] = [{str(LAB)!r}, {str(LAB.parent / 'sweeps')!r}]\n"
        "from test_adapter_sweep import *\n"
        f"sweep_pair(lab_run(Path({str(home)!r}), NAME), slow())"
    )
    episodes = home / "sweeps" / ADAPTER / BASE / "episodes.jsonl"
    child = subprocess.Popen([sys.executable, "-c", code])
    while child.poll() is None and (not episodes.exists() or episodes.read_bytes().count(b"\n") < 2):
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert 2 <= episodes.read_bytes().count(b"\n") < TASKS * 4
    made = sweep_pair(lab_run(home, NAME), lab_sweep())
    assert made.data_version == swept[2].data_version
    for arm in (BASE, ADAPTER):
        assert lines(home, arm) == lines(swept[0], arm)


def slow() -> AdapterSweep:
    """The sweep on one thread."""
    sweep = lab_sweep()
    one = sweep.base.runtime.model_copy(update={"workers": 1})
    base, adapter = (arm.model_copy(update={"runtime": one}) for arm in sweep.arms)
    return AdapterSweep(sweep.run, sweep.profile, base, adapter)


def test_dagster_materializes_it(home: Path, swept: tuple[Path, list[str], Any]) -> None:
    shutil.copytree(swept[0] / "sweeps", home / "sweeps")
    asset = adapter_sweep_asset(lab_sweep())
    parents = [dg.AssetSpec(name) for name in asset.deps]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([*parents, asset.definition(lab_stage(home))], instance=instance)
        event = instance.get_latest_materialization_event(dg.AssetKey(NAME))
    assert result.success
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    assert metadata["episodes"].value == TASKS * 8
    assert "mean_env_reward" in str(metadata["arms"].value)
    published = json.loads((home / "sweeps" / ADAPTER / "_asset.json").read_text())
    assert set(published["facts"]["arms"]) == {BASE, ADAPTER}


def test_what_is_missing_is_named(world: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingUpstream, match="needs eval_environment"):
        sweep_pair(lab_run(tmp_path, NAME), lab_sweep())
    shutil.copytree(world / "eval_environment", tmp_path / "eval_environment")
    with pytest.raises(MissingUpstream, match=rf"needs {BASE}.*--select '\*{BASE}'"):
        sweep_pair(lab_run(tmp_path, NAME), lab_sweep())


# --- guard: wrong base ------------------------------------------------------------------------------------


def test_an_adapter_of_another_version_of_the_base_is_refused(home: Path) -> None:
    folder = AssetFolder(home, BASE)
    folder.publish("base-2", {"name": BASE, "repo": "geo-sandbox/base", "revision": "base-2"})
    with pytest.raises(
        WrongBaseServed, match=rf"trained on {BASE} at version base-1, and {BASE} is at base-2"
    ):
        sweep_pair(lab_run(home, NAME), lab_sweep())


@pytest.mark.parametrize(
    ("config", "facts", "words"),
    [
        (
            {"base_model_name_or_path": "base_model_2b"},
            {},
            "trained on base_model_2b and not on base_model_4b",
        ),
        ({}, {"base": "base_model_2b"}, "trained on base_model_2b and not on base_model_4b"),
        ({"revision": "base-0"}, {}, "at version base-0"),
        ({}, {"base_version": None}, "at version unknown"),
    ],
)
def test_either_record_of_another_base_is_enough(
    world: Path, tmp_path: Path, config: dict[str, Any], facts: dict[str, Any], words: str
) -> None:
    path = tmp_path / "adapter" / "adapter_config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"base_model_name_or_path": BASE, "revision": "base-1"} | config))
    given = {"base": BASE, "base_version": "base-1"} | facts
    base = AssetFolder(world, BASE).built()
    assert base is not None
    with pytest.raises(WrongBaseServed, match=f"{words}.*--select {ADAPTER}"):
        check_lineage(Pair(base, Published(ADAPTER, tmp_path, "v", given)))
    path.write_text(json.dumps({"base_model_name_or_path": BASE, "revision": "base-1"}))
    (path.parent / "adapter_model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    whole = {"base": BASE, "base_version": "base-1", "weights_sha256": weights_sha256(path.parent)}
    check_lineage(Pair(base, Published(ADAPTER, tmp_path, "v", whole)))
    other = whole | {"weights_sha256": "0" * 64}
    with pytest.raises(GeoError, match="not those that were published"):
        check_lineage(Pair(base, Published(ADAPTER, tmp_path, "v", other)))
    path.unlink()
    with pytest.raises(GeoError, match=r"adapter_config\.json cannot be read"):
        check_lineage(Pair(base, Published(ADAPTER, tmp_path, "v", given)))


CARDS = {BASE: Card(BASE, "Qwen/Qwen3.5-4B", None), ADAPTER: Card(ADAPTER, "/adapter", BASE)}


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ({BASE: CARDS[BASE]}, f"does not serve {ADAPTER}; it serves {BASE}"),
        ({}, f"does not serve {BASE} and {ADAPTER}; it serves nothing"),
        (CARDS | {ADAPTER: Card(ADAPTER, "/adapter", "base_model_2b")}, f"serves {ADAPTER} on base_model_2b"),
        (CARDS | {ADAPTER: Card(ADAPTER, "/adapter", None)}, f"serves {ADAPTER} on no base"),
        (CARDS | {BASE: Card(BASE, "x", "y")}, f"serves {BASE} as an adapter on y"),
        (CARDS | {BASE: Card(BASE, "Qwen/Qwen3.5-2B", None)}, f"serves Qwen/Qwen3.5-2B as {BASE}, not Qwen"),
    ],
)
def test_what_the_endpoint_lists_must_be_base_and_adapter(cards: dict[str, Card], words: str) -> None:
    with pytest.raises(WrongBaseServed, match=words):
        check_served(cards, BASE, ADAPTER, "Qwen/Qwen3.5-4B", "abc123", "http://gpu/v1")


def test_a_snapshot_of_the_recorded_revision_is_the_base() -> None:
    check_served(CARDS, BASE, ADAPTER, "Qwen/Qwen3.5-4B", "abc123", "http://gpu/v1")
    local = CARDS | {BASE: Card(BASE, "/hub/models--Qwen--Qwen3.5-4B/snapshots/abc123", None)}
    check_served(local, BASE, ADAPTER, "Qwen/Qwen3.5-4B", "abc123", "http://gpu/v1")


def test_an_adapter_that_changes_nothing_is_refused_and_nothing_is_played(home: Path) -> None:
    publish_adapter(home, "adapter-0", strength=0.0)
    with pytest.raises(
        AdapterChangesNothing, match=rf"answers {TASKS} openings as {ADAPTER} exactly as it does as"
    ):
        sweep_pair(lab_run(home, NAME), lab_sweep())
    assert not (home / "sweeps" / ADAPTER / BASE / "episodes.jsonl").exists()


def test_weights_that_do_not_fit_are_refused_before_anything_is_started(home: Path) -> None:
    config = home / ADAPTER / "adapter" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"r": 8}))
    fault = rf"{ADAPTER} does not fit {BASE}: its .* is \(4, 64\), where {BASE} takes \(8, 64\)"
    with pytest.raises(WrongBaseServed, match=fault):
        sweep_pair(lab_run(home, NAME), lab_sweep())


def test_what_was_played_while_the_adapter_changed_is_set_aside(home: Path) -> None:
    class Changing(list[str]):
        """A listener that publishes another adapter as soon as the base arm has been played."""

        def append(self, line: str) -> None:
            super().append(line)
            if line.startswith(f"{ADAPTER}: 0 of"):
                folder = AssetFolder(home, ADAPTER)
                folder.publish("adapter-2", {"base": BASE, "base_version": "base-1"})

    said = Changing()
    with pytest.raises(WrongBaseServed, match=f"{ADAPTER} was built anew while {ADAPTER} was swept"):
        sweep_pair(lab_run(home, NAME, said), lab_sweep())
    for arm in (BASE, ADAPTER):
        assert lines(home, arm) == []
        aside = next((home / "sweeps" / ADAPTER / arm / "quarantined").iterdir())
        assert len((aside / "episodes.jsonl").read_text().splitlines()) == TASKS * 4
    assert sum("were moved to" in line for line in said) == 2


# --- the probe against endpoints that misbehave ------------------------------------------------------------


@contextmanager
def endpoint(answer: Any) -> Iterator[ServedModels]:
    """A real HTTP server that answers by a function of path and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield ServedModels(f"http://127.0.0.1:{server.server_address[1]}/v1")
    finally:
        server.shutdown()
        server.server_close()


def spoken(text: str, logprob: float | None = None) -> dict[str, Any]:
    logprobs = None if logprob is None else {"content": [{"token": "x", "logprob": logprob}]}
    return {"choices": [{"message": {"content": text}, "logprobs": logprobs, "finish_reason": "stop"}]}


OPENINGS = [([{"role": "user", "content": str(number)}], []) for number in range(3)]


def test_a_difference_within_the_endpoints_own_noise_is_none() -> None:
    calls = iter(range(1000))

    def noisy(body: dict[str, Any]) -> dict[str, Any]:
        return spoken("same", -0.5 + 0.01 * (next(calls) % 2))

    with endpoint(noisy) as served, pytest.raises(AdapterChangesNothing):
        probe(served, BASE, ADAPTER, OPENINGS, {"temperature": 1.0})

    def clear(body: dict[str, Any]) -> dict[str, Any]:
        return spoken("same", -0.5 + 0.001 * (next(calls) % 2) + 0.2 * (body["model"] == ADAPTER))

    with endpoint(clear) as served:
        found = probe(served, BASE, ADAPTER, OPENINGS, {"temperature": 1.0})
    assert found.difference == pytest.approx(0.2, abs=0.01)
    assert found.noise == pytest.approx(0.001)


def test_without_logprobs_sampled_replies_decide() -> None:
    def sampled(body: dict[str, Any]) -> dict[str, Any]:
        tail = body["model"] if body["temperature"] and body["seed"] == 2 else ""
        return spoken(f"same {tail}")

    with endpoint(sampled) as served:
        assert probe(served, BASE, ADAPTER, OPENINGS, {"temperature": 1.0}).sampled_differ == 3
    with endpoint(lambda body: spoken("same")) as served, pytest.raises(AdapterChangesNothing):
        probe(served, BASE, ADAPTER, OPENINGS, {"temperature": 1.0})
