"""The odd answers that people really got from Mapillary, each served and each leading where it should."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resources.mapillary import (
    DenseBox,
    LinkExpired,
    MapillaryClient,
    MapillaryError,
    NotFound,
    RateLimited,
    ServiceUnavailable,
    TokenRefused,
    UnexpectedAnswer,
)
from resources.mapillary_frames import Dropped, DropReason, UsableFrame, usable_frame
from resources.vector_tiles import TileFeature, decode_sequences, encode_tile

GOOD: dict[str, Any] = {
    "id": "147718917657245",
    "geometry": {"type": "Point", "coordinates": [34.82, 50.94]},
    "computed_geometry": {"type": "Point", "coordinates": [34.82175, 50.941217972222]},
    "compass_angle": 120.0,
    "computed_compass_angle": 121.5,
    "captured_at": 1_600_000_000_000,
    "is_pano": True,
    "camera_type": "spherical",
    "thumb_2048_url": "https://example.invalid/x.jpg",
}
IMAGE = GOOD["id"]
ATTEMPTS = 3


@pytest.fixture(scope="module")
def odd(shared: Path) -> dict[str, dict[str, Any]]:
    lines = (shared / "data" / "mapillary" / "graph" / "odd_responses.jsonl").read_text().splitlines()
    return {row["kind"]: row for row in map(json.loads, lines)}


def served(row: dict[str, Any], status: int) -> tuple[int, dict[str, str], bytes]:
    body = row["body"]
    return status, {}, body.encode() if isinstance(body, str) else json.dumps(body).encode()


def ask_image(client: MapillaryClient, url: str) -> object:
    return client.image(IMAGE)


def ask_box(client: MapillaryClient, url: str) -> object:
    return client.images_in_bbox(0.0, 0.0, 1e-6, 1e-6)


def ask_picture(client: MapillaryClient, url: str) -> object:
    return client.download(f"{url}/img/1.jpg?oe=5f000000&oh=x")


REFUSALS: list[tuple[str, tuple[int, ...], Callable[..., object], type[MapillaryError], bool]] = [
    # kind, statuses (the recorded one, or every plausible one), question, error, whether it is retried
    ("auth: no Authorization header", (500,), ask_image, TokenRefused, False),
    ("auth: malformed token", (401,), ask_image, TokenRefused, False),
    ("auth: never-issued token in header", (401,), ask_image, TokenRefused, False),
    ("auth (file)", (500,), ask_image, TokenRefused, False),
    ("unknown / deleted image id", (400,), ask_image, NotFound, False),
    ("rate limit", (400, 403, 429, 500, 200), ask_image, RateLimited, True),
    ("field not valid for node type", (400, 500), ask_image, UnexpectedAnswer, False),
    ("query timeout", (400,), ask_image, ServiceUnavailable, True),
    ("500 temporarily unavailable", (500,), ask_image, ServiceUnavailable, True),
    ("CDN link expired", (403,), ask_picture, LinkExpired, False),
    ("bbox density gate", (400, 403, 500, 200), ask_box, DenseBox, False),
]


@pytest.mark.parametrize(
    ("kind", "status", "ask", "error", "retried"),
    [(kind, status, *rest) for kind, statuses, *rest in REFUSALS for status in statuses],
)
def test_refusals(
    kind: str,
    status: int,
    ask: Callable[..., object],
    error: type[MapillaryError],
    retried: bool,
    odd: dict[str, dict[str, Any]],
    scripted: Any,
    client_for: Any,
) -> None:
    row = odd[kind]
    assert row["http_status"] in (None, status)
    scripted.say(served(row, status))
    with pytest.raises(error) as caught:
        ask(client_for(scripted.url, attempts=ATTEMPTS), scripted.url)
    assert type(caught.value) is error
    assert caught.value.transient is retried
    assert len(scripted.seen) == (ATTEMPTS if retried else 1)
    if error is TokenRefused:
        assert "code 190" in str(caught.value) and "MAPILLARY_ACCESS_TOKEN" in str(caught.value)


def test_a_tile_refused_because_of_the_token(odd: Any, scripted: Any, client_for: Any) -> None:
    assert odd["tile: token only accepted in query"]["http_status"] == 403
    scripted.say((403, {}, b""))
    with pytest.raises(TokenRefused, match="tile 14/1/2"):
        client_for(scripted.url).tile(14, 1, 2)
    assert len(scripted.seen) == 1 and "access_token=" in scripted.seen[0][0]


def test_an_empty_list_for_an_image_that_exists(odd: Any, scripted: Any, client_for: Any) -> None:
    row = odd["empty list for an existing image"]
    scripted.say(served(row, row["http_status"]), (200, {}, {"id": IMAGE}))
    assert client_for(scripted.url).images([IMAGE]) == {IMAGE: {"id": IMAGE}}


def test_a_silently_missing_picture_drops_the_frame_with_its_reason(
    odd: Any, scripted: Any, client_for: Any
) -> None:
    row = odd["thumb_2048_url absent"]
    scripted.say(served(row, 200))
    entity = client_for(scripted.url).image(row["body"]["id"])
    without = {name: value for name, value in GOOD.items() if name != "thumb_2048_url"}
    assert usable_frame({**without, **entity}) == Dropped(IMAGE, DropReason.NO_PICTURE)
    scripted.say(served(row, 200))
    with pytest.raises(NotFound, match="no 2048 px picture"):
        client_for(scripted.url).picture(IMAGE)


@pytest.mark.parametrize(
    ("kind", "entity", "expected"),
    [
        (
            "computed_geometry absent",
            {"computed_geometry": None},
            {"lat": 50.94, "position_source": "original"},
        ),
        ("camera_type absent", {"camera_type": None}, {"camera_type": "", "compass_angle": 121.5}),
        (
            "bearing -1",
            {"computed_compass_angle": -1},
            {"compass_angle": 120.0, "compass_source": "original"},
        ),
        ("bearing -1", {"computed_compass_angle": -1, "compass_angle": -1}, DropReason.NO_HEADING),
        ("captured_at epoch 0 / future", {"captured_at": 0}, DropReason.BROKEN_CLOCK),
        ("captured_at epoch 0 / future", {"captured_at": 4_000_000_000_000}, DropReason.BROKEN_CLOCK),
        ('quality_score 0, make/model "none"', {"quality_score": 0, "make": "none"}, {"quality_score": 0.0}),
    ],
)
def test_odd_fields(
    kind: str, entity: dict[str, Any], expected: Any, odd: Any, scripted: Any, client_for: Any
) -> None:
    assert odd[kind]["http_status"] == 200
    body = {name: value for name, value in {**GOOD, **entity}.items() if value is not None}
    scripted.say((200, {}, body))
    frame = usable_frame(client_for(scripted.url).image(IMAGE))
    if isinstance(expected, DropReason):
        assert frame == Dropped(IMAGE, expected)
    else:
        assert isinstance(frame, UsableFrame)
        assert {name: getattr(frame, name) for name in expected} == expected


def test_a_ten_megabyte_tile_comes_whole_and_decodes(odd: Any, scripted: Any, client_for: Any) -> None:
    assert odd["tile: ~10 MB z14 tile"]["http_status"] == 200
    line = tuple((n * 7 % 4096, n * 13 % 4096) for n in range(3000))
    features = [TileFeature(line, {"id": f"{n:022d}", "image_id": 10**16 + n}) for n in range(1200)]
    tile = encode_tile({"sequence": features})
    assert len(tile) > 5_000_000
    scripted.say((200, {}, tile))
    came = client_for(scripted.url).tile(14, 5, 6)
    assert came == tile
    assert len(decode_sequences(came, 14, 5, 6)) == 1200


def test_every_recorded_answer_has_its_test(odd: dict[str, dict[str, Any]]) -> None:
    elsewhere = {
        "empty list for an existing image",
        "thumb_2048_url absent",
        "computed_geometry absent",
        "camera_type absent",
        "tile: token only accepted in query",
        "tile: ~10 MB z14 tile",
        "bearing -1",
        "captured_at epoch 0 / future",
        'quality_score 0, make/model "none"',
    }
    assert {kind for kind, *_ in REFUSALS} | elsewhere == set(odd)
