"""The field rules, one by one."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.mapillary_frames import (
    Dropped,
    DropReason,
    UsableFrame,
    best_compass_angle,
    best_position,
    capture_month,
    is_panoramic,
    usable_frame,
)

NOW = int(datetime(2026, 1, 15, tzinfo=UTC).timestamp() * 1000)
GOOD: dict[str, Any] = {
    "id": 9007199254740993,
    "sequence": "aE5o7bTMH0UtscOYxhVwID",
    "geometry": {"type": "Point", "coordinates": [9.1, 48.1]},
    "computed_geometry": {"type": "Point", "coordinates": [9.2, 48.2]},
    "compass_angle": 10.0,
    "computed_compass_angle": 0.0,
    "captured_at": 1720488099087,
    "is_pano": True,
    "camera_type": "spherical",
    "quality_score": 0.5,
    "creator": {"id": 104948002204624, "username": "somebody"},
    "make": "GoPro",
    "model": "Max",
    "width": 5760,
    "height": 2880,
    "thumb_2048_url": "https://cdn.invalid/2048",
    "thumb_original_url": "https://cdn.invalid/original",
}


def judged(**changes: Any) -> UsableFrame | Dropped:
    return usable_frame({k: v for k, v in {**GOOD, **changes}.items() if v is not ...}, now_ms=NOW)


def test_a_good_frame_is_taken_as_it_is() -> None:
    assert judged() == UsableFrame(
        image_id="9007199254740993",
        sequence_id="aE5o7bTMH0UtscOYxhVwID",
        lat=48.2,
        lon=9.2,
        compass_angle=0.0,
        captured_at="2024-07",
        captured_at_ms=1720488099087,
        camera_type="spherical",
        position_source="computed",
        compass_source="computed",
        quality_score=0.5,
        creator_id="104948002204624",
        creator_username="somebody",
        make="GoPro",
        model="Max",
        width=5760,
        height=2880,
        has_picture=True,
        has_original=True,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": ...}, DropReason.NO_ID),
        ({"id": 9.007199254740993e15}, DropReason.NO_ID),
        ({"camera_type": "perspective"}, DropReason.NOT_A_PANORAMA),
        ({"camera_type": "fisheye"}, DropReason.NOT_A_PANORAMA),
        ({"camera_type": ..., "is_pano": False}, DropReason.NOT_A_PANORAMA),
        ({"camera_type": ..., "is_pano": ...}, DropReason.NOT_A_PANORAMA),
        ({"geometry": ..., "computed_geometry": ...}, DropReason.NO_POSITION),
        ({"compass_angle": ..., "computed_compass_angle": ...}, DropReason.NO_HEADING),
        ({"captured_at": ...}, DropReason.NO_DATE),
        ({"captured_at": "yesterday"}, DropReason.NO_DATE),
        ({"captured_at": 0}, DropReason.BROKEN_CLOCK),
        ({"captured_at": NOW + 2 * 86_400_000}, DropReason.BROKEN_CLOCK),
        ({"captured_at": 10**30}, DropReason.BROKEN_CLOCK),
        ({"thumb_2048_url": ...}, DropReason.NO_PICTURE),
        ({"thumb_2048_url": ""}, DropReason.NO_PICTURE),
    ],
)
def test_frames_that_cannot_be_played_say_why(changes: dict[str, Any], reason: DropReason) -> None:
    dropped = judged(**changes)
    assert isinstance(dropped, Dropped)
    assert dropped.reason is reason


def test_everything_optional_may_be_absent() -> None:
    names = ("sequence", "quality_score", "creator", "make", "model", "width", "height", "thumb_original_url")
    frame = judged(**dict.fromkeys(names, ...))
    assert isinstance(frame, UsableFrame)
    assert (frame.quality_score, frame.creator_id, frame.make, frame.width) == (None, "", "", None)
    assert not frame.has_original


def test_a_frame_without_a_picture_may_be_wanted() -> None:
    without = {name: value for name, value in GOOD.items() if name != "thumb_2048_url"}
    frame = usable_frame(without, needs_picture=False, now_ms=NOW)
    assert isinstance(frame, UsableFrame) and not frame.has_picture


@pytest.mark.parametrize("camera_type", ["spherical", "equirectangular", "SPHERICAL"])
def test_both_names_of_a_sphere_are_taken_and_kept_apart(camera_type: str) -> None:
    frame = judged(camera_type=camera_type, is_pano=...)
    assert isinstance(frame, UsableFrame) and frame.camera_type == camera_type


@pytest.mark.parametrize("stated", [True, 1, "true", "True"])
def test_without_a_camera_type_is_pano_decides(stated: Any) -> None:
    assert is_panoramic({"is_pano": stated})
    assert is_panoramic({"is_pano": stated, "camera_type": ""})
    assert not is_panoramic({"is_pano": stated, "camera_type": "perspective"})


@pytest.mark.parametrize(
    ("computed", "original", "expected"),
    [
        (0.0, 90.0, (0.0, "computed")),
        (0, 90.0, (0.0, "computed")),
        (365.2, None, (5.2, "computed")),
        (360.0, None, (0.0, "computed")),
        (-1, 90.0, (90.0, "original")),
        (-1.0, -1, None),
        (None, 0.0, (0.0, "original")),
        (math.nan, 12.0, (12.0, "original")),
        (math.inf, None, None),
        (True, 12.0, (12.0, "original")),
        ("90", 12.0, (12.0, "original")),
        (-0.0, None, (0.0, "computed")),
    ],
)
def test_headings(computed: Any, original: Any, expected: tuple[float, str] | None) -> None:
    found = best_compass_angle({"computed_compass_angle": computed, "compass_angle": original})
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found == (pytest.approx(expected[0]), expected[1])
        assert math.copysign(1.0, found[0]) == 1.0


@given(st.floats(), st.floats())
def test_a_heading_is_always_in_range(computed: float, original: float) -> None:
    found = best_compass_angle({"computed_compass_angle": computed, "compass_angle": original})
    assert found is None or 0.0 <= found[0] < 360.0


def point(*coordinates: Any) -> dict[str, Any]:
    return {"type": "Point", "coordinates": list(coordinates)}


@pytest.mark.parametrize(
    ("computed", "original", "expected"),
    [
        (point(9.0, 48.0), point(1.0, 2.0), (48.0, 9.0, "computed")),
        (None, point(180.0, -90.0), (-90.0, 180.0, "original")),
        (point(9.0, 91.0), point(1.0, 2.0), (2.0, 1.0, "original")),
        (point(181.0, 9.0), None, None),
        (point(0.0, 0.0), point(1.0, 2.0), (2.0, 1.0, "original")),
        (point(math.nan, 1.0), None, None),
        (point("9", "48"), None, None),
        (point(9.0), None, None),
        ({"coordinates": None}, "POINT(1 2)", None),
        (point(9.0, 48.0, 300.0), None, (48.0, 9.0, "computed")),
    ],
)
def test_positions(computed: Any, original: Any, expected: Any) -> None:
    assert best_position({"computed_geometry": computed, "geometry": original}) == expected


@pytest.mark.parametrize(
    ("moment", "month"),
    [
        (datetime(2009, 12, 31, 23, 59, 59, tzinfo=UTC), None),
        (datetime(2010, 1, 1, tzinfo=UTC), "2010-01"),
        (datetime(2024, 12, 31, 23, 59, 59, tzinfo=UTC), "2024-12"),
        (datetime(2026, 1, 15, 12, tzinfo=UTC), "2026-01"),
        (datetime(2026, 1, 17, tzinfo=UTC), None),
    ],
)
def test_months_are_utc_and_clocks_are_checked(moment: datetime, month: str | None) -> None:
    assert capture_month(int(moment.timestamp() * 1000), NOW) == month


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(GOOD, json_values)))
def test_whatever_comes_is_judged_and_never_raises(changes: dict[str, Any]) -> None:
    verdict = usable_frame({**GOOD, **changes}, now_ms=NOW)
    if isinstance(verdict, UsableFrame):
        assert abs(verdict.lat) <= 90.0 and abs(verdict.lon) <= 180.0
        assert 0.0 <= verdict.compass_angle < 360.0
