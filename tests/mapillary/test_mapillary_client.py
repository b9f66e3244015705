"""The client against a real server that misbehaves as told."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from env_service.errors import GeoError
from resources import _mapillary_asking
from resources.mapillary import (
    DenseBox,
    LinkExpired,
    NotFound,
    RateLimited,
    RequestLimiter,
    ServiceUnavailable,
    TokenRefused,
    UnexpectedAnswer,
)

JPEG = b"\xff\xd8\xff\xe0" + b"picture" * 50 + b"\xff\xd9"
TILE = b"\x1a\x02\x0a\x00"
DENSE = {"error": {"message": "Please reduce the amount of data you're asking for", "code": 1}}
LIMIT = {"error": {"message": "Application request limit reached", "code": 4, "is_transient": True}}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def ok(body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
    return 200, headers, body


def test_token_goes_into_a_header_for_the_graph_and_into_the_query_for_tiles(
    scripted: Any, client_for: Any
) -> None:
    client = client_for(scripted.url, "MLY|a b|c")
    scripted.say(ok({"id": "12"}))
    client.image("12")
    path, headers = scripted.seen[0]
    assert headers["Authorization"] == "OAuth MLY|a b|c"
    assert "access_token" not in path and "MLY" not in path
    scripted.say(ok(TILE))
    client.tile(6, 33, 22)
    path, headers = scripted.seen[0]
    assert path == "/maps/vtp/mly1_public/2/6/33/22?access_token=MLY%7Ca+b%7Cc"
    assert "Authorization" not in headers
    scripted.say(ok(JPEG))
    client.download(f"{scripted.url}/a/b.jpg?oe=ff&oh=1")
    path, headers = scripted.seen[0]
    assert path == "/a/b.jpg?oe=ff&oh=1" and "Authorization" not in headers


def test_without_a_token_nothing_is_asked(scripted: Any, client_for: Any) -> None:
    scripted.say(ok({"data": []}))
    with pytest.raises(TokenRefused, match="MAPILLARY_ACCESS_TOKEN"):
        client_for(scripted.url, " ").image_ids("a")
    assert not scripted.seen


def test_ids_stay_exact_whether_text_or_number(scripted: Any, client_for: Any) -> None:
    scripted.say(ok(b'{"data":[{"id":"9007199254740993"},{"id":9007199254740995}]}'))
    assert client_for(scripted.url).image_ids("s") == ["9007199254740993", "9007199254740995"]


def test_an_id_that_went_through_a_float_is_refused(scripted: Any, client_for: Any) -> None:
    scripted.say(ok(b'{"data":[{"id":9.007199254740993e15}]}'))
    with pytest.raises(UnexpectedAnswer, match="without an id"):
        client_for(scripted.url).image_ids("s")


def test_fields_left_out_stay_left_out(scripted: Any, client_for: Any) -> None:
    scripted.say(ok({"id": "7", "camera_type": "spherical"}))
    assert client_for(scripted.url).image("7", ("camera_type", "thumb_2048_url")) == {
        "id": "7", "camera_type": "spherical",
    }  # fmt: skip
    assert scripted.seen[0][0] == "/7?fields=camera_type%2Cthumb_2048_url"


@pytest.mark.parametrize("image_id", ["../x", "", "12/..", "12?fields=", "a" * 200, "١٢"])
def test_ids_that_no_image_has_are_not_asked_for(image_id: str, scripted: Any, client_for: Any) -> None:
    scripted.say(ok({}))
    with pytest.raises(NotFound):
        client_for(scripted.url).image(image_id)
    assert client_for(scripted.url).images([image_id]) == {}
    assert not scripted.seen


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, {}, b"<html><title>Tunnel gone</title></html>"), UnexpectedAnswer),
        ((404, {"Content-Type": "text/html"}, b"<html>Tunnel gone</html>"), UnexpectedAnswer),
        ((200, {}, b'{"id": "12", "geometry": {"type'), UnexpectedAnswer),
        ((200, {}, b""), UnexpectedAnswer),
        ((200, {}, b"[1, 2]"), UnexpectedAnswer),
        ((200, {}, b"[" * 100_000), UnexpectedAnswer),
        ((200, {}, {"id": "13"}), UnexpectedAnswer),
        ((200, {}, {"data": []}), UnexpectedAnswer),
        ((200, {"Content-Length": "500"}, b'{"id": "12"}'), ServiceUnavailable),
        ((503, {}, b"upstream connect error"), ServiceUnavailable),
        ((408, {}, b""), ServiceUnavailable),
        ((429, {}, b""), RateLimited),
        ((400, {}, LIMIT), RateLimited),
    ],
)
def test_passing_faults_are_tried_again_and_then_named(
    answer: Any, error: type[GeoError], scripted: Any, client_for: Any
) -> None:
    scripted.say(answer)
    client = client_for(scripted.url)
    with pytest.raises(error) as caught:
        client.image("12")
    assert len(scripted.seen) == 3
    assert client.counts["retries"] == 2
    assert client.counts[error.__name__] == 3
    assert "image 12" in str(caught.value)
    scripted.say(answer, answer, ok({"id": "12"}))
    assert client.image("12") == {"id": "12"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), UnexpectedAnswer),
        ((304, {}, b""), UnexpectedAnswer),
        ((202, {}, {"id": "12"}), UnexpectedAnswer),
        ((204, {}, b""), UnexpectedAnswer),
        ((405, {}, b"method"), UnexpectedAnswer),
        ((404, {}, b"nothing"), UnexpectedAnswer),
        ((401, {}, b""), TokenRefused),
        ((403, {}, b""), TokenRefused),
    ],
)
def test_lasting_faults_are_asked_once(
    answer: Any, error: type[GeoError], scripted: Any, client_for: Any
) -> None:
    scripted.say(answer)
    with pytest.raises(error) as caught:
        client_for(scripted.url).image("12")
    assert len(scripted.seen) == 1, "a redirect is not followed: the token stays with the graph"
    assert caught.value.fix, "what to do is said"


def test_a_drive_of_things_that_are_no_images_is_no_answer(scripted: Any, client_for: Any) -> None:
    scripted.say(ok({"data": [{"id": "12"}, {"id": "echo path=/image_ids"}]}))
    with pytest.raises(UnexpectedAnswer, match="Ids that no image can have"):
        client_for(scripted.url).image_ids("s")
    scripted.say(ok({"data": [{"id": "12"}, {"id": "echo"}]}), ok({"data": [{"id": 12}]}))
    assert client_for(scripted.url).image_ids("s") == ["12"], "it is asked once more"


@pytest.mark.parametrize("status", [201, 202, 203, 205, 206, 300, 301, 302, 303, 304, 307, 308])
def test_only_200_is_content_whatever_was_asked(status: int, scripted: Any, client_for: Any) -> None:
    client = client_for(scripted.url)
    asked: list[tuple[bytes, Callable[[], object]]] = [
        (b"", lambda: client.tile(6, 1, 2)),
        (b"\x1a\x00", lambda: client.tile(6, 1, 2)),
        (b'{"data": []}', lambda: client.image_ids("s")),
        (JPEG, lambda: client.download(f"{scripted.url}/x.jpg")),
    ]
    for body, ask in asked:
        scripted.say((status, {}, b"" if status in (205, 304) else body))
        with pytest.raises(UnexpectedAnswer, match=f"HTTP {status}") as caught:
            ask()
        assert len(scripted.seen) == 1
        assert f"HTTP {status}" in caught.value.reason and caught.value.fix


@pytest.mark.parametrize(
    "answer",
    [
        (410, {}, b""),
        (400, {}, {"error": {"code": 100, "error_subcode": 33, "message": "does not exist"}}),
        (200, {"Content-Type": "text/html"}, b""),
        (200, {"Content-Type": "application/json"}, b""),
        (200, {}, b"{}"),
    ],
)
def test_no_coverage_is_said_by_204_and_404_alone(answer: Any, scripted: Any, client_for: Any) -> None:
    scripted.say(answer)
    with pytest.raises(UnexpectedAnswer, match="tile 6/1/2"):
        client_for(scripted.url).tile(6, 1, 2)


def test_nobody_listening_and_no_address(client_for: Any) -> None:
    with pytest.raises(ServiceUnavailable, match="no connection"):
        client_for("http://127.0.0.1:9").image("12")
    with pytest.raises(ServiceUnavailable, match="no address"):
        client_for("graph").image("12")


def test_a_silent_server_times_out(scripted: Any, client_for: Any) -> None:
    over = threading.Event()

    def silent(path: str) -> Any:
        over.wait(5)
        return ok({"id": "12"})

    scripted.say(silent)
    with pytest.raises(ServiceUnavailable, match=r"within 0\.1 s"):
        client_for(scripted.url, timeout_s=0.1, attempts=1).image("12")
    over.set()


def test_an_endless_answer_is_cut_short(
    scripted: Any, client_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_mapillary_asking.MAX_BYTES, "graph", 1000)
    scripted.say(ok(b" " * 100_000))
    with pytest.raises(UnexpectedAnswer, match="More than"):
        client_for(scripted.url).image("12")
    assert len(scripted.seen) == 1


# --- pace -----------------------------------------------------------------------------------------------


def test_retry_after_holds_everybody_who_shares_the_pace(scripted: Any, client_for: Any) -> None:
    clock = Clock()
    limiter = RequestLimiter(None, clock=lambda: clock.now, sleep=clock.sleep)
    scripted.say((429, {"Retry-After": "1"}, LIMIT), ok({"id": "12"}))
    assert client_for(scripted.url, limiter=limiter).image("12") == {"id": "12"}
    assert clock.slept == [1.0]
    scripted.say((503, {"Retry-After": "0"}, b""), ok({"id": "12"}))
    assert client_for(scripted.url).image("12") == {"id": "12"}


def test_a_retry_after_beyond_patience_is_raised_at_once_with_its_seconds(
    scripted: Any, client_for: Any
) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for stated in ("3600", later):
        scripted.say((429, {"Retry-After": stated}, LIMIT))
        with pytest.raises(RateLimited) as caught:
            client_for(scripted.url, longest_wait_s=5).image("12")
        assert caught.value.retry_after_s == pytest.approx(3600, abs=5)
        assert len(scripted.seen) == 1


def test_a_retry_after_that_makes_no_sense_is_ignored(scripted: Any, client_for: Any) -> None:
    for stated in ("soon", "nan", "-5"):
        scripted.say((429, {"Retry-After": stated}, LIMIT), ok({"id": "12"}))
        assert client_for(scripted.url).image("12") == {"id": "12"}


def test_the_limiter_spaces_requests_and_holds_everybody() -> None:
    clock = Clock()
    limiter = RequestLimiter(60, clock=lambda: clock.now, sleep=clock.sleep)
    for _ in range(3):
        limiter.wait()
    assert clock.slept == [1.0, 2.0]
    clock.now = 200.0
    limiter.hold(30.0)
    limiter.wait()
    assert clock.slept[-1] == 30.0


def test_no_limit_never_sleeps_and_zero_is_refused() -> None:
    clock = Clock()
    limiter = RequestLimiter(None, clock=lambda: clock.now, sleep=clock.sleep)
    for _ in range(100):
        limiter.wait()
    assert clock.slept == []
    with pytest.raises(ValueError, match="above 0"):
        RequestLimiter(0)


def test_threads_share_one_pace_and_retries_count(scripted: Any, client_for: Any) -> None:
    clock = Clock()
    limiter = RequestLimiter(3000, clock=lambda: clock.now, sleep=clock.sleep)
    scripted.say((503, {}, b""), lambda path: ok({"id": path[1:3]}))
    client = client_for(scripted.url, limiter=limiter)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: client.image(f"{n + 10}"), range(20)))
    # Twenty-one requests, 20 ms after each other: the first at once, the last 400 ms later.
    assert sorted(clock.slept) == pytest.approx([0.02 * n for n in range(1, 21)])
    assert client.counts["requests"] == len(scripted.seen) == 21


# --- boxes, batches, pictures ---------------------------------------------------------------------------


def box_server(images: dict[str, tuple[float, float]], most: int) -> Any:
    """Refuses boxes with more than `most` images, in ever other words and statuses."""
    refusals = [(500, DENSE), (400, DENSE), (200, DENSE), (200, DENSE["error"]["message"].encode())]
    asked: list[int] = []

    def answer(path: str) -> Any:
        west, south, east, north = map(float, parse_qs(urlsplit(path).query)["bbox"][0].split(","))
        inside = [i for i, (lon, lat) in images.items() if west <= lon <= east and south <= lat <= north]
        asked.append(len(inside))
        if len(inside) > most:
            status, body = refusals[len(asked) % len(refusals)]
            return status, {}, body
        return ok({"data": [{"id": image_id} for image_id in inside]})

    return answer


def test_dense_boxes_are_split_until_they_answer_and_nothing_is_lost(scripted: Any, client_for: Any) -> None:
    images = {str(1000 + n): (9.17 + 0.0001 * (n % 13), 48.76 + 0.00007 * (n % 29)) for n in range(300)}
    scripted.say(box_server(images, 10))
    client = client_for(scripted.url)
    found = client.images_in_bbox(9.16, 48.75, 9.18, 48.77)
    assert sorted(row["id"] for row in found) == sorted(images)
    assert client.counts["boxes split"] > 10
    assert len(client.images_in_bbox(9.16, 48.75, 9.18, 48.77, limit=5)) == 5


def test_a_point_too_dense_to_split_is_said(scripted: Any, client_for: Any) -> None:
    images = {str(1000 + n): (9.17, 48.76) for n in range(30)}
    scripted.say(box_server(images, 10))
    with pytest.raises(DenseBox, match="smaller box"):
        client_for(scripted.url).images_in_bbox(9.1699, 48.7599, 9.1701, 48.7601)


def test_a_full_page_is_split_because_it_may_be_cut(scripted: Any, client_for: Any) -> None:
    images = {str(10_000 + n): (9.17 + 0.000001 * n, 48.76) for n in range(2500)}

    def answer(path: str) -> Any:
        status, headers, body = box_server(images, 10**6)(path)
        return status, headers, {"data": body["data"][:2000]}

    scripted.say(answer)
    found = client_for(scripted.url).images_in_bbox(9.16, 48.75, 9.18, 48.77)
    assert len(found) == 2500


def test_boxes_across_the_date_line_are_asked_on_both_sides(scripted: Any, client_for: Any) -> None:
    scripted.say(box_server({"11": (179.999, 1.0), "12": (-179.999, 1.0)}, 10))
    found = client_for(scripted.url).images_in_bbox(179.99, 0.99, -179.99, 1.01)
    assert {row["id"] for row in found} == {"11", "12"}


def test_boxes_for_tiles_are_refused(client_for: Any) -> None:
    with pytest.raises(GeoError, match="coverage tiles"):
        client_for("http://127.0.0.1:9").images_in_bbox(0, 0, 10, 10)


def test_what_a_batch_leaves_out_is_asked_one_by_one(scripted: Any, client_for: Any) -> None:
    missing = {"error": {"message": "does not exist", "code": 100, "error_subcode": 33}}

    def answer(path: str) -> Any:
        if path.startswith("/images"):
            return ok({"data": [{"id": "3"}, {"id": "99"}]})
        return (400, {}, missing) if path.startswith("/2?") else ok({"id": path[1:2]})

    scripted.say(answer)
    found = client_for(scripted.url).images(["1", "2", "3", "1"])
    assert list(found) == ["1", "3"]
    assert len(scripted.seen) == 3


def test_a_batch_that_is_too_much_is_halved(scripted: Any, client_for: Any) -> None:
    def answer(path: str) -> Any:
        ids = parse_qs(urlsplit(path).query)["image_ids"][0].split(",")
        return (500, {}, DENSE) if len(ids) > 4 else ok({"data": [{"id": image_id} for image_id in ids]})

    scripted.say(answer)
    ids = [str(n) for n in range(20, 40)]
    assert list(client_for(scripted.url).images(ids)) == ids


def test_an_expired_link_is_resolved_again_once(scripted: Any, client_for: Any) -> None:
    link = ok({"id": "12", "thumb_2048_url": f"{scripted.url}/img/12.jpg?oe=1&oh=sig"})
    expired = (403, {}, b"URL signature expired")
    client = client_for(scripted.url)
    scripted.say(link, expired, link, ok(JPEG))
    assert client.picture("12") == JPEG
    assert client.counts["links resolved again"] == 1
    scripted.say(link, expired, link, expired)
    with pytest.raises(LinkExpired, match=r"picture of image 12 has expired.*Run the same") as caught:
        client.picture("12")
    assert len(scripted.seen) == 4
    assert "sig" not in str(caught.value).replace("signature", "")


def test_a_picture_that_does_not_exist_is_not_found(scripted: Any, client_for: Any) -> None:
    scripted.say(ok({"id": "12"}))
    with pytest.raises(NotFound, match="no original picture of 12"):
        client_for(scripted.url).picture("12", original=True)
    scripted.say((404, {}, b"Not Found"))
    with pytest.raises(NotFound, match=r"picture x\.jpg"):
        client_for(scripted.url).download(f"{scripted.url}/x.jpg")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ok(b"<html>not a picture</html>"), UnexpectedAnswer),
        (ok(JPEG[:-30]), UnexpectedAnswer),
        (ok(JPEG[:100], **{"Content-Length": str(len(JPEG))}), ServiceUnavailable),
        ((500, {}, b""), ServiceUnavailable),
    ],
)
def test_broken_pictures_are_fetched_again(
    answer: Any, error: type[GeoError], scripted: Any, client_for: Any
) -> None:
    client = client_for(scripted.url)
    scripted.say(answer, ok(JPEG))
    assert client.download(f"{scripted.url}/x.jpg") == JPEG
    scripted.say(answer)
    with pytest.raises(error):
        client.download(f"{scripted.url}/x.jpg")


@pytest.mark.parametrize("answer", [(204, {}, b""), (404, {}, b"no such tile"), ok(b"")])
def test_tiles_without_coverage_are_empty(answer: Any, scripted: Any, client_for: Any) -> None:
    scripted.say(answer)
    assert client_for(scripted.url).tile(6, 1, 2) == b""


def test_a_web_page_is_no_tile(scripted: Any, client_for: Any) -> None:
    scripted.say(ok(b"<!DOCTYPE html><title>Sign in</title>"))
    with pytest.raises(UnexpectedAnswer, match="tile 6/1/2"):
        client_for(scripted.url).tile(6, 1, 2)
    scripted.say((404, {"Content-Type": "text/html"}, b"<html>404</html>"))
    with pytest.raises(UnexpectedAnswer, match="web page"):
        client_for(scripted.url).tile(6, 1, 2)
