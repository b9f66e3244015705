"""The TRL environment against a really served one: schemas, one budget, refusals, rewards, broken lines."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from training_lab import PLACES, PX, TURNS, lab_run, rules, served, write_world
from transformers.utils import get_json_schema

from env_service.client import GeoGuessrEnv, schema
from env_service.geodesy import haversine_km
from env_service.scoring import training_reward
from geo_assets.training.trl_environment import OVER, TrainingEnvironment
from resources.processes import ServerProcess

CURVE = lab_run().reward_curve()


@pytest.fixture
def player(lab_url: str) -> Iterator[TrainingEnvironment]:
    """A rollout's environment, closed at the end."""
    environment = TrainingEnvironment(rules(lab_url))
    yield environment
    environment._close()


def words(blocks: list[dict[str, Any]]) -> str:
    """The text of content blocks."""
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def pictures(blocks: list[dict[str, Any]]) -> list[Any]:
    """The pictures of content blocks."""
    return [block["image"] for block in blocks if block["type"] == "image"]


def test_tools_are_those_of_the_service(lab_url: str, player: TrainingEnvironment) -> None:
    wanted = {tool["name"]: tool["parameters"] for tool in schema(lab_url)["tools"]}
    public = dict(inspect.getmembers(TrainingEnvironment, predicate=inspect.isfunction))
    names = {name for name in public if not name.startswith("_")} - {"reset", "get_reward"}
    assert names == set(wanted) and len(names) == 11
    for name in names:
        derived = get_json_schema(getattr(player, name))["function"]["parameters"]
        assert list(derived.get("properties", {})) == list(wanted[name]["properties"]), name
        assert derived.get("required", []) == wanted[name]["required"], name
        for argument, entry in wanted[name]["properties"].items():
            assert derived["properties"][argument]["type"] == entry["type"], (name, argument)
            assert derived["properties"][argument].get("enum") == entry.get("enum"), (name, argument)


def test_every_tool_reaches_the_service(player: TrainingEnvironment) -> None:
    def fresh() -> None:
        player.reset(split="train", index=1)

    fresh()
    for blocks in (player.look(90.0), player.pan(45.0), player.zoom(40.0), player.move("forward", 5.0)):
        assert "Not a valid action" not in words(blocks) and len(pictures(blocks)) == 1
    fresh()
    pinned = player.place_pin(1.0, 2.0, "here")
    assert words(pinned).startswith("Pin 1: ") and pictures(pinned)[0].size == (PX, PX)
    assert "here" in words(player.list_pins())
    assert words(player.clear_pins()).startswith("Removed 1 pin.")
    assert words(player.view_map(1.0, 2.0)).startswith("Map around")
    assert "nearest city" in words(player.reverse_geocode(51.0, 4.0))
    fresh()
    assert words(player.measure(0.0, 0.0, 0.0, 1.0)).startswith("111.2 km.")
    assert words(player.submit_guess(1.0, 2.0, country="Ghana", confidence=0.5)) == OVER
    assert player._trace.invalid == 0


def test_one_budget_stands_in_every_result(player: TrainingEnvironment) -> None:
    opening = player.reset(split="train", index=0)
    assert f"You have {TURNS} turns in all.\nFacing N (0°)" in words(opening)
    assert [picture.size for picture in pictures(opening)] == [(PX, PX)]
    said = [words(player.look(10.0 * turn)) for turn in range(TURNS)]
    assert [text.endswith(f" {TURNS - 1 - at} turns left.") for at, text in enumerate(said[:3])] == [True] * 3
    assert said[-3].endswith("Only 2 turns left: call submit_guess with one of them.")
    assert said[-2].endswith("This is your last turn: call submit_guess now.")
    assert said[-1] == OVER
    assert player.get_reward() == 0.0 and player._trace.outcome == "no_guess"


def test_reward_is_the_runs_curve_over_raw_distance_and_cost(player: TrainingEnvironment) -> None:
    player.reset(split="train", index=0)
    player.look(90.0)
    player.look(180.0)
    told = player.submit_guess(40.0, 5.0)
    assert told == [{"type": "text", "text": OVER}]
    distance = haversine_km(40.0, 5.0, PLACES[0][2], PLACES[0][3])
    assert player.get_reward() == pytest.approx(training_reward(distance, 0.02, CURVE), abs=1e-9)
    assert player._trace.looks == 2 and player._trace.outcome == "guess"


def test_calls_after_the_end_are_refused_and_charged(player: TrainingEnvironment) -> None:
    player.reset(split="train", index=0)
    player.submit_guess(51.0, 4.0)
    assert player.get_reward() == pytest.approx(1.0)
    for blocks in (player.submit_guess(51.0, 4.0), player.look(1.0), player._call("no_such_tool", x=1)):
        assert blocks == [{"type": "text", "text": OVER}]
    assert player._trace.refused == 3 and len(player._trace.actions) == 1
    assert player.get_reward() == pytest.approx(1.0 - 3 * lab_run().refusal_charge)
    player.reset(split="train", index=0)
    assert player._trace.refused == 0


def test_wrong_calls_spend_a_turn(player: TrainingEnvironment) -> None:
    player.reset(split="train", index=0)
    said = [
        words(player._call("look", heading=90)),
        words(player._call("teleport", lat=1)),
        words(player._call("look", heading_deg=float("nan"))),
        words(player._call("submit_guess", lat="north", lon=1.0)),
        words(player._call("look", heading_deg="\ud800")),
    ]
    assert all(text.startswith("Not a valid action") for text in said)
    assert said[-1].endswith("This is your last turn: call submit_guess now.")
    assert player._trace.invalid == 5
    assert words(player.submit_guess(51.0, 4.0)) == OVER and player.get_reward() == pytest.approx(1.0)


def test_a_reply_without_a_call_is_the_answer(player: TrainingEnvironment) -> None:
    player.reset(split="train", index=0)
    player._answer("It is at 51.0, 4.0")
    assert player.get_reward() == pytest.approx(1.0)
    player.reset(split="train", index=0)
    player._answer("Done.")
    assert player.get_reward() == 0.0 and player._trace.outcome == "parse_failure"


def test_rows_come_whole_and_never_raise(player: TrainingEnvironment) -> None:
    row = {"prompt": [{"role": "user", "content": ""}], "split": "train", "index": 2, "absent": None}
    assert pictures(player.reset(**row))
    for bad in ({"split": "train", "index": 99}, {"split": "nowhere", "index": 0}, {"index": None}):
        opening = player.reset(**bad)
        assert words(opening) == OVER and len(pictures(opening)) == 1
        assert player.look(1.0) == [{"type": "text", "text": OVER}]
        assert player.get_reward() is None and player._trace.lost and player._trace.refused == 0
    assert pictures(player.reset(split="train", index=0)) and player.get_reward() == 0.0


def test_what_was_cut_off_has_no_reward(player: TrainingEnvironment) -> None:
    player.reset(split="train", index=0)
    player._cut_off()
    assert player.get_reward() is None and player._trace.cut
    player.reset(split="train", index=0)
    player.submit_guess(51.0, 4.0)
    player._cut_off()
    assert player.get_reward() == pytest.approx(1.0) and not player._trace.cut


def test_tools_follow_the_task(player: TrainingEnvironment) -> None:
    offered = []
    for index in (0, 1):
        player.reset(split="train", index=index)
        offered.append({tool["function"]["name"] for tool in player._definitions})
    assert offered[1] - offered[0] == {"move"}, "task 0 has one frame, task 1 has two"


def played(player: TrainingEnvironment, server: ServerProcess, config: Path, breaks: bool) -> Any:
    """An episode, perhaps with the service killed and started again in its middle."""
    player.reset(split="train", index=1)
    player.look(90.0)
    player.move("forward")
    if breaks:
        port = server.url.rsplit(":", 1)[1]
        server.stop()
        server.args[server.args.index("--port") + 1] = port
        server.start()
    player.zoom(40.0)
    player.submit_guess(3.0, 30.0)
    return player.get_reward(), player._trace


def test_an_episode_goes_on_after_its_service_was_restarted(lab_config: Path) -> None:
    with served(lab_config) as server:
        player = TrainingEnvironment(rules(server.url))
        reward, whole = played(player, server, lab_config, breaks=False)
        again, mended = played(player, server, lab_config, breaks=True)
        player._close()
    assert reward == again and whole.reconnects == 0 and mended.reconnects == 1
    assert (mended.pictures, mended.poses, mended.actions) == (whole.pictures, whole.poses, whole.actions)


def test_an_episode_that_comes_back_different_is_lost(tmp_path: Path) -> None:
    one, two = write_world(tmp_path / "one"), write_world(tmp_path / "two")
    for at, path in enumerate(sorted((tmp_path / "two" / "panos").glob("*.jpg"))):
        path.write_bytes(sorted((tmp_path / "one" / "panos").glob("*.jpg"))[at - 1].read_bytes())
    with served(one) as server:
        player, port = TrainingEnvironment(rules(server.url)), int(server.url.rsplit(":", 1)[1])
        player.reset(split="train", index=0)
        player.look(90.0)
    with served(two, port):
        assert player.look(180.0) == [{"type": "text", "text": OVER}]
        assert "showed other pictures" in player._trace.lost and player.get_reward() is None
        assert len(pictures(player.reset(split="train", index=0))) == 1 and not player._trace.lost
        player._close()


def test_a_service_that_stays_away_loses_the_rollout_and_is_not_waited_for_twice(lab_config: Path) -> None:
    with served(lab_config) as server:
        waits: list[float] = []
        shared = rules(server.url)
        shared.line.pause = waits.append
        first, second = TrainingEnvironment(shared), TrainingEnvironment(shared)
        for player in (first, second):
            player.reset(split="train", index=0)
    assert first.look(90.0) == second.look(90.0) == [{"type": "text", "text": OVER}]
    assert waits == [0.05, 0.1, 0.2]
    for player in (first, second):
        assert player.get_reward() is None and "cannot be reached" in player._trace.lost


def test_a_full_service_is_asked_again(tmp_path: Path) -> None:
    config = write_world(tmp_path / "world")
    config.write_text(config.read_text().replace('"max_concurrent": 16', '"max_concurrent": 1'))
    with served(config) as server:
        holder = GeoGuessrEnv(server.url)
        holder.reset(split="train", index=0)
        shared = rules(server.url)
        shared.line.pause = lambda seconds: holder.close()
        player = TrainingEnvironment(shared)
        assert pictures(player.reset(split="train", index=0)) and not player._trace.lost
        player._close()
