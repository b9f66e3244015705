"""Boards and paired gains from episodes whose figures can be worked out by hand."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports_lab import SLUGS, publish, publish_adapter, three_arms
from sweeps_lab import lab_run, lab_stage

from env_service.errors import GeoError
from env_service.scoring import board_reward
from geo_assets.config.arms import load_arms
from geo_assets.lineage.folders import MissingUpstream
from geo_assets.reports import charts
from geo_assets.reports.arm_data import UnequalComparison
from geo_assets.reports.board_table import board_rows_of, board_table_asset, board_text, make_board
from geo_assets.reports.paired_gains import make_gains, paired_gains_asset
from geo_assets.sweeps.adapter_arms import adapter_sweeps
from geo_assets.sweeps.episode_file import DamagedEpisodes
from geo_assets.sweeps.published import AlteredSweep
from geo_assets.sweeps.version import harness_version

NEAR = [[10.0, 30.0], [100.0, 300.0], [50.0, 900.0]]
FAR = [[5000.0, 5000.0], [9000.0, 9000.0], [700.0, 700.0]]
NEVER: list[list[float | None]] = [[None, None]] * 3


def publish_all(home: Path, **changes: Any) -> None:
    publish(home, "noisy_oracle", NEAR, cost=0.1)
    publish(home, "best_fixed_point", FAR, cost=0.05)
    publish(home, "never_guesses", NEVER, cost=0.12, **changes)


def board(home: Path) -> dict[str, dict[str, Any]]:
    run = lab_run(home, "board_table")
    make_board(run, three_arms())
    return {row["arm"]: row for row in board_rows_of(run.folder().path)}


def gains(home: Path) -> dict[tuple[str, str], dict[str, Any]]:
    run = lab_run(home, "paired_gains")
    make_gains(run, three_arms())
    rows = json.loads((run.folder().path / "paired_gains.json").read_text())
    return {(row["arm"], row["against"]): row for row in rows if row["relation"] == "base"}


def test_the_board_is_recomputed_from_raw_distance_and_cost(tmp_path: Path) -> None:
    publish_all(tmp_path)
    rows = board(tmp_path)
    oracle, fixed, never = (rows[slug] for slug in SLUGS)
    per_task = [sum(board_reward(d, 0.1) for d in row) / 2 for row in NEAR]
    assert oracle["mean_of_k"] == pytest.approx(sum(per_task) / 3, abs=1e-6)
    assert oracle["best_of_k"] == pytest.approx(sum(board_reward(min(r), 0.1) for r in NEAR) / 3, abs=1e-6)
    assert oracle["median_km"] == 75.0
    assert oracle["within200_pct"] == pytest.approx(100 * 4 / 6, abs=1e-6)
    assert oracle["within750_pct"] == pytest.approx(100 * 5 / 6, abs=1e-6)
    assert oracle["pass_at_1_200km"] == pytest.approx(4 / 6, abs=1e-6)
    assert oracle["pass_at_k_200km"] == 1.0
    assert oracle["ci95_high"] - oracle["mean_of_k"] == pytest.approx(
        1.96 * oracle["standard_error"], abs=2e-6
    )
    assert oracle["t95_high"] > oracle["ci95_high"]
    # At cost 0.05 the game reward is flat from 4,472 km on.
    assert fixed["env_floor_pct"] == pytest.approx(100 * 4 / 6, abs=1e-6)
    assert (never["mean_of_k"], never["median_km"], never["no_guess_pct"]) == (0.0, None, 100.0)
    assert (never["env_floor_pct"], never["forced_pct"]) == (0.0, 100.0)
    assert [rows[slug]["rank"] for slug in SLUGS] == [1, 2, 3]
    assert {row["curve"] for row in rows.values()} == {"board-v1"}


def test_the_files_agree_and_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    publish_all(tmp_path)
    board(tmp_path)
    folder = tmp_path / "board_table"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    rows = board_rows_of(folder)
    with (folder / "board.csv").open() as handle:
        assert [row["arm"] for row in csv.DictReader(handle)] == [row["arm"] for row in rows]
    assert pq.read_table(folder / "board.parquet").to_pylist() == rows
    assert first["board.png"][:8] == b"\x89PNG\r\n\x1a\n"
    board(tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_gains_are_paired_against_the_base_and_down_the_ladder(tmp_path: Path) -> None:
    publish_all(tmp_path)
    rows = gains(tmp_path)
    assert set(rows) == {("noisy_oracle", "best_fixed_point"), ("never_guesses", "best_fixed_point")}
    gain = rows["noisy_oracle", "best_fixed_point"]
    arms = board(tmp_path)
    assert gain["delta"] == pytest.approx(
        arms["noisy_oracle"]["mean_of_k"] - arms["best_fixed_point"]["mean_of_k"], abs=2e-6
    )
    assert gain["ci95_half_width"] == pytest.approx(1.96 * gain["standard_error"], abs=2e-6)
    assert gain["detectable"] == pytest.approx(2.80 * gain["standard_error"], abs=3e-6)
    assert gain["closer"] == gain["delta"]
    assert gain["guessed_at_all"] == 0.0
    assert (gain["better_on"], gain["tasks"], gain["closer_tasks"]) == (3, 3, 3)
    never = rows["never_guesses", "best_fixed_point"]
    assert never["guessed_at_all"] == never["delta"]
    assert (never["closer"], never["closer_tasks"]) == (None, 0)
    assert gain["p"] <= gain["p_holm"] <= 2 * gain["p"] + 1e-6
    ladder = json.loads((tmp_path / "paired_gains/paired_gains.json").read_text())[2:]
    assert [(row["relation"], row["arm"], row["against"]) for row in ladder] == [
        ("ladder", "noisy_oracle", "best_fixed_point"),
        ("ladder", "best_fixed_point", "never_guesses"),
    ]


def test_an_incomplete_arm_is_shown_as_such_and_never_paired(tmp_path: Path) -> None:
    publish_all(tmp_path, missing=[(1, 2)])
    rows = board(tmp_path)
    assert (rows["never_guesses"]["complete"], rows["never_guesses"]["episodes"]) == (False, 5)
    assert rows["never_guesses"]["mean_of_k"] is None
    assert "Never guesses (incomplete: 5 of 6)" in board_text(tmp_path / "board_table", 120)
    assert set(gains(tmp_path)) == {("noisy_oracle", "best_fixed_point")}
    made = make_gains(lab_run(tmp_path, "paired_gains"), three_arms())
    assert made.facts["skipped"][0] == (
        "never_guesses − best_fixed_point: never_guesses is incomplete (5 of 6 episodes)"
    )


@pytest.mark.parametrize(
    ("distances", "changes", "what"),
    [
        ([[None]] * 3, {}, r"numbers of passes \(k\)"),
        ([[None, None]] * 2, {}, "numbers of tasks"),
        (NEVER, {"env": "env-2"}, "environment versions"),
    ],
)
def test_unequal_arms_are_refused(
    tmp_path: Path, distances: list[list[None]], changes: dict[str, str], what: str
) -> None:
    publish_all(tmp_path)
    publish(tmp_path, "never_guesses", distances, **changes)
    for make, name in ((make_board, "board_table"), (make_gains, "paired_gains")):
        with pytest.raises(
            UnequalComparison, match=f"noisy_oracle and never_guesses: they have unequal {what}"
        ):
            make(lab_run(tmp_path, name), three_arms())


def test_an_account_that_disagrees_with_its_episodes_is_refused(tmp_path: Path) -> None:
    publish_all(tmp_path)
    path = tmp_path / "sweeps/noisy_oracle/episodes.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(AlteredSweep, match=r"noisy_oracle are not those that .*\(5 of 6 stand there\)"):
        board(tmp_path)
    path.unlink()
    with pytest.raises(AlteredSweep, match=r"holds no episodes\.jsonl.*geo sweep noisy_oracle"):
        board(tmp_path)


def alter(path: Path, number: int, *, turns: bool = False, **result: Any) -> None:
    """Change figures of one episode in its file, as an editor would."""
    lines = path.read_bytes().splitlines()
    body = json.loads(lines[number])
    body["result"].update(result)
    if turns:
        body["turns"][-1]["cost"] = body["result"]["cost"]
    lines[number] = json.dumps(body).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")


@pytest.mark.parametrize(
    ("changes", "error", "problem"),
    [
        ({"distance_km": 1.0}, DamagedEpisodes, r"episodes\.jsonl:4 says 1 km where .* lie 30 km apart"),
        ({"guess_lon": 1.0}, DamagedEpisodes, r"episodes\.jsonl:4 says 30 km"),
        ({"true_lon": 1.0}, DamagedEpisodes, r"episodes\.jsonl:4 says 30 km"),
        ({"guess_lon": 0.0, "distance_km": 0.0}, AlteredSweep, "not those that sweep_noisy_oracle published"),
        ({"country_hit": True}, DamagedEpisodes, "country hit"),
        ({"cost": 0.0}, DamagedEpisodes, "another cost than its last call"),
        ({"cost": 0.0, "turns": True}, AlteredSweep, "not those that sweep_noisy_oracle published"),
        ({"completion_tokens": 1}, AlteredSweep, "not those that sweep_noisy_oracle published"),
    ],
)
def test_an_altered_episode_reaches_no_table(
    tmp_path: Path, changes: dict[str, Any], error: type[GeoError], problem: str
) -> None:
    publish_all(tmp_path)
    alter(tmp_path / "sweeps/noisy_oracle/episodes.jsonl", 3, **changes)
    for make, name in ((make_board, "board_table"), (make_gains, "paired_gains")):
        with pytest.raises(error, match=problem) as caught:
            make(lab_run(tmp_path, name), three_arms())
        assert "geo sweep noisy_oracle" in str(caught.value)


def test_an_altered_outcome_table_reaches_no_table_and_is_made_again(tmp_path: Path) -> None:
    publish_all(tmp_path)
    before, path = board(tmp_path), tmp_path / "sweeps/noisy_oracle/outcomes.parquet"
    good, table = path.read_bytes(), pq.read_table(path)
    zero = pa.array([0.0] * len(table), pa.float64())
    at = table.column_names.index("distance_km")
    pq.write_table(table.set_column(at, table.schema.field(at), zero), path)
    assert path.read_bytes() != good
    assert board(tmp_path) == before
    assert path.read_bytes() == good


def test_a_torn_last_line_makes_an_arm_incomplete_and_no_more(tmp_path: Path) -> None:
    publish_all(tmp_path)
    path = tmp_path / "sweeps/noisy_oracle/episodes.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    said: list[str] = []
    make_board(lab_run(tmp_path, "board_table", said), three_arms())
    rows = {row["arm"]: row for row in board_rows_of(tmp_path / "board_table")}
    assert (rows["noisy_oracle"]["complete"], rows["noisy_oracle"]["mean_of_k"]) == (False, None)
    assert any("a torn last line of" in line and "geo sweep noisy_oracle" in line for line in said)
    # Behind the published episodes it is nothing at all: the start of a pass that was being added.
    path.write_bytes(whole + whole[:40])
    assert board(tmp_path)["noisy_oracle"]["complete"]


@pytest.mark.parametrize("field", ["tasks", "k", "environment_version", "harness_version"])
def test_a_marker_that_says_too_little_is_one_sentence(tmp_path: Path, field: str) -> None:
    publish_all(tmp_path)
    path = tmp_path / "sweeps/noisy_oracle/_asset.json"
    body = json.loads(path.read_text())
    for change in (lambda facts: facts.pop(field), lambda facts: facts.update({field: [3]})):
        broken = json.loads(json.dumps(body))
        change(broken["facts"])
        path.write_text(json.dumps(broken))
        with pytest.raises(AlteredSweep, match=rf"noisy_oracle/_asset\.json .*facts\.{field} is") as caught:
            board(tmp_path)
        assert "Run: geo sweep noisy_oracle" in caught.value.fix


def test_arms_of_two_harnesses_are_refused_and_those_of_an_older_one_named(tmp_path: Path) -> None:
    now = harness_version()
    publish(tmp_path, "noisy_oracle", NEAR, cost=0.1, harness=now)
    publish(tmp_path, "best_fixed_point", FAR, cost=0.05)
    publish(tmp_path, "never_guesses", NEVER, cost=0.12)
    for make, name in ((make_board, "board_table"), (make_gains, "paired_gains")):
        with pytest.raises(
            UnequalComparison, match="another than today's: best_fixed_point, never_guesses"
        ) as caught:
            make(lab_run(tmp_path, name), three_arms())
        assert caught.value.fix.endswith("geo sweep best_fixed_point && geo sweep never_guesses")
    publish(tmp_path, "noisy_oracle", NEAR, cost=0.1)
    assert {row["harness_version"] for row in board(tmp_path).values()} == {"h"}


def test_the_rows_of_a_picture_stand_under_their_headings() -> None:
    assert charts._places(3, []) == ([2, 1, 0], [])
    assert charts._places(3, [("a", 2), ("none", 0), ("b", 1)]) == ([3, 2, 0], [("a", 4), ("b", 1)])
    assert (charts._value(-0.2, True), charts._value(0.2, True), charts._value(0.2, False)) == (
        "−0.200",
        "+0.200",
        "0.200",
    )


def test_a_changed_sweep_changes_both_tables_and_an_equal_one_neither(tmp_path: Path) -> None:
    def versions() -> tuple[str, str]:
        made = (
            make_board(lab_run(tmp_path, "board_table"), three_arms()),
            make_gains(lab_run(tmp_path, "paired_gains"), three_arms()),
        )
        return made[0].data_version, made[1].data_version

    publish_all(tmp_path)
    first = versions()
    publish_all(tmp_path)
    assert versions() == first
    publish(tmp_path, "noisy_oracle", [[11.0, 30.0], *NEAR[1:]], cost=0.1)
    assert all(now != then for now, then in zip(versions(), first, strict=True))


def test_the_text_fits_eighty_columns(tmp_path: Path) -> None:
    publish_all(tmp_path)
    board(tmp_path)
    text = board_text(tmp_path / "board_table")
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"1 +Noisy oracle +0\.\d{3}", text)
    assert re.search(r"3 +Never guesses .*– +1\.0 +100 %", text)


def test_on_an_empty_home_it_names_the_missing_sweep_and_the_command(tmp_path: Path) -> None:
    for asset in (board_table_asset(lab_stage(tmp_path)), paired_gains_asset(lab_stage(tmp_path))):
        name = asset.names[0]
        expected = f"{name} needs sweep_noisy_oracle, which has not been built"
        with pytest.raises(MissingUpstream, match=rf"{expected}.*--select '\*sweep_noisy_oracle'"):
            asset.compute(lab_run(tmp_path, name))


def test_dagster_shows_tables_pictures_and_schema(tmp_path: Path) -> None:
    stage = lab_stage(tmp_path)
    for slug in sorted(
        {arm for board in load_arms("sandbox").boards.values() for arm in (board.base, *board.ladder)}
    ):
        publish(tmp_path, slug, NEVER if slug == "never_guesses" else FAR)
    for sweep in adapter_sweeps("sandbox"):
        publish_adapter(tmp_path, sweep, FAR, NEAR)
    assets = [board_table_asset(stage), paired_gains_asset(stage)]
    parents = [dg.AssetSpec(name) for name in assets[0].deps]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([*parents, *(a.definition(stage) for a in assets)], instance=instance)
        events = [instance.get_latest_materialization_event(dg.AssetKey(a.names[0])) for a in assets]
    assert result.success
    for event, label in zip(events, ("standard error", "standard error"), strict=True):
        assert event is not None
        assert event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        assert label in str(metadata["table"].value)
        assert "95 % interval" in str(metadata["table"].value)
        assert "data:image/png;base64," in str(metadata["picture_sandbox"].value)
        assert Path(str(metadata["picture_sandbox_path"].value)).is_file()
        assert "data:image/png;base64," in str(metadata["picture_adapter_run3"].value)
        assert "dagster/column_schema" in metadata
