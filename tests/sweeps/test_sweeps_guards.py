"""The seven guards: for each a server that commits the sin, and the same sweep clean afterwards.

A refused sweep leaves no episode where tables read: `stands_empty` looks at the folder as a table does.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from llm_double import LlmDouble, guesses
from llm_shapes import Request, Said, card
from sweeps_lab import Lab, build_environment, double_arm, endpoint_at, lab_arm, lab_run

from env_service.canonical import canonical_json
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from geo_assets.lineage.folders import AssetFolder
from geo_assets.reports.arm_data import ArmData, UnequalComparison, comparable
from geo_assets.sweeps.episode_file import read_episodes
from geo_assets.sweeps.factory import sweep_arm
from geo_assets.sweeps.guards import NotConfirmed, UnevenPasses, whole_passes
from geo_assets.sweeps.harness import DeadEndpoint, Swept
from geo_assets.sweeps.lock import SweepLocked, WriterLock
from geo_assets.sweeps.outcomes import outcome_table
from geo_assets.sweeps.scales import TwoRewardScales, one_scale
from geo_assets.sweeps.served_models import ServedModels, WrongBaseServed, check_served
from geo_assets.sweeps.serving import served_environment
from geo_assets.sweeps.sidecar import read_outcomes
from geo_assets.sweeps.sight import BlindEndpoint

SWATCHES = 3
GUESS = [("submit_guess", {"lat": 48.1, "lon": 11.6})]


def stands_empty(folder: Path) -> bool:
    """No table finds an episode in the folder."""
    try:
        return bool(read_outcomes(folder).table.num_rows == 0)
    except GeoError:
        return True


def clean(lab: Lab, arm: ArmSpec, folder: Path, url: str) -> None:
    """The same sweep against a server without fault is whole."""
    swept = lab.guarded(arm, folder, endpoint_at(url, arm))
    assert swept.complete
    assert len(swept.records) == 6 * arm.k
    assert read_outcomes(folder).table.num_rows == 6 * arm.k


# --- 1: wrong base served ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "sentence"),
    [
        ([card("other")], "does not serve Qwen/Qwen3.5-4B; it serves other"),
        ([], "does not serve Qwen/Qwen3.5-4B; it serves nothing"),
        ([card("Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-2B")], "serves Qwen/Qwen3.5-2B as Qwen/Qwen3.5-4B, not Qwen"),
        ([card("Qwen/Qwen3.5-4B", "/lora", "Qwen/Qwen3.5-2B")], "as an adapter on Qwen/Qwen3.5-2B"),
    ],
)
def test_another_model_than_asked_is_refused_before_anything_is_played(
    lab: Lab, tmp_path: Path, listed: list[dict[str, object]], sentence: str
) -> None:
    arm = double_arm(k=1, model="Qwen/Qwen3.5-4B")
    with LlmDouble(cards=listed) as llm:
        with pytest.raises(WrongBaseServed, match=sentence):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        assert llm.log == []
        assert stands_empty(tmp_path)
        llm.cards[:] = [card("Qwen/Qwen3.5-4B")]
        clean(lab, arm, tmp_path, llm.url)


def test_a_server_that_changes_under_the_sweep_loses_what_was_played(lab: Lab, tmp_path: Path) -> None:
    arm, said = double_arm(k=1, weights="org/real"), list[str]()

    def swaps(request: Request) -> Said:
        if "submit_guess" in request.tools:
            llm.cards[:] = [card("m", "org/other")]
        return guesses()(request)

    with LlmDouble(swaps, [card("m", "org/real")]) as llm:
        with pytest.raises(WrongBaseServed, match="serves org/other as m, not org/real"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm), said=said)
        assert any("6 episodes played now were moved to" in line for line in said)
        assert stands_empty(tmp_path)
        assert len(read_episodes(next(tmp_path.glob("quarantined/*/episodes.jsonl")))) == 6
        llm.brain, llm.cards[:] = guesses(), [card("m", "org/real")]
        clean(lab, arm, tmp_path, llm.url)


def test_a_server_that_is_silent_after_the_sweep_loses_what_was_played(lab: Lab, tmp_path: Path) -> None:
    arm = double_arm(k=1)

    def dies(request: Request) -> Said:
        llm.list_fault = "500" if "submit_guess" in request.tools else ""
        return guesses()(request)

    with LlmDouble(dies) as llm:
        with pytest.raises(NotConfirmed, match=r"does not say after .*the 6 episodes played now.*geo sweep"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm, attempts=2))
        assert stands_empty(tmp_path)
        assert len(read_episodes(next(tmp_path.glob("quarantined/*/episodes.jsonl")))) == 6
        llm.brain, llm.list_fault = guesses(), ""
        clean(lab, arm, tmp_path, llm.url)


def test_what_a_broken_off_run_played_stands_only_if_the_endpoint_is_still_the_same(
    lab: Lab, tmp_path: Path
) -> None:
    """A run that breaks off cannot look a second time; the next one does it for both."""
    arm, said = double_arm(k=2), list[str]()

    def breaks(request: Request) -> Said:
        played = sum(bool(entry.body.get("tools")) for entry in llm.log)
        if played >= 5:
            llm.reports = "somebody-else"
        return guesses()(request)

    with LlmDouble(breaks, [card("m", "org/a")]) as llm:
        for root, kept in (("org/a", True), ("org/b", False)):
            folder = tmp_path / root[-1]
            llm.log.clear()
            with pytest.raises(DeadEndpoint, match="12 episodes in a row"):
                lab.guarded(arm.model_copy(update={"k": 4}), folder, endpoint_at(llm.url, arm, attempts=1))
            begun = len(read_episodes(folder / "episodes.jsonl"))
            assert begun >= 4
            llm.brain, llm.reports, llm.cards[:] = guesses(), "", [card("m", root)]
            said.clear()
            lab.guarded(arm, folder, endpoint_at(llm.url, arm), said=said)
            assert any("The endpoint is another one than" in line for line in said) is not kept
            assert any(f"{begun} of 12 episodes are there" in line for line in said) is kept
            llm.brain, llm.cards[:] = breaks, [card("m", "org/a")]


def test_another_name_in_every_answer_is_the_wrong_model(lab: Lab, tmp_path: Path) -> None:
    arm = double_arm(k=1)
    with LlmDouble(reports="somebody-else") as llm:
        with pytest.raises(WrongBaseServed, match="says that somebody-else answered where m was asked"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm, attempts=2))
        assert stands_empty(tmp_path)
        llm.reports = ""
        clean(lab, arm, tmp_path, llm.url)


# --- 2: dead endpoint -------------------------------------------------------------------------------------


def test_turns_without_a_finish_reason_quarantine_their_pass_and_name_the_share(
    lab: Lab, tmp_path: Path
) -> None:
    arm = double_arm(k=1)

    def dies(request: Request) -> Said:
        played = sum(bool(entry.body.get("tools")) for entry in llm.log)
        return Said("", GUESS, None) if played > 3 else guesses()(request)

    with LlmDouble(dies) as llm:
        with pytest.raises(DeadEndpoint, match=r"exceed 2% \(pass 1: 50\.0%\)"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        assert stands_empty(tmp_path)
        assert len(read_episodes(next(tmp_path.glob("quarantined/*/episodes.jsonl")))) == 6
        llm.brain = guesses()
        clean(lab, arm, tmp_path, llm.url)


@pytest.mark.parametrize("fault", ["reason-of-nothing", "broke-off", "error-in-200"])
def test_an_endpoint_that_breaks_off_is_dead_and_nothing_is_scored(
    lab: Lab, tmp_path: Path, fault: str
) -> None:
    arm = double_arm(k=1)
    with LlmDouble(mixed=(fault,)) as llm:
        llm.mixed_from = 3  # after the swatches
        with pytest.raises(DeadEndpoint, match=r"exceed 2% \(pass 1: 100\.0%\)"):
            lab.guarded(arm, tmp_path, endpoint_at(f"{llm.url}/mix-100", arm, attempts=1))
        assert stands_empty(tmp_path)
        assert len((tmp_path / "unscored.jsonl").read_text().splitlines()) == 6
        clean(lab, arm, tmp_path, llm.url)


# --- 3: two reward scales ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An environment that pays by a curve of its own."""
    config = build_environment(tmp_path_factory.mktemp("generous"), 6)
    body = json.loads(config.read_text())
    config.write_text(json.dumps(body | {"curve": {"name": "training-v9", "long_decay_km": 9000.0}}))
    with served_environment(config, 4) as served:
        yield served.url


def test_an_environment_that_pays_by_another_curve_is_refused(
    lab: Lab, tmp_path: Path, generous: str
) -> None:
    arm = double_arm(k=1)
    with LlmDouble() as llm:
        with pytest.raises(TwoRewardScales, match="was paid by the curve 'training-v9'"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm), generous)
        assert stands_empty(tmp_path)
        clean(lab, arm, tmp_path, llm.url)


def test_a_stored_reward_that_does_not_follow_is_refused(lab: Lab, tmp_path: Path) -> None:
    record = lab.sweep(lab_arm("true_capital", k=1), tmp_path).records[0]
    assert one_scale([record], "x") == "game"
    paid = record.result.model_copy(update={"env_reward": record.result.env_reward + 0.01})
    with pytest.raises(TwoRewardScales, match=r"task 0, sample 0 was paid .* where game gives"):
        one_scale([record.model_copy(update={"result": paid})], "x")


# --- 4: no base arm ---------------------------------------------------------------------------------------


def test_an_endpoint_without_the_base_arm_is_refused() -> None:
    base, adapter = card("base_model_4b", "Qwen/Qwen3.5-4B"), card("adapter_run3", "/lora", "base_model_4b")
    wanted = ("base_model_4b", "adapter_run3", "Qwen/Qwen3.5-4B", "rev", "here")
    with LlmDouble(cards=[adapter]) as llm:
        served = ServedModels(f"{llm.url}/v1")
        assert adapter["max_model_len"] is None
        with pytest.raises(WrongBaseServed, match="does not serve base_model_4b; it serves adapter_run3"):
            check_served(served.cards(), *wanted)
        llm.cards[:] = [base, adapter]
        check_served(served.cards(), *wanted)


# --- 5: unequal k -----------------------------------------------------------------------------------------


def arm_data(arm: ArmSpec, swept: Swept) -> ArmData:
    table = outcome_table(swept.records)
    columns = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    return ArmData(
        spec=arm,
        tasks=6,
        k=arm.k,
        complete=swept.complete,
        environment_version="lab-1",
        harness_version="harness-1",
        prompt_version="",
        sweep_version="v",
        columns=columns,
    )


def test_unequal_k_and_unscored_episodes_are_never_paired_and_resume_completes(
    lab: Lab, tmp_path: Path
) -> None:
    arm, other = double_arm(k=2), double_arm("other", k=1)
    with LlmDouble(mixed=("500",), seed=3) as llm:
        swept = lab.guarded(arm, tmp_path / "a", endpoint_at(f"{llm.url}/mix-50", arm, attempts=2))
        assert not swept.complete, "half of the calls fail, and two attempts do not always do"
        with pytest.raises(UnequalComparison, match=r"has \d+ of 12 episodes.*--resume"):
            arm_data(arm, swept).matrix(arm_data(arm, swept).rewards)
        whole = lab.guarded(other, tmp_path / "b", endpoint_at(llm.url, other))
        with pytest.raises(UnequalComparison, match=r"unequal numbers of passes \(k\)"):
            comparable([arm_data(arm, swept), arm_data(other, whole)], "board")
        clean(lab, arm, tmp_path / "a", llm.url)


# --- 6: concurrent sweeps ---------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from geo_assets.sweeps.lock import WriterLock
with WriterLock(Path(sys.argv[1]), "sweep_double"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_sweep_is_refused_and_a_dead_ones_lock_is_taken_over(lab: Lab, tmp_path: Path) -> None:
    arm, said = double_arm(k=1), list[str]()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with LlmDouble() as llm:
        with pytest.raises(SweepLocked, match=rf"written by process {holder.pid} on .* \(for \d+ s; it last"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        assert llm.log == []
        assert stands_empty(tmp_path)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        swept = lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm), said=said)
    assert any(line.startswith(f"double: took over the lock of process {holder.pid}") for line in said)
    assert swept.complete
    with WriterLock(tmp_path, "again", say=said.append):
        assert not said[-1].startswith("again: took over"), "a lock that was given back is nobody's"


WHOLE = {"pid": 1, "host": "elsewhere", "since": "2026-01-01", "token": "t", "heartbeat": 1.0}


@pytest.mark.parametrize(
    "damage",
    [{"pid": "abc"}, {"pid": 10**30}, {"pid": True}, {"host": 3}, {"heartbeat": 1e300}, {"heartbeat": "x"}],
)
def test_a_damaged_lock_is_waited_for_and_then_taken_over(tmp_path: Path, damage: dict[str, object]) -> None:
    path, said = tmp_path / "_writer.json", list[str]()
    path.write_text(json.dumps(WHOLE | damage))
    with pytest.raises(SweepLocked, match=r"_writer\.json is a lock that is damaged.*or remove the file"):
        WriterLock(tmp_path, "x").__enter__()
    os.utime(path, (1.0, 1.0))
    with WriterLock(tmp_path, "x", say=said.append) as lock:
        lock.check()
    assert "_writer.json, which is damaged" in said[0]


@pytest.mark.parametrize("text", ["", "[]", "{}", "\0", "[" * 100_000])
def test_a_lock_file_without_an_owner_is_nobodys(tmp_path: Path, text: str) -> None:
    (tmp_path / "_writer.json").write_text(text)
    with WriterLock(tmp_path, "x") as lock:
        lock.check()
        assert json.loads((tmp_path / "_writer.json").read_text())["pid"] == os.getpid()


def test_an_episode_outside_the_passes_is_refused(lab: Lab, tmp_path: Path) -> None:
    records = lab.sweep(lab_arm("best_fixed_point", k=1), tmp_path).records
    assert whole_passes(records, 6, 1, "x") == 1.0
    with pytest.raises(UnevenPasses, match="holds an episode twice"):
        whole_passes([*records, records[0]], 6, 1, "x")
    with pytest.raises(UnevenPasses, match="holds task 5, sample 0, which is not in 1 passes over 5 tasks"):
        whole_passes(records, 5, 1, "x")


# --- 7: blind endpoint ------------------------------------------------------------------------------------


@pytest.mark.parametrize("says", ["red", "I see no picture.", "It is red or blue"])
def test_an_endpoint_that_cannot_name_colours_is_refused(lab: Lab, tmp_path: Path, says: str) -> None:
    arm = double_arm(k=1)

    def blind(request: Request) -> Said:
        return guesses()(request) if request.tools else Said(says)

    with LlmDouble(blind) as llm:
        with pytest.raises(BlindEndpoint, match=r"names [01] of 3 colour swatches .* does not see"):
            lab.guarded(arm, tmp_path, endpoint_at(llm.url, arm))
        assert {bool(entry.body.get("tools")) for entry in llm.log} == {False}
        assert stands_empty(tmp_path)
        llm.brain = guesses()
        clean(lab, arm, tmp_path, llm.url)


def test_the_words_of_a_swatch_do_not_give_its_colour_away(lab: Lab, tmp_path: Path) -> None:
    arm = double_arm(k=1)
    with LlmDouble() as llm:
        for number in range(4):
            lab.guarded(double_arm(f"n{number}", k=1), tmp_path / str(number), endpoint_at(llm.url, arm))
        asked = [entry.body["messages"][0]["content"] for entry in llm.log if "tools" not in entry.body]
    words = {content[0]["text"] for content in asked}
    assert len(asked) == 4 * SWATCHES
    assert all(sorted(text) == sorted(next(iter(words))) for text in words), "the same, in another order"
    assert len({canonical_json(content[1]) for content in asked}) > SWATCHES


# --- and as an asset --------------------------------------------------------------------------------------


def test_a_refused_asset_publishes_nothing_and_a_clean_one_carries_every_check(tmp_path: Path) -> None:
    build_environment(tmp_path, 3)
    run = lab_run(tmp_path, "sweep_double")

    def blind(request: Request) -> Said:
        return guesses()(request) if request.tools else Said("grey")

    with LlmDouble(blind) as llm:
        arm = double_arm(k=1, base_url=f"{llm.url}/v1")
        with pytest.raises(BlindEndpoint):
            sweep_arm(run, arm)
        assert AssetFolder(tmp_path, "sweeps/double").built() is None
        assert stands_empty(tmp_path / "sweeps/double")
        llm.brain = guesses()
        made = sweep_arm(run, arm)
        again = sweep_arm(run, arm)
    assert {check.name: check.passed for check in made.checks} == {
        "passes_complete": True,
        "served_as_declared": True,
        "pictures_seen": True,
        "endpoint_alive": True,
        "one_reward_scale": True,
        "passes_are_whole": True,
    }
    found = {check.name: check.metadata for check in made.checks}
    assert found["pictures_seen"] == {"how": "swatches", "asked": 3, "seen": 3}
    assert found["passes_are_whole"] == {"episodes_by_tasks": 1.0, "limit": 1}
    assert [check.metadata for check in again.checks] == [check.metadata for check in made.checks]
