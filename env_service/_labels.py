"""Pairs whose parts are named: keys of JSON, whole or torn, and words such as "latitude"."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from env_service._angles import ANGLE, FLAGS, Angle, angle_of, read_angle

Pair = tuple[float, float]

_AXES = {"lat": "lat", "latitude": "lat", "lon": "lon", "lng": "lon", "long": "lon", "longitude": "lon"}
_LETTERS = {"lat": "ns", "lon": "ew"}
_OTHER = {"lat": "lon", "lon": "lat"}

# ---- JSON

_KEYED = re.compile(r"[\"'](?:lat|lon|lng)", FLAGS)
_OBJECT = re.compile(r"\{\s{0,99}\"")
# A key in quotes is taken for JSON even where the object around it is torn or has a comma too many.
_KEY_OR_BRACE = re.compile(
    rf"[{{}}]|[\"'](?P<key>{'|'.join(sorted(_AXES, key=len, reverse=True))})[\"']\s?:\s{{0,4}}[\"']?{ANGLE}",
    FLAGS,
)
_MORE_DIGITS = re.compile(r"\s?[0-9]")
_FARTHEST_WITHOUT_BRACES = 200
_WORK = 4
"""How often the text may be read, in all, by attempts to find JSON in it."""
_COST_OF_AN_ATTEMPT = 64


class _Members(tuple[tuple[str, Any], ...]):
    """The members of a JSON object as they came, duplicates too."""


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Members, parse_int=float, parse_constant=lambda _: None, strict=False
)


def from_json(text: str, raw: str) -> Iterator[Pair]:
    """Pairs of objects, in the order in which the text completes them.

    Args:
        text: in plain characters.
        raw: as it was written, character for character: a curly quote ends no JSON string.
    """
    if not _KEYED.search(text):
        return
    found: list[tuple[int, Pair]] = []
    read: list[tuple[int, int]] = []
    for start, end, members in _objects(raw):
        if pairs := list(_members_pairs(members)):
            read.append((start, end))
            found += [(start, pair) for pair in pairs]
    starts = [start for start, _ in read]
    for at, pair in _keyed_pairs(text):
        before = bisect_left(starts, at + 1) - 1
        if before < 0 or at >= read[before][1]:
            found.append((at, pair))
    yield from (pair for _, pair in sorted(found, key=lambda entry: entry[0]))


def _objects(raw: str) -> Iterator[tuple[int, int, _Members]]:
    """Outermost complete JSON objects with where they start and end. The work is bounded for every text."""
    at, left = 0, _WORK * len(raw) + _COST_OF_AN_ATTEMPT
    while left > 0 and (opening := _OBJECT.search(raw, at)):
        start = opening.start()
        left -= _COST_OF_AN_ATTEMPT
        try:
            members, at = _DECODER.raw_decode(raw, start)
        except json.JSONDecodeError as error:
            # An unterminated string was read to the end, and is reported where it began.
            left -= (len(raw) if error.msg.startswith("Unterminated") else error.pos) - start
            at = start + 1
        except RecursionError:
            left -= len(raw) - start
            at = start + 1
        else:
            left -= at - start
            yield start, at, members


def _members_pairs(members: _Members) -> Iterator[Pair]:
    stack: list[tuple[Iterator[tuple[str, Any]], dict[str, Angle]]] = [(iter(members), {})]
    while stack:
        rest, pending = stack[-1]
        for key, value in rest:
            if isinstance(value, _Members | list):
                inner = value if isinstance(value, _Members) else (("", item) for item in value)
                stack.append((iter(inner), {}))
                break
            if (axis := _AXES.get(key.lower())) and (angle := _value(value)):
                pending[axis] = angle
                yield from _completed(pending)
        else:
            stack.pop()


def _value(value: object) -> Angle | None:
    if isinstance(value, float):
        return Angle(value, "", 0)
    return read_angle(value) if isinstance(value, str) else None


def _completed(pending: dict[str, Angle]) -> Iterator[Pair]:
    """The pair of an object whose both parts have come; the next one starts anew."""
    if len(pending) == 2:
        lat, lon = pending.pop("lat"), pending.pop("lon")
        if _fits(lat, "lat") and _fits(lon, "lon"):
            yield lat.value, lon.value


def _keyed_pairs(text: str) -> Iterator[tuple[int, Pair]]:
    """Pairs of keys within the same braces, torn or not; without braces, of keys near each other."""
    frames: list[dict[str, Angle]] = [{}]
    for match in _KEY_OR_BRACE.finditer(text):
        if match[0] == "{":
            frames.append({})
        elif match[0] == "}":
            frames.pop()
            frames = frames or [{}]
        else:
            pending, axis = frames[-1], _AXES[match["key"].lower()]
            other = pending.get(_OTHER[axis])
            if len(frames) == 1 and other and match.start() - other.end > _FARTHEST_WITHOUT_BRACES:
                pending.clear()
            angle = angle_of(match, _LETTERS[axis])
            if angle is None or _MORE_DIGITS.match(text, angle.end):
                continue
            pending[axis] = angle
            yield from ((match.start(), pair) for pair in _completed(pending))


# ---- labels

_GAP = r"(?P<gap>[^0-9+<>.\n-]{0,24}?\s{0,4})"
_LABELLED = {
    axis: re.compile(rf"\b(?:{names})\b{_GAP}{ANGLE}", FLAGS)
    for axis, names in {"lat": "lat(?:itude)?", "lon": "lon|lng|long|longitude"}.items()
}
_BETWEEN = re.compile(r"[^0-9]{0,60}")
# "Latitude (S): 33.9". "Just south of 48.9" is no letter, nor is a plural's "(s)".
_UNITS = r"(?:\W|\b(?:decimal|degrees?|deg)\b)*"
_LETTER_IN_GAP = re.compile(
    rf"[\s:=,][(\[]?\s?(?P<letter>(?-i:[NSEW])\b|(?:north|south|east|west)\b){_UNITS}\Z", FLAGS
)
_ANY_LETTER = re.compile(r"\b(?:(?-i:[NSEW])|north|south|east|west)\b", FLAGS)


def from_labels(text: str) -> Iterator[Pair]:
    """Labelled pairs from left to right; no number is in two of them."""
    tokens = {axis: list(_tokens(axis, text)) for axis in _LABELLED}
    starts = {axis: [start for start, _ in found] for axis, found in tokens.items()}
    done = 0
    for start, axis, angle in _by_place(tokens):
        if start < done:
            continue
        other = _OTHER[axis]
        for at, partner in tokens[other][bisect_left(starts[other], angle.end) :][:1]:
            if _BETWEEN.fullmatch(text, angle.end, at):
                done = partner.end
                lat, lon = (angle, partner) if axis == "lat" else (partner, angle)
                if _fits(lat, "lat") and _fits(lon, "lon"):
                    yield lat.value, lon.value


def _tokens(axis: str, text: str) -> Iterator[tuple[int, Angle]]:
    for match in _LABELLED[axis].finditer(text):
        gap = match["gap"]
        said = _LETTER_IN_GAP.search(gap)
        letter = said["letter"] if said and len(_ANY_LETTER.findall(gap)) == 1 else ""
        angle = angle_of(match, _LETTERS[axis], letter)
        if angle is not None:
            yield match.start(), angle


def _by_place(tokens: dict[str, list[tuple[int, Angle]]]) -> Iterable[tuple[int, str, Angle]]:
    return sorted(
        ((start, axis, angle) for axis, found in tokens.items() for start, angle in found),
        key=lambda token: token[0],
    )


def _fits(angle: Angle, axis: str) -> bool:
    return not angle.letter or angle.letter in _LETTERS[axis]
