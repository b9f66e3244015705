"""First sweep, first look, slices and findings from episodes whose figures can be worked out by hand."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from reports_lab import publish, publish_adapter, three_arms
from sweeps_lab import lab_arm, lab_run, make_tasks

from env_service.scoring import game_reward
from env_service.tasks import write_tasks
from geo_assets.config.arms import Arms, BoardSpec
from geo_assets.lineage.assets import Check, Made
from geo_assets.lineage.folders import AssetFolder
from geo_assets.reports import _findings, findings
from geo_assets.reports._boards import RECOMPUTED
from geo_assets.reports._played import Played
from geo_assets.reports._slices import DROP, FEW, HARVEST, KEEP, Scores, cells_of, slice_rows, slicings
from geo_assets.reports.findings import make_findings, published_board
from geo_assets.reports.first_look import billions_of, card_for, choose, make_first_look
from geo_assets.reports.first_sweep_table import make_first_sweep
from geo_assets.reports.slice_table import make_slices
from geo_assets.sweeps.adapter_arms import adapter_sweeps

NEAR = [[10.0, 30.0], [100.0, 300.0], [50.0, 900.0]]
FAR = [[5000.0, 5000.0], [9000.0, 8000.0], [700.0, 700.0]]
NEVER: list[list[float | None]] = [[None, None]] * 3


def publish_all(home: Path) -> None:
    publish(home, "noisy_oracle", NEAR, cost=0.1)
    publish(home, "best_fixed_point", FAR, cost=0.05)
    publish(home, "never_guesses", NEVER, cost=0.12)


def rows_of(home: Path, asset: str, table: str) -> list[dict[str, Any]]:
    folder = home / asset
    rows: list[dict[str, Any]] = json.loads((folder / f"{table}.json").read_text())
    with (folder / f"{table}.csv").open() as handle:
        assert len(list(csv.DictReader(handle))) == len(rows)
    text = (folder / f"{table}.txt").read_text()
    assert 0 < max(map(len, text.splitlines())) <= 80
    return rows


def recomputed(made: Made) -> Check:
    return next(check for check in made.checks if check.name == RECOMPUTED)


def test_the_first_sweep_counts_the_first_pass_alone(tmp_path: Path) -> None:
    publish_all(tmp_path)
    made = make_first_sweep(lab_run(tmp_path, "first_sweep_table"), three_arms())
    rows = rows_of(tmp_path, "first_sweep_table", "first_sweep")
    assert [row["arm"] for row in rows] == ["noisy_oracle", "best_fixed_point", "never_guesses"]
    oracle, fixed, never = rows
    assert oracle["env_reward"] == pytest.approx(
        np.mean([game_reward(d, 0.1) for d in (10, 100, 50)]), abs=1e-6
    )
    assert (oracle["within25"], oracle["within200"], oracle["parsed"], oracle["median_km"]) == (1, 3, 3, 50.0)
    assert (never["parsed"], never["forced"], never["env_reward"]) == (0, 3, 0.0)
    assert fixed["env_reward"] == pytest.approx(game_reward(700.0, 0.05) / 3, abs=1e-6)  # the others are flat
    assert recomputed(made).passed and recomputed(made).metadata["episodes"] == 18


def test_a_first_pass_that_is_whole_counts_though_later_ones_are_not(tmp_path: Path) -> None:
    publish_all(tmp_path)
    publish(tmp_path, "noisy_oracle", NEAR, cost=0.1, missing=[(1, 2)])
    publish(tmp_path, "best_fixed_point", FAR, cost=0.05, missing=[(0, 2)])
    make_first_sweep(lab_run(tmp_path, "first_sweep_table"), three_arms())
    rows = {row["arm"]: row for row in rows_of(tmp_path, "first_sweep_table", "first_sweep")}
    assert rows["noisy_oracle"]["rank"] == 1
    assert (rows["best_fixed_point"]["rank"], rows["best_fixed_point"]["env_reward"]) == (None, None)


def test_what_a_table_was_made_from_is_held_against_the_outcome_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from geo_assets.reports import _boards

    publish_all(tmp_path)
    held = _boards.read_outcomes

    def one_bit_off(path: Path) -> Any:
        found = held(path)
        at = found.table.schema.get_field_index("cost")
        off = pa.array(np.nextafter(found.table["cost"].to_numpy(), 1.0))
        return type(found)(found.table.set_column(at, found.table.schema.field(at), off))

    assert recomputed(make_first_sweep(lab_run(tmp_path, "first_sweep_table"), three_arms())).passed
    monkeypatch.setattr(_boards, "read_outcomes", one_bit_off)
    check = recomputed(make_first_sweep(lab_run(tmp_path, "first_sweep_table"), three_arms()))
    assert not check.passed
    assert check.metadata["differing"] == 3


def test_first_look_has_headroom_ranks_and_one_suggestion(tmp_path: Path) -> None:
    publish_all(tmp_path)
    sweep = adapter_sweeps("sandbox")[0]
    publish_adapter(tmp_path, sweep, [[5000.0, 20.0], [9000.0, 10.0], [700.0, 700.0]], NEAR)
    made = make_first_look(lab_run(tmp_path, "first_look"), three_arms(), [sweep])
    rows = {row["arm"]: row for row in rows_of(tmp_path, "first_look", "first_look")}
    assert sweep.adapter.slug not in rows  # what was trained is no candidate
    assert rows["never_guesses"]["headroom"] == 0.0
    base = rows[sweep.base.slug]
    assert base["headroom"] == pytest.approx(base["best_of_k"] - base["mean_of_k"], abs=2e-6)
    assert (base["open_weights"], base["billions"], base["suggested"]) == (True, 4.0, False)
    assert base["why"].startswith("it hardly uses its tools")  # one call an episode, the guess
    assert rows["noisy_oracle"]["open_weights"] is False
    assert made.facts["suggested"] == "none"
    assert recomputed(made).passed


@pytest.mark.parametrize(
    ("model", "billions"),
    [("Qwen/Qwen3.5-4B", 4.0), ("Qwen/Qwen3.5-0.8B", 0.8), ("Qwen/Qwen3.5-397B-A17B:novita", 397.0),
     ("Qwen/Qwen3-VL-2B-Instruct", 2.0), ("base_model_4b", 4.0), ("claude-sonnet-5", None)],
)  # fmt: skip
def test_sizes_are_read_from_names(model: str, billions: float | None) -> None:
    assert billions_of(model) == billions


def test_the_suggestion_follows_its_rule() -> None:
    cards = [card_for(size) for size in (0.8, 4.0, 27.0, 122.0)]
    assert cards == ["24 GB", "A100 80 GB", "4 x A100 80 GB", None]
    common = {"open_weights": True, "card": "24 GB", "tool_calls": 5.0}
    rows = [
        {"arm": "small", "headroom": 0.18, "billions": 4.0, **common},
        {"arm": "large", "headroom": 0.20, "billions": 9.0, **common},
        {"arm": "closed", "headroom": 0.30, "billions": None, **common, "open_weights": False},
        {"arm": "lazy", "headroom": 0.30, "billions": 2.0, **common, "tool_calls": 0.0},
    ]
    choose(rows)
    assert [row["suggested"] for row in rows] == [True, False, False, False]
    assert rows[2]["why"] == "its weights cannot be had"


def test_slices_tell_what_to_harvest_and_what_to_drop() -> None:
    # Two arms over 12 tasks: easy; hard, and one arm can; hard for all; and one task alone.
    names = ["easy"] * 4 + ["learnable"] * 4 + ["hopeless"] * 3 + ["hopeless"] + ["single"]
    first = [0.9, 0.91, 0.9, 0.89, 0.05, 0.06, 0.05, 0.04, 0.02, 0.03, 0.02, 0.02, 0.5]
    second = [0.9, 0.9, 0.92, 0.9, 0.6, 0.61, 0.6, 0.59, 0.02, 0.02, 0.03, 0.02, 0.5]
    km = np.full((2, 13, 1), 100.0)
    km[0, 0, 0] = np.nan
    rows = {row["slice"]: row for row in slice_rows({"x": names}, Scores(np.array([first, second]), km))}
    assert [rows[name]["verdict"] for name in ("easy", "learnable", "hopeless", "single")] == [
        KEEP, HARVEST, DROP, FEW,
    ]  # fmt: skip
    assert rows["learnable"]["reward"] == pytest.approx((0.05 + 0.6) / 2)
    assert rows["learnable"]["best_arm_reward"] == pytest.approx(0.6)
    assert (rows["easy"]["episodes"], rows["easy"]["median_km"]) == (8, 100.0)


def test_tasks_are_sliced_by_what_is_known_of_them() -> None:
    tasks = make_tasks(6)
    start = tasks[0].start
    ways = slicings(tasks, cells_of(np.array([start.lat] * 3), np.array([start.lon] * 3)))
    assert set(ways) == {"continent", "country", "density", "quality", "year"}
    assert ways["density"][0] == "2 to 5"
    assert ways["country"] == [task.country for task in tasks]
    assert set(ways["year"]) == {"2024"}
    assert set(ways["quality"]) == {"unknown"}
    assert set(ways["continent"]) <= {"Africa", "Asia", "Europe", "North America", "South America", "Oceania"}


def publish_world(home: Path, adapters: Any = ()) -> None:
    """Splits, candidates and trained adapters as far as reports read them."""
    import pyarrow.parquet as pq

    from geo_assets.data.candidate_sequences import _schema

    publish_all(home)
    tasks = make_tasks(3)
    for name in ("eval_split", "train_split"):
        folder = AssetFolder(home, name)
        write_tasks(folder.file("tasks.jsonl"), tasks)
        folder.publish(name, {"tasks": 3, "shared_sequences": 0, "closest_train_eval_km": 2.5})
    candidates = AssetFolder(home, "candidate_sequences")
    empty = _schema().empty_table()
    pq.write_table(empty, candidates.file("candidates.parquet"))
    candidates.publish("c", {})
    for sweep in adapters:
        publish_adapter(home, sweep, FAR, NEAR)
        folder = AssetFolder(home, sweep.slug)
        steps = [{"step": 1, "group_tasks": [0, 2]}, {"step": 2, "group_tasks": [0]}]
        folder.file("metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
        folder.publish(sweep.slug, {"steps": 2})


def test_the_slice_table_covers_every_task_in_every_way(tmp_path: Path) -> None:
    publish_world(tmp_path)
    made = make_slices(lab_run(tmp_path, "slice_table"), three_arms())
    rows = rows_of(tmp_path, "slice_table", "slices")
    for way in ("continent", "country", "density", "quality", "year"):
        assert sum(row["tasks"] for row in rows if row["by"] == way) == 3
        assert {row["arms"] for row in rows if row["by"] == way} == {3}
    assert made.facts["harvest_more"] == made.facts["drop"] == "none"  # three tasks say nothing
    assert recomputed(made).passed


def two_boards(*more: str) -> Arms:
    """The lab's board, and a second one that shares its base."""
    arms = three_arms()
    ladder = ("best_fixed_point", *more)
    board = BoardSpec(label="Second", profiles=("sandbox",), base="best_fixed_point", ladder=ladder)
    return Arms("sandbox", (*arms.arms, *map(lab_arm, more)), {**arms.boards, "second": board})


def test_an_arm_on_two_boards_counts_once(tmp_path: Path) -> None:
    publish_world(tmp_path)
    alone = make_slices(lab_run(tmp_path, "slice_table"), three_arms())
    made = make_slices(lab_run(tmp_path, "slice_table"), two_boards())
    assert (made.facts["arms"], made.data_version) == (3, alone.data_version)
    assert (made.facts["protocol"], made.facts["left_out"]) == ("tools", "none")


@pytest.mark.parametrize(
    ("slug", "changes", "why"),
    [
        ("true_capital", {"env": "env-2"}, "another environment"),
        ("true_capital", {"harness": "other"}, "another harness"),
        ("true_capital_json", {}, "another protocol"),
    ],
)
def test_boards_that_cannot_be_mixed_are_not_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slug: str, changes: dict[str, str], why: str
) -> None:
    monkeypatch.setenv("GEO_SHARED", str(tmp_path / "nowhere"))
    publish_world(tmp_path)
    alone = make_slices(lab_run(tmp_path, "slice_table"), three_arms())
    publish(tmp_path, slug, NEAR, **changes)
    # A board of one arm breaks no rule of its own.
    board = BoardSpec(label="Other", profiles=("sandbox",), base=slug, ladder=(slug,))
    arms = Arms("sandbox", (*three_arms().arms, lab_arm(slug)), {"other": board, **three_arms().boards})
    made = make_slices(lab_run(tmp_path, "slice_table"), arms)
    assert made.facts["left_out"] == f"{slug} ({why})"
    assert (made.facts["arms"], made.data_version) == (3, alone.data_version)
    rows_of(tmp_path, "slice_table", "slices")
    assert f"Left out: {slug} ({why})" in (tmp_path / "slice_table/slices.txt").read_text()
    found = make_findings(lab_run(tmp_path, "findings"), arms)
    assert found.facts["left_out"] == f"{slug} ({why})"


def test_findings_say_their_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEO_SHARED", str(tmp_path / "nowhere"))
    sweep = adapter_sweeps("sandbox")[0]
    publish_world(tmp_path, [sweep])
    made = make_findings(lab_run(tmp_path, "findings"), three_arms(), [sweep])
    rows = {(row["finding"], row["about"]): row for row in rows_of(tmp_path, "findings", "findings")}
    assert rows["tasks_seen_pct", sweep.slug]["figure"] == pytest.approx(200 / 3)
    assert rows["times_a_task_was_seen", sweep.slug]["figure"] == 2.0
    assert 7000 < rows["random_land_mean_km", "eval tasks"]["figure"] < 11000
    # Beyond the flat point, 5,000, 8,000 and 9,000 km are all worth 0 under the game's curve, at both costs.
    assert rows["outcomes_in_one_reward", "game"]["figure"] == 6.0
    assert rows["outcomes_in_one_reward", "board-v1"]["figure"] == 1.0
    assert rows["repeated_coordinates", "lab/never_guesses"]["figure"] is None
    assert not any("published" in about for _, about in rows)
    assert recomputed(made).passed


def test_coordinates_that_come_back_for_other_tasks_are_counted() -> None:
    columns = {
        "guess_lat": np.array([41.9028, 41.90281, 60.0, 1.0, np.nan]),
        "guess_lon": np.array([12.4964, 12.4964, 24.0, 1.0, np.nan]),
        "task_index": np.array([0, 1, 2, 3, 4]),
        "distance_km": np.array([1.0, 1.0, 1.0, 1.0, np.nan]),
    }
    row = _findings.repeated_rows(Played(tasks=5, k=1, complete=True, columns=columns), "arm")[0]
    assert (row["figure"], row["n"]) == (50.0, 4)
    assert "41.9028/12.4964 2 times" in row["says"]


def test_the_published_board_goes_through_the_same_code() -> None:
    path = published_board()
    if not path.exists():
        pytest.skip(f"{path} is not here: published figures not compared")
    rows = {(row["finding"], row["about"]): row for row in _findings.published_rows(path)}
    untouched = "published board, untouched models"
    assert round(rows["r_turns", untouched]["figure"], 4) == -0.7501
    assert round(rows["r_env_floor", untouched]["figure"], 4) == -0.9649
    said = rows["standard_error_printed_as_interval", "run1-ckpt1000"]
    assert said["figure"] == 0.0137
    assert "±0.0137" in said["says"] and "which is the standard error" in said["says"]
    assert "±0.0269" in said["says"]
    assert path.name == findings.PUBLISHED
