"""The budget of `geo refresh`, foreseen and kept to the cent, and what is said when it stops."""

from pathlib import Path

import pytest
import typer
from graph_lab import Lab

from geo_assets.cli.refresh import interrupted_words, refresh
from geo_assets.config.prices import PRICES_FILE, PricesFileError, load_prices
from geo_assets.lineage.costs import Cost
from geo_assets.lineage.plan import Plan, StaleAsset, make_plan
from geo_assets.lineage.refreshing import Refreshed, _fits, foresee


def test_a_dry_run_foresees_what_the_budget_leaves_out(lab: Lab) -> None:
    plan = make_plan(lab.instance, lab.graph, lab.stage)
    whole = foresee(lab.instance, lab.graph, lab.stage, plan)
    assert sorted(whole.reran) == sorted(plan.names) and not whole.skipped
    part = foresee(lab.instance, lab.graph, lab.stage, plan, 1.0)
    assert sorted(part.reran) == ["left", "pool", "right", "tiles"]
    assert part.skipped["sweep_one"] == "it costs $2.50, and $1.00 of $1.00 are left"
    assert "sweep_one, which is stale" in part.skipped["board"]


def test_three_times_ten_cents_fit_thirty() -> None:
    names = ("a", "b", "c", "d")
    stale = tuple(StaleAsset(name, ()) for name in names)
    plan = Plan(stale, costs={name: Cost(usd=0.1) for name in names})
    so_far = Refreshed()
    for name in names:
        if _fits(plan, [name], so_far, 0.3):
            so_far.spent_usd += 0.1
    assert so_far.skipped == {"d": "it costs $0.10, and $0.00 of $0.30 are left"}
    assert _fits(Plan(stale, costs={"a": Cost()}), ["a"], Refreshed(spent_usd=9.0), 0.3), "nothing is free"


@pytest.mark.parametrize("budget", ["nan", "-1", "inf"])
def test_what_is_no_budget_is_refused(budget: str) -> None:
    with pytest.raises(typer.BadParameter, match="dollars"):
        refresh(select="", budget=float(budget), dry_run=True, as_json=False)


def test_after_an_interruption_the_next_command_is_named() -> None:
    assert interrupted_words("", None, False).endswith("type: geo refresh")
    assert interrupted_words("*board_table", 1.5, True).endswith(
        "geo refresh --select '*board_table' --budget 1.50 --json"
    )
    assert interrupted_words("", -22.5, False).endswith("geo refresh --budget 0.00")
    assert interrupted_words("", 0.004, False).endswith("geo refresh --budget 0.004")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("gpus: 1}", "gpus: 0}", "1xA100 is a100-large, which has no gpus"), ("as_of:", "as_off:", "as_of")],
)
def test_a_price_table_that_cannot_be_used_names_the_next_step(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES_FILE.read_text().replace(old, new, 1))
    with pytest.raises(PricesFileError, match=said) as error:
        load_prices(file)
    assert "geo stale" in error.value.fix
