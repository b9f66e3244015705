"""The rules of an episode, in process: turns, costs, ends, modes, imagery, selection."""

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from environment_lab import PARIS, World, task_row, write_world

from env_service.environment import GeoGuessrEnvironment
from env_service.game import BadSelection, EpisodeOver, Game, NoSuchSplit, NotReset
from env_service.models import GeoAction, GeoObservation
from env_service.scoring import BOARD_V1, GAME, STEADY, board_reward, game_reward
from env_service.server.config import load_game, make_config
from env_service.store import MissingFrame

HIDDEN = ("distance_km", "score", "true_lat", "true_lon", "parsed_ok")


@pytest.fixture(scope="module")
def game(world: World) -> Game:
    return load_game(make_config({"splits": {"eval": _split(world)}}))


@pytest.fixture
def env(game: Game) -> GeoGuessrEnvironment:
    return GeoGuessrEnvironment(game)


@pytest.fixture
def under(game: Game) -> Callable[..., GeoGuessrEnvironment]:
    """An environment under other rules."""
    return lambda **rules: GeoGuessrEnvironment(replace(game, rules=replace(game.rules, **rules)))


def _split(world: World, **more: str) -> dict[str, str]:
    return {"tasks": str(world.tasks), "panos": str(world.panos), **more}


def _guess(env: GeoGuessrEnvironment, **fields: Any) -> GeoObservation:
    return env.step({"op": "guess", **fields})


def test_reset_shows_north_and_nothing_else(env: GeoGuessrEnvironment) -> None:
    first = env.reset(index=0)
    assert (first.heading_deg, first.pitch_deg, first.fov_deg, first.image_kind) == (0, 0, 90, "view")
    assert first.reward is None and not first.done and first.steps_remaining == 12
    assert first.captured_at == "2022-01" and "2022-01" in first.feedback and first.prompt
    assert set(first.metadata) == {"split", "mode", "frame_index", "environment_version"}
    assert all(getattr(first, name) is None for name in HIDDEN)
    assert base64.b64decode(first.image_base64).startswith(b"\xff\xd8")
    again = env.step({"op": "look", "heading_deg": 0})
    assert again.image_base64 == first.image_base64 and again.prompt == ""


def test_a_heading_in_words_is_never_360(env: GeoGuessrEnvironment) -> None:
    env.reset(index=0)
    for heading, words in ((359.6, "Facing N (0°)"), (359.4, "(359°)"), (-0.2, "(0°)"), (90.5, "(91°)")):
        assert words in env.step({"op": "look", "heading_deg": heading}).feedback


def test_every_call_spends_one_turn_and_its_own_cost(env: GeoGuessrEnvironment) -> None:
    env.reset(index=0)
    calls: list[tuple[dict[str, Any], float]] = [
        ({"op": "look", "heading_deg": 400, "pitch_deg": 10, "fov_deg": 60}, 0.01),
        ({"op": "pan", "delta_deg": -50}, 0.01),
        ({"op": "zoom", "fov_deg": 30}, 0.01),
        ({"op": "move", "direction": "forward"}, 0.05),
        ({"op": "pin", "lat": 10, "lon": 20, "label": "here"}, 0.02),
        ({"op": "view_map", "lat": 10, "lon": 20}, 0.01),
        ({"op": "reverse_geocode", "lat": 48.85, "lon": 2.35}, 0.01),
        ({"op": "list_pins"}, 0),
        ({"op": "clear_pins"}, 0),
        ({"op": "measure", "lat_a": 0, "lon_a": 0, "lat_b": 0, "lon_b": 1}, 0),
        ({"op": "no such op"}, 0),
    ]
    spent = 0.0
    for count, (action, cost) in enumerate(calls, start=1):
        seen = env.step(action)
        spent = round(spent + cost, 6)
        assert (seen.steps_remaining, seen.action_cost, seen.done) == (12 - count, spent, False), action
        assert seen.reward == 0.0 and all(getattr(seen, name) is None for name in HIDDEN)
    last = _guess(env, lat=48.0, lon=2.0, country="France", confidence=0.5, reasoning="a tower")
    assert last.done and last.steps_remaining == 0 and last.parsed_ok is True
    assert last.distance_km is not None and last.reward == game_reward(last.distance_km, spent)
    assert last.metadata["counts"]["invalid"] == 1 and sum(last.metadata["counts"].values()) == 12
    assert last.metadata["country"] == "France" and last.metadata["attribution"]["creator_id"] == "770"
    assert last.metadata["guess"]["country_code"] == "FR" and last.metadata["curve"] == "game"
    assert (round(last.true_lat or 0, 3), round(last.true_lon or 0, 3)) == (48.858, 2.295)


def test_camera_pins_and_measure(env: GeoGuessrEnvironment) -> None:
    env.reset(index=0)
    turned = env.step({"op": "look", "heading_deg": -10, "pitch_deg": 5, "fov_deg": 60})
    assert (turned.heading_deg, turned.pitch_deg, turned.fov_deg) == (350, 5, 60)
    turned = env.step({"op": "pan", "delta_deg": 20})
    assert (turned.heading_deg, turned.pitch_deg, turned.fov_deg) == (10, 5, 60)
    one = env.step({"op": "pin", "lat": 48.8566, "lon": 2.3522, "label": "Paris?"})
    assert one.image_kind == "map" and base64.b64decode(one.image_base64).startswith(b"\x89PNG")
    assert "France" in one.feedback and one.heading_deg == 10
    two = env.step({"op": "pin", "lat": 51.5074, "lon": -0.1278, "label": "London?"})
    assert "United Kingdom" in two.feedback and "343.6 km from pin 1" in two.feedback
    assert [(pin.index, pin.label) for pin in two.pins] == [(1, "Paris?"), (2, "London?")]
    assert "London?" in env.step({"op": "list_pins"}).feedback
    assert env.step({"op": "clear_pins"}).pins == []
    assert [pin.index for pin in env.step({"op": "pin", "lat": 0, "lon": 0, "label": ""}).pins] == [3]
    names = env.step({"op": "reverse_geocode", "lat": 48.8566, "lon": 2.3522}).feedback
    assert names.startswith("France, Western Europe; nearest city Paris") and "km" not in names
    degree = env.step({"op": "measure", "lat_a": 0, "lon_a": 0, "lat_b": 0, "lon_b": 1})
    assert degree.feedback == "111.2 km." and degree.image_kind == "none" and degree.image_base64 == ""


def test_walking_follows_the_frames_and_stops_at_the_ends(env: GeoGuessrEnvironment) -> None:
    start = env.reset(index=0)
    assert start.metadata["frame_index"] == 1 and start.can_move_forward and start.can_move_backward
    ahead = env.step({"op": "move", "direction": "forward", "meters": 100})
    assert (ahead.moved_meters, ahead.total_moved_meters, ahead.can_move_forward) == (12.5, 12.5, False)
    stuck = env.step({"op": "move", "direction": "forward"})
    assert stuck.moved_meters == 0 and stuck.total_moved_meters == 12.5 and stuck.action_cost == 0.1
    back = env.step({"op": "move", "direction": "backward", "meters": 25})
    assert (back.moved_meters, back.metadata["frame_index"], back.can_move_backward) == (25.0, 0, False)
    assert back.image_base64 != start.image_base64
    over = _guess(env, lat=back.heading_deg, lon=0.0)
    assert (over.true_lat, over.true_lon) == (
        env.game.tasks("eval")[0].start.lat,
        env.game.tasks("eval")[0].start.lon,
    )


def test_out_of_turns_is_an_end_without_reward(under: Callable[..., GeoGuessrEnvironment]) -> None:
    env = under(max_turns=3)
    env.reset(index=1)
    env.step({"op": "list_pins"})
    env.step({"op": "nonsense"})
    last = env.step({"op": "pin", "lat": 1, "lon": 1, "label": "x"})
    assert last.done and last.reward == 0.0 and last.metadata["outcome"] == "no_guess"
    assert last.distance_km is None and last.image_kind == "map"
    before = env.state
    with pytest.raises(EpisodeOver):
        _guess(env, lat=0, lon=0)
    assert env.state == before and before.outcome == "no_guess" and before.step_count == 3


def test_a_guess_on_the_last_turn_counts(under: Callable[..., GeoGuessrEnvironment]) -> None:
    env = under(max_turns=2)
    env.reset(index=1)
    env.step({"op": "list_pins"})
    last = _guess(env, lat=-33.8568, lon=151.2153)
    assert last.done and last.metadata["outcome"] == "guess" and (last.reward or 0) > 0.99


@pytest.mark.parametrize(
    ("reply", "how"),
    [
        ("I think <guess>-33.86, 151.21</guess>", "guess_tag"),
        ('{"lat": -33.86, "lon": 151.21}', "json"),
        ("Somewhere near 33.86°S, 151.21 E", "hemisphere"),
    ],
)
def test_a_raw_reply_is_read(env: GeoGuessrEnvironment, reply: str, how: str) -> None:
    env.reset(index=1)
    last = _guess(env, response=reply)
    assert last.parsed_ok is True and last.metadata["guess"]["how"] == how
    assert last.distance_km is not None and last.distance_km < 5
    assert last.metadata["counts"] == {"submit_guess": 1}


@pytest.mark.parametrize("reply", ["", "no idea at all", "<guess>95, 300</guess>", "\x00" * 50, "9" * 5000])
def test_a_reply_without_a_position_ends_with_nothing(env: GeoGuessrEnvironment, reply: str) -> None:
    env.reset(index=1)
    last = _guess(env, response=reply)
    assert last.done and last.reward == 0.0 and last.parsed_ok is False and last.distance_km is None
    assert last.metadata["outcome"] == "parse_failure" and last.metadata["parse_failure"]


def test_an_out_of_range_typed_guess_is_an_invalid_action(env: GeoGuessrEnvironment) -> None:
    env.reset(index=1)
    for fields in ({"lat": 91, "lon": 0}, {"lat": 1e308, "lon": 0}, {"lat": 1}, {"lat": "north", "lon": 1}):
        seen = _guess(env, **fields)
        assert not seen.done and seen.action_cost == 0 and "Not a valid action" in seen.feedback
    assert env.state.step_count == 4


def test_steps_need_an_episode(env: GeoGuessrEnvironment) -> None:
    with pytest.raises(NotReset):
        env.step({"op": "list_pins"})
    assert env.state.episode_id is None and env.state.step_count == 0
    env.reset(index=1)
    seen = env.step(GeoAction(op="look", heading_deg=5))
    assert seen.heading_deg == 5
    assert env.step({"op": "list_pins", "metadata": {}, "lat": None}).feedback == "There are no pins."


def test_modes_take_tools_away(under: Callable[..., GeoGuessrEnvironment]) -> None:
    nmpz, single = under(mode="nmpz"), under(mode="single_shot")
    tools = nmpz.reset(index=0).available_tools
    assert not {"look", "pan", "zoom", "move"} & set(tools) and "place_pin" in tools
    refused = nmpz.step({"op": "move", "direction": "forward"})
    assert "no such op" in refused.feedback and refused.steps_remaining == 11 and refused.action_cost == 0
    first = single.reset(index=0)
    assert first.available_tools == ["submit_guess"] and first.image_kind == "view"
    assert not first.can_move_forward and "pin" not in first.prompt.lower()
    assert _guess(single, lat=48.8, lon=2.3).done


def test_a_tool_nobody_can_serve_is_not_offered(world: World, env: GeoGuessrEnvironment) -> None:
    assert "move" not in env.reset(index=1).available_tools
    assert "no such op" in env.step({"op": "move", "direction": "forward"}).feedback
    flat = load_game(make_config({"splits": {"eval": _split(world, imagery="perspective")}}))
    still = GeoGuessrEnvironment(flat)
    tools = still.reset(index=0).available_tools
    assert not {"look", "pan", "move"} & set(tools) and "zoom" in tools and "submit_guess" in tools


def test_selection(env: GeoGuessrEnvironment) -> None:
    assert env.reset().metadata["split"] == "eval" and env.state.task_index == 0
    env.reset(seed=7)
    assert env.state.task_index == 2
    env.reset(seed=-1)
    assert env.state.task_index == 4
    env.reset(seed=7, index=1, episode_id="mine")
    assert (env.state.task_index, env.state.episode_id) == (1, "mine")
    env.reset(task_index=3)
    assert env.state.task_index == 3
    before = env.state
    wrong: list[dict[str, Any]] = [
        {"index": 5},
        {"index": -1},
        {"index": True},
        {"index": "1"},
        {"index": 1.0},
        {"index": 1, "task_index": 2},
        {"seed": "x"},
        {"split": "train"},
        {"split": ["eval"]},
        {"idx": 1},
        {"episode_id": "x" * 300},
    ]
    for selection in wrong:
        with pytest.raises(BadSelection):
            env.reset(**selection)
    assert env.state == before


def test_task_specs_are_addresses(env: GeoGuessrEnvironment) -> None:
    assert env.list_splits() == ["eval"] and env.num_tasks("eval") == 5
    assert env.get_task("eval", 4) == {"id": "eval-00004", "split": "eval", "index": 4}
    assert [task["index"] for task in env.get_task_range("eval", 1, 3)] == [1, 2]
    assert env.get_task_range("eval", -2) == env.list_tasks("eval")[3:]
    for index in (5, -1):
        with pytest.raises(IndexError):
            env.get_task("eval", index)
    with pytest.raises(NoSuchSplit):
        env.num_tasks("train")


def test_a_missing_frame_changes_nothing(tmp_path: Path) -> None:
    tasks, panos = write_world(tmp_path, [task_row(0, PARIS, 3)])
    game = load_game(make_config({"splits": {"eval": {"tasks": str(tasks), "panos": str(panos)}}}))
    env = GeoGuessrEnvironment(game)
    (panos / "1002.jpg").unlink()
    env.reset()
    env.step({"op": "pin", "lat": 0, "lon": 0, "label": "x"})
    before = env.state
    with pytest.raises(MissingFrame, match=r"1002.*panos"):
        env.step({"op": "move", "direction": "forward"})
    assert env.state == before
    assert env.step({"op": "list_pins"}).metadata["frame_index"] == 1
    (panos / "1001.jpg").unlink()
    fresh = GeoGuessrEnvironment(
        load_game(make_config({"splits": {"eval": {"tasks": str(tasks), "panos": str(panos)}}}))
    )
    with pytest.raises(MissingFrame, match="1001"):
        fresh.reset()
    assert fresh.state.episode_id is None


def test_the_operator_chooses_the_curve(world: World, under: Callable[..., GeoGuessrEnvironment]) -> None:
    board = GeoGuessrEnvironment(
        load_game(make_config({"splits": {"eval": _split(world)}, "curve": "board-v1"}))
    )
    board.reset(index=0)
    board.step({"op": "look", "heading_deg": 1})
    far = _guess(board, lat=-45, lon=170)
    assert far.reward == board_reward(far.distance_km, 0.01) > 0 and far.metadata["curve"] == "board-v1"
    country = under(credit="country_only")
    country.reset(index=0)
    south = _guess(country, lat=43.6, lon=1.44)
    assert south.score == 1.0 and south.metadata["curve"] == "game+country_only"
    for curve in (GAME, BOARD_V1, STEADY):
        costly = under(credit="country_only", curve=curve)
        costly.reset(index=0)
        for _ in range(7):
            costly.step({"op": "move", "direction": "forward", "meters": 10})
        dear = _guess(costly, lat=43.6, lon=1.44)
        assert (dear.score, dear.action_cost) == (1.0, 0.35)
        assert dear.reward == pytest.approx(0.65 if curve is GAME else 0.8), curve
        assert dear.metadata["curve"] == f"{curve.name}+country_only"
    partial = under(credit="partial")
    partial.reset(index=0)
    near = _guess(partial, lat=43.6, lon=1.44)
    assert near.score is not None and near.distance_km is not None
    assert near.score == pytest.approx(game_reward(near.distance_km, 0) + 0.15)
