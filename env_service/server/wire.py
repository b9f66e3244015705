"""JSON as it crosses the network: strict on the way in, one fixed form on the way out.

Python's `json` accepts what JSON does not have (NaN, Infinity), turns `1e999` into an infinity, raises plain
ValueError for a number of 5,000 digits and RecursionError for deep nesting, and lets lone surrogates through
that no encoder can write back. Each of those would end a session from inside; here they are one kind of
refusal.
"""

import json
import math
from typing import Any, NoReturn

from pydantic_core import to_json

from env_service.models import GeoObservation, GeoState
from env_service.tasks import DuplicateKey, distinct_keys

MAX_BYTES = 1 << 20
"""Longest message that is parsed. The longest honest one is a guess with 120,000 characters of text."""

MAX_DEPTH = 16

MAX_VALUES = 10_000
"""Most keys and values of a message; an honest one has a few dozen. A message of lists alone would have a
third of a million, and looking at them all takes the time of many steps."""


class BadMessage(ValueError):
    """Text that is no JSON object this service reads. The words never repeat the text."""


def parse_object(data: str | bytes) -> dict[str, Any]:
    """One JSON object of finite numbers, real characters, distinct keys, bounded depth and number of values.

    Raises:
        BadMessage: it is anything else.
    """
    if len(data) > MAX_BYTES:
        raise BadMessage(f"longer than {MAX_BYTES} bytes")
    try:
        value = json.loads(
            data, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=distinct_keys
        )
    except BadMessage:
        raise
    except DuplicateKey:
        raise BadMessage("a key stands in one object twice") from None
    except RecursionError:
        raise BadMessage("nested too deeply") from None
    except ValueError as error:
        raise BadMessage("not JSON" if isinstance(error, json.JSONDecodeError) else "not readable") from None
    if not isinstance(value, dict):
        raise BadMessage("not a JSON object")
    _check(value)
    return value


def observation_data(observation: GeoObservation) -> dict[str, Any]:
    """OpenEnv's result: the observation, and beside it reward, done and (again) metadata."""
    fields = observation.model_dump()
    reward, done = fields.pop("reward"), fields.pop("done")
    return {"observation": fields, "reward": reward, "done": done, "metadata": fields["metadata"]}


def observation_frame(observation: GeoObservation) -> str:
    """An observation as a WebSocket frame."""
    return to_json({"type": "observation", "data": observation_data(observation)}).decode()


def state_frame(state: GeoState) -> str:
    """A state as a WebSocket frame."""
    return to_json({"type": "state", "data": state.model_dump()}).decode()


def error_frame(code: str, message: str, **more: Any) -> str:
    """An error as a WebSocket frame: `code` for programs, `message` for people."""
    return to_json({"type": "error", "data": {"message": message, "code": code, **more}}).decode()


def _no_constant(name: str) -> NoReturn:
    raise BadMessage("NaN and Infinity are not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadMessage("a number is out of range")
    return value


def _check(value: dict[str, Any]) -> None:
    todo: list[tuple[Any, int]] = [(value, 1)]
    seen = 0
    while todo:
        node, depth = todo.pop()
        seen += 1
        if depth > MAX_DEPTH:
            raise BadMessage("nested too deeply")
        if seen + len(todo) > MAX_VALUES:
            raise BadMessage(f"more than {MAX_VALUES:,} values")
        if isinstance(node, str):
            try:
                node.encode()
            except UnicodeEncodeError:
                raise BadMessage("a string holds half a surrogate pair") from None
        elif isinstance(node, dict):
            todo.extend((key, depth) for key in node)
            todo.extend((item, depth + 1) for item in node.values())
        elif isinstance(node, list):
            todo.extend((item, depth + 1) for item in node)
