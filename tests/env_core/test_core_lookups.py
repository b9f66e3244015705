"""Countries of the published eval starts, and the nearest town by every way of asking."""

import csv

import numpy as np
import pytest

from env_service._place_tree import PlaceTree
from env_service.geodesy import haversine_km_array, unit_vectors
from env_service.geography import geography

# The published labels came from coarse borders; these four positions lie in another country.
TRULY = {19: "TH", 99: "CL", 102: "ZA", 112: "TH"}


def test_the_country_of_the_200_published_starts(shared):
    with (shared / "reference" / "published_eval_starts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    known, differ = geography(), {}
    for row in rows:
        labelled = known.country_by_name(row["country"])
        there = known.country_at(float(row["lat"]), float(row["lon"]))
        assert labelled is not None, row
        if there is None or there.code != labelled.code:
            differ[int(row["index"])] = there.code if there else None
    assert len(rows) == 200 and differ == TRULY
    assert known.describe(*_at(rows, 99)).text.startswith("Chile")
    assert "Nakhon Phanom" in known.describe(*_at(rows, 112)).text


def _at(rows: list[dict[str, str]], index: int) -> tuple[float, float]:
    row = next(row for row in rows if int(row["index"]) == index)
    return float(row["lat"]), float(row["lon"])


def test_the_nearest_town_is_the_one_a_scan_of_all_finds():
    known, dice = geography(), np.random.default_rng(11)
    positions = [known.random_land_point(dice) for _ in range(100)]
    positions += [(float(dice.uniform(-90, 90)), float(dice.uniform(-180, 180))) for _ in range(100)]
    positions += [(90.0, 0.0), (-90.0, 10.0), (0.0, 180.0), (0.0, -180.0), (-17.0, 540.0)]
    for lat, lon in positions:
        place, distance = known.nearest_place(lat, lon)
        all_km = haversine_km_array(lat, lon, known.places.lat, known.places.lon)
        assert distance == pytest.approx(float(all_km.min()), rel=1e-9, abs=1e-6)
        assert place == known.places[int(all_km.argmin())] or distance == pytest.approx(
            float(np.partition(all_km, 1)[1]), rel=1e-9, abs=1e-6
        )


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 64, 1000])
def test_a_tree_of_any_size_finds_every_one_of_its_own_points(count):
    dice = np.random.default_rng(count)
    points = unit_vectors(dice.uniform(-90, 90, count), dice.uniform(-180, 180, count))
    tree = PlaceTree(points)
    assert [tree.nearest(*point)[0] for point in points.tolist()] == list(range(count))


def test_of_two_equally_near_the_first_is_taken():
    points = np.array([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [0.0, -1.0, 0.0], [-1.0, 0.0, 0.0]] * 5)
    assert PlaceTree(points).nearest(1.0, 0.0, 0.0) == (0, 2.0)
    assert PlaceTree(points).nearest(0.0, -1.0, 0.0) == (1, 0.0)


def test_on_the_corners_and_edges_of_cells_the_grid_says_what_the_polygons_say():
    known, step = geography(), 180.0 / geography()._cell_rows
    lats = [-90.0, *(-90.0 + step * row for row in range(40, 700, 11)), 90.0]
    lons = [-540.0, -180.0, *(-180.0 + step * column for column in range(3, 1440, 17)), 180.0, 540.0]
    corners = [(lat, lon) for lat in lats for lon in lons]
    beside = [(np.nextafter(lat, 0.0).item(), np.nextafter(lon, 0.0).item()) for lat, lon in corners]
    for positions in (corners, beside):
        found = [country.code if (country := known.country_at(*at)) else None for at in positions]
        assert found == known.codes_at(*np.transpose(positions))
    assert known.country_at(float("nan"), 0.0) is None and known.country_at(90.1, 0.0) is None
