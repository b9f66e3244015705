"""Sweeps over real servers: what is played, what is repeated, and who is to blame."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sweeps_lab import BROKEN, BUSY, EMPTY, HTML, Fault, Lab, completion, faulty, lab_arm

from geo_assets.sweeps import crew
from geo_assets.sweeps.episode_file import read_episodes, read_timings
from geo_assets.sweeps.harness import BudgetDiffers, DeadEndpoint, EnvironmentUnusable, make_plan, run_sweep
from geo_assets.sweeps.lock import WriterLock
from geo_assets.sweeps.protocol_tools import budget, demand
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.replay import ReplayDiffers, replay
from geo_assets.sweeps.store import SweepStore

GUESS = '{"lat": 48.0, "lon": 11.0}'


def words_of(request: dict[str, Any]) -> str:
    """Everything a request says in words."""
    parts: list[str] = []
    for message in request["messages"]:
        content = message.get("content") or ""
        parts += (
            [content] if isinstance(content, str) else [p["text"] for p in content if p["type"] == "text"]
        )
    return "\n".join(parts)


def calls_made(request: dict[str, Any]) -> int:
    return sum(len(m.get("tool_calls") or ()) for m in request["messages"])


def one_episode(
    lab: Lab, folder: Path, script: Callable[[int, dict[str, Any]], Fault | None]
) -> EpisodeRecord:
    """The first episode of a sweep of one pass against a scripted model."""
    with faulty(lab.policy_url, script) as url:
        return lab.sweep(lab_arm("noisy_oracle", k=1), folder, url).records[0]


def test_a_sweep_is_k_passes_over_all_tasks_with_a_record_of_every_turn(lab: Lab, tmp_path: Path) -> None:
    swept = lab.sweep(lab_arm("noisy_oracle", k=2), tmp_path)
    assert swept.complete
    assert [record.key for record in swept.records] == [(s, t) for s in range(2) for t in range(6)]
    for record in swept.records:
        assert [turn.turn for turn in record.turns] == list(range(1, len(record.turns) + 1))
        assert record.turns[-1].action["op"] == "guess"
        assert record.turns[-1].cost == record.result.cost
        assert record.turns[0].pose_before.heading_deg == 0.0
        assert all(t.image_sha256 for t in record.turns if t.image_kind != "none")
        assert record.result.distance_km is not None
        assert record.result.failures == ()
        assert record.provenance.models_reported == ("noisy-oracle",)
        assert record.result.completion_tokens == sum(turn.completion_tokens for turn in record.turns)
    assert len({record.seed for record in swept.records}) == 2
    assert set(read_timings(tmp_path / "timings.jsonl")) == {record.key for record in swept.records}


def test_the_same_bytes_whatever_the_number_of_threads(lab: Lab, tmp_path: Path) -> None:
    arm = lab_arm("noisy_oracle", k=2)
    lab.sweep(arm, tmp_path / "one", workers=1)
    lab.sweep(arm, tmp_path / "four", workers=4)
    one, four = (tmp_path / name / "episodes.jsonl" for name in ("one", "four"))
    assert one.read_bytes() == four.read_bytes()


def test_more_passes_repeat_nothing(lab: Lab, tmp_path: Path) -> None:
    asked: list[int] = []

    def count(number: int, request: dict[str, Any]) -> Fault | None:
        asked.append(number)
        return None

    lab.sweep(lab_arm("best_fixed_point", k=1), tmp_path)
    with faulty(lab.policy_url, count) as url:
        assert lab.sweep(lab_arm("best_fixed_point", k=1), tmp_path, url).complete
        assert asked == []
        assert len(lab.sweep(lab_arm("best_fixed_point", k=2), tmp_path, url).records) == 12
    assert len(asked) == 6


def test_never_guessing_is_demanded_once_and_scores_nothing(lab: Lab, tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = []

    def keep(number: int, request: dict[str, Any]) -> None:
        requests.append(request)

    with faulty(lab.policy_url, keep) as url:
        swept = lab.sweep(lab_arm("never_guesses", k=1), tmp_path, url)
    for record in swept.records:
        assert len(record.turns) == 12
        assert record.result.outcome == "no_guess"
        assert record.result.distance_km is None
        assert record.result.forced
        assert [turn.demanded for turn in record.turns] == [False] * 11 + [True]
    # The budget is stated once, and no other number of turns is shown.
    for request in requests:
        words = words_of(request)
        assert words.count(budget(12)) == 1
        assert words.lower().count("turns left") == 0
        assert words.count(demand()) == (1 if calls_made(request) == 11 else 0)
        assert len([m for m in request["messages"] if m["role"] == "tool"]) == calls_made(request)


def test_tools_come_from_the_schema(lab: Lab, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def keep(number: int, request: dict[str, Any]) -> None:
        seen.append([tool["function"]["name"] for tool in request["tools"]])

    with faulty(lab.policy_url, keep) as url:
        lab.sweep(lab_arm("best_fixed_point", k=1), tmp_path, url)
    plan = make_plan(lab_arm("best_fixed_point"), lab.env_url, "v", "h")
    assert seen[0] == [tool["name"] for tool in plan.tools]
    assert {"look", "submit_guess"} <= set(seen[0])


def test_another_turn_budget_is_refused(lab: Lab) -> None:
    with pytest.raises(BudgetDiffers, match="declared for 10 turns and the environment gives 12"):
        make_plan(lab_arm("noisy_oracle", max_turns=10), lab.env_url, "v", "h")


@pytest.mark.parametrize("fault", [HTML, EMPTY, BUSY, BROKEN], ids=["html", "empty", "429", "503"])
def test_a_passing_provider_fault_leaves_no_trace_in_the_record(
    lab: Lab, tmp_path: Path, fault: Fault
) -> None:
    arm = lab_arm("true_capital", k=1)
    lab.sweep(arm, tmp_path / "calm")
    with faulty(lab.policy_url, lambda number, _: fault if number == 2 else None) as url:
        swept = lab.sweep(arm, tmp_path / "rough", url, workers=1)
    assert swept.complete
    calm, rough = (tmp_path / name / "episodes.jsonl" for name in ("calm", "rough"))
    assert calm.read_bytes() == rough.read_bytes()
    assert max(max(t.attempts) for t in read_timings(tmp_path / "rough/timings.jsonl").values()) == 2


def test_a_lasting_provider_fault_is_unscored_and_played_again(lab: Lab, tmp_path: Path) -> None:
    arm = lab_arm("true_capital", k=1)
    with faulty(lab.policy_url, lambda number, _: BROKEN if number in (3, 4) else None) as url:
        swept = lab.sweep(arm, tmp_path / "sweep", url, workers=1)
    assert (len(swept.records), len(swept.unscored)) == (5, 1)
    assert not swept.complete
    logged = json.loads((tmp_path / "sweep/unscored.jsonl").read_text())
    assert (logged["task_index"], logged["fault"]) == (swept.unscored[0][1], "server")
    assert lab.sweep(arm, tmp_path / "sweep").complete
    lab.sweep(arm, tmp_path / "calm")
    assert (tmp_path / "sweep/episodes.jsonl").read_bytes() == (tmp_path / "calm/episodes.jsonl").read_bytes()


def test_an_endpoint_that_answers_nothing_is_given_up_early(lab: Lab, tmp_path: Path) -> None:
    asked: list[int] = []

    def dead(number: int, request: dict[str, Any]) -> Fault:
        asked.append(number)
        return EMPTY

    with faulty(lab.policy_url, dead) as url, pytest.raises(DeadEndpoint, match="12 episodes in a row"):
        lab.sweep(lab_arm("true_capital", k=8), tmp_path, url)
    assert len(asked) < 2 * 6 * 8
    assert read_episodes(tmp_path / "episodes.jsonl") == {}


def test_replies_without_finish_reason_quarantine_their_pass(lab: Lab, tmp_path: Path) -> None:
    seeds: list[int] = []

    def silent_first_pass(number: int, request: dict[str, Any]) -> Fault | None:
        if request["seed"] not in seeds:
            seeds.append(request["seed"])
        return completion("x", [("submit_guess", GUESS)], None) if request["seed"] == seeds[0] else None

    arm = lab_arm("best_fixed_point", k=2)
    with (
        faulty(lab.policy_url, silent_first_pass) as url,
        pytest.raises(DeadEndpoint, match=r"exceed 2% \(pass 1: 100.0%\)"),
    ):
        lab.sweep(arm, tmp_path, url, workers=1)
    kept = read_episodes(tmp_path / "episodes.jsonl")
    moved = read_episodes(next(tmp_path.glob("quarantined/*/episodes.jsonl")))
    assert {key[0] for key in kept} == {1}
    assert {key[0] for key in moved} == {0}
    assert len(lab.sweep(arm, tmp_path).records) == 12


def test_prose_without_a_place_is_the_models_own_failure(lab: Lab, tmp_path: Path) -> None:
    swept = lab.sweep(lab_arm("noisy_oracle", model="prose-answer", k=1), tmp_path)
    assert swept.complete
    assert {record.result.outcome for record in swept.records} == {"parse_failure"}
    assert {record.result.failures for record in swept.records} == {("parse_failure", "prose")}


def test_prose_with_a_place_is_a_guess(lab: Lab, tmp_path: Path) -> None:
    record = one_episode(lab, tmp_path, lambda *_: completion("Munich. <guess>48.1, 11.6</guess>"))
    assert (record.result.guess_lat, record.result.guess_lon) == (48.1, 11.6)
    assert record.result.failures == ("prose",)
    assert record.result.raw_guess.startswith("Munich")


@pytest.mark.parametrize(
    ("name", "arguments", "failure"),
    [
        ("look", "{heading", "unparseable_arguments"),
        ("look", '{"heading_deg": 1e999}', "unparseable_arguments"),
        ("look", '{"heading_deg": NaN}', "unparseable_arguments"),
        ("look", "[" * 40 + "]" * 40, "unparseable_arguments"),
        ("look", '{"heading_deg": "\\ud800"}', "unparseable_arguments"),
        ("teleport", "{}", "invalid_action"),
        ("zoom", '{"fov_deg": 900}', "invalid_action"),
        ("look", "", "invalid_action"),
    ],
)
def test_a_call_nothing_can_answer_spends_a_turn_and_ends_nothing(
    lab: Lab, tmp_path: Path, name: str, arguments: str, failure: str
) -> None:
    def script(number: int, request: dict[str, Any]) -> Fault:
        first = calls_made(request) == 0
        return completion("", [(name, arguments) if first else ("submit_guess", GUESS)], "tool_calls")

    record = one_episode(lab, tmp_path, script)
    assert failure in record.result.failures
    assert record.turns[0].turns_left == 11
    assert record.turns[0].cost == 0.0
    assert record.turns[0].feedback.startswith("Not a valid action")
    assert record.result.outcome == "guess"


def test_several_calls_in_one_reply_are_turns_and_what_follows_the_guess_is_not_played(
    lab: Lab, tmp_path: Path
) -> None:
    calls = [("look", '{"heading_deg": 90}'), ("submit_guess", GUESS), ("look", '{"heading_deg": 0}')]
    record = one_episode(lab, tmp_path, lambda *_: completion("", calls, "tool_calls"))
    assert [turn.tool for turn in record.turns] == ["look", "submit_guess"]
    assert [turn.reply for turn in record.turns] == [1, 1]
    assert record.result.completion_tokens == 5


def test_fabrication_is_the_environments_words_that_it_never_said(lab: Lab, tmp_path: Path) -> None:
    def invents(number: int, request: dict[str, Any]) -> Fault:
        if calls_made(request) == 0:
            return completion("I will look east.", [("look", '{"heading_deg": 90}')], "tool_calls")
        return completion("Facing SW (225°), field of view 90°.", [("submit_guess", GUESS)], "tool_calls")

    def quotes(number: int, request: dict[str, Any]) -> Fault:
        north, east = (f"It says: Facing {where}, field of view 90°." for where in ("N (0°)", "E (90°)"))
        if calls_made(request) == 0:
            return completion(north, [("look", '{"heading_deg": 90}')], "tool_calls")
        return completion(f"{north} {east}", [("submit_guess", GUESS)], "tool_calls")

    assert one_episode(lab, tmp_path / "a", invents).result.fabricated
    assert not one_episode(lab, tmp_path / "b", quotes).result.fabricated


def test_a_lost_environment_stops_the_sweep_and_records_nothing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "SESSION_PAUSE_S", 0.01)
    arm = lab_arm("best_fixed_point", k=1)
    plan = make_plan(arm, lab.env_url, "v", "h")
    nowhere = Lab(lab.home, "http://127.0.0.1:9", lab.policy_url)
    with WriterLock(tmp_path, arm.slug) as lock:
        store = SweepStore(tmp_path, lock, {})
        with pytest.raises(EnvironmentUnusable, match="failed 5 times in a row"):
            run_sweep(plan, nowhere.env_url, lab.endpoint(arm), store, lambda _: None, 1)
        assert store.records == {}


def test_an_episode_replays_picture_by_picture(lab: Lab, tmp_path: Path) -> None:
    record = lab.sweep(lab_arm("noisy_oracle", k=1), tmp_path).records[0]
    steps = replay(record, lab.env_url)
    assert len(steps) == len(record.turns) + 1
    assert steps[0].picture[:2] == b"\xff\xd8"
    turn = record.turns[0].model_copy(update={"image_sha256": "0" * 64})
    with pytest.raises(ReplayDiffers, match="turn 1 does not replay"):
        replay(record.model_copy(update={"turns": (turn, *record.turns[1:])}), lab.env_url)
