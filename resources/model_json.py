"""JSON that a model or a provider wrote, however deep: nothing in it may end more than its own reading.

Python's parser and its printer recurse, and so does whoever walks a value by calling itself. What is nested
a thousand deep ends them, and what is a little less deep passes the parser and ends whoever comes next. So
depth is counted without recursion, and running out of stack is the same fault as broken JSON.
"""

import json
from collections.abc import Callable
from typing import Any

TOO_DEEP = "{too deep to be written"


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, or too deep to be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is too deep to be read") from None


def read_object_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at a position, and where it ends.

    Raises:
        ValueError: none begins there, or it is too deep to be read.
    """
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except RecursionError:
        raise ValueError("the JSON is too deep to be read") from None


def write_json(value: Any, *, ascii_only: bool = True) -> str:
    """A value as JSON text; one that is too deep gives a text that is no JSON, which its reader refuses."""
    try:
        return json.dumps(value, ensure_ascii=ascii_only)
    except RecursionError:
        return TOO_DEEP


def depth_of(value: Any) -> int:
    """Lists and objects within each other; 0 for a bare value."""
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, (dict, list))]:
        depth += 1
        level = [child for part in level for child in (part.values() if isinstance(part, dict) else part)]
    return depth


def with_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string changed, the names of its fields among them."""
    root: list[Any] = [None]
    left: list[tuple[Any, Any, Any]] = [(root, 0, value)]
    while left:
        holder, place, part = left.pop()
        if isinstance(part, str):
            holder[place] = change(part)
        elif isinstance(part, list):
            holder[place] = made = [None] * len(part)
            left += [(made, number, child) for number, child in enumerate(part)]
        elif isinstance(part, dict):
            # Named before they are filled, so that their order stays.
            holder[place] = fields = {change(name): None for name in part}
            left += [(fields, change(name), child) for name, child in part.items()]
        else:
            holder[place] = part
    return root[0]
