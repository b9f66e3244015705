"""Coordinates out of whatever a model wrote.

Forms are tried from the most explicit to the least: a `<guess>` tag, a JSON object, a labelled pair,
degrees-minutes-seconds, numbers with hemispheres, a bare decimal pair. The first form that is present
decides; a weaker form is never used to rescue a stronger one that is out of range, because the stronger one
is what the model committed to. Within one form **the last one counts**: models think aloud and end with
their answer, and a corrected guess follows the one it corrects. A `<guess>` tag that holds no numbers (an
echo of the instructions, `<guess>lat, lon</guess>`) is passed over.

The value of a key or a label is an angle of any kind: decimal, or degrees, minutes and seconds, with its
letter before or after it (`_angles`). A whole JSON object is read as JSON, a torn one by its keys
(`_labels`). A number that is only the head of a longer angle is never taken for the whole of it.

A bare pair needs a decimal point, unless the pair is all there is to the text: years, street numbers and
distances come in whole numbers. A bare pair that is off the globe, such as two years, is passed over while a
better one stands beside it. No number belongs to two pairs, and three numbers in a row (latitude, longitude,
zoom, as map links write them) are read as their first two.

A letter S or W makes a value negative, whether or not it has a minus sign as well. A bare pair may have one
letter alone; that one says which axis is which. Digits of every script and full-width characters are read
like plain ones.

Not read: UTM, MGRS, plus codes, GeoJSON's (lon, lat) order, place names.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from env_service._angles import (
    DEGREE_MARK,
    DEGREES,
    FLAGS,
    LETTER,
    LETTERED,
    MINUTE_MARK,
    MINUTES_OR_SECONDS,
    SECOND_MARK,
    plain,
    sexagesimal,
    side,
    signed,
)
from env_service._bare_pairs import by_letters, from_decimals, from_numbers_in_tag, on_globe
from env_service._labels import from_json, from_labels

MAX_CHARACTERS = 65_536
"""Only the end of a longer text is read; the answer stands there, and the time taken stays bounded."""


@dataclass(frozen=True)
class ParsedGuess:
    """A position in degrees, latitude in [-90, 90] and longitude in [-180, 180].

    `how` names the form it was read from: "guess_tag", "json", "labelled", "dms", "hemisphere" or
    "decimal".
    """

    lat: float
    lon: float
    how: str


@dataclass(frozen=True)
class ParseFailure:
    """Why no position could be read, in words fit for feedback to the model."""

    reason: str


def parse_guess(text: object) -> ParsedGuess | ParseFailure:
    """Read a position from a model's reply. Never raises, whatever the text is."""
    if not isinstance(text, str):
        return ParseFailure("the guess is not text")
    raw = text[-MAX_CHARACTERS:]
    clean = plain(raw)
    for how, find in _FORMS:
        pairs = list(find(clean, raw))
        if not pairs:
            continue
        if how == "decimal":
            # The least explicit form: anything off the globe was not meant as a position.
            pairs = [pair for pair in pairs if on_globe(*pair)] or pairs
        lat, lon = pairs[-1]
        if not on_globe(lat, lon):
            return ParseFailure(_off_globe(lat, lon))
        return ParsedGuess(lat, lon, how)
    return ParseFailure("no coordinates found; answer with <guess>LAT, LON</guess> in decimal degrees")


Pair = tuple[float, float]

_SEPARATOR = r"\s{0,4}(?:[,;/|]|\band\b)?\s{0,4}"


_DIGIT = re.compile(r"[0-9]")
_TAG = re.compile(r"<guess\b([^<>]{0,400})>(.{0,400}?)(?:</\s?guess\s?>|(?=<guess\b)|\Z)", FLAGS | re.DOTALL)
_TAG_EMPTY = re.compile(r"<guess\b([^<>]{0,400})/>", FLAGS)
# Patterns that are filled in twice, for the first and the second angle.
_PART = MINUTES_OR_SECONDS.replace("{", "{{").replace("}", "}}")
_DMS_ONE = (
    r"(?P<{p}_before>\b[NSEW]\s?)?(?P<{p}_deg>(?<![\w.+-])[+-]?[0-9]{{1,3}})\s?"
    rf"{DEGREE_MARK}\s?(?P<{{p}}_min>{_PART})\s?(?P<{{p}}_min_mark>{MINUTE_MARK})\s?"
    rf"(?:(?P<{{p}}_sec>{_PART})\s?(?P<{{p}}_sec_mark>{SECOND_MARK})\s?)?(?P<{{p}}_after>{LETTER})?"
)
# Minutes without mark and letter, where both angles have the mark of degrees: "48°51.5, 2°21.1".
_MARKED = (
    r"(?P<{p}_before>(?!))?(?P<{p}_deg>(?<![\w.+-])[+-]?[0-9]{{1,3}})\s?°\s?"
    rf"(?P<{{p}}_min>{_PART})(?![.,]?[0-9])(?!\s?°)(?P<{{p}}_min_mark>\s?')?"
    rf"(?P<{{p}}_sec>(?!))?(?P<{{p}}_sec_mark>(?!))?(?P<{{p}}_after>(?!))?"
)
# Minutes without their mark, as receivers print them: "N48°51.5 E2°21.1", "48 51.500 N 002 21.100 E". Only
# with letters.
_UNMARKED = (
    r"(?P<{p}_deg>(?<![\w.,+-])(?<!-\s)[0-9]{{1,3}}|(?<=\b[NSEW])[0-9]{{1,3}})(?:\s?°\s?|\s)"
    r"(?P<{p}_min>[0-9]{{1,2}}(?:[.,][0-9]{{1,12}})?)\s?'?"
    r"(?:\s?(?P<{p}_sec>(?<=[\s'])[0-9]{{1,2}}(?:[.,][0-9]{{1,12}})?)\s?\"?)?(?!\.?[0-9])"
    r"(?P<{p}_min_mark>(?!))?(?P<{p}_sec_mark>(?!))?"
)
_BEFORE = r"\b(?P<{p}_before>[NSEW])\s?" + _UNMARKED + r"(?P<{p}_after>(?!))?"
_AFTER = r"(?P<{p}_before>(?!))?" + _UNMARKED + rf"\s?(?P<{{p}}_after>{LETTER})"
_DMS = tuple(
    re.compile(one.format(p="a") + _SEPARATOR + one.format(p="b"), FLAGS)
    for one in (_DMS_ONE, _MARKED, _BEFORE, _AFTER)
)
_FIRST = r"(?P<{p}_h>{letters})\s?(?P<{p}>(?<!-)[0-9]{{1,3}}(?:[.,][0-9]{{1,30}})?)(?!\.?[0-9])"
_NS, _EW = "(?:[NS]|north|south)", "(?:[EW]|east|west)"
_NORTH_SOUTH = r"(?:[NS]\b|north\b|south\b)"
_EAST_WEST = r"(?:[EW]\b|east\b|west\b)"
# Not the minutes of "48°51 N".
_NUMBER_BEFORE_LETTER = rf"(?<!°)(?<!°\s)(?P<a>{LETTERED}){DEGREES}"
_HEMISPHERES = tuple(
    re.compile(pattern, FLAGS)
    for pattern in (
        rf"{_NUMBER_BEFORE_LETTER}\s?(?P<a_h>{_NORTH_SOUTH}){_SEPARATOR}(?P<b>{LETTERED}){DEGREES}\s?(?P<b_h>{_EAST_WEST})",
        rf"{_NUMBER_BEFORE_LETTER}\s?(?P<a_h>{_EAST_WEST}){_SEPARATOR}(?P<b>{LETTERED}){DEGREES}\s?(?P<b_h>{_NORTH_SOUTH})",
        rf"\b{_FIRST.format(p='a', letters=_NS)}°?{_SEPARATOR}{_FIRST.format(p='b', letters=_EW)}",
        rf"\b{_FIRST.format(p='a', letters=_EW)}°?{_SEPARATOR}{_FIRST.format(p='b', letters=_NS)}",
    )
)


def _from_tags(text: str, raw: str) -> Iterator[Pair]:
    bodies = [(m.start(), m.span(1), m.span(2)) for m in _TAG.finditer(text) if not m[1].endswith("/")]
    bodies += [(m.start(), m.span(1), (0, 0)) for m in _TAG_EMPTY.finditer(text)]
    for _, attributes, body in sorted(bodies):
        for start, end in (body, attributes):
            content = text[start:end]
            if not _DIGIT.search(content):
                continue
            found = next((pairs for find in _IN_TAG if (pairs := list(find(content, raw[start:end])))), None)
            if found:
                yield found[-1]
                break


def _from_dms(text: str) -> Iterator[Pair]:
    for match in _in_order(text, _DMS):
        first, second = (_letter(match, p) for p in "ab")
        a, b = (
            sexagesimal(match[f"{p}_deg"], match[f"{p}_min"], match[f"{p}_sec"], letter)
            for p, letter in (("a", first), ("b", second))
        )
        pair = by_letters(a, first, b, second)
        if pair is not None:
            yield pair


def _letter(match: re.Match[str], p: str) -> str:
    own = (match[f"{p}_after"] or match[f"{p}_before"] or "").strip()
    return own or side(match[f"{p}_sec_mark"] or "", match[f"{p}_min_mark"] or "")


def _from_hemispheres(text: str) -> Iterator[Pair]:
    for match in _in_order(text, _HEMISPHERES):
        a, b = signed(match["a"], match["a_h"]), signed(match["b"], match["b_h"])
        pair = by_letters(a, match["a_h"], b, match["b_h"])
        if pair is not None:
            yield pair


def _in_order(text: str, patterns: tuple[re.Pattern[str], ...]) -> list[re.Match[str]]:
    """Matches of all patterns from left to right; one that overlaps an earlier one is no pair of its own."""
    kept: list[re.Match[str]] = []
    matches = [match for pattern in patterns for match in pattern.finditer(text)]
    for match in sorted(matches, key=lambda match: (match.start(), -match.end())):
        if not kept or match.start() >= kept[-1].end():
            kept.append(match)
    return kept


def _off_globe(lat: float, lon: float) -> str:
    if math.isnan(lat) or math.isnan(lon):
        return "minutes and seconds must be below 60"
    if not -90.0 <= lat <= 90.0:
        return f"latitude {_shown(lat)} is outside -90..90"
    return f"longitude {_shown(lon)} is outside -180..180"


def _shown(value: float) -> str:
    """Short where that says it all, else every digit: 90.0000001 must not read as 90."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


Finder = Callable[[str, str], Iterator[Pair]]
"""Given a text in plain characters, and as it was written."""


def _of_plain(find: Callable[[str], Iterator[Pair]]) -> Finder:
    return lambda text, raw: find(text)


_IN_TAG: tuple[Finder, ...] = (
    from_json,
    *map(_of_plain, (from_labels, _from_dms, _from_hemispheres, from_numbers_in_tag)),
)
_FORMS: tuple[tuple[str, Finder], ...] = (
    ("guess_tag", _from_tags),
    ("json", from_json),
    ("labelled", _of_plain(from_labels)),
    ("dms", _of_plain(_from_dms)),
    ("hemisphere", _of_plain(_from_hemispheres)),
    ("decimal", _of_plain(from_decimals)),
)
