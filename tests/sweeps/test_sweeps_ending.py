"""Sweeps that end early: told to stop, out of budget; and calls that are counted once each."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from llm_double import LlmDouble, guesses
from llm_faults import CAUSE, FAULTS
from llm_shapes import Request, Said
from sweeps_lab import HTML, Lab, double_arm, endpoint_at, faulty, lab_arm

from geo_assets.config.arms import PriceSpec
from geo_assets.sweeps.episode_file import read_episodes, read_timings
from geo_assets.sweeps.harness import BudgetSpent, too_silent
from geo_assets.sweeps.spending import CallLog, read_calls
from geo_assets.sweeps.stopping import Stopping
from resources.calls import Calls
from resources.replies import ANSWERED, Usage

LAB = Path(__file__).parent
CHILD = """
import sys
sys.path[:0] = [{lab!r}, {doubles!r}]
from pathlib import Path
from sweeps_lab import HTML, Lab, double_arm, endpoint_at, faulty, lab_arm
from env_service.errors import GeoError
arm, folder = double_arm(k=4), Path({folder!r})
try:
    Lab(folder, {env!r}, "").guarded(arm, folder, endpoint_at({llm!r}, arm))
except GeoError as error:
    print(error, flush=True)
    sys.exit(1)
"""


def test_told_to_stop_it_plays_to_the_end_what_is_in_play_and_says_what_is_left(
    lab: Lab, tmp_path: Path
) -> None:
    arm = double_arm(k=4)
    child: subprocess.Popen[str] | None = None

    def stops_at_the_seventh(request: Request) -> Said:
        if request.tools and sum(bool(entry.body.get("tools")) for entry in llm.log) == 7:
            assert child is not None
            os.kill(child.pid, signal.SIGTERM)
        return guesses()(request)

    with LlmDouble(stops_at_the_seventh) as llm:
        code = CHILD.format(
            lab=str(LAB),
            doubles=str(LAB.parent / "doubles"),
            folder=str(tmp_path),
            env=lab.env_url,
            llm=llm.url,
        )
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        said, _ = child.communicate()
        assert child.returncode == 1, said
        kept = read_episodes(tmp_path / "episodes.jsonl")
        asked = sum(bool(entry.body.get("tools")) for entry in llm.log)
        assert 7 <= len(kept) == asked < 24, "every episode that was begun was played to its end"
        assert f"stopped by SIGTERM; {len(kept)} episodes of this run are kept, none is half played" in said
        assert f"{24 - len(kept)} of 24 are left" in said
        assert "geo sweep double --resume" in said
        llm.brain = guesses()
        assert lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm)).complete
        assert sum(bool(entry.body.get("tools")) for entry in llm.log) == 24, "nothing was played twice"


def test_a_sweep_stops_before_it_costs_more_than_its_budget(lab: Lab, tmp_path: Path) -> None:
    # A call of the double is 100 tokens in and 7 out: 0.107 dollars at these prices.
    price = PriceSpec(input_usd=1000.0, output_usd=1000.0)
    plain = double_arm(k=2, price=price)
    arm = plain.model_copy(update={"runtime": plain.runtime.model_copy(update={"budget_usd": 1.0})})
    said: list[str] = []
    with LlmDouble() as llm:
        with pytest.raises(BudgetSpent, match=r"the budget is spent \(\$0\.\d\d of \$1\.00\); \d+ of 12"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm), said=said)
        spent = price.input_usd / 1e6 * 107 * len(llm.log)
        assert 0.5 < spent <= 1.0
        kept = len(read_episodes(tmp_path / "episodes.jsonl"))
        assert kept == len(llm.log) - 3
        richer = arm.model_copy(update={"runtime": arm.runtime.model_copy(update={"budget_usd": 10.0})})
        assert lab.guarded(richer, tmp_path, endpoint_at(llm.url, arm), said=said).complete
        assert len(llm.log) == 12 + 2 * 3
    assert read_calls(tmp_path).causes == {ANSWERED: 18}
    assert any(f"${107e-3 * 18:.2f} of $10.00" in line for line in said), "earlier runs count"


def test_no_fault_is_scored_and_the_columns_add_up_to_the_calls_made(lab: Lab, tmp_path: Path) -> None:
    arm, names = double_arm(k=4), [name for name in FAULTS if name != "timeout"]
    with LlmDouble(mixed=names, seed=11) as llm:
        swept = lab.guarded(arm, tmp_path / "rough", endpoint_at(f"{llm.url}/mix-30", arm))
        met = llm.faults
        calm = lab.guarded(arm, tmp_path / "calm", endpoint_at(llm.url, arm))
    told = read_calls(tmp_path / "rough")
    assert Counter(told.causes) == Counter(CAUSE[name] if name else ANSWERED for name in met.elements())
    lines = {record.key: record.line() for record in calm.records}
    assert all(record.line() == lines[record.key] for record in swept.records)
    assert len(swept.records) + len(swept.unscored) == 24
    # What is kept of each episode adds up to the same, less the swatches.
    per_episode: Counter[str] = Counter()
    for timing in read_timings(tmp_path / "rough/timings.jsonl").values():
        per_episode.update(timing.causes)
    unscored = tmp_path / "rough/unscored.jsonl"
    for line in unscored.read_text().splitlines() if unscored.exists() else ():
        per_episode.update(json.loads(line)["causes"])
    swatches = Counter(told.causes) - per_episode
    assert swatches[ANSWERED] == 3
    assert sum(per_episode.values()) + sum(swatches.values()) == told.calls


def test_counts_of_a_run_that_was_killed_stay_and_a_broken_file_costs_nothing(tmp_path: Path) -> None:
    calls = Calls()
    log = CallLog(tmp_path, calls)
    calls.answered(Usage(10, 1))
    calls.failed("server")
    log.write()
    calls.answered(Usage(10, 1))
    log.write()
    again = CallLog(tmp_path, Calls())
    assert again.total.causes == {ANSWERED: 2, "server": 1}
    again.write()
    assert len(json.loads((tmp_path / "calls.json").read_text())["runs"]) == 2
    odd = {"began": "2026-01-01", "causes": {}, "prompt_tokens": 10**30, "completion_tokens": 0}
    runs = [{"causes": 3}, 7, odd, odd | {"prompt_tokens": -1}, odd | {"prompt_tokens": 1, "began": 3}]
    (tmp_path / "calls.json").write_text(json.dumps({"runs": runs}))
    assert CallLog(tmp_path, Calls()).total.calls == 0


def stopped_by(pipe: Connection) -> None:
    with Stopping(lambda: None) as stopping:
        os.kill(os.getpid(), signal.SIGINT)
        pipe.send(stopping.by)


def test_a_signal_that_was_passed_on_is_not_called_by_the_name_of_another() -> None:
    with Stopping(lambda: None) as stopping:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.by == "SIGINT"
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=stopped_by, args=(there,))
    child.start()
    assert here.recv() == "a signal (SIGINT or SIGTERM)"
    child.join()


@pytest.mark.parametrize(
    ("replies", "unfinished", "whole", "dead"),
    [
        (19, 1, False, False),  # three episodes of six replies, and one page of HTML
        (1, 1, False, False),
        (19, 2, False, False),
        (19, 3, False, True),
        (6, 6, False, True),
        (2, 2, False, True),
        (49, 1, False, False),
        (50, 1, False, False),
        (52, 2, False, True),
        (19, 1, True, True),
        (50, 1, True, False),
        (0, 0, False, False),
    ],
)
def test_a_short_pass_is_dead_only_beyond_chance(
    replies: int, unfinished: int, whole: bool, dead: bool
) -> None:
    assert too_silent(replies, unfinished, whole) is dead


def test_one_silent_fault_spoils_one_episode_and_not_its_short_pass(lab: Lab, tmp_path: Path) -> None:
    plain = lab_arm("best_fixed_point", k=1)
    arm = plain.model_copy(update={"runtime": plain.runtime.model_copy(update={"attempts": 1})})
    with faulty(lab.policy_url, lambda number, body: HTML if number == 3 else None) as url:
        swept = lab.sweep(arm, tmp_path, url)
    assert (len(swept.records), len(swept.unscored)) == (5, 1)
    assert lab.sweep(arm, tmp_path).complete
