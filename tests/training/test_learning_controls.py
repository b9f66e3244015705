"""Controls and shuffled pictures against loops and enumerations, and against a game that is really played."""

import itertools
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sweeps"))
sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))

from reports_lab import episode
from sweeps_lab import (
    Fault,
    Lab,
    build_environment,
    completion,
    faulty,
    lab_arm,
    lab_run,
    lab_stage,
    make_tasks,
)

from env_service.canonical import canonical_json, sha256_hex
from env_service.errors import GeoError
from env_service.geodesy import destination, haversine_km
from env_service.geography import geography
from env_service.scoring import BOARD_V1, board_reward, training_score
from env_service.tasks import Frame, Task, read_tasks, write_tasks
from geo_assets.lineage.assets import Made
from geo_assets.lineage.folders import AssetFolder, MissingUpstream
from geo_assets.reports import statistics
from geo_assets.reports._controls import Control, Spots, best_fixed_point, capital, controls, spots_of
from geo_assets.reports._learning import SweptRun, learning
from geo_assets.reports._learning_gains import CLAIMS, before_after, claims_of, gain_rows
from geo_assets.reports._learning_text import learning_rows
from geo_assets.reports._shuffled import Exchange, Resamples, exchange, per_task
from geo_assets.reports.arm_data import ArmData, UnequalComparison
from geo_assets.reports.learning_controls import (
    check_specs,
    learning_controls_asset,
    learning_text,
    make_controls,
)
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweeps
from geo_assets.sweeps.factory import facts_of, sweep_version
from geo_assets.sweeps.harness import Swept
from geo_assets.sweeps.names import folder_name, member_folder
from geo_assets.sweeps.outcomes import outcome_table, write_outcomes
from geo_assets.sweeps.serving import served_environment
from resources.sandbox import policies

Guess = tuple[float, float] | None
LABELS = {"run3": "Run 3", "run3_seed1": "Run 3, second seed"}


def arm_of(slug: str, tasks: list[Task], guesses: list[list[Guess]], cost: float = 0.03) -> ArmData:
    """An arm by its guesses: one row per task, one column per pass."""
    earth, k = geography(), len(guesses[0])
    rows: list[dict[str, Any]] = []
    for sample, task in itertools.product(range(k), tasks):
        guess, true = guesses[task.task_index][sample], task.start
        country = earth.country_at(*guess) if guess else None
        rows.append(
            {
                "task_index": task.task_index,
                "task_id": task.task_id,
                "sample": sample,
                "distance_km": haversine_km(*guess, true.lat, true.lon) if guess else math.nan,
                "cost": cost * (1 + sample),
                "guess_lat": guess[0] if guess else math.nan,
                "guess_lon": guess[1] if guess else math.nan,
                "true_lat": true.lat,
                "true_lon": true.lon,
                "guess_country_code": country.code if country else None,
                "country_hit": country is not None and country.code == task.country_code,
                "turns": 2 + sample,
                "looks": 1 + sample,
            }
        )
    return swept(slug, len(tasks), k, {name: np.array([row[name] for row in rows]) for name in rows[0]})


def swept(slug: str, tasks: int, k: int, columns: dict[str, Any]) -> ArmData:
    """A complete arm."""
    return ArmData(
        spec=lab_arm("noisy_oracle", k=k).model_copy(update={"slug": slug, "label": slug}),
        tasks=tasks,
        k=k,
        complete=True,
        environment_version="env-1",
        harness_version="h",
        prompt_version="p",
        sweep_version=f"version of {slug}",
        columns=columns,
        sweep="adapter_run3",
    )


def guesses_of(tasks: list[Task], reach_km: float, silent: float, seed: int, k: int = 4) -> list[list[Guess]]:
    """Guesses some way off the truth, a share of them withheld."""
    rng = np.random.default_rng(seed)

    def one(task: Task) -> Guess:
        km, bearing, says = rng.exponential(reach_km), rng.uniform(0, 360), rng.random() >= silent
        lat, lon = destination(task.start.lat, task.start.lon, bearing, min(km, 19_000.0))
        return (lat, lon) if says else None

    return [[one(task) for _ in range(k)] for task in tasks]


def learner(tasks: list[Task], run: str = "run3", seed: int = 0) -> SweptRun:
    """A run that learnt to see: it guesses much closer than its base arm, and nearly always."""
    return SweptRun(
        run,
        arm_of("base_model_4b", tasks, guesses_of(tasks, 1400.0, 0.4, seed)),
        arm_of(f"adapter_{run}", tasks, guesses_of(tasks, 500.0, 0.01, seed + 1)),
    )


def answerer(tasks: list[Task]) -> SweptRun:
    """A run that learnt to answer: everywhere the same few guesses, whatever it is shown."""
    rng = np.random.default_rng(3)

    def anywhere(silent: float) -> list[list[Guess]]:
        return [
            [None if rng.random() < silent else (48.0 + rng.normal(), 11.0 + rng.normal()) for _ in range(4)]
            for _ in tasks
        ]

    base, adapter = anywhere(0.5), anywhere(0.0)
    return SweptRun("run3", arm_of("base_model_4b", tasks, base), arm_of("adapter_run3", tasks, adapter))


def publish(home: Path, tasks: list[Task], train: list[Task]) -> None:
    for name, rows in (("eval_split", tasks), ("train_split", train)):
        folder = AssetFolder(home, name)
        write_tasks(folder.file("tasks.jsonl"), rows)
        folder.publish(f"version of {name}", {"tasks": len(rows)})


def made_of(home: Path, *sweeps: SweptRun) -> Made:
    return make_controls(lab_run(home, "learning_controls"), sweeps, LABELS)


def control(made: list[Control], name: str) -> Control:
    return next(control for control in made if control.name == name)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return make_tasks(60)


@pytest.fixture(scope="module")
def train() -> list[Task]:
    return make_tasks(80, seed=9)


@pytest.fixture(scope="module")
def made(tasks: list[Task], train: list[Task]) -> list[Control]:
    return controls(spots_of(tasks), spots_of(train))


# ---- controls


def test_the_best_fixed_point_is_as_good_as_the_policy_that_searches_one_by_one(tasks: list[Task]) -> None:
    points = [(task.start.lat, task.start.lon) for task in tasks[:20]]

    def mean(at: tuple[float, float]) -> float:
        return float(np.mean([training_score(haversine_km(*at, *point), BOARD_V1) for point in points]))

    ours = best_fixed_point(spots_of(tasks[:20]))
    assert mean(ours) == pytest.approx(mean(policies.best_fixed_point(points)), abs=1e-5)
    assert all(mean(ours) >= mean(point) for point in points)
    with pytest.raises(ValueError):
        best_fixed_point(spots_of([]))


def test_no_constant_answer_beats_the_one_chosen_in_hindsight(made: list[Control]) -> None:
    hindsight = control(made, "best_fixed_point").rewards.mean()
    assert hindsight >= control(made, "best_fixed_point_train").rewards.mean()
    assert hindsight > control(made, "random_train_place").rewards.mean()
    assert control(made, "random_train_place").rewards.mean() > control(made, "random_land").rewards.mean()


def test_a_random_answer_is_its_expectation_per_task(
    tasks: list[Task], train: list[Task], made: list[Control]
) -> None:
    found, true = control(made, "random_train_place"), tasks[7].start
    away = [haversine_km(true.lat, true.lon, place.start.lat, place.start.lon) for place in train]
    assert found.rewards[7] == pytest.approx(np.mean([board_reward(km, 0.0) for km in away]))
    assert found.near[7] == np.mean([km <= 750 for km in away])
    assert found.country[7] == np.mean([place.country_code == tasks[7].country_code for place in train])
    assert "80 train places" in found.note


def test_an_oracle_is_told_the_country_and_nothing_else(
    tasks: list[Task], train: list[Task], made: list[Control]
) -> None:
    capitals, middles = control(made, "capital"), control(made, "country_mean")
    assert capitals.told
    assert middles.told
    assert capitals.rewards.mean() > control(made, "best_fixed_point").rewards.mean()
    codes = {task.country_code for task in train}
    without = [task.task_index for task in tasks if task.country_code not in codes]
    assert 0 < len(without) < len(tasks)
    assert f"the capital for {len(without)} of {len(tasks)} tasks" in middles.note
    assert middles.rewards[without].tolist() == capitals.rewards[without].tolist()


def test_the_middle_of_two_places_lies_between_them_across_the_date_line() -> None:
    place = Spots(np.array([-17.0]), np.array([179.0]), ("FJ",))
    around = Spots(np.array([-17.0, -17.0]), np.array([178.0, -178.0]), ("FJ", "FJ"))
    made = controls(place, around)
    assert control(made, "country_mean").distance_km[0] == pytest.approx(
        haversine_km(-17.0, 179.0, -17.0, 180.0), rel=0.01
    )


def test_a_country_without_a_capital_gets_its_nearest_town() -> None:
    nowhere = Spots(np.array([-77.8]), np.array([166.7]), (None,))
    assert capital(nowhere, 0) == pytest.approx(
        (lambda town: (town.lat, town.lon))(geography().nearest_place(-77.8, 166.7)[0])
    )


# ---- shuffled pictures


def test_every_guess_is_scored_at_every_place(tasks: list[Task]) -> None:
    few = tasks[:5]
    arm = arm_of("arm", few, guesses_of(few, 1500.0, 0.5, 1, k=3))
    found, guesses = exchange(arm, spots_of(few)), guesses_of(few, 1500.0, 0.5, 1, k=3)
    kilometres, hits = [], []
    for i, j in itertools.product(range(5), range(5)):
        rewards = []
        for sample, guess in enumerate(guesses[j]):
            km = haversine_km(*guess, few[i].start.lat, few[i].start.lon) if guess else None
            rewards.append(board_reward(km, 0.03 * (1 + sample)))
            if i != j:
                kilometres += [km] if km is not None else []
                country = geography().country_at(*guess) if guess else None
                hits.append(country is not None and country.code == few[i].country_code)
        assert found.played[i, j] == pytest.approx(np.mean(rewards))
        said = [reward for reward, guess in zip(rewards, guesses[j], strict=True) if guess]
        assert found.answers[j] == bool(said)
        assert found.answered[i, j] == pytest.approx(np.mean(said) if said else 0.0)
    assert found.median_km == pytest.approx(np.median(kilometres))
    assert found.country_share == pytest.approx(np.mean(hits))
    assert found.near_share == pytest.approx(sum(km <= 750 for km in kilometres) / len(hits))
    assert np.diagonal(found.played) == pytest.approx(arm.matrix(arm.rewards).mean(axis=1))


def test_the_mean_over_other_tasks_is_the_mean_over_all_derangements() -> None:
    matrix = np.random.default_rng(2).random((5, 5))
    deranged = [p for p in itertools.permutations(range(5)) if all(i != j for i, j in enumerate(p))]
    assert len(deranged) == 44
    drawn = np.mean([[matrix[i, j] for i, j in enumerate(p)] for p in deranged])
    assert per_task(matrix, np.ones(5, dtype=bool)).mean() == pytest.approx(drawn)


def test_columns_without_a_guess_count_for_nothing() -> None:
    matrix, pictures = np.random.default_rng(2).random((4, 4)), np.array([True, False, True, True])
    pairs = [matrix[i, j] for i in range(4) for j in (0, 2, 3) if i != j]
    assert per_task(matrix, pictures).mean() == pytest.approx(np.mean(pairs))
    for lone in (np.zeros((1, 1)), np.zeros((3, 3))):
        with pytest.raises(ValueError):
            per_task(lone, np.zeros(len(lone), dtype=bool))


def test_the_standard_error_of_pairs_is_that_of_many_samples_of_tasks() -> None:
    """Tasks drawn anew a thousand times: the spread of the figure is what one sample says of itself."""
    rng, n = np.random.default_rng(4), 40

    def figure() -> tuple[float, float]:
        place, shown = rng.normal(size=n), rng.normal(size=n)
        values = per_task(place[:, None] + 2.0 * shown + 0.3 * place[:, None] * shown, np.ones(n, dtype=bool))
        return float(values.mean()), statistics.estimate(values).se or 0.0

    drawn = np.array([figure() for _ in range(1000)])
    assert drawn[:, 1].mean() == pytest.approx(drawn[:, 0].std(), rel=0.1)


def test_resamples_are_those_of_the_bootstrap_and_never_pair_a_task_with_itself() -> None:
    values = np.random.default_rng(5).random(9)
    found = statistics.bootstrap95(values)
    assert np.percentile(Resamples(9).means(values), [2.5, 97.5]) == pytest.approx([found.low, found.high])
    pictures = np.array([True] * 6 + [False] * 3)
    draws, matrix = Resamples(9, resamples=50, seed=7), np.random.default_rng(6).random((9, 9))
    picks = np.random.default_rng(7).integers(0, 9, size=(50, 9))
    for row, mean in zip(picks, draws.pair_means(matrix, pictures), strict=True):
        pairs = [matrix[i, j] for i in row for j in row if i != j and pictures[j]]
        assert mean == pytest.approx(np.mean(pairs))


def moved_to(drive: Task, place: Task) -> Task:
    """The pictures of one task at the place of another: nothing else of the first."""
    north, east = place.start.lat - drive.start.lat, place.start.lon - drive.start.lon
    frames = tuple(
        Frame(
            image_id=frame.image_id,
            lat=frame.lat + north,
            lon=frame.lon + east,
            compass_angle=frame.compass_angle,
            captured_at=frame.captured_at,
        )
        for frame in drive.frames
    )
    return place.model_copy(update={"frames": frames, "start_frame": drive.start_frame})


def by_everything_said(number: int, request: dict[str, Any]) -> Fault:
    """A model whose every word depends on every byte it is sent: words, pictures, tools and seed."""
    asked = {key: request.get(key) for key in ("messages", "tools", "seed")}
    digest = int(sha256_hex(canonical_json(asked)), 16)
    made = sum(len(message.get("tool_calls") or ()) for message in request["messages"])
    tools = {tool["function"]["name"] for tool in request["tools"]}
    if made == 0:
        return completion(calls=[("look", json.dumps({"heading_deg": digest % 360}))])
    if made == 1 and "move" in tools:
        return completion(calls=[("move", '{"direction": "forward", "meters": 10.0}')])
    if made == 2:
        pin = {"lat": digest % 120 - 60, "lon": digest % 300 - 150, "label": "perhaps", "span_deg": 20.0}
        return completion(calls=[("place_pin", json.dumps(pin))])
    if digest % 4 == 0:
        return completion("Hard to say.")
    guess = {"lat": digest % 12_000 / 100 - 60, "lon": digest % 36_000 / 100 - 180, "reasoning": "So."}
    return completion(calls=[("submit_guess", json.dumps(guess))])


def played_arm(home: Path, tasks: int, url: str, folder: Path) -> ArmData:
    """The model's sweep of an environment that is served for it."""
    arm = lab_arm("noisy_oracle", k=2)
    with served_environment(home / "eval_environment" / "config.json", 4) as served:
        records = Lab(home, served.url, url).sweep(arm, folder, url).records
    table = outcome_table(records)
    columns = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    return swept("arm", tasks, 2, columns)


def test_shown_the_pictures_of_another_task_it_plays_that_tasks_episode(tmp_path: Path) -> None:
    """The proof behind the shuffled rows: exchanged pictures, served and played, guess by guess."""
    count = 6
    here, there = tmp_path / "here", tmp_path / "there"
    for home in (here, there):
        build_environment(home, count)
    files = [home / "eval_environment" / "tasks.jsonl" for home in (here, there)]
    drives = list(read_tasks(files[0]))
    # Drives differ in more than pictures: one cannot be walked, one opens in its middle, months differ.
    drives[1] = drives[1].model_copy(update={"frames": drives[1].frames[:1]})
    drives[2] = drives[2].model_copy(update={"start_frame": 1})
    month = drives[3].frames[0].model_copy(update={"captured_at": "2019-01"})
    drives[3] = drives[3].model_copy(update={"frames": (month, *drives[3].frames[1:])})
    write_tasks(files[0], drives)
    shown = [(i + 1) % count for i in range(count)]
    write_tasks(files[1], [moved_to(drives[j], drives[i]) for i, j in enumerate(shown)])
    with faulty("", by_everything_said) as url:
        own = played_arm(here, count, url, tmp_path / "own")
        swapped = played_arm(there, count, url, tmp_path / "swapped")
    for name in ("guess_lat", "guess_lon", "guess_country_code", "cost", "turns", "moves", "outcome"):
        before, after = own.matrix(own.columns[name])[shown], swapped.matrix(swapped.columns[name])
        np.testing.assert_array_equal(after, before, err_msg=name)
    assert len(set(own.columns["turns"].tolist())) > 1
    assert 0 < own.guessed.sum() < own.episodes
    places = spots_of(drives)
    assert places.lat.tolist() == pytest.approx(swapped.matrix(swapped.columns["true_lat"])[:, 0].tolist())
    rewards = swapped.matrix(swapped.rewards).mean(axis=1)
    assert rewards == pytest.approx(exchange(own, places).played[np.arange(count), shown], abs=1e-6)
    shutil.rmtree(there)


# ---- differences and claims


def test_the_gain_and_its_parts_are_those_of_paired_gains(tasks: list[Task], made: list[Control]) -> None:
    sweep = learner(tasks)
    rows = {row["comparison"]: row for row in gain_rows(learning(sweep, spots_of(tasks), made))}
    base, adapter = sweep.base, sweep.adapter
    gain = statistics.paired_gain(
        adapter.matrix(adapter.rewards),
        base.matrix(base.rewards),
        adapter.matrix(adapter.guessed),
        base.matrix(base.guessed),
    )
    assert gain.split.closer is not None
    for name, wanted in (
        ("gain", gain.estimate),
        ("guessed_at_all", gain.split.guessed_at_all),
        ("closer", gain.split.closer),
    ):
        assert rows[name]["figure"] == pytest.approx(wanted.mean)
        assert rows[name]["standard_error"] == pytest.approx(wanted.se)
        assert rows[name]["tasks"] == wanted.n
    assert rows["gain"]["p"] == pytest.approx(gain.p)
    assert rows["gain"]["better_on"] == gain.better_on
    assert (rows["gain"]["bootstrap95_low"], rows["gain"]["bootstrap95_high"]) == (
        gain.bootstrap95.low,
        gain.bootstrap95.high,
    )


def test_the_share_lost_is_what_its_parts_give(tasks: list[Task], made: list[Control]) -> None:
    found = learning(learner(tasks), spots_of(tasks), made)
    rows = {row["comparison"]: row for row in gain_rows(found)}
    lost = rows["share_lost"]
    assert lost["figure"] == pytest.approx(1 - rows["shuffled_gain"]["figure"] / rows["gain"]["figure"])
    assert lost["bootstrap95_low"] < lost["figure"] < lost["bootstrap95_high"]
    for name in ("shuffled_gain", "base_pictures", "base_blind_when_shuffled"):
        row = rows[name]
        assert row["bootstrap95_low"] == pytest.approx(
            row["ci95_low"], abs=0.2 * row["standard_error"] + 0.005
        )
        assert row["bootstrap95_low"] < row["figure"] < row["bootstrap95_high"]
    away = found.base.exchanged
    others = [[away.played[i, j] for j in range(60) if j != i] for i in range(60)]
    assert rows["base_pictures"]["figure"] == pytest.approx(np.diagonal(away.played).mean() - np.mean(others))


def test_a_run_that_learnt_to_see_keeps_every_claim(tasks: list[Task], made: list[Control]) -> None:
    found = learning(learner(tasks), spots_of(tasks), made)
    claims = claims_of("run3", gain_rows(found), found)
    assert [claim["claim"] for claim in claims] == list(CLAIMS)
    assert [claim["claim"] for claim in claims if not claim["holds"]] == []
    for claim in claims:
        assert claim["low"] <= claim["figure"] <= claim["high"]


def test_a_run_that_learnt_only_to_answer_is_found_out(tasks: list[Task], made: list[Control]) -> None:
    found = learning(answerer(tasks), spots_of(tasks), made)
    claims = {claim["claim"]: claim for claim in claims_of("run3", gain_rows(found), found)}
    assert claims["gain_clear"]["holds"]
    assert claims["no_guess_falls"]["holds"]
    assert not claims["base_sees"]["holds"]
    assert not claims["closer_clear"]["holds"]
    assert not claims["gain_lost_when_shuffled"]["holds"]
    assert claims["gain_lost_when_shuffled"]["figure"] == pytest.approx(0.0, abs=0.1)


def test_without_a_gain_nothing_can_be_lost(tasks: list[Task], made: list[Control]) -> None:
    sweep = learner(tasks)
    worse = SweptRun("run3", sweep.adapter, sweep.base)
    found = learning(worse, spots_of(tasks), made)
    claims = {claim["claim"]: claim for claim in claims_of("run3", gain_rows(found), found)}
    assert claims["gain_lost_when_shuffled"]["figure"] is None
    assert not any(
        claims[name]["holds"] for name in ("gain_clear", "closer_clear", "gain_lost_when_shuffled")
    )


def test_an_arm_that_never_answers_has_no_answers_to_compare(tasks: list[Task], made: list[Control]) -> None:
    silent = arm_of("base_model_4b", tasks, [[None] * 4 for _ in tasks])
    found = learning(SweptRun("run3", silent, learner(tasks).adapter), spots_of(tasks), made)
    rows = {row["comparison"]: row for row in gain_rows(found)}
    for name in ("base_sees", "base_blind_when_shuffled", "closer"):
        assert rows[name]["tasks"] == 0
        assert "figure" not in rows[name]
    assert rows["guessed_at_all"]["figure"] == pytest.approx(rows["gain"]["figure"])
    changes = {row["measure"]: row for row in before_after(found)}
    assert changes["median_km"]["before"] is None
    assert "change" not in changes["median_km"]
    assert changes["no_guess"]["before"] == 100.0


# ---- the asset's files


def test_one_table_holds_controls_and_both_seeds(
    tmp_path: Path, tasks: list[Task], train: list[Task]
) -> None:
    publish(tmp_path, tasks, train)
    made = made_of(tmp_path, learner(tasks), learner(tasks, "run3_seed1", 50))
    folder = tmp_path / "learning_controls"
    rows = learning_rows(folder, "learning_controls")
    arms = [f"{role}{kind}" for role in ("base", "adapter") for kind in KINDS]
    assert [(row["run"], row["row"]) for row in rows[:6]] == [(None, name) for name in CONTROLS]
    assert [row["row"] for row in rows[6:]] == arms * 2
    for row in rows:
        assert row["ci95_low"] <= row["mean"] <= row["ci95_high"]
        assert row["ci95_high"] - row["mean"] == pytest.approx(1.96 * row["standard_error"], abs=2e-6)
        assert row["median_km"] > 0
    by_row = {row["row"]: row for row in rows if row["run"] in (None, "run3")}
    assert by_row["base_shuffled"]["mean"] < by_row["base"]["mean"] < by_row["base_answering"]["mean"]
    assert by_row["adapter"]["no_guess_pct"] < 5 < by_row["base"]["no_guess_pct"]
    assert by_row["base_answering"]["country_pct"] > by_row["base"]["country_pct"]
    assert {check.name for check in made.checks} == {spec.name for spec in check_specs(list(LABELS))}
    assert "run3_gain_clear" in {check.name for check in made.checks}
    assert all(check.passed for check in made.checks)
    assert made.facts["claims_that_hold"] == made.facts["claims"] == 12
    for name in ("learning_controls", "learning_gains", "learning_changes", "learning_claims"):
        assert {path.suffix for path in folder.glob(f"{name}.*")} >= {".csv", ".json", ".parquet"}
    for name in ("learning_controls.png", "learning_controls_run3_seed1.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    again = made_of(tmp_path, learner(tasks), learner(tasks, "run3_seed1", 50))
    assert again.data_version == made.data_version


CONTROLS = (
    "best_fixed_point",
    "best_fixed_point_train",
    "random_train_place",
    "random_land",
    "capital",
    "country_mean",
)
KINDS = ("", "_answering", "_shuffled", "_shuffled_answering")


def test_the_text_fits_eighty_columns(tmp_path: Path, tasks: list[Task], train: list[Task]) -> None:
    publish(tmp_path, tasks, train)
    made_of(tmp_path, learner(tasks), learner(tasks, "run3_seed1", 50))
    text = learning_text(tmp_path / "learning_controls")
    assert max(map(len, text.splitlines())) <= 80
    for words in ("Best fixed point, in hindsight", "Run 3, second seed", "share of the gain lost", "yes"):
        assert words in text


def test_an_incomplete_sweep_is_shown_and_never_paired(
    tmp_path: Path, tasks: list[Task], train: list[Task]
) -> None:
    publish(tmp_path, tasks, train)
    sweep = learner(tasks)
    short = {name: values[:-1] for name, values in sweep.adapter.columns.items()}
    made = made_of(tmp_path, replace(sweep, adapter=replace(sweep.adapter, complete=False, columns=short)))
    assert not any(check.passed for check in made.checks)
    assert "adapter_run3 has 239 of 240 episodes" in made.checks[0].metadata["why_not"]
    row = learning_rows(tmp_path / "learning_controls", "learning_controls")[-1]
    assert (row["complete"], row["mean"], row["episodes"]) == (False, None, 239)
    assert "unknown" in learning_text(tmp_path / "learning_controls")


def test_a_sweep_over_other_tasks_is_refused(tmp_path: Path, tasks: list[Task], train: list[Task]) -> None:
    sweep = learner(tasks)
    moved = [
        moved_to(tasks[0], tasks[1]).model_copy(update={"task_index": 0, "task_id": "lab-000"}),
        *tasks[1:],
    ]
    for other in (tasks[:59], moved):
        publish(tmp_path, other, train)
        with pytest.raises(UnequalComparison, match="played on other tasks than eval_split holds") as caught:
            made_of(tmp_path, sweep)
        assert "sweep_adapter_run3" in caught.value.fix
    publish(tmp_path, tasks, train)
    with pytest.raises(UnequalComparison, match="unequal environment versions"):
        made_of(tmp_path, replace(sweep, base=replace(sweep.base, environment_version="env-2")))


def test_a_missing_or_empty_split_is_named(tmp_path: Path, tasks: list[Task], train: list[Task]) -> None:
    with pytest.raises(MissingUpstream, match="learning_controls needs eval_split"):
        made_of(tmp_path, learner(tasks))
    publish(tmp_path, tasks, train)
    AssetFolder(tmp_path, "train_split").publish("empty", {"tasks": 0, "empty_because": "of a test"})
    with pytest.raises(GeoError, match="train_split, which holds no task"):
        made_of(tmp_path, learner(tasks))


def publish_sweep(home: Path, sweep: AdapterSweep, tasks: list[Task], played: SweptRun) -> None:
    """An adapter's sweep as it stands after play: a folder per arm, and one marker over both."""
    facts: dict[str, Any] = {}
    for arm, data in zip(sweep.arms, (played.base, played.adapter), strict=True):
        records = tuple(record_of(data, row, tasks, arm) for row in range(data.episodes))
        folder = AssetFolder(home, member_folder(sweep.slug, arm.slug))
        folder.file("episodes.jsonl").write_bytes(b"".join(record.line() for record in records))
        write_outcomes(folder.path, records)
        swept_now = Swept(records, ())
        version = sweep_version(arm, swept_now)
        facts[arm.slug] = facts_of(arm, swept_now, len(tasks), "env-1", "h") | {"sweep_version": version}
    AssetFolder(home, folder_name(sweep.slug)).publish("version of the sweep", {"arms": facts})


def record_of(data: ArmData, row: int, tasks: list[Task], arm: Any) -> Any:
    """One episode of an arm as the harness would have kept it."""
    at = {name: values[row] for name, values in data.columns.items()}
    task, guessed = tasks[int(at["task_index"])], not math.isnan(at["distance_km"])
    distance = 1.0 if guessed else None
    kept = episode(arm, task.task_index, int(at["sample"]), distance, at["cost"], "env-1", "h")
    result = kept.result.model_copy(
        update={
            "distance_km": float(at["distance_km"]) if guessed else None,
            "guess_lat": float(at["guess_lat"]) if guessed else None,
            "guess_lon": float(at["guess_lon"]) if guessed else None,
            "guess_country_code": at["guess_country_code"],
            "true_lat": task.start.lat,
            "true_lon": task.start.lon,
            "country_code": task.country_code,
            "country_hit": bool(at["country_hit"]),
        }
    )
    return kept.model_copy(update={"task_id": task.task_id, "result": result})


def test_dagster_shows_the_tables_and_a_check_for_every_claim(
    tmp_path: Path, tasks: list[Task], train: list[Task]
) -> None:
    publish(tmp_path, tasks, train)
    sweeps = adapter_sweeps("sandbox")
    played = [learner(tasks, sweep.run.slug, 10 * number) for number, sweep in enumerate(sweeps)]
    for sweep, own in zip(sweeps, played, strict=True):
        publish_sweep(tmp_path, sweep, tasks, own)
    stage = lab_stage(tmp_path)
    asset = learning_controls_asset(stage)
    assert asset is not None
    assert set(asset.deps) == {f"sweep_{sweep.slug}" for sweep in sweeps} | {"eval_split", "train_split"}
    parents = [dg.AssetSpec(name) for name in asset.deps]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([*parents, asset.definition(stage)], instance=instance)
        event = instance.get_latest_materialization_event(dg.AssetKey("learning_controls"))
    assert result.success
    checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert checks == {f"{sweep.run.slug}_{claim}": True for sweep in sweeps for claim in CLAIMS}
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    for table in ("table", "differences", "before_and_after", "claims_in_words"):
        assert "| run3 |" in str(metadata[table].value)
    assert "data:image/png;base64," in str(metadata["picture_run3"].value)
    assert Path(str(metadata["picture_run3_path"].value)).is_file()
    assert "dagster/column_schema" in metadata
    # The figures are those of the same episodes put in by hand.
    rows = learning_rows(tmp_path / "learning_controls", "learning_controls")
    own = played[0].adapter.matrix(played[0].adapter.rewards)
    shown = next(row for row in rows if (row["run"], row["row"]) == ("run3", "adapter"))
    assert shown["mean"] == pytest.approx(statistics.mean_of_k(own), abs=1e-6)


def test_a_profile_without_runs_has_no_such_asset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geo_assets.reports.learning_controls.adapter_sweeps", lambda profile: ())
    assert learning_controls_asset(lab_stage(tmp_path)) is None


def test_an_exchange_knows_that_all_pictures_count(tasks: list[Task]) -> None:
    found: Exchange = exchange(learner(tasks).base, spots_of(tasks))
    assert found.all_tasks.all()
    assert len(found.all_tasks) == len(tasks)
