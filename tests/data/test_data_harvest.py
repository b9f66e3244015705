"""One candidate's frames become tasks, and every frame is accounted for."""

from typing import Any

from env_service.geography import geography
from geo_assets.config.settings import PoolSpec
from geo_assets.data._harvest import (
    GONE,
    KEPT,
    NOWHERE,
    OUTSIDE,
    THIN,
    HarvestSpec,
    country_near,
    outcome_of,
)
from geo_assets.data._selection import Candidate
from resources.mapillary_frames import UsableFrame, usable_frame

SPEC = HarvestSpec.of(PoolSpec(window_frames=4))


def _frame(number: int, lat: float = 50.83, lon: float = 4.32, **fields: Any) -> UsableFrame:
    entity = {
        "id": str(number),
        "computed_geometry": {"coordinates": [lon, lat + number * 1e-5]},
        "computed_compass_angle": 0.0,
        "captured_at": 1_650_000_000_000,
        "camera_type": "spherical",
        "creator": {"id": "7", "username": "someone"},
        "make": "none",
        "thumb_2048_url": "x",
        **fields,
    }
    frame = usable_frame(entity)
    assert isinstance(frame, UsableFrame)
    return frame


def _candidate(lat: float = 50.83, lon: float = 4.32) -> Candidate:
    return Candidate("seq", "3", "7", 0.4, lat, lon)


def test_a_task_has_its_place_its_credit_and_its_middle() -> None:
    ids = [str(n) for n in range(6)]
    verdicts: dict[str, UsableFrame | str] = {str(n): _frame(n) for n in range(1, 5)}
    outcome = outcome_of(_candidate(), SPEC, ids, verdicts, [range(1, 5)])
    (row,) = outcome.tasks
    assert (row["country"], row["country_code"], row["start_frame"]) == ("Belgium", "BE", 2)
    assert row["attribution"]["creator_username"] == "someone"
    assert row["attribution"]["licence"] == "CC-BY-SA-4.0"
    assert row["frames"][0]["compass_angle"] == 0.0, "0.0 is a heading"
    assert row["meta"]["quality_score"] == 0.4, "the tile's, where the graph says nothing"
    assert row["meta"]["continent"] == "Europe"
    assert "http" not in repr(row), "no link is stored"
    assert outcome.frames == {KEPT: 4, OUTSIDE: 2}
    assert outcome.camera_types == {"spherical": 4}


def test_every_frame_has_a_fate() -> None:
    ids = [str(n) for n in range(9)]
    verdicts: dict[str, UsableFrame | str] = {"2": _frame(2), "3": GONE, "4": "broken clock", "5": _frame(5)}
    outcome = outcome_of(_candidate(), SPEC, ids, verdicts, [range(2, 6)])
    assert outcome.frames == {KEPT: 2, GONE: 1, "broken clock": 1, OUTSIDE: 5}
    assert sum(outcome.frames.values()) == len(ids)


def test_a_window_with_one_frame_is_no_task() -> None:
    outcome = outcome_of(_candidate(), SPEC, ["1", "2"], {"1": _frame(1), "2": GONE}, [range(2)])
    assert outcome.tasks == ()
    assert outcome.dropped == THIN
    assert outcome.frames == {THIN: 1, GONE: 1}


def test_a_frame_on_the_open_sea_has_no_country() -> None:
    verdicts: dict[str, UsableFrame | str] = {str(n): _frame(n, -40.0, -120.0) for n in range(2)}
    outcome = outcome_of(_candidate(-40.0, -120.0), SPEC, ["0", "1"], verdicts, [range(2)])
    assert outcome.dropped == NOWHERE
    assert outcome.frames == {NOWHERE: 2}


def test_a_frame_off_the_coast_takes_the_nearest_country() -> None:
    # West from Portugal, over the outer edge of its border polygon, in steps of about 1 km.
    lon = next(
        -9.0 - step / 90 for step in range(900) if geography().country_at(40.0, -9.0 - step / 90) is None
    )
    found = country_near(40.0, lon - 0.1, 25.0)
    assert found is not None
    country, offshore_km = found
    assert country.code == "PT"
    assert 5.0 < offshore_km < 15.0
    assert country_near(40.0, lon - 0.1, 5.0) is None


def test_both_names_of_a_spherical_camera_are_taken_and_counted() -> None:
    verdicts: dict[str, UsableFrame | str] = {
        "0": _frame(0),
        "1": _frame(1, camera_type="equirectangular"),
        "2": _frame(2, camera_type=None, is_pano=True),
    }
    outcome = outcome_of(_candidate(), SPEC, ["0", "1", "2"], verdicts, [range(3)])
    assert outcome.camera_types == {"equirectangular": 1, "not stated": 1, "spherical": 1}


def test_every_window_counts_where_the_spec_says_none() -> None:
    spec = HarvestSpec.of(PoolSpec(window_frames=3, windows_per_sequence=None))
    ids = [str(n) for n in range(12)]
    verdicts: dict[str, UsableFrame | str] = {
        name: _frame(int(name)) if int(name) in {1, 3, 7, 8, 11} else "no 2048 px picture" for name in ids
    }
    outcome = outcome_of(_candidate(), spec, ids, verdicts, [range(12)])
    assert [[f["image_id"] for f in row["frames"]] for row in outcome.tasks] == [["1", "3"], ["7", "8"]]
    assert outcome.frames == {KEPT: 4, THIN: 1, "no 2048 px picture": 7}
