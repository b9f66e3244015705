"""Countries, towns and land: known places, published labels, the seam at 180 degrees and the poles."""

import csv

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from env_service.geodesy import destination, haversine_km, haversine_km_array
from env_service.geography import geography

# Labels in the published list that are on the wrong side of a border: index to the true country.
MISLABELLED = {19: "Thailand", 112: "Thailand", 99: "Chile", 102: "South Africa"}


@pytest.mark.parametrize(
    ("lat", "lon", "code"),
    [
        (50.83, 4.32, "BE"), (38.87, -104.79, "US"), (21.3, -157.86, "US"), (64.84, -147.7, "US"),
        (51.5, -0.12, "GB"), (55.95, -3.19, "GB"), (54.6, -5.93, "GB"), (18.4, -66.1, "PR"),
        (12.15, -68.27, "BQ"),
        (16.0, -61.7, "GP"), (28.1, -15.4, "ES"), (35.89, -5.31, "ES"), (78.2, 15.6, "SJ"),
        (-49.35, 70.2, "TF"),
        (-15.93, -5.72, "SH"), (42.66, 21.16, "XK"), (44.95, 34.1, "UA"), (35.34, 33.32, "CY"),
        (31.9, 35.2, "PS"),
        (41.9022, 12.4533, "VA"), (43.94, 12.45, "SM"), (-29.5, 28.5, "LS"), (62.0, -6.8, "FO"),
        (64.2, -51.7, "GL"),
        (55.75, 37.6, "RU"), (54.7, 20.5, "RU"), (62.0, 129.7, "RU"), (22.3, 114.17, "HK"),
        (25.03, 121.56, "TW"),
        (-77.85, 166.67, "AQ"), (-17.0, 179.9999999, "FJ"), (-17.0, -180.0, "FJ"), (-17.0, 180.0, "FJ"),
    ],
)  # fmt: skip
def test_countries_by_position(lat, lon, code):
    country = geography().country_at(lat, lon)
    assert country is not None
    assert country.code == code
    assert geography().codes_at(lat, lon) == [code]


def test_published_labels_agree_but_for_the_four_known_faults(shared):
    known, wrong = geography(), {}
    with (shared / "reference" / "published_eval_starts.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        found = known.country_at(float(row["lat"]), float(row["lon"]))
        labelled = known.country_by_name(row["country"])
        assert found is not None, row
        assert labelled is not None, row
        if found != labelled:
            wrong[int(row["index"])] = found.name
    assert len(rows) == 200
    assert wrong == MISLABELLED


def test_999_of_1000_towns_lie_in_their_country():
    places = geography().places
    found = geography().codes_at(places.lat, places.lon)
    right = sum(a == b for a, b in zip(found, places.country_codes, strict=True))
    assert right / len(places) > 0.999


def test_many_at_once_agrees_with_one_by_one():
    rng = np.random.default_rng(5)
    lat, lon = rng.uniform(-90, 90, 400), rng.uniform(-180, 180, 400)
    single = [geography().country_at(a, b) for a, b in zip(lat, lon, strict=True)]
    assert geography().codes_at(lat, lon) == [country and country.code for country in single]
    assert geography().codes_at([], []) == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("United States of America", "US"), ("United States", "US"), ("Moldova", "MD"), ("Turkey", "TR"),
        ("Türkiye", "TR"), ("Republic of Serbia", "RS"), ("United Republic of Tanzania", "TZ"),
        ("Democratic Republic of the Congo", "CD"), ("Republic of the Congo", "CG"), ("Ivory Coast", "CI"),
        ("Côte d’Ivoire", "CI"), ("the netherlands", "NL"), ("CZECH REPUBLIC", "CZ"), ("St. Lucia", "LC"),
        ("Bosnia & Herzegovina", "BA"), ("Guinea", "GN"), ("Niger", "NE"), ("Ireland", "IE"),
        ("Holy See", "VA"),
        ("China", "CN"), ("Denmark", "DK"), ("Micronesia", "FM"),
    ],
)  # fmt: skip
def test_countries_by_name(name, code):
    country = geography().country_by_name(name)
    assert country is not None
    assert country.code == code


def test_unknown_names_and_codes():
    assert geography().country_by_name("Atlantis") is None
    assert geography().country_by_name("") is None
    assert geography().country_by_code("ZZ") is None
    assert geography().country_by_code("be") == geography().country_by_name("Belgium")


def test_every_country_is_found_by_its_own_name_and_lies_somewhere():
    countries = geography().countries
    assert len(countries) == len({country.code for country in countries}) == 250
    for country in countries:
        assert geography().country_by_name(country.name) == country
        assert country.continent
        assert country.subregion


@pytest.mark.parametrize(
    ("code", "continent", "subregion"),
    [
        ("RU", "Europe", "Eastern Europe"), ("US", "North America", "Northern America"),
        ("MX", "North America", "Central America"), ("BR", "South America", "South America"),
        ("TR", "Asia", "Western Asia"), ("EG", "Africa", "Northern Africa"),
        ("AQ", "Antarctica", "Antarctica"),
        ("NZ", "Oceania", "Australia and New Zealand"), ("ES", "Europe", "Southern Europe"),
    ],
)  # fmt: skip
def test_continents_and_subregions(code, continent, subregion):
    country = geography().country_by_code(code)
    assert country is not None
    assert (country.continent, country.subregion) == (continent, subregion)


def test_nearest_country_offshore_is_measured_on_the_sphere():
    """Straight out from a border vertex that nothing else is near to, the distance is what was walked."""
    madeira_sea = (32.4, -17.9)
    inside = geography().nearest_country(*madeira_sea)
    assert inside is not None
    sea = None
    for km in range(1, 200):
        at = destination(*madeira_sea, 270.0, km)
        if geography().country_at(*at) is None:
            sea = at
            break
    assert sea is not None
    near = geography().nearest_country(*sea)
    assert near is not None
    assert near[0].code == "PT"
    assert 0.0 < near[1] <= 1.01
    far = destination(*sea, 270.0, 40.0)
    assert geography().nearest_country(*far) is None
    assert geography().nearest_country(*far, max_km=60.0) is not None


@settings(max_examples=60, deadline=None)
@given(st.floats(-89.9, 89.9), st.floats(-180, 180))
def test_nearest_country_agrees_with_sampled_borders(lat, lon):
    found = geography().nearest_country(lat, lon, max_km=120.0)
    angles = np.arange(0.0, 360.0, 6.0)
    for km in (30.0, 60.0, 90.0, 118.0):
        ring = [destination(lat, lon, angle, km) for angle in angles]
        if any(geography().codes_at([a for a, _ in ring], [b for _, b in ring])):
            assert found is not None
            assert found[1] <= km + 0.2
            return


@pytest.mark.parametrize(
    ("lat", "lon"), [(-90.0, 0.0), (90.0, 0.0), (0.0, 180.0), (0.0, -180.0), (71.0, 540.0)]
)
def test_poles_and_the_seam_raise_nothing(lat, lon):
    text = geography().describe(lat, lon).text
    assert "nearest city" in text


def test_nearest_country_reaches_across_180_degrees():
    """East of Fiji's last polygon edge on the far side of the line, measured from this side."""
    taveuni = geography().nearest_country(-14.6, -179.999, max_km=600.0)
    assert taveuni is not None
    mirrored = geography().nearest_country(-14.6, 180.001, max_km=600.0)
    assert mirrored is not None
    assert mirrored[0] == taveuni[0]
    assert mirrored[1] == pytest.approx(taveuni[1], abs=0.3)


@settings(max_examples=60, deadline=None)
@given(st.floats(-90, 90), st.floats(-180, 180))
def test_nearest_place_agrees_with_a_scan(lat, lon):
    place, km = geography().nearest_place(lat, lon)
    places = geography().places
    assert km == pytest.approx(float(haversine_km_array(lat, lon, places.lat, places.lon).min()), abs=1e-6)
    assert haversine_km(lat, lon, place.lat, place.lon) == pytest.approx(km, abs=1e-6)


def test_descriptions():
    text = geography().describe(50.83, 4.38).text
    assert text.startswith("Belgium, Western Europe; nearest city ")
    sea = geography().describe(0.0, 0.0)
    assert sea.country is None
    assert sea.text == "Open sea; nearest city Takoradi (579 km NNW)"
    assert geography().describe(-89.0, 0.0).text.startswith("Antarctica; nearest city ")


def test_capitals():
    brussels = geography().capital_of("BE")
    assert brussels is not None
    assert brussels.name == "Brussels"
    assert haversine_km(brussels.lat, brussels.lon, 50.85, 4.35) < 5
    assert geography().capital_of("AQ") is None
    assert sum(geography().capital_of(country.code) is not None for country in geography().countries) > 240


@pytest.mark.parametrize(
    ("box", "land"),
    [
        ((4, 50, 5, 51), True), ((-30, 30, -29, 31), False), ((50, 42.0, 50.5, 42.5), False),
        ((179, -17, -179, -16), True), ((-180, -90, 180, -85), True), ((-10, -40, 0, -30), False),
        ((179.0, -8.6, 179.3, -8.4), True), ((73.4, 4.1, 73.6, 4.3), True), ((-180, 85, 180, 89), False),
        ((-179.9, 68, -179, 69), True),
    ],
)  # fmt: skip
def test_land_in_a_box(box, land):
    assert geography().land_intersects_bbox(*box) is land


def test_a_box_is_tested_by_its_area_and_not_by_points():
    """Malta lies in this box, away from its corners and its middle."""
    west, south, east, north = 13.5, 35.5, 14.6, 36.3
    probes = [(x, y) for x in (west, east) for y in (south, north)]
    for x, y in [*probes, ((west + east) / 2, (south + north) / 2)]:
        assert not geography().land_intersects_bbox(x, y, x, y)
    assert geography().land_intersects_bbox(west, south, east, north)


def test_random_land_points_are_even_by_area_and_repeat_with_their_seed():
    rng = np.random.default_rng(1)
    points = [geography().random_land_point(rng) for _ in range(300)]
    again = np.random.default_rng(1)
    assert points[:20] == [geography().random_land_point(again) for _ in range(20)]
    codes = geography().codes_at(*zip(*points, strict=True))
    assert None not in codes
    assert "AQ" not in codes
    # Russia has about an eighth of the land that is left.
    assert 0.06 < codes.count("RU") / len(codes) < 0.2


@pytest.mark.parametrize("detail", ["110m", "50m"])
def test_outlines_are_closed_rings_within_the_world(detail):
    rings = geography().country_outlines(detail)
    assert len(rings) == len(geography().country_outline_codes(detail))
    for ring in [*rings, *geography().land_outlines(detail)]:
        assert ring.dtype == np.float32
        assert ring.shape[1] == 2
        assert (ring[0] == ring[-1]).all()
        assert np.abs(ring[:, 0]).max() <= 180.0
        assert np.abs(ring[:, 1]).max() <= 90.0
    for line in [*geography().coast_lines(detail), *geography().border_lines(detail)]:
        assert np.abs(np.diff(line[:, 0])).max(initial=0.0) < 20.0


def test_outlines_cover_the_land_of_the_world():
    area = 0.0
    for ring in geography().country_outlines("50m"):
        x, y = np.radians(ring[:, 0]), np.sin(np.radians(ring[:, 1]))
        area += abs(float(shapely.Polygon(np.column_stack([x, y])).area)) * 6371.0088**2
    assert area == pytest.approx(148e6, rel=0.03)
