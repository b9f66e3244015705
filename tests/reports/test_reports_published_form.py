"""Other people's episodes: read by name, never believed where a figure can be computed, never filled in."""

import json
import math
from typing import Any

import pytest

from env_service.geodesy import haversine_km
from geo_assets.sweeps.published_form import UNNUMBERED, published_key, published_row

FULL: dict[str, Any] = {
    "model": "Qwen/Qwen3.5-4B", "index": 7, "attempt": 2, "distance_km": 1000.0, "cost": 0.07,
    "country": "France", "guess_country": "France", "turns": 5, "looks": 3, "pins": 1, "parsed": True,
    "forced": False, "fabricated": True, "reward": 0.5, "output_tokens": 640,
}  # fmt: skip


def read(record: Any) -> dict[str, Any] | str:
    return published_row(json.dumps(record).encode(), "folder")


def row(record: Any) -> dict[str, Any]:
    found = read(record)
    assert not isinstance(found, str), found
    return found


def test_a_flat_record_is_read_by_name() -> None:
    turns = [{"tool": "look"}, {"action": {"op": "move"}}, {"op": "look"}, {"tool": "submit_guess"}]
    found = row(
        {
            "arm": "a",
            "task_id": "eval-00012",
            "guess": {"lat": 0.0, "lon": 1.0},
            "truth": {"lat": 0.0, "lon": 0.0, "country_code": "FR"},
            "result": {"cost": 0.1},
            "turns": turns,
        }
    )
    assert (found["task_index"], found["task_id"], found["sample"]) == (UNNUMBERED, "eval-00012", 0)
    assert found["distance_km"] == haversine_km(0.0, 1.0, 0.0, 0.0)
    assert (found["turns"], found["looks"], found["moves"], found["pins"]) == (4, 2, 1, 0)
    assert found["country_hit"] is False  # of the polygon, which is the sea


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"no_guess": True, "distance_km": None}, "no_guess"),
        ({"submitted": False, "distance_km": None}, "no_guess"),
        ({"parsed": False, "distance_km": None}, "parse_failure"),
        ({"parse_status": "failed", "distance_km": None}, "parse_failure"),
        ({"error": "HTTP 429", "distance_km": None}, "unscored"),
    ],
)
def test_what_is_no_guess_says_so(changes: dict[str, Any], outcome: str) -> None:
    found = row(FULL | changes)
    assert (found["outcome"], found.get("distance_km")) == (outcome, None)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"model": "a", "index": 1, "reward": 0.9}, "a reward and no raw distance"),
        ({"model": "a", "index": 1}, "neither a distance nor a word"),
        ({"model": "a", "index": 1, "distance_km": 3.0}, "no raw cost"),
        ({"model": "a", "distance_km": 3.0, "cost": 0.0}, "names no task"),
        (FULL | {"distance_km": -1.0}, "a distance_km of -1"),
        (FULL | {"cost": -0.1}, "a cost of -0.1"),
        (FULL | {"index": 1.5}, "a task_index of 1.5"),
        (FULL | {"guess": {"lat": 0, "lon": 20}, "truth": {"lat": 0, "lon": 0}}, "says 1000 km where"),
        ([1], "no JSON object"),
        ("words", "no JSON object"),
    ],
)
def test_what_cannot_be_recomputed_is_refused(record: Any, why: str) -> None:
    found = read(record)
    assert isinstance(found, str)
    assert why in found


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"distance_km": 9e9}, "a distance_km of 9000000000"),
        ({"guess_lat": 999, "guess_lon": -4000, "true_lat": 0, "true_lon": 0}, "a guess_lat of 999"),
        ({"guess_lat": 9, "guess_lon": -4000}, "a guess_lon of -4000"),
        ({"cost": 1e308}, "a cost of 1e+308"),
        ({"moved_m": -5}, "a moved_m of -5"),
        ({"index": 99999999999}, "a task_index of 99999999999"),
        ({"index": None, "task_id": ["a"]}, "a task_id of ['a']"),
        ({"index": None, "task_id": " "}, "names no task"),
        ({"model": "half \ud800"}, "says in arm what is no Unicode text"),
        ({"forced": "maybe"}, "a forced of 'maybe', which is neither yes nor no"),
        ({"parsed": 2}, "a parsed of 2"),
        ({"no_guess": []}, "a no_guess of []"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(changes: dict[str, Any], why: str) -> None:
    found = read(FULL | changes)
    assert isinstance(found, str)
    assert why in found


@pytest.mark.parametrize("no", [False, 0, 0.0, "false", "False", "0"])
def test_a_no_is_a_no_however_it_is_written(no: Any) -> None:
    found = row(FULL | {"forced": no, "fabricated": no, "no_guess": no})
    assert (found["forced"], found["fabricated"], found["outcome"]) == (False, False, "guess")
    assert row(FULL | {"parsed": no})["outcome"] == "parse_failure"
    assert row(FULL | {"submitted": no})["outcome"] == "no_guess"


@pytest.mark.parametrize(
    "error",
    [{"error": "HTTP 429"}, {"error": {"code": 429}}, {"error": "", "provider_error": True}, {"error": 1}],
)
def test_a_row_with_an_error_is_unscored_whatever_its_distance(error: dict[str, Any]) -> None:
    found = row(FULL | {"distance_km": 0.0} | error)
    assert (found["outcome"], found["distance_km"]) == ("unscored", None)


@pytest.mark.parametrize("none", [None, "", False, 0, "none", []])
def test_no_error_is_none(none: Any) -> None:
    assert row(FULL | {"error": none})["outcome"] == "guess"


@pytest.mark.parametrize("line", [b"", b"{", b'{"cost": NaN}', b"\xff"])
def test_what_is_no_record_is_refused(line: bytes) -> None:
    assert published_row(line, "a") == "is no JSON object"


@pytest.mark.parametrize("key", ["task_id", "task"])
@pytest.mark.parametrize("task", ["train-00", "a3f", "t-99999999999"])
def test_a_task_may_have_any_name(key: str, task: str) -> None:
    found = row({"arm": "a", key: task, "distance_km": 3.0, "cost": 0.1})
    assert (found["task_index"], found["task_id"]) == (UNNUMBERED, task)


def test_a_cost_that_is_not_said_is_not_nought() -> None:
    silent = {key: value for key, value in FULL.items() if key not in ("cost", "distance_km")}
    assert math.isnan(row(silent | {"no_guess": True})["cost"])
    assert row(silent | {"no_guess": True, "cost": 0})["cost"] == 0.0


def test_a_key_is_read_of_what_is_no_play() -> None:
    assert published_key(b'{"task_index":2,"sample":1,"fault":"timeout"}') == ("", 2, "2", 1)
    assert published_key(b'{"model":"m","task_id":"a3f"}') == ("m", UNNUMBERED, "a3f", 0)
    assert published_key(b'{"fault":"timeout"}') == "names no task"
    assert published_key(b'{"task_index":') == "is no JSON object"


@pytest.mark.parametrize("depth", [50, *range(900, 1000, 10), 100_000])
@pytest.mark.parametrize("name", ["error", "forced", "task_id", "model", "cost", "turns", "other"])
def test_a_record_is_never_too_deep_to_be_told(depth: int, name: str) -> None:
    body = json.dumps({key: value for key, value in FULL.items() if key not in ("index", "model", name)})
    line = f'{body[:-1]}, "{name}": {"[" * depth}{"]" * depth}}}'.encode()
    for read_one in (lambda: published_row(line, "a"), lambda: published_key(line)):
        assert isinstance(read_one(), str | dict | tuple)
