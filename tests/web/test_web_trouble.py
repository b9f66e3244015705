"""What goes wrong is told plainly, with a next step that works; and visitors do not meet."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from environment_lab import PLACES, Server, World, serve, task_row, until, write_world
from web_lab import Visitor


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose first place has no pictures, and whose sessions end after three idle seconds."""
    folder = tmp_path_factory.mktemp("troubled")
    rows = [task_row(index, place, 2) for index, place in enumerate(PLACES[:3])]
    tasks, panos = write_world(folder, rows)
    for frame in rows[0]["frames"]:
        (panos / f"{frame['image_id']}.jpg").unlink()
    with serve(folder, "--tasks", str(tasks), "--panos", str(panos), "--idle-s", "3") as running:
        yield running


def test_all_seats_taken(visit: Any, server: Server) -> None:
    visitor: Visitor = visit(server, query="?tasks=4")
    held = [server.connect() for _ in range(3)]
    visitor.page.click("#begin")
    visitor.page.wait_for_selector("#trouble[open]")
    assert visitor.text("#trouble-title") == "All seats are taken"
    held.pop().close()
    until(lambda: server.metric("geo_sessions") == 2)
    visitor.page.click("#trouble-next")
    visitor.settled()
    # Nothing had been seen, so it is the same place.
    assert [m["data"]["index"] for m in visitor.sent if m["type"] == "reset"][-1] == 4
    for socket in held:
        socket.close()


def test_visitors_do_not_meet(visit: Any, server: Server) -> None:
    until(lambda: server.metric("geo_sessions") == 0)
    one, other = visit(server, query="?tasks=0"), visit(server, query="?tasks=0")
    for visitor in (one, other):
        visitor.begin()
    assert server.metric("geo_sessions") == 2
    one.page.keyboard.press("ArrowRight")
    one.spend(lambda: one.page.keyboard.press("Enter"))
    assert one.text("#turns") == "11 of 12" and other.text("#turns") == "12 of 12"
    seen = other.observation
    other.page.keyboard.press("ArrowLeft")
    turned = other.spend(lambda: other.page.keyboard.press("Enter"))
    assert turned["heading_deg"] == 330 and turned["steps_remaining"] == seen["steps_remaining"] - 1
    one.page.context.close()
    until(lambda: server.metric("geo_sessions") == 1)


def test_a_place_that_cannot_be_shown_and_a_session_that_ends(visit: Any, troubled: Server) -> None:
    visitor: Visitor = visit(troubled, query="?tasks=0")
    visitor.page.click("#begin")
    visitor.page.wait_for_selector("#trouble[open]")
    assert visitor.text("#trouble-title") == "A picture is missing"
    visitor.page.click("#trouble-next")
    visitor.settled()
    first = [m["data"]["index"] for m in visitor.sent if m["type"] == "reset"][-1]
    assert first in (1, 2)
    visitor.page.wait_for_selector("#trouble[open]")  # three seconds without a call
    assert visitor.text("#trouble-title") == "The session has ended"
    assert "cannot be resumed" in visitor.text("#trouble-words")
    visitor.page.click("#trouble-next")
    visitor.settled()
    second = [m["data"]["index"] for m in visitor.sent if m["type"] == "reset"][-1]
    assert {first, second} == {1, 2}  # a place that was seen is not dealt again
    assert visitor.text("#turns") == "12 of 12"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose first place has pictures that nobody can read."""
    folder = tmp_path_factory.mktemp("damaged")
    rows = [task_row(index, place, 2) for index, place in enumerate(PLACES[:2])]
    tasks, panos = write_world(folder, rows)
    for frame in rows[0]["frames"]:
        (panos / f"{frame['image_id']}.jpg").write_bytes(b"not a picture")
    with serve(folder, "--tasks", str(tasks), "--panos", str(panos)) as running:
        yield running


def _dealt(visitor: Visitor) -> list[int]:
    return [message["data"]["index"] for message in visitor.sent if message["type"] == "reset"]


def test_a_place_whose_pictures_cannot_be_read_is_replaced(visit: Any, damaged: Server) -> None:
    visitor: Visitor = visit(damaged, query="?tasks=0")
    visitor.page.click("#begin")
    visitor.page.wait_for_selector("#trouble[open]")
    assert visitor.text("#trouble-next") == "Continue with another place"
    visitor.page.click("#trouble-next")
    visitor.settled()
    assert _dealt(visitor) == [0, 1]


def test_a_place_without_a_replacement_is_left_out(visit: Any, damaged: Server) -> None:
    visitor: Visitor = visit(damaged, query="?tasks=1,0")
    visitor.begin()
    visitor.page.fill("#lat", "48.85, 2.35")
    visitor.page.click('[data-call="guess"]')
    visitor.settled("reveal")
    visitor.page.click("#next")
    visitor.page.wait_for_selector("#trouble[open]")
    visitor.page.click("#trouble-next")
    visitor.page.wait_for_selector("body[data-screen=final]")
    assert _dealt(visitor) == [1, 0]


PASSING = "CAPACITY_REACHED SHUTTING_DOWN BAD_SELECTION SESSION_EXPIRED UNREACHABLE LOST"
OF_THE_PLACE = """MISSING_FRAME BAD_PICTURE UNREADABLE_FRAME LIVE_IMAGERY_FAILED EXECUTION_ERROR STEP_TIMEOUT
    REFUSED OF_TOMORROW"""


@pytest.mark.parametrize(("codes", "same"), [(PASSING, True), (OF_THE_PLACE, False)])
def test_what_a_refused_reset_says_of_its_place(visit: Any, server: Server, codes: str, same: bool) -> None:
    visitor: Visitor = visit(server)
    deal = """(code) => import('/web/game.js').then(({ Game }) => {
        const game = new Game("eval", 50, [7]);
        game.begin();
        game.refused(code);
        game.redeal();
        return game.begin().index;
    })"""
    for code in codes.split():
        assert (visitor.page.evaluate(deal, code) == 7) == same, code


def test_a_task_that_is_not_there(visit: Any, server: Server) -> None:
    visitor: Visitor = visit(server, query="?tasks=999")
    visitor.page.click("#begin")
    visitor.page.wait_for_selector("#trouble[open]")
    assert visitor.text("#trouble-title") == "There is no such task"
    visitor.page.click("#trouble-next")
    visitor.settled()
    assert visitor.page.locator("#rounds li").count() == 5


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("?split=nope", 'names the split "nope"; the server holds eval.'),
        ("?tasks=0,999", 'names the task "999"; those of the split eval are 0 to 6.'),
        ("?tasks=2,x", 'names the task "x"'),
        ("?tasks=-1", 'names the task "-1"'),
    ],
)
def test_an_address_that_names_what_is_not_there(visit: Any, server: Server, query: str, told: str) -> None:
    """A sentence that says what is there instead, before a round is played, and a next step that works."""
    visitor: Visitor = visit(server, query=query)
    visitor.page.click("#begin")
    visitor.page.wait_for_selector("#trouble[open]")
    assert visitor.text("#trouble-title") == "There is no such task"
    words = visitor.text("#trouble-words")
    assert told in words and words.endswith(".") and "answered" not in words and "num_tasks" not in words
    assert visitor.sent == []
    assert visitor.text("#trouble-next") == "Deal tasks at random"
    visitor.page.click("#trouble-next")
    visitor.settled()
    assert visitor.page.locator("#rounds li").count() == 5


@pytest.mark.parametrize("broken", ["schema", "geoguesser_env/splits", "geoguesser_env/num_tasks"])
@pytest.mark.parametrize("how", ["status", "no json", "nothing"])
def test_a_server_that_answers_strangely(visit: Any, server: Server, broken: str, how: str) -> None:
    visitor: Visitor = visit(server, query="?tasks=0")
    visitor.expected = ("502", "Failed to load resource")
    answers: dict[str, dict[str, Any]] = {
        "status": {"status": 502},
        "no json": {"status": 200, "body": "<p>"},
    }
    at = f"{server.url}/{broken}"
    visitor.page.route(at, lambda route: route.fulfill(**answers[how]) if how in answers else route.abort())
    visitor.page.click("#begin")
    visitor.page.wait_for_selector("#trouble[open]")
    titles = {"nothing": "No environment there"}
    assert visitor.text("#trouble-title") == titles.get(how, "The server cannot deal a game")
    assert visitor.text("#trouble-next") == "Try again" and "resumed" not in visitor.text("#trouble-words")
    visitor.page.unroute(at)
    visitor.page.click("#trouble-next")
    visitor.settled()


def test_only_what_the_mode_offers_is_shown(visit: Any, world: World, tmp_path: Path) -> None:
    with serve(tmp_path / "nmpz", *world.arguments, "--play", "nmpz") as running:
        visitor: Visitor = visit(running, query="?tasks=0")
        visitor.begin()
        page = visitor.page
        for hidden in ("[data-turn]", "[data-zoom]", "#walk"):
            assert page.locator(hidden).first.is_hidden()
        assert page.is_visible('[data-call="pin"]') and page.is_visible("#more")
        visitor.drag("#frame", -150)()
        page.locator("#view").focus()
        for key in ("ArrowRight", "Enter", "w"):
            page.keyboard.press(key)
        page.fill("#lat", "10")
        page.fill("#lon", "20")
        page.click('[data-call="guess"]')
        visitor.settled("reveal")
        assert [json.dumps(step) for step in visitor.steps] == ['{"op": "guess", "lat": 10, "lon": 20}']
        visit.close()


def test_a_server_that_is_gone(visit: Any, troubled: Server) -> None:
    """The last one here: the server does not come back."""
    visitor: Visitor = visit(troubled, query="?tasks=1")
    visitor.expected = ("ERR_CONNECTION_REFUSED", "WebSocket connection")
    visitor.begin()
    troubled.process.send_signal(signal.SIGKILL)
    visitor.page.wait_for_selector("#trouble[open]")
    assert visitor.text("#trouble-title") == "The connection broke"
    visitor.page.click("#trouble-next")
    visitor.page.locator("#trouble-title", has_text="No environment there").wait_for()
    # However it was started: at this address it must be found again.
    words = visitor.text("#trouble-words")
    host, port = troubled.url.removeprefix("http://").split(":")
    assert f"{host}:{port} does not answer" in words and f"--port {port}" in words
    assert "geo play" not in words
