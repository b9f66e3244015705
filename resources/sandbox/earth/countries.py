"""Traits of every country: from the table where it has a row, else mixed from rows of its region.

A country without a row borrows groups of traits (lines, buildings, furniture) from different neighbours,
chosen by its code, so that it looks like its region without being the copy of one neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from resources.sandbox.earth.chance import text_key, unit
from resources.sandbox.earth.country_table import DONORS, LEFT_DRIVING, REGIONS, SCRIPT_OVERRIDES, TABLE


@dataclass(frozen=True)
class LinePaint:
    """A painted line: paint letter, or "N" for none, and pattern: dashed, solid or double."""

    paint: str
    pattern: str

    @property
    def painted(self) -> bool:
        """Whether there is a line at all."""
        return self.paint != "N"


@dataclass(frozen=True)
class CountryTraits:
    """What is the same all over a country. Fields as the columns of `country_table.TABLE`."""

    code: str
    region: str
    drives_left: bool
    centre: LinePaint
    edge: LinePaint
    dash_m: float
    gap_m: float
    pole: str
    pole_spacing_m: float
    script: str
    tongue: str
    wall: str
    roof: str
    plate_front: str
    plate_rear: str
    plate_band: bool
    warning: str
    direction: str
    kerb: str
    post: str
    unpaved_share: float
    fence: str
    flag: str
    phone: str
    domain: str
    asphalt_tint: tuple[float, float, float]
    paving_tint: tuple[float, float, float]


@lru_cache(maxsize=1)
def table_rows() -> dict[str, dict[str, str]]:
    """The table as code -> column -> text."""
    lines = [line.split() for line in TABLE.strip().splitlines()]
    header, rows = lines[0], lines[1:]
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


@lru_cache(maxsize=1)
def regions_by_code() -> dict[str, str]:
    """ISO code -> name of the region whose look it shares."""
    return {code: name for name, codes in REGIONS.items() for code in codes.split()}


def known_codes() -> tuple[str, ...]:
    """Every country code that has a region, sorted."""
    return tuple(sorted(regions_by_code()))


@lru_cache(maxsize=512)
def traits(code: str) -> CountryTraits:
    """The traits of a country by ISO code; an unknown code gets the traits of some mixed row."""
    row = table_rows().get(code) or _borrowed_row(code)
    dash, gap = row["dash"].split("/")
    return CountryTraits(
        code=code,
        region=regions_by_code().get(code, ""),
        drives_left=code in LEFT_DRIVING.split(),
        centre=_line(row["mid"]),
        edge=_line(row["edge"]),
        dash_m=float(dash),
        gap_m=float(gap),
        pole=row["pole"],
        pole_spacing_m=float(row["gap"]),
        script=row["script"],
        tongue=row["tongue"],
        wall=row["wall"],
        roof=row["roof"],
        plate_front=row["plate"][0],
        plate_rear=row["plate"][1],
        plate_band=row["plate"].endswith("+"),
        warning=row["warn"],
        direction=row["dir"],
        kerb=row["kerb"],
        post=row["post"],
        unpaved_share=float(row["dirt"]),
        fence=row["fence"],
        flag=row["flag"],
        phone=row["tel"],
        domain=".uk" if code == "GB" else "." + code.lower(),
        asphalt_tint=_tint(code, 901, 9.0),
        paving_tint=_tint(code, 902, 15.0),
    )


def _line(text: str) -> LinePaint:
    pattern = {"d": "dashed", "s": "solid", "=": "double"}.get(text[1:], "solid")
    return LinePaint(text[0], pattern)


def _tint(code: str, salt: int, strength: float) -> tuple[float, float, float]:
    """A modest tint of a surface (the stone that a country crushes for its roads), zero on average."""
    draws = [unit(text_key(code), salt, channel) - 0.5 for channel in range(3)]
    mean = sum(draws) / 3.0
    red, green, blue = (2.0 * strength * (draw - 0.6 * mean) for draw in draws)
    return red, green, blue


def _borrowed_row(code: str) -> dict[str, str]:
    rows = table_rows()
    region = regions_by_code().get(code, "")
    codes = DONORS.get(region, REGIONS.get(region, "")).split()
    donors = [rows[donor] for donor in codes if donor in rows] or list(rows.values())
    key = text_key(code)
    groups = {
        1: ("mid", "edge", "dash", "warn", "dir", "kerb", "post"),
        2: ("wall", "roof", "fence"),
        3: ("pole", "gap", "dirt", "plate"),
        4: ("script", "tongue"),
    }
    row = {"code": code}
    for salt, columns in groups.items():
        donor = donors[int(unit(key, salt) * len(donors))]
        row.update({column: donor[column] for column in columns})
    row["script"] = SCRIPT_OVERRIDES.get(code, row["script"])
    row["flag"] = _invented_flag(key)
    row["tel"] = str(200 + int(unit(key, 6) * 790))
    return row


def _invented_flag(key: int) -> str:
    """A flag for a country whose own is not in the table: made up, but always the same."""
    paints = "RWBGYKLO"
    layout = "hvdt"[int(unit(key, 7) * 4)]
    first = int(unit(key, 8) * len(paints))
    steps = 1 + int(unit(key, 9) * 3)
    letters = "".join(paints[(first + index * steps) % len(paints)] for index in range(3))
    return f"{layout}:{letters}"
