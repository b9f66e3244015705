"""Pairs of bare decimals: numbers next to each other, with nothing to say what they are but their looks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from env_service._angles import NUMBER, decimal, signed

Pair = tuple[float, float]

# A number of a bare pair, perhaps with a letter: a capital one, because "e" is a word in half of Europe.
_BARE = re.compile(
    rf"(?:(?<![\w.+-])(?P<before>[NSEW])\s?(?=[0-9]))?(?P<number>{NUMBER}|(?<=\b[NSEW])[0-9]{{1,3}}\.[0-9]{{1,30}})"
    r"(?:\s?°?\s?(?P<after>(?:[NSEW]|[Nn]orth|[Ss]outh|[Ee]ast|[Ww]est)\b))?"
)
_BARE_GAP = re.compile(r"\s{0,4}°?\s{0,4}([,;/|]?)\s{0,4}")
_DECIMAL_COMMA = re.compile(
    r"(?<![\w.,+-])(?P<lat>[+-]?[0-9]{1,3},[0-9]{1,15})\s{0,4}°?\s{0,4}(?:[;/|]|,\s|\s)\s{0,4}"
    r"(?P<lon>[+-]?[0-9]{1,3},[0-9]{1,15})(?![\w,]*[0-9])"
)
_SEXAGESIMAL = re.compile(
    r"(?<![\w.])([+-]?[0-9]{1,3})\s?(?:°(?=[0-9])|°\s?(?=[0-9.,]{1,15}\s?'))([0-9]{1,2})(?![0-9])"
)
_LONGEST_GAP = 14
# How close two numbers belong together, by what separates them.
_TIGHTNESS = {",": 0, " ": 1, "\n": 2, "/": 3, "|": 3, ";": 3, "": 4}
_WHOLE_TEXT_PADDING = " \t\r\n()[]{}.°\"'"


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


def from_decimals(text: str) -> Iterator[Pair]:
    whole = text.strip(_WHOLE_TEXT_PADDING)
    found: list[tuple[int, Pair]] = []
    for chain in _chains(text):
        found += _pairs_of(chain, text, whole)
    for comma in _DECIMAL_COMMA.finditer(text):
        pair = (decimal(comma["lat"]), decimal(comma["lon"]))
        found.append((comma.end(), pair))
    yield from (pair for _, pair in sorted(found, key=lambda entry: entry[0]))


def _chains(text: str) -> Iterator[list[_Bare]]:
    """Runs of two or more numbers with nothing but separators between them."""
    chain: list[_Bare] = []
    longer = _parts_of_longer(text)
    matches = [match for match in _BARE.finditer(text) if match.start("number") not in longer]
    for match, following in zip(matches, [*matches[1:], None], strict=False):
        gap = ""
        if following is not None:
            between = text[match.end() : following.start()]
            separator = _BARE_GAP.fullmatch(between) if len(between) <= _LONGEST_GAP else None
            if separator and between:
                gap = separator[1] or ("\n" if "\n" in between else " ")
        letter = match["before"] or match["after"] or ""
        value = signed(match["number"], letter)
        chain.append(_Bare(match.start(), match.end(), value, letter, "." in match["number"], gap))
        if not gap:
            if len(chain) > 1:
                yield chain
            chain = []


def _parts_of_longer(text: str) -> set[int]:
    """Where numbers start that are degrees or minutes of one angle, as in "48°51.5" and "48° 51'"."""
    return {start for match in _SEXAGESIMAL.finditer(text) for start in (match.start(1), match.start(2))}


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
        better = on_globe(*pair) and _fits_better(chain[at : at + 3])
        if not better:
            yield chain[at + 1].end, pair
        if better or not on_globe(*pair):
            at += 1
            continue
        at += 3 if _is_triple(chain[at:]) else 2


def _couple(a: _Bare, b: _Bare) -> tuple[Pair | None, bool]:
    """Two neighbours as (lat, lon), and whether they say by themselves that they are a position."""
    explicit = a.has_point + b.has_point == 2 or (a.has_point + b.has_point == 1 and a.gap == ",")
    return by_letters(a.value, a.letter, b.value, b.letter), explicit


def _fits_better(three: list[_Bare]) -> bool:
    """Whether the last two of three numbers are the likelier pair."""
    if len(three) < 3:
        return False
    pair, explicit = _couple(three[1], three[2])
    if pair is None or not explicit or not on_globe(*pair):
        return False
    first, second = _TIGHTNESS[three[0].gap], _TIGHTNESS[three[1].gap]
    more_points = three[2].has_point and not three[0].has_point
    return second < first or (second == first and more_points)


def _is_triple(rest: list[_Bare]) -> bool:
    """Whether a chain goes on with exactly three numbers under one separator: latitude, longitude, zoom."""
    return len(rest) >= 3 and rest[0].gap == rest[1].gap != rest[2].gap


def from_numbers_in_tag(text: str) -> Iterator[Pair]:
    """Inside a tag the meaning is settled, so whole numbers and any separator will do."""
    yield from from_decimals(text)
    longer = _parts_of_longer(text)
    numbers = [match[0] for match in re.finditer(NUMBER, text) if match.start() not in longer]
    if len(numbers) == 2:
        yield float(numbers[0]), float(numbers[1])
    elif len(numbers) == 3 and not any("." in number for number in numbers):
        chain = next(_chains(text), [])
        if len(chain) == 3 and _is_triple(chain):
            yield chain[0].value, chain[1].value


def by_letters(a: float, a_letter: str, b: float, b_letter: str) -> Pair | None:
    """Order two angles as (lat, lon); letters decide over order. None if both name the same axis."""
    first, second = a_letter[:1].lower(), b_letter[:1].lower()
    if (first in "ew" and first) or (second in "ns" and second):
        return (b, a) if _fits(second, "ns") and _fits(first, "ew") else None
    return a, b


def _fits(letter: str | None, allowed: str) -> bool:
    return not letter or letter.strip()[:1].lower() in allowed


def on_globe(lat: float, lon: float) -> bool:
    """Whether a position is one."""
    return -90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0
