"""The resweep sensor, called directly: what it launches, what it skips and why, and what the money allows."""

import shutil
from collections.abc import Callable

import dagster as dg
import pytest
from sensors_lab import BUILT_USD, SWEEPS, Automated, asked, reasons

from geo_assets.config.budget import Budget as BudgetOf
from geo_assets.lineage.budget import Launch, Skip, Spent, decide
from geo_assets.lineage.costs import Cost
from geo_assets.lineage.plan import Plan, Reason, StaleAsset
from sensors.resweep import resweep_sensor

Budget = Callable[..., None]


def test_what_is_fresh_is_left_alone(lab: Automated, budget: Budget) -> None:
    budget(5, 100, 100)
    result = lab.tick(resweep_sensor(lab.stage))
    assert not result.run_requests
    assert "Nothing that this sensor looks after is stale" in str(result.skip_reason)


def test_two_of_three_fit_and_the_third_is_skipped_with_its_price(lab: Automated, budget: Budget) -> None:
    sensor = resweep_sensor(lab.stage)
    budget(2.5, BUILT_USD + 5.0, 1000)
    lab.seed(2)
    result = lab.tick(sensor)
    assert asked(result) == ["sweep_a", "sweep_b"]
    assert reasons(result) == {"sweep_c": "it costs $2.50, and $0.00 are left this day"}
    (event,) = result.asset_events
    assert isinstance(event, dg.AssetObservation)
    assert event.metadata["price_usd"].value == 2.5 and "$0.00 are left" in str(event.description)
    assert "usd" not in event.metadata, "what was not spent must not count as spent"
    assert all(lab.launch(result.run_requests or ()))
    again = lab.tick(sensor, result.cursor)
    assert asked(again) == [] and reasons(again)["sweep_c"] == reasons(result)["sweep_c"]
    assert reasons(again)["board"].startswith("sweep_c, which it is made from, is stale: ")
    told = [event.asset_key.to_user_string() for event in again.asset_events]
    assert "$2.50" in str(again.skip_reason) and told == ["board"], "the same is told once"
    budget(2.5, BUILT_USD + 7.5, 1000)
    raised = lab.tick(sensor, again.cursor)
    assert asked(raised) == ["sweep_c"] and all(lab.launch(raised.run_requests or ()))
    table = lab.tick(sensor, raised.cursor)
    assert asked(table) == ["board"] and all(lab.launch(table.run_requests or ()))
    assert asked(lab.tick(sensor)) == [] and reasons(lab.tick(sensor)) == {}


@pytest.mark.parametrize(
    ("limits", "window"),
    [((2.0, 1000, 1000), "$2.00 are left per run"), ((9, 1000, BUILT_USD), "$0.00 are left this month")],
)
def test_every_window_counts(
    lab: Automated, budget: Budget, limits: tuple[float, float, float], window: str
) -> None:
    budget(*limits)
    lab.seed(2)
    result = lab.tick(resweep_sensor(lab.stage))
    assert asked(result) == [] and set(reasons(result)) == {*SWEEPS}
    assert all(reason.endswith(window) for reason in reasons(result).values())


def test_what_failed_is_not_tried_again_until_something_changed(lab: Automated, budget: Budget) -> None:
    sensor = resweep_sensor(lab.stage)
    budget(5, 1000, 1000)
    lab.seed(2)
    lab.edit("graph", "FAILING = ()", 'FAILING = ("a",)')
    first = lab.tick(sensor)
    assert asked(first) == [*SWEEPS]
    assert lab.launch(first.run_requests or ()) == [False, True, True]
    again = lab.tick(sensor)
    assert asked(again) == [] and reasons(again)["sweep_a"].endswith("failed, and nothing has changed since")
    assert "board" not in reasons(again) or "sweep_a" in reasons(again)["board"]
    # Neither more money nor the passing of time is a change; other code is.
    budget(50, 5000, 5000)
    assert asked(lab.tick(sensor)) == []
    lab.edit("graph", 'FAILING = ("a",)', "FAILING = ()")
    mended = lab.tick(sensor)
    assert "sweep_a" in asked(mended) and all(lab.launch(mended.run_requests or ()))


def test_a_red_sweep_is_not_tried_again_either(lab: Automated, budget: Budget) -> None:
    sensor = resweep_sensor(lab.stage)
    budget(5, 1000, 1000)
    lab.edit("graph", "RED = ()", 'RED = ("a",)')
    lab.edit("graph", "SEED = 1", "SEED = 2")
    lab.launch(lab.tick(sensor).run_requests or ())
    after = lab.tick(sensor)
    assert asked(after) == []
    assert reasons(after)["sweep_a"] == "its blocking check alive failed, and nothing has changed since"


def test_a_red_parent_check_stops_the_launch_and_is_named(lab: Automated, budget: Budget) -> None:
    budget(5, 1000, 1000)
    lab.edit("graph", "SOUND = True", "SOUND = False")
    lab.run(["eval_environment"])
    lab.seed(2)
    result = lab.tick(resweep_sensor(lab.stage))
    assert asked(result) == []
    assert {reasons(result)[name] for name in SWEEPS} == {
        "the blocking check sound of eval_environment failed"
    }


def test_a_stale_parent_is_waited_for(lab: Automated, budget: Budget) -> None:
    budget(5, 1000, 1000)
    lab.edit("graph", 'WORLD = "round"', 'WORLD = "flat"')
    lab.seed(2)
    result = lab.tick(resweep_sensor(lab.stage))
    assert asked(result) == []
    assert all(
        reasons(result)[name].startswith("eval_environment, which it is made from, is stale: ")
        for name in SWEEPS
    )


def test_going_back_to_an_earlier_spec_is_another_attempt(lab: Automated, budget: Budget) -> None:
    sensor = resweep_sensor(lab.stage)
    budget(5, 1000, 1000)
    keys = []
    for seed in (2, 1, 2):
        lab.seed(seed)
        result = lab.tick(sensor)
        assert asked(result) == [*SWEEPS]
        keys += [str(request.run_key) for request in result.run_requests or ()]
        assert all(lab.launch(result.run_requests or ()))
    assert len(set(keys)) == 9, "Dagster launches a key once for ever"


def test_a_run_in_progress_is_not_doubled_and_its_price_is_set_aside(lab: Automated, budget: Budget) -> None:
    sensor = resweep_sensor(lab.stage)
    budget(5, BUILT_USD + 5.0, 1000)
    lab.seed(2)
    (request, *_) = lab.tick(sensor).run_requests or ()
    job = lab.definitions.resolve_implicit_global_asset_job_def()
    lab.instance.create_run_for_job(
        job, tags=dict(request.tags), asset_selection=frozenset(request.asset_selection or ())
    )
    result = lab.tick(sensor)
    assert asked(result) == ["sweep_b"]
    assert reasons(result)["sweep_a"] == "a run in progress builds it"
    assert reasons(result)["sweep_c"] == "it costs $2.50, and $0.00 are left this day"


@pytest.mark.parametrize("spent", [0.0, 5.0, 105.0])
@pytest.mark.parametrize("usd", [0.0, 0.0001, 0.004, 2.5])
def test_nothing_that_costs_anything_is_paid_of_nothing(usd: float, spent: float) -> None:
    plan = Plan((StaleAsset("a", (Reason("missing", "gone"),)),), costs={"a": Cost(usd=usd)})
    limits = BudgetOf(per_run_usd=5.0, per_day_usd=spent, per_month_usd=5.0)
    decision = decide(plan, "a", Spent(day=spent, month=min(spent, 100.0)), limits)
    assert isinstance(decision, Launch if usd == 0.0 else Skip)


def test_three_times_ten_cents_fit_thirty() -> None:
    plan = Plan((StaleAsset("a", (Reason("missing", "gone"),)),), costs={"a": Cost(usd=0.1)})
    limits = BudgetOf(per_run_usd=0.1, per_day_usd=0.3, per_month_usd=0.3)
    spent = Spent()
    for _ in range(3):
        assert isinstance(decide(plan, "a", spent, limits), Launch)
        spent = spent.and_then(0.1)
    assert isinstance(decide(plan, "a", spent, limits), Skip)


def test_what_costs_nothing_is_launched_though_too_much_was_spent(lab: Automated, budget: Budget) -> None:
    budget(0, 0, 0)
    lab.edit(
        "graph",
        "return Made(content_version([run.r",
        "return Made(content_version(1) and content_version([run.r",
    )
    assert asked(lab.tick(resweep_sensor(lab.stage))) == ["board"]


def test_reruns_that_play_nothing_are_no_price(lab: Automated, budget: Budget) -> None:
    lab.edit("graph", '{"usd": USD}, [Check(', '{"usd": USD} if SEED != 7 else {"made_share": 0.0}, [Check(')
    for seed in (6, 7, 7, 7):
        lab.seed(seed)
        lab.run(SWEEPS)
    lab.seed(2)
    budget(2.0, 1000, 1000)
    found = reasons(lab.tick(resweep_sensor(lab.stage)))
    assert {found[name] for name in SWEEPS} == {"it costs $2.50, and $2.00 are left per run"}
    budget(2.5, 1000, 1000)
    assert asked(lab.tick(resweep_sensor(lab.stage))) == [*SWEEPS]


def test_what_is_lost_is_made_again_however_often(lab: Automated, budget: Budget) -> None:
    sensor = resweep_sensor(lab.stage)
    budget(5, 1000, 1000)
    used: set[str] = set()
    for _ in range(3):
        shutil.rmtree(lab.home / "sweeps" / "a")
        result = lab.tick(sensor)
        assert asked(result) == ["sweep_a"]
        (key,) = [str(request.run_key) for request in result.run_requests or ()]
        assert key not in used, "Dagster launches a key once for ever"
        assert [str(request.run_key) for request in lab.tick(sensor).run_requests or ()] == [key]
        used.add(key)
        assert all(lab.launch(result.run_requests or ()))
        assert asked(lab.tick(sensor)) == []


def test_an_incomplete_sweep_goes_on_for_as_long_as_it_makes_progress(lab: Automated, budget: Budget) -> None:
    sensor = resweep_sensor(lab.stage)
    budget(5, 1000, 1000)
    lab.edit("graph", '"complete": True}', '"complete": slug != "a"}')
    lab.edit("graph", "value = [slug, SEED, ", "value = [slug, SEED, _played(slug), ")
    played = lab.home / "played"
    lab.edit(
        "graph",
        "def sweep_of",
        f"def _played(slug):\n    return open({str(played)!r}).read()\n\n\ndef sweep_of",
    )
    for count in ("1", "2", "2"):
        played.write_text(count)
        result = lab.tick(sensor)
        assert "sweep_a" in asked(result) and all(lab.launch(result.run_requests or ()))
    result = lab.tick(sensor)
    assert asked(result) == []
    assert reasons(result)["sweep_a"].endswith("added nothing to it, and nothing has changed since")
    shutil.rmtree(lab.home / "sweeps" / "a")
    assert asked(lab.tick(sensor)) == ["sweep_a"], "what is lost is another matter"
