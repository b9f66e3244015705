"""`geo report --episodes`: the promised JSON, and each wrong comparison refused with its reason."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from episodes_lab import SCHEMA, of, record, whole, why, write
from reports_lab import publish, publish_adapter
from scipy import stats
from sweeps_lab import lab_arm

from env_service.errors import GeoError
from env_service.scoring import board_reward
from geo_assets.cli.report import _of_episodes
from geo_assets.config.arms import load_arms
from geo_assets.lineage.folders import AssetFolder
from geo_assets.reports._report_text import printable, report_csv, report_text
from geo_assets.reports.episode_report import episode_report
from geo_assets.sweeps.adapter_arms import adapter_sweeps
from geo_assets.sweeps.episode_file import read_episodes
from geo_assets.sweeps.outcomes import Source, outcome_table, write_sidecar

NEAR = [[10.0, 30.0], [100.0, 300.0], [50.0, 900.0]]
FAR = [[5000.0, 5000.0], [9000.0, None], [700.0, 700.0]]

PERFECT = {"outcome": "guess", "guess_lat": 0.0, "guess_lon": 0.0, "cost": 0.0}


def test_figures_are_the_definitions_and_not_rounded(tmp_path: Path) -> None:
    publish(tmp_path, "noisy_oracle", NEAR, cost=0.1)
    publish(tmp_path, "best_fixed_point", FAR, cost=0.05)
    found = of(tmp_path / "sweeps", baseline="best_fixed_point")
    assert {row["what"] for row in found["refused"]} == {
        "stored rewards of noisy_oracle", "stored rewards of best_fixed_point",
    }  # fmt: skip
    oracle, fixed = found["arms"]
    rewards = np.array([[board_reward(km, 0.1) for km in row] for row in NEAR])
    assert (oracle["arm"], oracle["tasks"], oracle["k"], oracle["complete"]) == ("noisy_oracle", 3, 2, True)
    assert oracle["mean_of_k"] == pytest.approx(rewards.mean(), abs=1e-9)
    assert oracle["best_of_k"] == pytest.approx(rewards.max(axis=1).mean(), abs=1e-9)
    assert oracle["pass_at"] == {"25": pytest.approx(1 / 3), "200": 1.0, "750": 1.0}
    assert oracle["within_200_pct"] == pytest.approx(100 * 4 / 6)
    assert oracle["provider_errors"] == 0
    assert (fixed["no_guess_pct"], fixed["floored_pct"]) == (pytest.approx(100 / 6), pytest.approx(50.0))
    pair = found["paired"][0]
    base = np.array([[0.0 if km is None else board_reward(km, 0.05) for km in row] for row in FAR])
    delta = rewards.mean(axis=1) - base.mean(axis=1)
    se = delta.std(ddof=1) / 3**0.5
    assert (pair["arm"], pair["baseline"], pair["n"], pair["better_on"]) == (
        "noisy_oracle",
        "best_fixed_point",
        3,
        3,
    )
    assert (pair["delta"], pair["se"]) == (pytest.approx(delta.mean()), pytest.approx(se))
    assert pair["ci95"] == [pytest.approx(delta.mean() - 1.96 * se), pytest.approx(delta.mean() + 1.96 * se)]
    reach = stats.t.ppf(0.975, 2) * se
    assert pair["t95"] == [pytest.approx(delta.mean() - reach), pytest.approx(delta.mean() + reach)]
    assert pair["p_holm"] == pytest.approx(2 * stats.norm.sf(delta.mean() / se))
    answered = np.array([np.mean([r for r, km in zip(b, t, strict=True) if km is not None])
                         for b, t in zip(base, FAR, strict=True)])  # fmt: skip
    closer = rewards.mean(axis=1) - answered
    assert pair["from_closer"] == {
        "delta": pytest.approx(closer.mean()), "se": pytest.approx(closer.std(ddof=1) / 3**0.5), "n": 3,
    }  # fmt: skip
    assert pair["from_guessing"]["delta"] == pytest.approx((delta - closer).mean())


def test_the_published_form_is_reported_and_what_it_does_not_say_is_null(tmp_path: Path) -> None:
    folder = write(tmp_path / "raw", whole("Some-Model-4B", k=1) + whole("other", k=1, forced=True))
    found = of(folder, baseline="other")
    assert [row["arm"] for row in found["arms"]] == ["Some-Model-4B", "other"]
    first = found["arms"][0]
    assert (first["turns"], first["forced_pct"], first["tokens_out"], first["provider_errors"]) == (None,) * 4
    assert found["arms"][1]["forced_pct"] == 100.0
    assert found["paired"][0]["delta"] == 0.0


def test_unequal_k_and_unequal_tasks_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, whole("base") + whole("more", k=3) + whole("wider", tasks=4))
    folder_b = write(tmp_path / "b", [record("shifted", t + 1, s) for t in range(3) for s in range(2)])
    found = of(folder, baseline="base")
    assert folder_b.is_dir()
    assert found["paired"] == []
    assert why(found, "more − base") == "unequal k (3, 2)"
    assert "unequal task sets (4 and 3 tasks, 3 in both)" in why(found, "wider − base")
    assert "unequal task sets (3 and 3 tasks, 2 in both)" in why(found, "shifted − base")


def test_incomplete_and_non_integer_k(tmp_path: Path) -> None:
    folder = write(tmp_path, whole("base") + whole("short")[:-1])
    found = of(folder, baseline="base")
    row = next(row for row in found["arms"] if row["arm"] == "short")
    assert (row["complete"], row["mean_of_k"], row["pass_at"]["25"]) == (False, None, None)
    assert "incomplete: 5 of 6 episodes" in why(found, "arm short")
    assert "k = 5 / 3 = 1.667 is no integer" in why(found, "arm short")
    assert "is incomplete" in why(found, "short − base")
    assert found["paired"] == []


def test_what_a_sweep_asked_for_decides_what_is_whole(tmp_path: Path) -> None:
    publish(tmp_path, "noisy_oracle", NEAR, missing=[(1, 0), (1, 1), (1, 2)])
    log = tmp_path / "sweeps/noisy_oracle/unscored.jsonl"
    log.write_text('{"task_index":0}\n{"task_index":1}\n')
    found = of(tmp_path / "sweeps")
    # Three episodes of three tasks would be a whole pass, had two passes not been asked for.
    assert [(row["complete"], row["k"], row["provider_errors"]) for row in found["arms"]] == [(False, 2, 2)]
    assert "3 of 6" in why(found, "arm noisy_oracle")


def test_attempts_that_count_from_one_are_as_many_as_they_are(tmp_path: Path) -> None:
    counted = [{**row, "sample": row["sample"] + 1} for row in whole("from one")]
    found = of(write(tmp_path, counted + whole("from nought")), baseline="from nought")
    assert [(row["k"], row["complete"]) for row in found["arms"]] == [(2, True)] * 2
    assert [row["delta"] for row in found["paired"]] == [0.0]


def test_a_lying_table_beside_other_peoples_lines_is_not_looked_at(tmp_path: Path) -> None:
    publish(tmp_path, "noisy_oracle", NEAR)
    folder = tmp_path / "sweeps/noisy_oracle"
    honest = of(folder)["arms"]
    records = read_episodes(folder / "episodes.jsonl").values()
    better = [r.model_copy(update={"result": r.result.model_copy(update=PERFECT)}) for r in records]
    write_sidecar(folder / "episodes.jsonl", Source.of(folder / "episodes.jsonl"), outcome_table(better))
    assert of(folder, trusted=tmp_path)["arms"][0]["mean_of_k"] == 1.0  # our own home vouches for itself
    assert of(folder)["arms"] == of(folder, trusted=tmp_path / "other")["arms"] == honest
    (tmp_path / "home").mkdir()
    (tmp_path / "home/link").symlink_to(folder)
    assert of(tmp_path / "home/link", trusted=tmp_path / "home")["arms"] == honest


def test_a_sweep_whose_endpoint_was_not_confirmed_is_refused(tmp_path: Path) -> None:
    publish(tmp_path, "noisy_oracle", NEAR)
    (tmp_path / "sweeps/noisy_oracle/unconfirmed.json").write_text("{}")
    found = of(tmp_path / "sweeps")
    assert found["arms"] == []
    assert "not confirmed after it played" in why(found, "arm noisy_oracle")
    assert "geo sweep noisy_oracle" in why(found, "arm noisy_oracle")


@pytest.mark.parametrize("environment", ["stands", "is another", "is gone"])
def test_a_killed_sweep_is_never_whole(tmp_path: Path, environment: str) -> None:
    publish(tmp_path, "noisy_oracle", [[10.0]] * 3)
    folder = tmp_path / "sweeps/noisy_oracle"
    (folder / "_asset.json").unlink()
    identity = {"environment": "env-1", "arm": lab_arm("noisy_oracle").identity(), "harness": "h"}
    (folder / "identity.json").write_text(json.dumps(identity))
    if environment != "is gone":
        version = "env-1" if environment == "stands" else "env-2"
        AssetFolder(tmp_path, "eval_environment").publish(version, {"tasks": 60})
    found = of(folder)
    assert [row["complete"] for row in found["arms"]] == [False]
    k = next(arm.k for arm in load_arms("sandbox").arms if arm.slug == "noisy_oracle")
    said = f"3 of {60 * k} episodes" if environment == "stands" else "its sweep did not end"
    assert said in why(found, "arm noisy_oracle")


def test_a_provider_error_is_never_scored(tmp_path: Path) -> None:
    spoilt = {"arm": "a", "task_index": 2, "sample": 1, "error": "HTTP 503"}
    found = of(write(tmp_path, [*whole("a")[:-1], spoilt]))
    assert [(row["complete"], row["provider_errors"]) for row in found["arms"]] == [(False, 1)]


def test_duplicates_are_refused_within_a_file_and_across_files(tmp_path: Path) -> None:
    within = write(tmp_path / "a", [*whole("twice"), record("twice", 0, 0)])
    found = of(within)
    assert found["arms"] == []
    assert "duplicate (arm, task, sample): 1 of its" in why(found, "arm twice")
    one, other = write(tmp_path / "b", whole("same")), write(tmp_path / "c", whole("same"))
    found = of(one, other)
    assert found["arms"] == []
    assert str(one) in why(found, "arm same") and str(other) in why(found, "arm same")


def test_passes_of_two_files_compose(tmp_path: Path) -> None:
    first = write(tmp_path / "a", [record("x", t, 0) for t in range(3)])
    second = write(tmp_path / "b", [record("x", t, 1) for t in range(3)])
    found = of(first, second)
    assert [(row["k"], row["complete"]) for row in found["arms"]] == [(2, True)]


def test_mixed_protocols_are_refused(tmp_path: Path) -> None:
    mixed = [*whole("mixed", protocol="tools")[:-1], record("mixed", 2, 1, protocol="json")]
    folder = write(tmp_path, whole("base", protocol="tools") + whole("j", protocol="json") + mixed)
    found = of(folder, baseline="base")
    assert {row["arm"] for row in found["arms"]} == {"base", "j"}
    assert why(found, "arm mixed") == "mixed protocols within one arm: json, tools"
    assert why(found, "j − base") == "unequal protocols (json, tools)"
    assert why(of(folder), "one ranking of these arms") == "mixed protocols (json, tools)"


def test_a_stored_reward_of_another_curve_reaches_no_table(tmp_path: Path) -> None:
    honest, wild = whole("honest"), whole("wild", reward=0.99, curve="train-v2")
    found = of(write(tmp_path, honest + wild), baseline="honest")
    by_name = {row["arm"]: row for row in found["arms"]}
    assert by_name["wild"]["mean_of_k"] == by_name["honest"]["mean_of_k"] < 0.99
    assert "under another curve (train-v2)" in why(found, "stored rewards of wild")
    alone = [{"arm": "only", "task_index": 0, "reward": 0.99, "curve": "board-v1"}]
    found = of(write(tmp_path / "only", alone))
    assert found["arms"] == []
    assert any("rewards are recomputed, never read" in row["why"] for row in found["refused"])


def test_a_line_that_is_no_episode_is_said_and_nobody_is_whole_beside_it(tmp_path: Path) -> None:
    folder = write(tmp_path, whole("a"))
    path = folder / "episodes.jsonl"
    path.write_text(path.read_text() + "nonsense\n" * 5)
    found = of(folder)
    assert [row["complete"] for row in found["arms"]] == [False]
    assert why(found, f"{path}:7") == "is no JSON object"
    assert why(found, str(path)) == "2 more lines are no episodes"


def test_a_pair_across_sweeps_is_refused_and_one_within_is_not(tmp_path: Path) -> None:
    first, second = adapter_sweeps("sandbox")[:2]
    publish_adapter(tmp_path, first, FAR, NEAR)
    publish_adapter(tmp_path, second, FAR, NEAR)
    found = of(tmp_path / "sweeps" / first.slug)
    assert [(row["arm"], row["baseline"]) for row in found["paired"]] == [
        (first.adapter.slug, first.base.slug)
    ]
    found = of(tmp_path / "sweeps", baseline=first.adapter.slug)
    assert "different sweeps" in why(found, f"{second.adapter.slug} − {first.adapter.slug}")
    # The base arm was played in both sweeps: which of the two is meant, nothing says.
    assert "duplicate (arm, task, sample)" in why(found, f"arm {first.base.slug}")


def test_what_a_sweep_set_aside_is_no_part_of_it(tmp_path: Path) -> None:
    publish(tmp_path, "noisy_oracle", NEAR)
    folder = tmp_path / "sweeps/noisy_oracle"
    for name in ("superseded", "quarantined"):
        write(folder / name / "20260101", whole("noisy_oracle"))
    found = of(folder)
    assert [row["what"] for row in found["refused"]] == ["stored rewards of noisy_oracle"]
    assert [row["complete"] for row in found["arms"]] == [True]


def test_unknown_names_are_one_sentence(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", whole("a"))
    with pytest.raises(GeoError, match=r"No arm 'b' has episodes there\. The arms found are: a"):
        episode_report([folder], baseline="b")
    with pytest.raises(GeoError, match=r"'train-v2'.*board-v1, game"):
        episode_report([folder], curve="train-v2")
    with pytest.raises(GeoError, match=r"holds no episodes\.jsonl"):
        episode_report([tmp_path / "nothing"])


def test_one_file_is_read_and_a_folder_of_that_name_is_not(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", whole("a"))
    (tmp_path / "b/episodes.jsonl").mkdir(parents=True)
    assert [row["arm"] for row in of(folder / "episodes.jsonl")["arms"]] == ["a"]
    assert [row["arm"] for row in of(tmp_path)["arms"]] == ["a"]
    with pytest.raises(GeoError, match=r"holds no episodes\.jsonl"):
        episode_report([tmp_path / "b"])


def test_what_one_line_holds_spoils_no_other_arm(tmp_path: Path) -> None:
    wild = [record("half \ud800", 0, 0), record("dear", 0, 0, cost=1e308)]
    found = of(write(tmp_path, whole("good") + wild))
    assert [row["arm"] for row in found["arms"]] == ["good"]
    whys = " ".join(row["why"] for row in found["refused"])
    assert "no Unicode" in whys and "a cost of 1e+308" in whys


def test_a_name_is_only_shown(tmp_path: Path) -> None:
    name = "=cmd|'/c calc'!A1\x1b[2J\n[/bold]\x9b"
    found = of(write(tmp_path, whole(name)))
    text = report_text(found, 200)
    assert "\x1b" not in text and "\x9b" not in text
    assert "=cmd|'/c calc'!A1\\u001b[2J\\u000a[/bold]\\u009b" in text
    row = next(csv.DictReader(report_csv(found["arms"]).splitlines()))
    assert row["arm"].startswith("'=cmd") and "\x1b" not in row["arm"]
    assert printable("a\nb", "\n") == "a\nb"


def test_csv_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", whole("a"))
    for target in ("/proc/x", str(folder / "episodes.jsonl")):
        with pytest.raises(GeoError, match=r"No CSV files can be written to .*--csv FOLDER"):
            _of_episodes([folder], "", "board-v1", Path(target), True)


def test_the_command_prints_json_text_and_csv(tmp_path: Path) -> None:
    publish(tmp_path, "noisy_oracle", NEAR)
    publish(tmp_path, "best_fixed_point", FAR)
    folders = [str(tmp_path / "sweeps" / name) for name in ("noisy_oracle", "best_fixed_point")]
    for name in ("outcomes.parquet", "outcomes.json"):  # made again on demand
        (Path(folders[0]) / name).unlink()
    geo = [sys.executable, "-m", "geo_assets.cli", "report", "--episodes", *folders]
    more = ["--baseline", "best_fixed_point", "--csv", str(tmp_path / "csv"), "--json"]
    done = subprocess.run([*geo, *more], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    assert [row["arm"] for row in found["paired"]] == ["noisy_oracle"]
    with (tmp_path / "csv/paired.csv").open() as handle:
        row = next(csv.DictReader(handle))
    assert float(row["ci95_low"]) == found["paired"][0]["ci95"][0]
    shutil.rmtree(folders[0])
    done = subprocess.run(geo, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "holds no episodes.jsonl" in done.stderr and "Traceback" not in done.stderr
