"""Coordinates out of whatever a model wrote.

Forms are tried from the most explicit to the least: a `<guess>` tag, a JSON object, a labelled pair,
degrees-minutes-seconds, numbers with hemispheres, a bare decimal pair. The first form that is present
decides; a weaker form is never used to rescue a stronger one that is out of range, because the stronger one
is what the model committed to. Within one form **the last one counts**: models think aloud and end with
their answer, and a corrected guess follows the one it corrects. A `<guess>` tag that holds no numbers (an
echo of the instructions, `<guess>lat, lon</guess>`) is passed over.

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
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
    clean = _plain(text[-MAX_CHARACTERS:])
    for how, find in _FORMS:
        pairs = list(find(clean))
        if not pairs:
            continue
        if how == "decimal":
            # The least explicit form: anything off the globe was not meant as a position.
            pairs = [pair for pair in pairs if _on_globe(*pair)] or pairs
        lat, lon = pairs[-1]
        if not _on_globe(lat, lon):
            return ParseFailure(_off_globe(lat, lon))
        return ParsedGuess(lat, lon, how)
    return ParseFailure("no coordinates found; answer with <guess>LAT, LON</guess> in decimal degrees")


Pair = tuple[float, float]

# Minus signs, primes, degree look-alikes, exotic spaces and full-width punctuation that models emit.
# Markdown's asterisks and backquotes are spaces here.
_TYPOGRAPHY = {
    ord(char): plain
    for plain, chars in {
        "-": "−‐‑‒–—﹣－",
        "'": "′’‘ʹ`´",
        '"': "″”“ʺ",
        "°": "º˚",
        " ": "\u00a0\u2007\u2009\u202f\u3000*",
        ",": "，、،",
        ".": "٫",
        ":": "：",
        ";": "；",
        "(": "（",
        ")": "）",
    }.items()
    for char in chars
}

# No number continues another one, and none is part of a word, a version or a date.
_NUMBER = r"(?<![\w.+-])[+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?(?![0-9])"
# With a label or a letter beside it a decimal comma is unmistakable.
_LETTERED = rf"(?:(?<![\w.,+-])[+-]?[0-9]{{1,3}},[0-9]{{1,15}}(?!\.?[0-9])|{_NUMBER})"
_DEGREES = r"\s?(?:°|\bdegrees?\b|\bdeg\b)?"
_NORTH_SOUTH = r"(?:[NS]\b|north\b|south\b)"
_EAST_WEST = r"(?:[EW]\b|east\b|west\b)"
_SEPARATOR = r"\s{0,4}(?:[,;/|]|\band\b)?\s{0,4}"


def _angle(prefix: str) -> str:
    """A number with optional degree sign and hemisphere after it, as groups `prefix`, `prefix`_h."""
    return rf"(?P<{prefix}>{_LETTERED}){_DEGREES}\s?(?P<{prefix}_h>{_NORTH_SOUTH}|{_EAST_WEST})?"


_FLAGS = re.IGNORECASE
_DIGIT = re.compile(r"[0-9]")
_TAG = re.compile(r"<guess\b([^<>]{0,400})>(.{0,400}?)(?:</\s?guess\s?>|(?=<guess\b)|\Z)", _FLAGS | re.DOTALL)
_TAG_EMPTY = re.compile(r"<guess\b([^<>]{0,400})/>", _FLAGS)
# A key in quotes is taken for JSON even where the object around it is torn or has a comma too many.
_JSON_LAT = r"[\"'](?:lat|latitude)[\"']\s?:\s{0,4}[\"']?" + _angle("lat")
_JSON_LON = r"[\"'](?:lon|lng|long|longitude)[\"']\s?:\s{0,4}[\"']?" + _angle("lon")
_JSON = (
    re.compile(rf"{_JSON_LAT}[^{{}}]{{0,200}}?{_JSON_LON}", _FLAGS),
    re.compile(rf"{_JSON_LON}[^{{}}]{{0,200}}?{_JSON_LAT}", _FLAGS),
)
_LABEL_GAP = r"[^0-9+<>.\n-]{0,24}?\s{0,4}"
_LABEL_LAT = rf"\blat(?:itude)?\b{_LABEL_GAP}" + _angle("lat")
_LABEL_LON = rf"\b(?:lon|lng|long|longitude)\b{_LABEL_GAP}" + _angle("lon")
_BETWEEN_LABELS = r"[^0-9]{0,60}?"
_LABELLED = (
    re.compile(rf"{_LABEL_LAT}{_BETWEEN_LABELS}{_LABEL_LON}", _FLAGS),
    re.compile(rf"{_LABEL_LON}{_BETWEEN_LABELS}{_LABEL_LAT}", _FLAGS),
)
_DMS_ONE = (
    r"(?P<{p}_before>\b[NSEW]\s?)?(?P<{p}_deg>(?<![\w.+-])[+-]?[0-9]{{1,3}})\s?(?:°|deg\b|d(?=\s?[0-9]))\s?"
    r"(?P<{p}_min>[0-9]{{1,2}}(?:[.,][0-9]{{1,12}})?)\s?(?:'(?!')|min\b|m(?=\s?[0-9]))\s?"
    r"(?:(?P<{p}_sec>[0-9]{{1,2}}(?:[.,][0-9]{{1,12}})?)\s?(?:\"|''|sec\b|s\b)\s?)?"
    r"(?P<{p}_after>(?:[NSEW]|north|south|east|west)\b)?"
)
# Minutes without their mark, as receivers print them: "N48°51.5 E2°21.1", "48 51.500 N 002 21.100 E". Only
# with letters.
_UNMARKED = (
    r"(?P<{p}_deg>(?<![\w.,+-])(?<!-\s)[0-9]{{1,3}}|(?<=\b[NSEW])[0-9]{{1,3}})(?:\s?°\s?|\s)"
    r"(?P<{p}_min>[0-9]{{1,2}}(?:[.,][0-9]{{1,12}})?)\s?'?"
    r"(?:\s?(?P<{p}_sec>(?<=[\s'])[0-9]{{1,2}}(?:[.,][0-9]{{1,12}})?)\s?\"?)?(?!\.?[0-9])"
)
_BEFORE = r"\b(?P<{p}_before>[NSEW])\s?" + _UNMARKED + r"(?P<{p}_after>(?!))?"
_AFTER = r"(?P<{p}_before>(?!))?" + _UNMARKED + r"\s?(?P<{p}_after>(?:[NSEW]|north|south|east|west)\b)"
_DMS = tuple(
    re.compile(one.format(p="a") + _SEPARATOR + one.format(p="b"), _FLAGS)
    for one in (_DMS_ONE, _BEFORE, _AFTER)
)
_FIRST = r"(?P<{p}_h>[{letters}])\s?(?P<{p}>(?<!-)[0-9]{{1,3}}(?:[.,][0-9]{{1,30}})?)(?!\.?[0-9])"
_HEMISPHERES = tuple(
    re.compile(pattern, _FLAGS)
    for pattern in (
        rf"(?P<a>{_LETTERED}){_DEGREES}\s?(?P<a_h>{_NORTH_SOUTH}){_SEPARATOR}(?P<b>{_LETTERED}){_DEGREES}\s?(?P<b_h>{_EAST_WEST})",
        rf"(?P<a>{_LETTERED}){_DEGREES}\s?(?P<a_h>{_EAST_WEST}){_SEPARATOR}(?P<b>{_LETTERED}){_DEGREES}\s?(?P<b_h>{_NORTH_SOUTH})",
        rf"\b{_FIRST.format(p='a', letters='NS')}°?{_SEPARATOR}{_FIRST.format(p='b', letters='EW')}",
        rf"\b{_FIRST.format(p='a', letters='EW')}°?{_SEPARATOR}{_FIRST.format(p='b', letters='NS')}",
    )
)
# A number of a bare pair, perhaps with a letter: a capital one, because "e" is a word in half of Europe.
_BARE = re.compile(
    rf"(?:(?<![\w.+-])(?P<before>[NSEW])(?=[0-9]))?(?P<number>{_NUMBER}|(?<=\b[NSEW])[0-9]{{1,3}}\.[0-9]{{1,30}})"
    r"(?:\s?°?\s?(?P<after>(?:[NSEW]|[Nn]orth|[Ss]outh|[Ee]ast|[Ww]est)\b))?"
)
_BARE_GAP = re.compile(r"\s{0,4}°?\s{0,4}([,;/|]?)\s{0,4}")
_DECIMAL_COMMA = re.compile(
    r"(?<![\w.,+-])(?P<lat>[+-]?[0-9]{1,3},[0-9]{1,15})\s{0,4}°?\s{0,4}(?:[;/|]|,\s|\s)\s{0,4}"
    r"(?P<lon>[+-]?[0-9]{1,3},[0-9]{1,15})(?![\w,]*[0-9])"
)
_LONGEST_GAP = 14
# How close two numbers belong together, by what separates them.
_TIGHTNESS = {",": 0, " ": 1, "\n": 2, "/": 3, "|": 3, ";": 3, "": 4}
_WHOLE_TEXT_PADDING = " \t\r\n()[]{}.°\"'"


def _from_tags(text: str) -> Iterator[Pair]:
    bodies = [(m.start(), m[1], m[2]) for m in _TAG.finditer(text) if not m[1].endswith("/")]
    bodies += [(m.start(), m[1], "") for m in _TAG_EMPTY.finditer(text)]
    for _, attributes, body in sorted(bodies):
        for content in (body, attributes):
            if not _DIGIT.search(content):
                continue
            found = next((pairs for find in _IN_TAG if (pairs := list(find(content)))), None)
            if found:
                yield found[-1]
                break


def _from_json(text: str) -> Iterator[Pair]:
    return _labelled(text, _JSON)


def _from_labels(text: str) -> Iterator[Pair]:
    return _labelled(text, _LABELLED)


def _labelled(text: str, patterns: tuple[re.Pattern[str], ...]) -> Iterator[Pair]:
    for match in _in_order(text, patterns):
        lat = _signed(match["lat"], match["lat_h"])
        lon = _signed(match["lon"], match["lon_h"])
        if _hemisphere_fits(match["lat_h"], "ns") and _hemisphere_fits(match["lon_h"], "ew"):
            yield lat, lon


def _from_dms(text: str) -> Iterator[Pair]:
    for match in _in_order(text, _DMS):
        hemispheres = [(match[f"{p}_after"] or match[f"{p}_before"] or "").strip() for p in "ab"]
        values = [_dms_value(match, p, h) for p, h in zip("ab", hemispheres, strict=True)]
        pair = _by_hemisphere(values[0], hemispheres[0], values[1], hemispheres[1])
        if pair is not None:
            yield pair


def _from_hemispheres(text: str) -> Iterator[Pair]:
    for match in _in_order(text, _HEMISPHERES):
        a, b = _signed(match["a"], match["a_h"]), _signed(match["b"], match["b_h"])
        pair = _by_hemisphere(a, match["a_h"], b, match["b_h"])
        if pair is not None:
            yield pair


@dataclass(frozen=True)
class _Bare:
    """A number with nothing but a letter, perhaps, to say what it means.

    `gap` is what separates it from the next number of its chain: "," or another mark, " " for space alone,
    "\n" for a new line, "" where the chain ends.
    """

    start: int
    end: int
    value: float
    letter: str
    has_point: bool
    gap: str


def _from_decimals(text: str) -> Iterator[Pair]:
    whole = text.strip(_WHOLE_TEXT_PADDING)
    found: list[tuple[int, Pair]] = []
    for chain in _chains(text):
        found += _pairs_of(chain, text, whole)
    for comma in _DECIMAL_COMMA.finditer(text):
        pair = (_number(comma["lat"]), _number(comma["lon"]))
        found.append((comma.end(), pair))
    yield from (pair for _, pair in sorted(found, key=lambda entry: entry[0]))


def _chains(text: str) -> Iterator[list[_Bare]]:
    """Runs of two or more numbers with nothing but separators between them."""
    chain: list[_Bare] = []
    matches = list(_BARE.finditer(text))
    for match, following in zip(matches, [*matches[1:], None], strict=False):
        gap = ""
        if following is not None:
            between = text[match.end() : following.start()]
            separator = _BARE_GAP.fullmatch(between) if len(between) <= _LONGEST_GAP else None
            if separator and between:
                gap = separator[1] or ("\n" if "\n" in between else " ")
        letter = match["before"] or match["after"] or ""
        value = _signed(match["number"], letter)
        chain.append(_Bare(match.start(), match.end(), value, letter, "." in match["number"], gap))
        if not gap:
            if len(chain) > 1:
                yield chain
            chain = []


def _pairs_of(chain: list[_Bare], text: str, whole: str) -> Iterator[tuple[int, Pair]]:
    """Pairs of a chain with where they end, left to right; no number is in two of them.

    A number is passed over if it makes no explicit pair on the globe with the next one, as a year does not,
    or if the next one fits better with the one after it ("confidence 0.9; 48.85, 2.35").
    """
    at = 0
    while at + 1 < len(chain):
        pair, explicit = _couple(chain[at], chain[at + 1])
        alone = text[chain[at].start : chain[at + 1].end].strip(_WHOLE_TEXT_PADDING) == whole
        if pair is None or not (explicit or alone):
            at += 1
            continue
        better = _on_globe(*pair) and _fits_better(chain[at : at + 3])
        if not better:
            yield chain[at + 1].end, pair
        if better or not _on_globe(*pair):
            at += 1
            continue
        at += 3 if _is_triple(chain[at:]) else 2


def _couple(a: _Bare, b: _Bare) -> tuple[Pair | None, bool]:
    """Two neighbours as (lat, lon), and whether they say by themselves that they are a position."""
    explicit = a.has_point + b.has_point == 2 or (a.has_point + b.has_point == 1 and a.gap == ",")
    return _by_hemisphere(a.value, a.letter, b.value, b.letter), explicit


def _fits_better(three: list[_Bare]) -> bool:
    """Whether the last two of three numbers are the likelier pair."""
    if len(three) < 3:
        return False
    pair, explicit = _couple(three[1], three[2])
    if pair is None or not explicit or not _on_globe(*pair):
        return False
    first, second = _TIGHTNESS[three[0].gap], _TIGHTNESS[three[1].gap]
    more_points = three[2].has_point and not three[0].has_point
    return second < first or (second == first and more_points)


def _is_triple(rest: list[_Bare]) -> bool:
    """Whether a chain goes on with exactly three numbers under one separator: latitude, longitude, zoom."""
    return len(rest) >= 3 and rest[0].gap == rest[1].gap != rest[2].gap


def _from_numbers_in_tag(text: str) -> Iterator[Pair]:
    """Inside a tag the meaning is settled, so whole numbers and any separator will do."""
    yield from _from_decimals(text)
    numbers = re.findall(_NUMBER, text)
    if len(numbers) == 2:
        yield float(numbers[0]), float(numbers[1])
    elif len(numbers) == 3 and not any("." in number for number in numbers):
        chain = next(_chains(text), [])
        if len(chain) == 3 and _is_triple(chain):
            yield chain[0].value, chain[1].value


def _in_order(text: str, patterns: tuple[re.Pattern[str], ...]) -> list[re.Match[str]]:
    """Matches of all patterns from left to right; one that overlaps an earlier one is no pair of its own."""
    kept: list[re.Match[str]] = []
    matches = [match for pattern in patterns for match in pattern.finditer(text)]
    for match in sorted(matches, key=lambda match: (match.start(), -match.end())):
        if not kept or match.start() >= kept[-1].end():
            kept.append(match)
    return kept


def _plain(text: str) -> str:
    """Typographic signs, full-width characters and the digits of any script as plain characters.

    Not all of Unicode's compatibility forms: those turn a footnote's superscript into one more digit.
    """
    text = text.translate(_TYPOGRAPHY)
    return text if text.isascii() else "".join(map(_plain_character, text))


def _plain_character(char: str) -> str:
    if char.isascii():
        return char
    if "\uff01" <= char <= "\uff5e":
        return unicodedata.normalize("NFKC", char)
    digit = unicodedata.decimal(char, None)
    return char if digit is None else str(digit)


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def _signed(number: str, hemisphere: str | None) -> float:
    """The value with its hemisphere's sign; S and W mean negative whether or not a minus stands there too."""
    value = _number(number)
    return -abs(value) if (hemisphere or "").strip()[:1].lower() in ("s", "w") else value


def _dms_value(match: re.Match[str], prefix: str, hemisphere: str) -> float:
    degrees, minutes = match[f"{prefix}_deg"], _number(match[f"{prefix}_min"])
    seconds = _number(match[f"{prefix}_sec"] or "0")
    if minutes >= 60.0 or seconds >= 60.0:
        return math.nan
    size = abs(float(degrees)) + minutes / 60.0 + seconds / 3600.0
    # The sign is read from the text: -0° 30' is south although -0 is not below 0.
    return -size if degrees.startswith("-") or hemisphere[:1].lower() in ("s", "w") else size


def _by_hemisphere(a: float, a_hemisphere: str, b: float, b_hemisphere: str) -> Pair | None:
    """Order two angles as (lat, lon); letters decide over order. None if both name the same axis."""
    first, second = a_hemisphere[:1].lower(), b_hemisphere[:1].lower()
    if (first in "ew" and first) or (second in "ns" and second):
        return (b, a) if _hemisphere_fits(second, "ns") and _hemisphere_fits(first, "ew") else None
    return a, b


def _hemisphere_fits(hemisphere: str | None, allowed: str) -> bool:
    return not hemisphere or hemisphere.strip()[:1].lower() in allowed


def _on_globe(lat: float, lon: float) -> bool:
    return -90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0


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


Finder = Callable[[str], Iterator[Pair]]
_IN_TAG: tuple[Finder, ...] = (
    _from_json,
    _from_labels,
    _from_dms,
    _from_hemispheres,
    _from_numbers_in_tag,
)
_FORMS: tuple[tuple[str, Finder], ...] = (
    ("guess_tag", _from_tags),
    ("json", _from_json),
    ("labelled", _from_labels),
    ("dms", _from_dms),
    ("hemisphere", _from_hemispheres),
    ("decimal", _from_decimals),
)
