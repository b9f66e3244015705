"""Nothing that was tried is left out of what an arm is held against, and no figure is of a part of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from episodes_lab import of, record, whole, why, write
from reports_lab import episode
from sweeps_lab import lab_arm

from env_service.scoring import board_reward


def spoilt(arm: str, task: int, sample: int) -> dict[str, Any]:
    return {"arm": arm, "task_index": task, "sample": sample, "error": "timeout"}


def without(arm: str, task: int | None = None, sample: int | None = None) -> list[dict[str, Any]]:
    """An arm with a task, or a pass, of which every play was spoilt."""
    return [
        spoilt(arm, row["task_index"], row["sample"])
        if row["task_index"] == task or row["sample"] == sample
        else row
        for row in whole(arm, tasks=5, k=4)
    ]


def log(folder: Path, *lines: dict[str, Any]) -> None:
    (folder / "unscored.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(("task", "sample"), [(3, None), (4, None), (None, 0), (None, 2), (None, 3)])
def test_a_task_or_a_pass_that_nobody_answered_is_missed(
    tmp_path: Path, task: int | None, sample: int | None
) -> None:
    rows = without("m", task, sample) + without("base", task, sample)
    found = of(write(tmp_path, rows), baseline="base")
    scored = 16 if sample is None else 15
    assert [(row["tasks"], row["k"], row["complete"]) for row in found["arms"]] == [(5, 4, False)] * 2
    assert [row["mean_of_k"] for row in found["arms"]] == [None, None]
    assert f"incomplete: {scored} of 20 episodes (5 tasks × 4 passes)" in why(found, "arm m")
    assert found["paired"] == []
    assert "is incomplete" in why(found, "m − base")


def test_what_was_spoilt_and_then_scored_is_whole(tmp_path: Path) -> None:
    folder = write(tmp_path, [spoilt("m", 2, 1), *whole("m")])
    log(folder, {"task_index": 0, "sample": 0, "fault": "timeout"})
    found = of(folder)
    assert [(row["complete"], row["provider_errors"]) for row in found["arms"]] == [(True, 2)]


@pytest.mark.parametrize("key", [(2, 0), (2, 1), (0, 2)])
def test_a_log_of_spoilt_plays_is_read_where_nothing_says_what_was_wanted(
    tmp_path: Path, key: tuple[int, int]
) -> None:
    arm, folder = lab_arm("noisy_oracle", k=2), tmp_path / "copied"
    folder.mkdir()
    lines = [episode(arm, task, sample, 100.0, 0.1, "e", "h").line() for sample in (0, 1) for task in (0, 1)]
    (folder / "episodes.jsonl").write_bytes(b"".join(lines))
    assert [row["complete"] for row in of(folder)["arms"]] == [True]
    log(folder, {"task_index": key[0], "sample": key[1], "fault": "timeout"})
    found = of(folder)
    tasks, k = (3, 2) if key[0] == 2 else (2, 3)
    assert [(row["tasks"], row["k"], row["complete"]) for row in found["arms"]] == [(tasks, k, False)]
    assert "incomplete: 4 of 6 episodes" in why(found, "arm noisy_oracle")


def test_a_log_counts_for_the_arm_that_it_names_and_else_for_all(tmp_path: Path) -> None:
    folder = write(tmp_path, whole("a") + whole("b"))
    log(folder, {"arm": "a", "task_index": 9, "sample": 0})
    assert {row["arm"]: row["complete"] for row in of(folder)["arms"]} == {"a": False, "b": True}
    log(folder, {"task_index": 9, "sample": 0})
    assert [row["complete"] for row in of(folder)["arms"]] == [False, False]
    log(folder, {"fault": "timeout"})
    found = of(folder)
    assert [row["complete"] for row in found["arms"]] == [False, False]
    assert "unscored.jsonl:1 names no task" in why(found, "arm a")


@pytest.mark.parametrize(
    ("last", "column"),
    [
        ({"no_guess": True, "cost": 0.1}, "country_pct"),
        ({"distance_km": 1.0, "cost": 0.1, "country_correct": True}, "country_pct"),
        ({"distance_km": 1.0, "cost": 0.1, "forced": True}, "forced_pct"),
        ({"distance_km": 1.0, "cost": 0.1, "fabricated": False}, "fabricated_pct"),
        ({"distance_km": 1.0, "cost": 0.1, "turns": 5}, "turns"),
        ({"distance_km": 1.0, "cost": 0.1, "output_tokens": 5}, "tokens_out"),
    ],
)
def test_a_figure_is_of_all_episodes_or_unknown(tmp_path: Path, last: dict[str, Any], column: str) -> None:
    rows = [record("m", task, 0) for task in range(9)] + [{"arm": "m", "task_index": 9, "sample": 0, **last}]
    arm = of(write(tmp_path, rows))["arms"][0]
    assert (arm["complete"], arm[column]) == (True, None)


def test_a_play_without_a_guess_is_no_hit_where_the_others_tell_theirs(tmp_path: Path) -> None:
    rows = [record("m", task, 0, country_correct=True) for task in range(3)]
    rows.append({"arm": "m", "task_index": 3, "sample": 0, "no_guess": True, "cost": 0.1})
    assert of(write(tmp_path, rows))["arms"][0]["country_pct"] == 75.0


def test_an_unknown_cost_is_not_nought(tmp_path: Path) -> None:
    rows = [record("m", 0, 0, cost=0.4), {"arm": "m", "task_index": 1, "sample": 0, "no_guess": True}]
    arm = of(write(tmp_path, rows))["arms"][0]
    assert (arm["cost"], arm["complete"]) == (None, True)
    assert arm["mean_of_k"] == pytest.approx(board_reward(100.0, 0.4) / 2)
    assert arm["floored_pct"] == of(tmp_path, curve="game")["arms"][0]["floored_pct"] == 0.0


def ids(arm: str, names: list[str], km: float = 100.0, **more: Any) -> list[dict[str, Any]]:
    return [
        {"arm": arm, "task_id": name, "attempt": 1, "distance_km": km + 100.0 * at, "cost": 0.1, **more}
        for at, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    "names", [["train-00", "eval-00", "train-01"], ["a3f", "b9c0", "77ee"], ["t9", "t10", "t8"]]
)
def test_tasks_are_known_by_their_ids_whatever_these_end_in(tmp_path: Path, names: list[str]) -> None:
    # The other arm's records stand in another order, and number the same tasks otherwise.
    numbered = [row | {"task_index": 7 - at} for at, row in enumerate(ids("numbered", names, 300.0))]
    rows = ids("base", names) + ids("m", names)[::-1] + numbered
    found = of(write(tmp_path, rows), baseline="base")
    assert [(row["tasks"], row["k"], row["complete"]) for row in found["arms"]] == [(3, 1, True)] * 3
    pairs = {row["arm"]: row for row in found["paired"]}
    assert (pairs["m"]["delta"], pairs["m"]["se"]) == (0.0, 0.0)
    gains = [board_reward(300.0 + 100.0 * at, 0.1) - board_reward(100.0 + 100.0 * at, 0.1) for at in range(3)]
    assert pairs["numbered"]["delta"] == pytest.approx(sum(gains) / 3)
    spread = sum((gain - sum(gains) / 3) ** 2 for gain in gains) / 2
    assert pairs["numbered"]["se"] == pytest.approx((spread / 3) ** 0.5)


def test_tasks_of_other_ids_are_never_paired_by_their_place(tmp_path: Path) -> None:
    found = of(write(tmp_path, ids("base", ["a", "b", "c"]) + ids("m", ["a", "c", "d"])), baseline="base")
    assert found["paired"] == []
    assert why(found, "m − base") == "unequal task sets (3 and 3 tasks, 2 in both)"


def test_passes_in_two_files_meet_by_id(tmp_path: Path) -> None:
    first = write(tmp_path / "a", ids("m", ["a", "b", "c"]))
    second = write(tmp_path / "b", [row | {"attempt": 2} for row in ids("m", ["c", "b"])])
    found = of(first, second)
    assert [(row["tasks"], row["k"], row["complete"]) for row in found["arms"]] == [(3, 2, False)]
    assert "5 of 6" in why(found, "arm m")
    write(tmp_path / "b", [row | {"attempt": 2} for row in ids("m", ["c", "b", "a"])])
    assert [row["complete"] for row in of(first, second)["arms"]] == [True]
    assert [row["pass_at"]["200"] for row in of(first, second)["arms"]] == [1.0]


def test_a_task_that_its_log_alone_names_by_id_is_missed(tmp_path: Path) -> None:
    folder = write(tmp_path, ids("m", ["a", "b"]))
    log(folder, {"task_id": "c", "attempt": 1})
    assert [(row["tasks"], row["complete"]) for row in of(folder)["arms"]] == [(3, False)]
    log(folder, {"task_id": "b", "attempt": 1})
    assert [(row["tasks"], row["complete"]) for row in of(folder)["arms"]] == [(2, True)]


def test_a_table_that_was_read_in_another_way_is_made_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "home", ids("m", ["train-00", "eval-00"]))
    assert of(folder, trusted=tmp_path / "home")["arms"] == of(folder)["arms"]
    stamp = json.loads((folder / "outcomes.json").read_text())
    said: list[str] = []
    of(folder, trusted=tmp_path / "home", say=said.append)
    assert said == []
    del stamp["published_form"]
    (folder / "outcomes.json").write_text(json.dumps(stamp))
    of(folder, trusted=tmp_path / "home", say=said.append)
    assert ["made again" in words for words in said] == [True]
