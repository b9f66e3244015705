"""The budget of `geo refresh`: each asset is charged when its turn comes, and then with what it recorded."""

from collections.abc import Sequence

import dagster as dg
import pytest
from sensors_lab import SWEEPS, Automated

from geo_assets.lineage.refreshing import Refreshed, refresh


def _refresh(
    lab: Automated, budget_usd: float, run: object = None, result: Refreshed | None = None
) -> Refreshed:
    """The three sweeps, and the table that is made from them."""
    return refresh(
        lab.instance, lab.graph, lab.stage, run or lab.run, {*SWEEPS, "board"}, budget_usd,
        lambda line: None, result,
    )  # type: ignore[arg-type]  # fmt: skip


def _dear(lab: Automated) -> None:
    """Sweeps that are thought to cost $2.50 record $30."""
    lab.edit("graph", '{"usd": USD}, [Check(', '{"usd": 30.0}, [Check(')
    lab.seed(2)


def test_what_turns_out_dearer_stops_what_comes_after(lab: Automated) -> None:
    _dear(lab)
    done = _refresh(lab, 8.0)
    assert done.reran == ["sweep_a"] and done.spent_usd == 30.0
    assert done.skipped["sweep_b"] == "it costs $2.50, and $0.00 of $8.00 are left"
    assert "sweep_b, which is stale" in done.skipped["board"]


def test_what_costs_nothing_is_built_though_too_much_was_spent(lab: Automated) -> None:
    _dear(lab)
    lab.edit("graph", 'for slug in "abc"', 'for slug in "a"')
    lab.edit("graph", '@geo_asset(group="reports", deps=["sweep_a", "sweep_b", "sweep_c"])',
             '@geo_asset(group="reports", deps=["sweep_a"])')  # fmt: skip
    done = _refresh(lab, 8.0)
    assert done.reran == ["sweep_a", "board"] and set(done.skipped) == {"sweep_b", "sweep_c"}


def test_what_turns_out_cheaper_leaves_more(lab: Automated) -> None:
    lab.edit("graph", '{"usd": USD}, [Check(', '{"usd": 0.5}, [Check(')
    lab.seed(2)
    done = _refresh(lab, 3.5)
    assert done.reran == [*SWEEPS, "board"] and done.spent_usd == 1.5 and not done.skipped


@pytest.mark.parametrize(("recorded", "spent"), [(None, 2.5), (1.25, 1.25)])
def test_a_failed_run_is_charged_with_what_it_recorded_or_else_with_its_price(
    lab: Automated, recorded: float | None, spent: float
) -> None:
    lab.seed(2)

    def run(names: Sequence[str]) -> bool:
        if recorded is not None:
            lab.instance.report_runless_asset_event(dg.AssetObservation(names[0], metadata={"usd": recorded}))
        return False

    done = _refresh(lab, 2.5, run)
    assert done.failed[0] == "sweep_a" and done.spent_usd == pytest.approx(spent)
    assert ("sweep_b" in done.skipped) and not done.reran


def test_after_an_interruption_what_was_not_spent_is_left(lab: Automated) -> None:
    lab.seed(2)
    result = Refreshed()

    def run(names: Sequence[str]) -> bool:
        if names[0] == "sweep_b":
            raise KeyboardInterrupt
        return lab.run(names)

    with pytest.raises(KeyboardInterrupt):
        _refresh(lab, 7.5, run, result)
    assert result.spent_usd == 2.5, "of three the first was paid, and going on with the second records it"
    assert _refresh(lab, 7.5 - result.spent_usd).reran == ["sweep_b", "sweep_c", "board"]
