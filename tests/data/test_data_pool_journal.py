"""The pool's journal: altered lines are refused, and what was answered is kept for as long as it holds."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from data_lab import Chain, compute

from env_service.canonical import sha256_file
from geo_assets.config.settings import PoolSpec
from geo_assets.data import task_pool as pool_module
from geo_assets.data._harvest import harvest
from geo_assets.data._journal import DamagedLine, sealed, unsealed
from geo_assets.data.task_pool import task_pool
from geo_assets.lineage.assets import Stage


def _journal(stage: Stage) -> Path:
    return stage.settings.home / "task_pool" / "journal.jsonl"


def _task_line(journal: Path) -> tuple[int, dict[str, Any]]:
    for number, line in enumerate(journal.read_bytes().split(b"\n")[1:-1], 2):
        entry = unsealed(line)
        if entry["tasks"]:
            return number, entry
    raise AssertionError("no task in the journal")


def _no_task(entry: dict[str, Any]) -> bytes:
    return sealed({**entry, "tasks": [7, *entry["tasks"]]})


def _lat_of(value: Any) -> Callable[[dict[str, Any]], bytes]:
    def line(entry: dict[str, Any]) -> bytes:
        entry["tasks"][0]["frames"][0]["lat"] = value
        return sealed(entry)

    return line


POISON: list[Callable[[dict[str, Any]], bytes]] = [
    lambda entry: b'{"foo":1}\n',
    lambda entry: sealed({"foo": 1}),
    lambda entry: sealed({**entry, "sequence_id": "another"}),
    lambda entry: sealed({**entry, "frames": 7}),
    lambda entry: sealed(entry).replace(b'"kept":', b'"kept":1'),  # plausible, but not what was written
    lambda entry: sealed(entry).replace(b'"lat":', b'"lat":1'),
    _no_task,
    _lat_of("abc"),
    _lat_of(91.0),
]


@pytest.mark.parametrize("poison", POISON)
def test_a_poisoned_journal_is_refused_by_line(
    poison: Callable[[dict[str, Any]], bytes], chain: Chain, home_of: Callable[..., Stage]
) -> None:
    stage = home_of("candidate_sequences", "task_pool")
    journal = _journal(stage)
    number, entry = _task_line(journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[: number - 1], poison(entry), *lines[number:]]))
    with pytest.raises(DamagedLine, match=rf"journal\.jsonl:{number} is not what.*Remove that line"):
        compute(task_pool, stage)
    journal.write_bytes(b"".join([*lines[: number - 1], *lines[number:]]))
    compute(task_pool, stage)
    assert sha256_file(journal.with_name("tasks.jsonl")) == sha256_file(
        chain.folder("task_pool") / "tasks.jsonl"
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The candidates that the source was asked for."""
    names: list[str] = []

    def counting(client: Any, candidate: Any, rules: Any) -> Any:
        names.append(candidate.sequence_id)
        return harvest(client, candidate, rules)

    monkeypatch.setattr(pool_module, "harvest", counting)
    return names


def _with_pool(stage: Stage, **changes: Any) -> Stage:
    pool: PoolSpec = replace(stage.specs.pool, **changes)
    return replace(stage, specs=replace(stage.specs, pool=pool))


@pytest.mark.parametrize("change", [{"target": 9}, {"per_country": 3}, {"per_creator": 9}, {"seed": 8}])
def test_other_wishes_ask_only_for_what_was_never_asked(
    change: dict[str, int], tmp_path: Path, home_of: Callable[..., Stage], asked: list[str]
) -> None:
    stage = home_of("candidate_sequences", "task_pool")
    there = {unsealed(line)["sequence_id"] for line in _journal(stage).read_bytes().split(b"\n")[1:-1]}
    more = _with_pool(stage, **change)
    made = compute(task_pool, more)["task_pool"]
    assert not there & set(asked)
    anew = _copied(stage, tmp_path / "anew", "candidate_sequences")
    assert compute(task_pool, _with_pool(anew, **change))["task_pool"].data_version == made.data_version
    asked.clear()
    compute(task_pool, stage)
    assert asked == [], "and back again costs nothing"


def _copied(stage: Stage, home: Path, name: str) -> Stage:
    """The same stage in another home, with one folder of the first."""
    shutil.copytree(stage.settings.home / name, home / name)
    return replace(stage, settings=replace(stage.settings, home=home))


def test_other_rules_ask_anew_and_keep_the_old_answers(
    home_of: Callable[..., Stage], asked: list[str]
) -> None:
    stage = home_of("candidate_sequences", "task_pool")
    before = _journal(stage).read_bytes()
    shorter = _with_pool(stage, window_frames=2)
    compute(task_pool, shorter)
    assert asked
    (kept,) = (stage.settings.home / "task_pool" / "superseded").iterdir()
    assert kept.read_bytes() == before
    asked.clear()
    compute(task_pool, stage)
    assert asked == [] and _journal(stage).read_bytes() == before


def test_a_candidate_that_states_something_else_is_asked_again(
    home_of: Callable[..., Stage], asked: list[str]
) -> None:
    stage = home_of("candidate_sequences", "task_pool")
    journal = _journal(stage)
    number, entry = _task_line(journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    moved = sealed({**entry, "asked_as": "another anchor"})
    journal.write_bytes(b"".join([*lines[: number - 1], moved, *lines[number:]]))
    compute(task_pool, stage)
    assert asked == [entry["sequence_id"]]
    compute(task_pool, stage)
    assert asked == [entry["sequence_id"]], "the newer answer holds"
