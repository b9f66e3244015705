"""Episodes of other people: one flat JSON object per episode, under the names that published tables use.

No published raw episode was at hand when this was written, only what is said of them: one record per model,
task and attempt, with raw distance, cost, guess, whether it was parsed, forced or fabricated, and counts of
turns, looks, moves and pins. So this reads by name and leaves what it does not find empty; `NAMES` is the
whole of what it understands, and `docs/reports.md` says so to users. It never fills in: a record without a
raw distance, that does not say it is no guess, is refused, because its reward could only be believed.

A record that names its task by an id alone gets the number `UNNUMBERED`: which place an id has among the
others no single record can tell, and digits in it are no promise. Whoever reads a whole arm numbers its ids.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from env_service.geodesy import haversine_km
from env_service.geography import geography
from geo_assets.sweeps.outcomes import UNSCORED, unfit

NAMES: Mapping[str, tuple[str, ...]] = {
    "arm": ("arm", "model", "model_name", "model_id"),
    "task_index": ("task_index", "index", "task", "task_idx"),
    "task_id": ("task_id",),
    "sample": ("sample", "attempt", "attempt_index", "sample_index", "pass_index", "pass"),
    "distance_km": ("distance_km", "distance", "error_km"),
    "cost": ("cost", "action_cost", "total_cost", "cost_total"),
    "guess_lat": ("guess_lat", "guess_latitude", "pred_lat"),
    "guess_lon": ("guess_lon", "guess_longitude", "guess_lng", "pred_lon"),
    "true_lat": ("true_lat", "truth_lat", "target_lat", "answer_lat"),
    "true_lon": ("true_lon", "truth_lon", "target_lon", "answer_lon", "true_lng"),
    "country_code": ("country_code", "true_country_code", "truth_country_code"),
    "guess_country_code": ("guess_country_code", "pred_country_code"),
    "country": ("country", "true_country", "truth_country"),
    "guess_country": ("guess_country", "pred_country"),
    "country_hit": ("country_hit", "country_correct", "correct_country"),
    "no_guess": ("no_guess",),
    "submitted": ("submitted", "guessed"),
    "parsed": ("parsed", "parse_ok"),
    "parse_status": ("parse_status",),
    "forced": ("forced", "forced_guess"),
    "fabricated": ("fabricated", "fabrication"),
    "turns": ("turns", "num_turns", "n_turns", "steps"),
    "looks": ("looks", "look", "n_looks"),
    "moves": ("moves", "move", "n_moves"),
    "pins": ("pins", "place_pin", "n_pins"),
    "moved_m": ("moved_m", "moved_metres", "moved_meters", "total_moved_meters"),
    "completion_tokens": ("completion_tokens", "output_tokens", "tokens_out"),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "tokens_in"),
    "protocol": ("protocol",),
    "environment_version": ("environment_version", "env_version"),
    "harness_version": ("harness_version",),
    "prompt_version": ("prompt_version",),
    "reward": ("reward", "env_reward", "score"),
    "stored_curve": ("curve", "reward_curve", "env_curve"),
    "error": ("error", "provider_error"),
}
"""Column by the names it may have, the first that is there; also inside the objects of `GROUPS`."""

GROUPS = ("outcome", "result", "metrics", "counts", "usage", "provenance")
PREFIXED = {"guess": "guess", "truth": "true", "target": "true", "answer": "true", "true": "true"}
TOOLS = {"look": "looks", "move": "moves", "place_pin": "pins"}
NUMBERS = ("distance_km", "guess_lat", "guess_lon", "true_lat", "true_lon", "moved_m")
COUNTS = ("turns", "looks", "moves", "pins", "completion_tokens", "prompt_tokens")
FLAGS = ("forced", "fabricated")
SAYS = (*FLAGS, "no_guess", "submitted", "parsed", "country_hit")
"""Columns that say yes or no."""
YES_NO = {"true": True, "false": False, "1": True, "0": False}
NO_ERROR = ("", "0", "false", "none", "null", "[]", "{}")
WORDS = (
    "country_code",
    "guess_country_code",
    "protocol",
    "environment_version",
    "harness_version",
    "prompt_version",
    "stored_curve",
)
UNREAD_CURVE = "not named"
"""The curve of a stored reward whose record does not name it."""
UNNUMBERED = -1
"""Task index of a record that names its task by an id alone."""
UNTOLD: Mapping[str, Any] = {"task_index": UNNUMBERED, "cost": math.nan}
"""What stands for what a record does not say, in columns that are never null."""

KM_TOLERANCE, KM_SHARE = 0.1, 2e-3
"""Published distances are rounded, and spheres differ; what lies further off contradicts itself."""


class EpisodeKey(NamedTuple):
    """Which episode a record is of: arm ("" if it names none), task by number and id, attempt."""

    arm: str
    task_index: int
    task_id: str
    sample: int


def published_row(line: bytes, arm: str) -> dict[str, Any] | str:
    """One row of the outcome table, or in words why the line gives none.

    A row's `task_index` is `UNNUMBERED` where the record names its task by an id alone, and its `cost` (in
    reward) NaN where a record without a guess does not say it.

    Args:
        line: one JSON object.
        arm: name of the arm where the record names none.
    """
    try:
        found = _values(_record(line))
        row = _row(found, arm)
        return unfit(row) or {**UNTOLD, **row}
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        return str(error)


def published_key(line: bytes) -> EpisodeKey | str:
    """Which episode a line is of, whatever else it says of it; or in words why it does not tell.

    Args:
        line: one JSON object: a record, or a line of a log of spoilt plays.
    """
    try:
        found = _values(_record(line))
        index, arm = _index(found), found["arm"]
        key = EpisodeKey(
            "" if arm is None else str(arm),
            UNNUMBERED if index is None else index,
            _task_id(found, index),
            _sample(found),
        )
        return unfit({"arm": key.arm, "task_id": key.task_id}) or key
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        return str(error)


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise ValueError("is no JSON object")
    return record


def _values(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record's values by column, taken from it and from the objects inside that belong to it."""
    flat: dict[str, Any] = {}
    for group in GROUPS:
        inner = record.get(group)
        if isinstance(inner, Mapping):
            flat |= inner
    for name, prefix in PREFIXED.items():
        inner = record.get(name, flat.get(name))
        if isinstance(inner, Mapping):
            flat |= {f"{prefix}_{key}": value for key, value in inner.items()}
    flat |= {key: value for key, value in record.items() if not isinstance(value, Mapping)}
    found = {column: _first(flat, names) for column, names in NAMES.items()}
    found |= {column: _yes_no(found[column], column) for column in SAYS}
    found["error"] = _error(record, flat)
    if isinstance(found["task_index"], str):
        # A word where a number might be is a name.
        found |= {"task_id": found["task_id"] or found["task_index"], "task_index": None}
    if isinstance(found["turns"], list):
        found |= {k: v for k, v in _counted(found["turns"]).items() if found.get(k) is None}
        found["turns"] = len(found["turns"])
    return found


def _row(found: Mapping[str, Any], arm: str) -> dict[str, Any]:
    name, index = str(found["arm"] or arm), _index(found)
    words = {key: str(found[key]) for key in WORDS if found[key] is not None}
    numbers = {key: _number(found[key], key) for key in NUMBERS}
    row: dict[str, Any] = {
        "arm": name,
        **({} if index is None else {"task_index": index}),
        "task_id": _task_id(found, index),
        "sample": _sample(found),
        **numbers,
        **words,
        **{key: _whole(found[key], key) for key in COUNTS if found[key] is not None},
        **{key: found[key] for key in FLAGS if found[key] is not None},
    }
    if found["reward"] is not None and "stored_curve" not in words:
        row["stored_curve"] = UNREAD_CURVE
    if found["error"]:
        # A play that a provider spoilt is no play, whatever else the record says of it.
        return row | {"outcome": UNSCORED, "distance_km": None}
    if wrong := unfit(numbers):
        raise ValueError(wrong)
    cost = _number(found["cost"], "cost")
    outcome = _outcome(found, numbers)
    if cost is None and outcome == "guess":
        raise ValueError("has no raw cost, so its reward cannot be recomputed")
    if cost is not None and cost < 0.0:
        raise ValueError(f"has a cost of {cost:g}")
    row |= {"outcome": outcome} | ({} if cost is None else {"cost": cost})
    row["distance_km"] = _distance(numbers) if outcome == "guess" else None
    return row | {"country_hit": _country_hit(found, numbers, outcome)}


def _outcome(found: Mapping[str, Any], numbers: Mapping[str, float | None]) -> str:
    """guess, parse_failure or no_guess, as the record says; a distance alone is a guess."""
    if found["no_guess"] or found["submitted"] is False or found["parse_status"] == "no_guess":
        return "no_guess"
    status = str(found["parse_status"] or "").lower()
    if found["parsed"] is False or status in ("failed", "failure", "parse_failure", "unparsed"):
        return "parse_failure"
    placed = None not in (
        numbers["guess_lat"],
        numbers["guess_lon"],
        numbers["true_lat"],
        numbers["true_lon"],
    )
    if numbers["distance_km"] is not None or placed:
        return "guess"
    if found["no_guess"] is None and found["submitted"] is None and found["parsed"] is None:
        if found["reward"] is not None:
            raise ValueError("has a reward and no raw distance: rewards are recomputed, never read")
        raise ValueError("has neither a distance nor a word that there was no guess")
    return "no_guess"


def _distance(numbers: Mapping[str, float | None]) -> float:
    """Kilometres: from guess and truth where both are there, and then the stored one must agree."""
    stored = numbers["distance_km"]
    places = [numbers[key] for key in ("guess_lat", "guess_lon", "true_lat", "true_lon")]
    if any(value is None for value in places):
        if stored is None or stored < 0.0:
            raise ValueError(f"has a distance of {stored}")
        return stored
    km = haversine_km(*(float(value) for value in places if value is not None))
    if stored is not None and not math.isclose(km, stored, rel_tol=KM_SHARE, abs_tol=KM_TOLERANCE):
        raise ValueError(f"says {stored:g} km where guess and truth lie {km:g} km apart")
    return km


def _country_hit(found: Mapping[str, Any], numbers: Mapping[str, float | None], outcome: str) -> bool | None:
    """Whether the polygon that holds the guess has the task's code; None where the record cannot tell."""
    if outcome != "guess":
        return False
    code = found["country_code"]
    if code is None and found["country"]:
        country = geography().country_by_name(str(found["country"]))
        code = country.code if country else None
    if code is None and numbers["true_lat"] is not None and numbers["true_lon"] is not None:
        code = geography().codes_at([numbers["true_lat"]], [numbers["true_lon"]])[0]
    lat, lon = numbers["guess_lat"], numbers["guess_lon"]
    if code is not None and lat is not None and lon is not None:
        return bool(geography().codes_at([lat], [lon])[0] == code)
    if code is not None and found["guess_country_code"] is not None:
        return bool(found["guess_country_code"] == code)
    if found["country"] and found["guess_country"]:
        return bool(found["country"] == found["guess_country"])
    hit: bool | None = found["country_hit"]
    return hit


def _counted(turns: list[Any]) -> dict[str, int]:
    """Calls of the counted tools in a list of turns, where the turns name them."""
    names = [_tool(turn) for turn in turns]
    if not any(names):
        return {}
    return {column: names.count(tool) for tool, column in TOOLS.items()}


def _tool(turn: Any) -> str:
    if not isinstance(turn, Mapping):
        return ""
    action = turn.get("action")
    inner = action if isinstance(action, Mapping) else {}
    told = (turn.get("tool"), turn.get("op"), turn.get("name"), inner.get("tool"), inner.get("op"), action)
    return next((word for word in told if isinstance(word, str)), "")


def _index(found: Mapping[str, Any]) -> int | None:
    """Number of the task; None where it has an id alone."""
    if found["task_index"] is not None:
        return _whole(found["task_index"], "task_index")
    if found["task_id"] is None or not str(found["task_id"]).strip():
        raise ValueError("names no task")
    if isinstance(found["task_id"], bool) or not isinstance(found["task_id"], str | int):
        raise ValueError(f"has a task_id of {found['task_id']!r}")
    return None


def _task_id(found: Mapping[str, Any], index: int | None) -> str:
    return str(found["task_id"]) if found["task_id"] is not None else str(index)


def _sample(found: Mapping[str, Any]) -> int:
    return _whole(found["sample"] if found["sample"] is not None else 0, "sample")


def _first(flat: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((flat[name] for name in names if flat.get(name) is not None), None)


def _yes_no(value: Any, name: str) -> bool | None:
    """A yes or a no, as a boolean, as 0 or 1, or in words; anything else would be a guess."""
    if value is None or isinstance(value, bool):
        return value
    said = YES_NO.get(f"{value:g}" if isinstance(value, float) else str(value).strip().lower())
    if said is None:
        raise ValueError(f"has a {name} of {value!r}, which is neither yes nor no")
    return said


def _error(record: Mapping[str, Any], flat: Mapping[str, Any]) -> bool:
    """Whether the record names an error, as words, as an object, or as a plain yes."""
    told = [part.get(name) for part in (record, flat) for name in NAMES["error"]]
    return any(value is not None and str(value).strip().lower() not in NO_ERROR for value in told)


def _number(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"has a {name} of {value!r}")
    return float(value)


def _whole(value: Any, name: str) -> int:
    number = _number(value, name)
    if number is None or number != int(number) or not 0 <= number < 2**31:
        raise ValueError(f"has a {name} of {value!r}")
    return int(number)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")
