"""One angle as people and models write it: decimal, or degrees, minutes and seconds, perhaps with a letter.

The grammar behind every form in `parsing` that says what its numbers are: a label, a key, a mark of degrees.
"""

import math
import re
import unicodedata
from dataclasses import dataclass

FLAGS = re.IGNORECASE

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
NUMBER = r"(?<![\w.+-])[+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?(?![0-9])"
# With a label or a letter beside it a decimal comma is unmistakable.
LETTERED = rf"(?:(?<![\w.,+-])[+-]?[0-9]{{1,3}},[0-9]{{1,15}}(?!\.?[0-9])|{NUMBER})"
DEGREES = r"\s?(?:°|\bdegrees?\b|\bdeg\b\.?)?"
MINUTES_OR_SECONDS = r"[0-9]{1,2}(?:[.,][0-9]{1,12})?"
DEGREE_MARK = r"(?:°|deg(?:rees?)?\b\.?|d(?=\s?[0-9]))"
MINUTE_MARK = r"(?:'(?!')|min(?:utes?)?\b|m(?=\s?[0-9]))"
# An "s" may also be the letter of the south, see `side`. In torn JSON the double quote is escaped.
SECOND_MARK = r"(?:\\?\"|''|sec(?:onds?)?\b|s\b)"
LETTER = r"(?:[NSEW]|north|south|east|west)\b"
_ATTACHED = r"(?:[NSEW](?![a-z])|(?:north|south|east|west)\b)"
_NO_LENGTH = r"(?!\s?(?:°|km\b|mi\b|miles?\b|met(?:er|re)s?\b))"

ANGLE = (
    # "The latitude's 48" is not in the south.
    rf"(?:(?<!\w)(?<!\w')(?P<before>{_ATTACHED})\s?)?"
    r"(?:(?P<deg>(?:(?<![\w.,+-])|(?<=\b[NSEW]))[+-]?[0-9]{1,3})"
    rf"(?P<mark>\s?{DEGREE_MARK}\s?|[ \t])(?P<min>{MINUTES_OR_SECONDS})(?![0-9])"
    rf"{_NO_LENGTH}(?:\s?(?P<min_mark>{MINUTE_MARK}))?"
    rf"(?:\s?(?<=[\s'a-z])(?P<sec>{MINUTES_OR_SECONDS})(?![0-9]){_NO_LENGTH}(?:\s?(?P<sec_mark>{SECOND_MARK}))?)?"
    rf"|(?:(?P<number>{LETTERED})|(?<=\b[NSEW])(?P<glued>[0-9]{{1,3}}(?:[.,][0-9]{{1,30}})?)(?!\.?[0-9])){DEGREES})"
    rf"(?:\s?(?P<after>{LETTER})|\s?\(\s?(?P<aside>{LETTER})\s?\))?"
)
"""Groups of one angle; only one of these may stand in a pattern."""

# A number that goes on like this was only the beginning of something longer.
_GOES_ON = re.compile(r"\s?['\"]\s?[0-9]|\s?°[0-9]|\.[0-9]")
_WHOLE = re.compile(rf"\s*{ANGLE}\s*", FLAGS)
_LONGEST_ANGLE = 64


@dataclass(frozen=True)
class Angle:
    """An angle in degrees; NaN where its minutes or seconds are 60 or more.

    `letter` is "n", "s", "e", "w" or "" where none says which axis it is; the value has its sign already.
    `end` is where it ends in the text that it was read from.
    """

    value: float
    letter: str
    end: int


def read_angle(text: str) -> Angle | None:
    """The angle that is all there is to a text, or None. Minutes need a mark of degrees or a letter."""
    match = _WHOLE.fullmatch(plain(text)) if len(text) <= _LONGEST_ANGLE else None
    if match is None or (match["before"] and (match["after"] or match["aside"])):
        return None
    angle = angle_of(match)
    return angle if angle is not None and (not match["deg"] or angle.end > match.end("deg")) else None


def angle_of(match: re.Match[str], letters: str = "nsew", letter: str = "") -> Angle | None:
    """The angle of a match of `ANGLE`, or None if its number is only the head of something longer.

    Args:
        match: of a pattern with `ANGLE` in it.
        letters: those of the axis that a label names. A single small letter before the number counts only
            if it is one of them: "latitude e 48.85" is Italian.
        letter: counts where the angle has none of its own.
    """
    before = match["before"] or ""
    if len(before) == 1 and before.islower() and before not in letters:
        before = ""
    own = match["after"] or match["aside"] or before
    if match["deg"] is None:
        number, end = match["number"] or match["glued"], match.end()
        if _GOES_ON.match(match.string, max(match.end("number"), match.end("glued"))):
            return None
        return Angle(signed(number, own or letter), (own or letter)[:1].lower(), end)
    mark = match["sec_mark"] or ""
    south = "" if own else side(mark, match["min_mark"] or "")
    said = own or south or letter
    if not match["mark"].strip() and not said:
        # "48 51" alone is no angle: the number counts, and what follows is for others to judge.
        return Angle(float(match["deg"]), "", match.end("deg"))
    value = sexagesimal(match["deg"], match["min"], match["sec"], said)
    return Angle(value, said[:1].lower(), match.end())


def side(second_mark: str, minute_mark: str) -> str:
    """What an "s" after the seconds says: "s" for south, or nothing where it stands for seconds.

    Seconds are a small s after minutes that are called m or min; after the sign of minutes, or as a capital,
    it is the letter of a hemisphere.
    """
    return "s" if second_mark == "S" or (second_mark == "s" and minute_mark[:1].lower() != "m") else ""


def sexagesimal(degrees: str, minutes: str, seconds: str | None, letter: str) -> float:
    """Degrees, minutes and seconds as degrees; NaN for minutes or seconds of 60 and more."""
    small, smaller = decimal(minutes), decimal(seconds or "0")
    if small >= 60.0 or smaller >= 60.0:
        return math.nan
    size = abs(float(degrees)) + small / 60.0 + smaller / 3600.0
    # The sign is read from the text: -0° 30' is south although -0 is not below 0.
    return -size if degrees.startswith("-") or letter[:1].lower() in ("s", "w") else size


def signed(number: str, letter: str | None) -> float:
    """The value with its letter's sign; S and W mean negative whether or not a minus stands there too."""
    value = decimal(number)
    return -abs(value) if (letter or "").strip()[:1].lower() in ("s", "w") else value


def decimal(text: str) -> float:
    """A number with a decimal point or comma."""
    return float(text.replace(",", "."))


def plain(text: str) -> str:
    """Typographic signs, full-width characters and the digits of any script as plain ones, one for one.

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
