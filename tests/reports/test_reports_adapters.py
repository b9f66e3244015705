"""Adapters in the tables: a board each, against the base arm of their own sweep and no other."""

import json
from pathlib import Path
from typing import Any

import pytest
from reports_lab import publish, publish_adapter, three_arms
from sweeps_lab import lab_run, lab_stage

from env_service.scoring import board_reward
from geo_assets.lineage.folders import AssetFolder, MissingUpstream
from geo_assets.reports.arm_data import UnequalComparison, adapter_board, board_data
from geo_assets.reports.board_table import board_rows_of, board_table_asset, board_text, make_board
from geo_assets.reports.paired_gains import MARKDOWN, make_gains, paired_gains_asset
from geo_assets.reports.tables import markdown
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweeps
from geo_assets.sweeps.published import AlteredSweep

FAR: list[list[float | None]] = [[5000.0, None], [9000.0, 9000.0], [700.0, 700.0]]
OTHER: list[list[float | None]] = [[4000.0, None], [800.0, 900.0], [70.0, 70.0]]
NEAR: list[list[float | None]] = [[10.0, 30.0], [100.0, 300.0], [50.0, 900.0]]
NEVER: list[list[float | None]] = [[None, None]] * 3


def two_sweeps() -> tuple[AdapterSweep, AdapterSweep]:
    first, second = adapter_sweeps("sandbox")[:2]
    return first, second


def publish_all(home: Path) -> None:
    publish(home, "noisy_oracle", NEAR, cost=0.1)
    publish(home, "best_fixed_point", FAR, cost=0.05)
    publish(home, "never_guesses", NEVER, cost=0.12)
    first, second = two_sweeps()
    publish_adapter(home, first, FAR, NEAR)
    publish_adapter(home, second, OTHER, NEAR)


def gains(home: Path) -> list[dict[str, Any]]:
    make_gains(lab_run(home, "paired_gains"), three_arms(), two_sweeps())
    rows: list[dict[str, Any]] = json.loads((home / "paired_gains" / "paired_gains.json").read_text())
    return rows


def test_every_adapter_has_a_board_with_the_base_arm_of_its_own_sweep(tmp_path: Path) -> None:
    publish_all(tmp_path)
    made = make_board(lab_run(tmp_path, "board_table"), three_arms(), two_sweeps())
    rows = board_rows_of(tmp_path / "board_table")
    assert [(row["board"], row["arm"], row["rank"], row["kind"]) for row in rows[3:]] == [
        ("adapter_run3", "adapter_run3", 1, "trained"),
        ("adapter_run3", "base_model_4b", 2, "base"),
        ("adapter_run3_seed1", "adapter_run3_seed1", 1, "trained"),
        ("adapter_run3_seed1", "base_model_4b", 2, "base"),
    ]
    # The same base arm was played twice, and each board shows its own sweep's.
    assert rows[4]["mean_of_k"] < rows[6]["mean_of_k"]
    assert made.facts["mean_of_k_adapter_run3_base_model_4b"] == rows[4]["mean_of_k"]
    assert made.facts["mean_of_k_adapter_run3_seed1_base_model_4b"] == rows[6]["mean_of_k"]
    assert (tmp_path / "board_table" / "board_adapter_run3.png").is_file()
    text = board_text(tmp_path / "board_table")
    assert text.index("\nadapter_run3\n") < text.index("Adapter run3 ") < text.index("\nadapter_run3_seed1\n")
    assert max(map(len, text.splitlines())) <= 80


def test_the_gain_is_split_and_each_part_has_its_own_interval(tmp_path: Path) -> None:
    publish_all(tmp_path)
    row = next(row for row in gains(tmp_path) if row["board"] == "adapter_run3")
    base = [[board_reward(km, 0.1) for km in task] for task in FAR]
    adapter = [[board_reward(km, 0.05) for km in task] for task in NEAR]
    delta = [sum(a) / 2 - sum(b) / 2 for a, b in zip(adapter, base, strict=True)]
    had = [
        [reward for reward, km in zip(b, task, strict=True) if km is not None]
        for b, task in zip(base, FAR, strict=True)
    ]
    closer = [sum(a) / 2 - sum(b) / len(b) for a, b in zip(adapter, had, strict=True)]
    rest = [d - c for d, c in zip(delta, closer, strict=True)]
    for name, values in (("closer", closer), ("guessed_at_all", rest)):
        mean = sum(values) / 3
        se = (sum((value - mean) ** 2 for value in values) / 2 / 3) ** 0.5
        assert row[name] == pytest.approx(mean, abs=2e-6)
        assert row[f"{name}_se"] == pytest.approx(se, abs=2e-6)
        assert row[f"{name}_ci95_low"] == pytest.approx(mean - 1.96 * se, abs=3e-6)
        assert row[f"{name}_ci95_high"] == pytest.approx(mean + 1.96 * se, abs=3e-6)
    assert row["delta"] == pytest.approx(row["closer"] + row["guessed_at_all"], abs=3e-6)
    shown = markdown([row], MARKDOWN)
    for heading in (
        "guessed closer: standard error",
        "guessed closer: 95 % interval",
        "guessed at all: 95 % interval",
    ):
        assert heading in shown
    assert f"{row['closer_ci95_low']:+.4f} to {row['closer_ci95_high']:+.4f}" in shown


def test_an_adapter_is_paired_once_and_only_within_its_sweep(tmp_path: Path) -> None:
    publish_all(tmp_path)
    rows = [row for row in gains(tmp_path) if row["board"].startswith("adapter")]
    assert [(row["relation"], row["arm"], row["against"]) for row in rows] == [
        ("base", "adapter_run3", "base_model_4b"),
        ("base", "adapter_run3_seed1", "base_model_4b"),
    ]
    assert rows[0]["against_version"] != rows[1]["against_version"]
    assert rows[0]["delta"] > rows[1]["delta"]


def test_a_pair_without_a_common_guess_has_no_closer_part(tmp_path: Path) -> None:
    publish_all(tmp_path)
    publish_adapter(tmp_path, two_sweeps()[0], NEVER, NEAR)
    row = next(row for row in gains(tmp_path) if row["board"] == "adapter_run3")
    assert (row["closer"], row["closer_se"], row["closer_ci95_low"], row["closer_ci95_high"]) == (None,) * 4
    assert row["guessed_at_all"] == row["delta"]
    assert " – |" in markdown([row], MARKDOWN)


def test_boards_of_other_harnesses_stand_side_by_side_and_never_within_one(tmp_path: Path) -> None:
    publish_all(tmp_path)
    first = two_sweeps()[0]
    publish_adapter(tmp_path, first, FAR, NEAR, harnesses=("older", "older"))
    make_board(lab_run(tmp_path, "board_table"), three_arms(), two_sweeps())
    publish_adapter(tmp_path, first, FAR, NEAR, harnesses=("older", "h"))
    with pytest.raises(UnequalComparison, match=r"Board adapter_run3 cannot.*again: geo sweep adapter_run3$"):
        make_board(lab_run(tmp_path, "board_table"), three_arms(), two_sweeps())


def test_what_is_missing_or_altered_names_the_sweep_to_run(tmp_path: Path) -> None:
    first = two_sweeps()[0]
    board = adapter_board(first)
    with pytest.raises(MissingUpstream, match=r"needs sweep_adapter_run3.*--select '\*sweep_adapter_run3'"):
        board_data(lab_run(tmp_path, "board_table"), board)
    publish_adapter(tmp_path, first, FAR, NEAR)
    data = board_data(lab_run(tmp_path, "board_table"), board)
    assert {slug: arm.swept_as for slug, arm in data.items()} == dict.fromkeys(data, "adapter_run3")
    episodes = tmp_path / "sweeps/adapter_run3/base_model_4b/episodes.jsonl"
    whole = episodes.read_bytes()
    episodes.write_bytes(b"".join(whole.splitlines(keepends=True)[1:]))
    with pytest.raises(AlteredSweep, match=r"or run: geo sweep adapter_run3 \("):
        board_data(lab_run(tmp_path, "board_table"), board)
    episodes.unlink()
    with pytest.raises(AlteredSweep, match=r"holds no episodes.jsonl.*geo sweep adapter_run3 "):
        board_data(lab_run(tmp_path, "board_table"), board)
    AssetFolder(tmp_path, "sweeps/adapter_run3").publish("v", {})
    with pytest.raises(AlteredSweep, match=r"does not say what adapter_run3 played.*geo sweep adapter_run3"):
        board_data(lab_run(tmp_path, "board_table"), board)


def test_an_incomplete_arm_is_shown_and_not_paired(tmp_path: Path) -> None:
    publish_all(tmp_path)
    first = two_sweeps()[0]
    data = board_data(lab_run(tmp_path, "board_table"), adapter_board(first))
    torn = tmp_path / "sweeps/adapter_run3/adapter_run3/episodes.jsonl"
    torn.write_bytes(torn.read_bytes()[:-40])
    again = board_data(lab_run(tmp_path, "board_table"), adapter_board(first))
    assert data["adapter_run3"].complete
    assert not again["adapter_run3"].complete
    with pytest.raises(UnequalComparison, match=r"5 of 6 episodes.*geo sweep adapter_run3 --resume"):
        again["adapter_run3"].matrix(again["adapter_run3"].rewards)
    make_gains(lab_run(tmp_path, "paired_gains"), three_arms(), two_sweeps())
    make_board(lab_run(tmp_path, "board_table"), three_arms(), two_sweeps())
    rows = {(row["board"], row["arm"]): row for row in board_rows_of(tmp_path / "board_table")}
    assert rows["adapter_run3", "adapter_run3"]["rank"] is None


def test_the_tables_have_the_adapters_sweeps_among_their_parents(tmp_path: Path) -> None:
    stage = lab_stage(tmp_path)
    for asset in (board_table_asset(stage), paired_gains_asset(stage)):
        assert asset.deps[-2:] == ("sweep_adapter_run3", "sweep_adapter_run3_seed1")
        assert len(set(asset.deps)) == len(asset.deps)
