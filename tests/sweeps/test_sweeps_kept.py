"""Servers of a sweep's own that die in the middle: back once, with nothing of it in the record."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sweeps_lab import build_environment, lab_arm, lab_run

from env_service.errors import GeoError
from geo_assets.sweeps.factory import sweep_arm
from geo_assets.sweeps.kept import KeptServer, ServerDied
from geo_assets.sweeps.records import EpisodeRecord, Timing
from geo_assets.sweeps.serving import far_end, policy_options
from geo_assets.sweeps.store import SweepStore
from geo_assets.sweeps.version import POLICY_SERVER

COMMAND = "geo sweep noisy_oracle"


def kill(server: KeptServer) -> int:
    """Kill a server as the kernel does when memory is short. Returns its process id."""
    pid = server.pid
    os.kill(pid, signal.SIGKILL)
    return pid


@contextmanager
def policies(config: Path) -> Iterator[KeptServer]:
    options = policy_options(config)
    with KeptServer(POLICY_SERVER, options, name="policies", command=COMMAND, config=config) as server:
        yield server


def test_a_dead_server_comes_back_at_its_address_once(tmp_path: Path) -> None:
    config = build_environment(tmp_path, 1)
    with policies(config) as server:
        url = server.url
        assert not server.mended(0)
        pid = kill(server)
        assert server.mended(0)
        assert (server.url, server.generation) == (url, 1)
        assert server.pid != pid
        # Whoever failed under the first one plays again; so does nobody under the second, which lives.
        assert server.mended(0)
        assert not server.mended(1)
        kill(server)
        with pytest.raises(ServerDied, match=f"ended twice.*by signal 9.*Nothing is lost.*{COMMAND}"):
            server.mended(1)


def test_it_does_not_come_back_as_another(tmp_path: Path) -> None:
    config = build_environment(tmp_path, 1)
    with policies(config) as server:
        config.write_text(config.read_text().replace("lab-1", "lab-2"))
        kill(server)
        with pytest.raises(ServerDied, match="what it served was built anew meanwhile"):
            server.mended(0)


@pytest.mark.parametrize("victims", [("environment service",), ("sandbox policy server",)])
def test_a_sweep_whose_server_is_killed_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victims: tuple[str, ...]
) -> None:
    arm = lab_arm("noisy_oracle", k=2)
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    for home in (calm, rough):
        build_environment(home, 5)
    expected = sweep_arm(lab_run(calm, "sweep_noisy_oracle"), arm)
    servers = watched(monkeypatch)
    file = rough / "sweeps/noisy_oracle/episodes.jsonl"

    def kill_victims() -> None:
        for server in servers:
            if server.name in victims:
                kill(server)

    at_the_second(monkeypatch, kill_victims)
    made = sweep_arm(lab_run(rough, "sweep_noisy_oracle"), arm)
    assert {server.name for server in servers if server.generation} == set(victims)
    assert made.data_version == expected.data_version
    assert file.read_bytes() == (calm / "sweeps/noisy_oracle/episodes.jsonl").read_bytes()
    assert not (rough / "sweeps/noisy_oracle/unscored.jsonl").exists()


def test_a_sweep_whose_server_dies_for_good_keeps_what_was_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, arm = build_environment(tmp_path, 5), lab_arm("noisy_oracle", k=2)
    servers = watched(monkeypatch)
    file = tmp_path / "sweeps/noisy_oracle/episodes.jsonl"

    def ruin() -> None:
        config.write_text(config.read_text() + " ")
        kill(next(server for server in servers if server.name == "environment service"))

    at_the_second(monkeypatch, ruin)
    with pytest.raises(ServerDied, match=r"Nothing is lost.*geo sweep noisy_oracle"):
        sweep_arm(lab_run(tmp_path, "sweep_noisy_oracle"), arm)
    assert lines_of(file) >= 2
    said: list[str] = []
    assert sweep_arm(lab_run(tmp_path, "sweep_noisy_oracle", said), arm).facts["complete"]
    assert "0 of 10 episodes are there" not in said[0]


@pytest.mark.parametrize("key", ["sk-ключ", "sk-\u00fc", "sk-1 2", "sk-1\n", "\tsk", "sk-\x7f"])
def test_a_key_that_is_none_names_its_variable_and_never_itself(key: str) -> None:
    arm = lab_arm("noisy_oracle", provider="openai")
    with pytest.raises(GeoError, match="OPENAI_API_KEY holds a space") as caught:
        far_end(arm, {"OPENAI_API_KEY": key})
    assert key not in str(caught.value)
    assert far_end(arm, {"OPENAI_API_KEY": "sk-1_2"})[1] is not None


def watched(monkeypatch: pytest.MonkeyPatch) -> list[KeptServer]:
    """The servers that a sweep starts, real ones, as they come."""
    servers: list[KeptServer] = []
    entered = KeptServer.__enter__

    def enter(server: KeptServer) -> KeptServer:
        servers.append(server)
        return entered(server)

    monkeypatch.setattr(KeptServer, "__enter__", enter)
    return servers


def at_the_second(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act once, as the second episode is being kept: others are in play then, and more are to come."""
    append, kept = SweepStore.append, list[tuple[int, int]]()

    def then_act(store: SweepStore, record: EpisodeRecord, timing: Timing) -> None:
        append(store, record, timing)
        kept.append(record.key)
        if len(kept) == 2:
            act()

    monkeypatch.setattr(SweepStore, "append", then_act)


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
