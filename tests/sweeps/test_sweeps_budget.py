"""A budget in dollars: what begins under it, what it refuses, and what is counted against it."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from llm_double import LlmDouble, guesses
from llm_shapes import Request, Said
from sweeps_lab import Lab, double_arm, endpoint_at

from geo_assets.config.arms import ArmSpec, PriceSpec
from geo_assets.lineage.folders import MARKER
from geo_assets.sweeps.episode_file import read_episodes
from geo_assets.sweeps.harness import BudgetSpent, NoUsage
from geo_assets.sweeps.lock import WriterLock
from geo_assets.sweeps.spending import Budget, CallLog, mark_recorded, unrecorded
from geo_assets.sweeps.store import SweepStore
from resources.calls import Calls, Price
from resources.replies import Usage

CALL_USD, SWATCHES = 0.107, 3
"""A call of the double is 100 tokens in and 7 out, at a thousand dollars for a million of either."""
PRICE = Price(1000.0, 1000.0)


def limited(usd: float | None, workers: int = 16) -> ArmSpec:
    arm = double_arm(k=4, price=PriceSpec(input_usd=1000.0, output_usd=1000.0))
    runtime = arm.runtime.model_copy(update={"budget_usd": usd, "workers": workers})
    return arm.model_copy(update={"runtime": runtime})


def test_many_workers_do_not_begin_what_the_budget_cannot_pay(lab: Lab, tmp_path: Path) -> None:
    arm, lock, in_play, most = limited(1.0), threading.Lock(), 0, list[int]()

    def slow(request: Request) -> Said:
        nonlocal in_play
        if not request.tools:
            return guesses()(request)
        with lock:
            in_play += 1
            most.append(in_play)
        time.sleep(0.1)
        with lock:
            in_play -= 1
        return guesses()(request)

    with LlmDouble(slow) as llm:
        with pytest.raises(BudgetSpent, match=r"the budget is spent \(\$0\.96 of \$1\.00\); 18 of 24"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        assert len(llm.log) == SWATCHES + 6, "all that fits, and no more"
    assert most[:2] == [1, 1], "the first alone: until it has ended nobody knows what one costs"
    assert max(most) > 1


@pytest.mark.parametrize("counts_swatches", [False, True])
def test_an_endpoint_that_reports_no_tokens_cannot_have_a_budget(
    lab: Lab, tmp_path: Path, counts_swatches: bool
) -> None:
    def uncounted(request: Request) -> Said:
        said = guesses()(request)
        counted = counts_swatches and not request.tools
        return said if counted else replace(said, prompt_tokens=0, completion_tokens=0)

    with LlmDouble(uncounted) as llm:
        arm = limited(1.0)
        with pytest.raises(NoUsage, match=r"without saying how many tokens.*budget_usd.*geo sweep double"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        played = len(llm.log) - SWATCHES
        assert played == counts_swatches
        assert len(read_episodes(tmp_path / "episodes.jsonl")) == played
        free = limited(None)
        assert lab.guarded(free, tmp_path, endpoint_at(llm.url, free)).complete
        assert len(llm.log) == 2 * SWATCHES + 24


def budget(folder: Path, calls: Calls, usd: float | None, price: Price | None = PRICE) -> Budget:
    return Budget(CallLog(folder, calls), price, usd, "x")


def test_an_episode_begins_at_the_price_of_the_dearest_so_far(tmp_path: Path) -> None:
    calls = Calls()
    watched = budget(tmp_path, calls, 1.0)
    assert [watched.begins(in_play) for in_play in (0, 1, 63)] == ["now", "later", "later"]
    watched.paid(100, 0)
    watched.paid(300, 0)
    watched.paid(100, 0)
    assert [watched.begins(in_play) for in_play in (0, 2, 3)] == ["now", "now", "later"]
    calls.answered(Usage(750, 1))
    assert [watched.begins(in_play) for in_play in (1, 0)] == ["later", "never"]
    calls.answered(Usage(250, 0))
    assert watched.begins(63) == "never", "spent; what is in play cannot give any back"
    for without in (budget(tmp_path, calls, None), budget(tmp_path, calls, 1.0, None)):
        assert without.begins(63) == "now"
    assert budget(tmp_path, calls, 1.0, Price(0.0, 0.0)).begins(63) == "now"
    assert budget(tmp_path, Calls(), 0.0).begins(0) == "never"


def play(folder: Path, identity: Mapping[str, object], tokens: int) -> None:
    """A run under an identity that makes one call and ends."""
    with WriterLock(folder, "x") as lock:
        SweepStore(folder, lock, identity)
        calls = Calls()
        log = CallLog(folder, calls)
        calls.answered(Usage(tokens, 0))
        log.write()


def test_what_was_paid_under_an_identity_that_was_given_up_is_recorded_once(tmp_path: Path) -> None:
    folder, marker = tmp_path / "x", tmp_path / "x" / MARKER

    def publish() -> int:
        found = unrecorded(folder, marker, PRICE)
        marker.write_text("{}")
        mark_recorded(folder)
        assert found.get("usd", 0.0) == pytest.approx(found.get("prompt_tokens", 0) / 1000)
        return int(found.get("prompt_tokens", 0))

    play(folder, {"arm": 1}, 10)
    play(folder, {"arm": 2}, 200)
    assert CallLog(folder, Calls()).total.prompt_tokens == 210, "a budget holds for both"
    assert publish() == 210
    assert publish() == 0
    play(folder, {"arm": 3}, 3000)
    play(folder, {"arm": 4}, 40_000)
    assert CallLog(folder, Calls()).total.prompt_tokens == 43_000
    assert publish() == 43_000
    play(folder, {"arm": 3}, 500_000)
    assert publish() == 500_000, "an identity that comes back brings what is recorded back with it"
    assert publish() == 0


@pytest.mark.parametrize("harm", [Path.unlink, lambda marker: marker.write_text("{")], ids=["gone", "torn"])
def test_what_was_recorded_stays_so_whatever_becomes_of_the_marker(
    tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    folder, marker = tmp_path / "x", tmp_path / "x" / MARKER
    play(folder, {"arm": 1}, 10)
    play(folder, {"arm": 2}, 200)
    marker.write_text("{}")
    assert unrecorded(folder, marker, PRICE)["prompt_tokens"] == 210, "an older marker says nothing of it"
    mark_recorded(folder)
    play(folder, {"arm": 2}, 3000)
    harm(marker)
    assert unrecorded(folder, marker, PRICE)["prompt_tokens"] == 3000


def test_runs_from_before_that_was_kept_count_by_the_time_of_the_marker(tmp_path: Path) -> None:
    run = {"causes": {"answered": 1}, "prompt_tokens": 7, "completion_tokens": 0}
    began = ("2020-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00")
    (tmp_path / "calls.json").write_text(json.dumps({"runs": [{**run, "began": at} for at in began]}))
    (tmp_path / MARKER).write_text("{}")
    assert unrecorded(tmp_path, tmp_path / MARKER, PRICE)["prompt_tokens"] == 7
