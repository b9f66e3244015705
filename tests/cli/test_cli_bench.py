"""`geo bench`: what a row says, what is printed, and that JSON keeps to its schema. No time is asserted."""

import json
import subprocess
import sys
import types
from pathlib import Path

import jsonschema
import pytest

from geo_assets.cli._bench_rows import Pair, described, measure, stage_shares
from geo_assets.cli.bench import AREAS, rows_of

REPOSITORY = Path(__file__).resolve().parents[2]


def geo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `geo`."""
    command = [sys.executable, "-m", "geo_assets.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120, check=False)


def test_json_keeps_to_its_schema_and_progress_goes_elsewhere() -> None:
    done = geo("bench", "env", "--only", "of a", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    jsonschema.validate(said, json.loads((REPOSITORY / "docs/schemas/bench.json").read_text()))
    rows = {row["what"]: row for row in said["rows"]}
    assert set(rows) == {"country of a point", "nearest of all places"}
    for row in rows.values():
        assert row["ratio"] == pytest.approx(row["reference_ms"] / row["ours_ms"])
        assert row["met"] is (row["ratio"] >= row["goal"])
    assert "[1/2] country of a point" in done.stderr and "[2/2]" in done.stderr


def test_wrong_usage() -> None:
    unknown, nothing = geo("bench", "weather"), geo("bench", "--only", "no such row")
    assert unknown.returncode == 2 and "env, data, report" in unknown.stderr
    assert nothing.returncode == 1 and nothing.stderr.startswith("error: ")
    assert "Traceback" not in unknown.stderr + nothing.stderr


def test_every_row_of_every_area_has_a_name_of_its_own() -> None:
    rows = list(rows_of(AREAS))
    names = [what for _, what, _ in rows]
    assert len(set(names)) == len(names)
    assert {"env", "data"} <= {area for area, _, _ in rows}
    assert sum(area == "env" for area, _, _ in rows) == 6


def test_a_row_counts_for_one_thing_and_is_closed_whatever_happens() -> None:
    calls: list[str] = []
    pair = Pair(
        lambda: sum(range(20_000)),
        lambda: calls.append("ours"),
        7,
        "adding",
        1.0,
        plain_count=10,
        floor=lambda: None,
        floor_what="nothing",
        stages=lambda: {"all": 1.0},
        close=lambda: calls.append("closed"),
    )
    row = measure("env", "a row", lambda: pair)
    assert calls == ["ours"] * 8 + ["closed"]
    assert row.ratio == row.reference_ms / row.ours_ms and row.stages == {"all": 1.0}
    text = "\n".join(described(row))
    assert "a row" in text and "against: adding" in text and "all 100%" in text and "(goal 1x" in text

    def fails() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        measure("env", "x", lambda: pair._replace(ours=fails))
    assert calls[-1] == "closed" and calls.count("closed") == 2


def test_a_plain_triple_makes_a_row_without_a_goal() -> None:
    row = measure("report", "x", lambda: Pair(lambda: sum(range(999)), lambda: None, 1))
    assert row.goal is None and row.met is None and "goal" not in "".join(described(row))


def test_shares_of_time_are_each_stages_own() -> None:
    work = types.SimpleNamespace()
    work.inner = lambda: sum(range(200_000))
    work.outer = lambda: [work.inner(), sum(range(200_000))]
    before = work.inner, work.outer
    parts = [("outer", work, "outer"), ("inner", work, "inner"), ("gone", work, "no such name")]
    shares = stage_shares(lambda: work.outer(), parts, 5)
    assert (work.inner, work.outer) == before
    assert shares["gone"] == 0 and sum(shares.values()) == pytest.approx(1.0)
    # Alone, `outer` would take all of it.
    assert 0 < shares["inner"] < 1 and 0 < shares["outer"] < 1
