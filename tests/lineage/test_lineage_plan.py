"""The plan over a small real graph: what is stale and why, what may follow, the cost; and refreshing it."""

import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import jsonschema
import pytest
from graph_lab import Lab

from env_service.errors import GeoError
from geo_assets.lineage.assets import StageRun
from geo_assets.lineage.costs import SHARE, measure_metadata
from geo_assets.lineage.dagster_internals import DagsterState
from geo_assets.lineage.folders import EPISODES, AssetFolder
from geo_assets.lineage.plan import Plan, explain, make_plan
from geo_assets.lineage.plan_text import explanation, plan_markdown, plan_text
from geo_assets.lineage.refreshing import Refreshed, refresh
from geo_assets.reports.staleness_plan import NAME, PLAN, published

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
ALL = ["tiles", "pool", "left", "right", "sweep_one", "board"]


def _plan(lab: Lab, select: set[str] | None = None) -> Plan:
    return make_plan(lab.instance, lab.graph, lab.stage, select)


def _refresh(lab: Lab, **more: object) -> Refreshed:
    return refresh(lab.instance, lab.graph, lab.stage, lab.run, tell=lambda line: None, **more)  # type: ignore[arg-type]


def _kinds(plan: Plan) -> dict[str, list[str]]:
    return {one.asset: [reason.kind for reason in one.reasons] for one in plan.stale}


def test_what_was_never_built_is_missing_and_costs_what_is_estimated(lab: Lab) -> None:
    plan = _plan(lab)
    assert _kinds(plan) == {name: ["missing"] for name in ALL}
    assert list(plan.names).index("tiles") < list(plan.names).index("pool") < list(plan.names).index("board")
    assert plan.may_follow == ()
    assert plan.costs["sweep_one"].plain() == {
        "seconds": 100.0,
        "gpu_hours": 1.0,
        "usd": 2.5,
        "basis": "estimate",
    }
    # Three of data (both sides of the split are one run), a sweep and a report.
    assert plan.cost.plain() == {"seconds": 290.0, "gpu_hours": 1.0, "usd": 2.5, "basis": "estimate"}
    built = _refresh(lab)
    assert built.reran == built.changed and sorted(built.reran) == sorted(ALL)
    assert _plan(lab) == Plan()


# What is edited, what is stale then and why, what may follow, what reruns, and what of it changes.
ROWS = {
    "a docstring": (("shared", '"""Plays."""', '"""Plays on."""'), {}, [], [], []),
    "a statistic": (("shared", "CURVE * sum", "CURVE + sum"), {"board": "code"}, [], ["board"], ["board"]),
    "the harness": (
        ("shared", "{split} {seed}", "{seed} {split}!"),
        {"sweep_one": "code"},
        ["board"],
        ["sweep_one", "board"],
        ["sweep_one", "board"],
    ),
    "a spec": (
        ("graph", "SEED = 1", "SEED = 22"),
        {"sweep_one": "code"},
        ["board"],
        ["sweep_one", "board"],
        ["sweep_one", "board"],
    ),
    "content that comes out equal": (
        ("graph", 'TILES = "abc"', 'TILES = "ABC"'),
        {"tiles": "code"},
        ["pool", "left", "right", "sweep_one", "board"],
        ["tiles", "pool"],
        ["tiles"],
    ),
    "one side of the split": (
        ("graph", "made(value[1])", "made(value[1] * 2)"),
        {"left": "code", "right": "code"},
        ["sweep_one", "board"],
        ["left", "right", "board"],
        ["right"],
    ),
}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_exactly_what_changes_is_rebuilt(built: Lab, row: str) -> None:
    edit, stale, follow, reran, changed = ROWS[row]
    built.edit(*edit)
    plan = _plan(built)
    assert _kinds(plan) == {name: [kind] for name, kind in stale.items()}
    assert list(plan.may_follow) == follow
    state = DagsterState(built.instance, built.graph)
    assert {name for name in ALL if state.status(name) == "STALE"} == set(stale), "Dagster says the same"
    done = _refresh(built)
    assert (done.reran, done.changed) == (reran, changed)
    assert _plan(built) == Plan()


def test_the_reason_names_symbol_field_and_content(built: Lab) -> None:
    built.edit("shared", 'PROMPT = "Look."', 'PROMPT = "See."')
    built.edit("graph", "SEED = 1", "SEED = 2")
    (one,) = _plan(built).stale
    assert (
        one.reasons[0].what
        == "tinygraph.graph:SEED changed; tinygraph.shared:PROMPT changed; spec seed: 1 → 2"
    )
    reasons, changes = explain(built.instance, built.graph, built.stage, "sweep_one")
    assert reasons == one.reasons
    found = {change.name: (change.kind, change.old, change.new) for change in changes}
    assert found["seed"] == ("spec", "1", "2")
    kind, old, new = found["tinygraph.shared:PROMPT"]
    assert kind == "symbol" and len(old) == len(new) == 16 and old != new
    text = explanation("sweep_one", reasons, changes)
    assert "symbol tinygraph.shared:PROMPT\n    " + f"{old} → {new}" in text
    built.run(["sweep_one"])
    (below,) = _plan(built).stale
    assert below.asset == "board" and below.reasons[0].kind == "data"
    _, changes = explain(built.instance, built.graph, built.stage, "board")
    (change,) = changes
    assert (change.kind, change.name) == ("parent", "sweep_one") and change.old != change.new
    assert (
        explanation("tiles", *explain(built.instance, built.graph, built.stage, "tiles")) == "tiles is fresh."
    )
    with pytest.raises(GeoError, match="no asset 'nothing'"):
        explain(built.instance, built.graph, built.stage, "nothing")


def test_a_parent_that_came_is_a_reason(built: Lab) -> None:
    built.edit("graph", 'deps=["sweep_one", "right"]', 'deps=["sweep_one", "right", "tiles"]')
    (one,) = _plan(built).stale
    assert [reason.kind for reason in one.reasons] == ["dependency"] and "tiles" in one.reasons[0].what


@pytest.mark.parametrize(
    ("harm", "kind", "said"),
    [
        (lambda folder: (folder / "_asset.json").unlink(), "missing", "does not hold a finished asset"),
        (lambda folder: (folder / "_asset.json").write_text("torn"), "missing", "is damaged"),
        (
            lambda folder: AssetFolder(folder.parent.parent, "sweeps/one").publish("0" * 32, {"episodes": 2}),
            "data",
            "its folder holds content 00000000",
        ),
        (lambda folder: (folder / EPISODES).write_bytes(b"{}\n{"), "missing", "in the middle of a line"),
        (lambda folder: (folder / EPISODES).write_bytes(b"{}\n"), "missing", "holds 1 episodes, and 2"),
        (lambda folder: (folder / EPISODES).unlink(), "missing", "episodes.jsonl is gone"),
    ],
    ids=["no marker", "a torn marker", "other content", "a torn line", "a lost line", "no episodes"],
)  # fmt: skip
def test_a_folder_that_is_not_what_was_recorded_is_stale(
    built: Lab, harm: object, kind: str, said: str
) -> None:
    harm(built.home / "sweeps" / "one")  # type: ignore[operator]
    plan = _plan(built)
    assert _kinds(plan) == {"sweep_one": [kind]} and said in plan.stale[0].reasons[0].what
    done = _refresh(built)
    assert (done.reran, done.changed) == (["sweep_one"], []), "it comes out the same, so nothing follows"
    assert _plan(built) == Plan()


def test_an_incomplete_sweep_is_stale_until_it_is_whole(lab: Lab) -> None:
    lab.edit("graph", '"complete": True', '"complete": False, "unscored": 1')
    done = _refresh(lab)
    assert done.reran.count("sweep_one") == 1, "it is not tried for ever"
    (one,) = _plan(lab).stale
    assert one.asset == "sweep_one" and one.reasons[0].kind == "missing"
    assert one.reasons[0].what == "1 of 3 episodes have not been scored"


def test_nothing_is_built_on_a_failed_blocking_check(built: Lab) -> None:
    built.edit("graph", "RED = False", "RED = True")
    built.edit("graph", 'TILES = "abc"', 'TILES = "xyz"')
    done = _refresh(built)
    assert done.reran == ["tiles", "pool"]
    plan = _plan(built)
    kinds = _kinds(plan)
    assert kinds["pool"] == ["check"] and kinds["left"] == ["data", "check"] == kinds["right"]
    again = _refresh(built)
    assert again.reran == ["pool"], "the parent is tried again, and its children are not built"
    assert again.skipped["left"] == "a blocking check failed: sound of pool"
    built.edit("graph", "RED = True", "RED = False")
    assert set(_refresh(built).changed) == {"left", "right", "sweep_one"}, "the board comes out equal"
    assert _plan(built) == Plan()


def test_a_budget_skips_what_does_not_fit_and_says_its_price(built: Lab) -> None:
    built.edit("graph", "SEED = 1", "SEED = 2")
    # What was recorded decides: a run of three dollars, two of one.
    for usd in (3.0, 1.0, 1.0):
        event = dg.AssetMaterialization(
            "sweep_one",
            metadata={
                "seconds": 10.0,
                "gpu_seconds": 1800.0,
                "usd": usd,
                SHARE: 1.0,
                **measure_metadata(None),
            },
            tags=_last_tags(built, "sweep_one"),
        )
        built.instance.report_runless_asset_event(event)
    plan = _plan(built)
    # Building it for the first time recorded no dollars.
    assert plan.costs["sweep_one"].usd == 1.0 and plan.costs["sweep_one"].basis == "recorded"
    done = _refresh(built, budget_usd=0.5)
    assert done.reran == [] and done.skipped == {"sweep_one": "it costs $1.00, and $0.50 of $0.50 are left"}
    assert _refresh(built, budget_usd=1.0).reran == ["sweep_one", "board"]


def _last_tags(lab: Lab, name: str) -> dict[str, str]:
    event = lab.instance.get_latest_materialization_event(dg.AssetKey(name))
    assert event is not None and event.asset_materialization is not None
    return dict(event.asset_materialization.tags or {})


def test_what_failed_holds_up_what_stands_below_it_alone(built: Lab) -> None:
    built.edit("graph", "SEED = 1", "SEED = 1 / 0 if False else 3")
    built.edit("shared", "def play(split, seed):", "def play(split, seed):\n    raise OSError(28, 'full')\n")
    built.edit("shared", "CURVE = 2", "CURVE = 3")
    done = _refresh(built)
    assert done.failed == ["sweep_one"] and done.reran == []
    assert done.skipped == {"board": "it is made from sweep_one, which is stale and was not built"}


def test_two_refreshes_at_once_build_each_thing_once(built: Lab) -> None:
    built.edit("graph", "SEED = 1", "SEED = 2")
    runs: list[str] = []
    told: list[str] = []
    waiting = threading.Event()

    def tell(line: str) -> None:
        told.append(line)
        if "waiting" in line:
            waiting.set()

    def run(names: Sequence[str]) -> bool:
        if names[0] == "sweep_one":
            assert waiting.wait(60)
        runs.extend(names)
        return built.run(names)

    def second() -> Refreshed:
        return refresh(built.instance, built.graph, built.stage, run, None, 2.5, tell)

    def first_with_second(names: Sequence[str]) -> bool:
        if not others:
            others.append(pool.submit(second))
        return run(names)

    others: list[Future[Refreshed]] = []
    with ThreadPoolExecutor(1) as pool:
        mine = refresh(built.instance, built.graph, built.stage, first_with_second, None, None, tell)
        other = others[0].result(60)
    assert sorted(runs) == ["board", "sweep_one"]
    assert sorted(mine.reran + other.reran) == ["board", "sweep_one"] and not mine.failed + other.failed
    assert other.spent_usd == 0.0
    assert any(f"sweep_one is being written by process {os.getpid()}: waiting" in line for line in told)
    assert "sweep_one: built meanwhile by another" in told


def test_a_selection_is_planned_and_built_alone(built: Lab) -> None:
    built.edit("graph", 'TILES = "abc"', 'TILES = "xyz"')
    built.edit("shared", "CURVE = 2", "CURVE = 3")
    assert _plan(built, {"board"}).names == ("board",)
    assert _plan(built, {"tiles", "pool"}).may_follow == ("pool",)
    assert _refresh(built, select={"tiles", "pool"}).reran == ["tiles", "pool"]
    assert _plan(built).names == ("left", "right", "board")


def test_the_words_fit_a_terminal_and_the_page(built: Lab) -> None:
    assert plan_text(_plan(built)) == plan_markdown(_plan(built)) == "Everything is fresh."
    built.edit("graph", "SEED = 1", "SEED = 2")
    built.edit("shared", 'PROMPT = "Look."', f'PROMPT = "{"Look. " * 40}"')
    plan = _plan(built)
    text = plan_text(plan)
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert all(
        said in words for said in ("sweep_one", "spec seed: 1 → 2", "May follow", "board", "geo refresh")
    )
    page = plan_markdown(plan)
    assert "| `sweep_one` | **code**:" in page and "**May follow**" in page


def test_the_plan_is_an_asset_with_the_same_text(built: Lab) -> None:
    built.edit("graph", "SEED = 1", "SEED = 2")
    plan = _plan(built)
    made = published(StageRun(built.stage, NAME, print), plan)
    body = json.loads((built.home / NAME / PLAN).read_text())
    assert body == plan.plain()
    assert made.metadata["plan"].md_str == plan_markdown(plan)
    assert (made.facts["stale"], made.facts["may_follow"]) == (1, 1)


def test_what_scripts_read_has_the_form_that_is_promised(built: Lab) -> None:
    schema = json.loads((SCHEMAS / "stale.json").read_text())
    jsonschema.validate(_plan(built).plain(), schema)
    built.edit("graph", 'TILES = "abc"', 'TILES = "xyz"')
    plan = _plan(built).plain()
    jsonschema.validate(plan, schema)
    assert plan["stale"][0]["reasons"][0]["kind"] == "code"
    done = json.loads((SCHEMAS / "refresh.json").read_text())
    jsonschema.validate(_refresh(built).plain(), done)
