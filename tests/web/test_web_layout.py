"""All can be seen and reached in windows of every common size; what calls bring is told where it is seen."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from environment_lab import PLACES, Server, World, serve, task_row, write_world
from PIL import Image
from web_lab import Visitor

LAYOUT = Path(__file__).with_name("layout.js")
LAPTOPS = [(1280, 720), (1366, 657), (1280, 600), (1000, 600), (870, 900), (1024, 768), (1920, 1080)]
PHONES = [(360, 640), (320, 568), (344, 700), (280, 653), (390, 844), (768, 1024)]
ON_THEIR_SIDE = [(844, 390), (932, 430), (667, 375), (568, 320)]
SIZES = LAPTOPS + PHONES + ON_THEIR_SIDE
ROUNDS = "?tasks=2,0,1,3,4"


def _named(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@pytest.mark.parametrize("size", SIZES, ids=_named)
def test_every_hand_can_be_reached(visit: Any, server: Server, size: tuple[int, int]) -> None:
    visitor: Visitor = visit(server, size, ROUNDS)
    page = visitor.page
    begin = page.locator("#begin").bounding_box()
    assert begin and begin["y"] + begin["height"] <= size[1]
    visitor.begin()
    street = _measured(visitor, f"{_named(size)}-street")
    # A picture that is worth looking at.
    assert street["square"] and street["picture"] >= min(size) * 0.5
    # The widest aim there is: its Look can be seen whole, and pressed.
    for turn, times in (("45,0", 3), ("0,-15", 3)):
        for _ in range(times):
            page.locator(f'[data-turn="{turn}"]').click()
    page.locator("[data-zoom]").last.click()
    aim = page.locator("#aim-cancel").bounding_box()
    frame = page.locator("#frame").bounding_box()
    assert aim and frame and aim["x"] + aim["width"] <= frame["x"] + frame["width"] + 0.5
    looked = visitor.spend(lambda: page.click("#aim-look", timeout=5_000))
    assert (looked["heading_deg"], looked["pitch_deg"], looked["fov_deg"]) == (135, -45, 120)
    visitor.tab("map")
    page.locator("#map").click(position={"x": 100, "y": 60})
    visitor.spend(lambda: page.click('[data-call="pin"]'))
    _measured(visitor, f"{_named(size)}-map")
    page.click("#more summary")
    for call in ("list_pins", "reverse_geocode"):
        button = page.locator(f'#more [data-call="{call}"]').bounding_box()
        assert button and button["x"] >= 0 and button["y"] >= 0
        assert button["x"] + button["width"] <= size[0] and button["y"] + button["height"] <= size[1]
    visitor.spend(lambda: page.click('#more [data-call="list_pins"]'))
    visitor.tab("notes")
    _measured(visitor, f"{_named(size)}-notes")
    visitor.tab("map")
    page.click('[data-call="guess"]')
    visitor.settled("reveal")
    ended = page.evaluate(LAYOUT.read_text())
    assert ended["wide"] <= 0 and ended["room"][0] == size[0]
    arc = page.locator("#reveal .map").bounding_box()
    assert arc and arc["height"] >= 0.3 * size[1] and arc["width"] >= 0.4 * size[0]
    visitor.shoot(f"{_named(size)}-reveal")


def _measured(visitor: Visitor, name: str) -> dict[str, Any]:
    visitor.shoot(name)
    found: dict[str, Any] = visitor.page.evaluate(LAYOUT.read_text())
    assert found["outside"] == found["covered"] == []
    # A phone widens its window for what overflows it, so the window counts as much as the overflow.
    size = visitor.page.viewport_size
    assert found["wide"] <= 0 and found["high"] <= 0 and size is not None
    assert found["room"] == [size["width"], size["height"]]
    return found


@pytest.mark.parametrize("size", [(390, 844), (844, 390)], ids=_named)
def test_on_the_map_panel_every_result_is_told(visit: Any, server: Server, size: tuple[int, int]) -> None:
    visitor: Visitor = visit(server, size, "?tasks=0")
    page = visitor.page
    visitor.begin()
    visitor.tab("map")
    page.fill("#lat", "12")
    page.fill("#lon", "20")
    calls = ["pin", "list_pins", "reverse_geocode", "view_map", "measure", "clear_pins"]
    for call in calls:
        if page.locator(f'#more [data-call="{call}"]').count():
            page.click("#more summary")
        visitor.spend(lambda call=call: page.click(f'[data-call="{call}"]'))
        assert page.inner_text("#place-words").strip() == visitor.observation["feedback"].strip()
        assert page.is_visible("#place-words")
    assert page.is_hidden("#last-turn")
    while visitor.observation["steps_remaining"] > 1:
        visitor.spend(lambda: page.click('[data-call="pin"]'))
    assert "One turn is left" in page.inner_text("#last-turn") and page.is_visible("#last-turn")
    _measured(visitor, f"{_named(size)}-last-turn")
    page.locator("#map").click(position={"x": 100, "y": 60})  # the warning outlives the next words
    assert page.is_visible("#last-turn")
    visitor.tab("street")
    assert "One turn is left" in visitor.text("#feedback")


def test_a_call_that_fails_on_the_map_panel_is_told_there(visit: Any, server: Server) -> None:
    visitor: Visitor = visit(server, (390, 844), "?tasks=0")
    page = visitor.page
    refusal = {"type": "error", "data": {"code": "REFUSED", "message": "the server is in no mood"}}

    def between(socket: Any) -> None:
        beyond = socket.connect_to_server()
        socket.on_message(
            lambda text: socket.send(json.dumps(refusal)) if "measure" in text else beyond.send(text)
        )

    page.route_web_socket("**/ws", between)
    visitor.begin()
    visitor.tab("map")
    page.fill("#lat", "1")
    page.fill("#lon", "2")
    page.click('[data-call="pin"]')
    page.locator("#place-words", has_text="Pin 1").wait_for()
    page.click("#more summary")
    page.click('[data-call="measure"]')
    page.locator("#place-words", has_text="The server is in no mood. Nothing was spent.").wait_for()
    # A call that the environment cannot read spends its turn, and says so.
    page.evaluate("document.querySelector('#label').value = 'x'.repeat(300)")
    page.click('[data-call="pin"]')
    page.locator("#place-words", has_text="The turn is spent").wait_for()


def test_a_photograph_keeps_its_shape(visit: Any, tmp_path: Path) -> None:
    """A round of 640 x 480 in a photograph of a perspective task is round on the page too."""
    rows = [task_row(0, PLACES[0], 1)]
    rows[0]["frames"][0]["is_pano"] = False
    tasks, panos = write_world(tmp_path / "world", rows)
    y, x = np.mgrid[0:480, 0:640]
    disc = ((x - 320) ** 2 + (y - 240) ** 2 <= 150**2)[..., None] * np.full(3, 255, np.uint8)
    picture = simplejpeg.encode_jpeg(np.ascontiguousarray(disc.astype(np.uint8)), quality=95)
    (panos / f"{rows[0]['frames'][0]['image_id']}.jpg").write_bytes(picture)
    arguments = ("--tasks", str(tasks), "--panos", str(panos), "--imagery", "perspective")
    with serve(tmp_path / "server", *arguments) as running:
        for size in ((1280, 720), (390, 844)):
            visitor: Visitor = visit(running, size, "?tasks=0")
            visitor.begin()
            came = Image.open(io.BytesIO(base64.b64decode(visitor.observation["image_base64"])))
            assert came.size == (640, 480)
            visitor.page.evaluate("document.querySelector('#facts').hidden = true")
            _round(visitor.page.locator("#frame").screenshot())
            visitor.shoot(f"{_named(size)}-photograph")
            assert visitor.page.locator("[data-turn]").first.is_hidden()
            visitor.page.click('[data-zoom="0.6"]')
            visitor.spend(lambda visitor=visitor: visitor.page.click("#aim-look"))
            assert visitor.steps[-1] == {"op": "zoom", "fov_deg": 54}
            if size[0] == 1280:
                visitor.page.locator("#trace .thumb").last.click()
                _round(visitor.page.locator("#lightbox img").screenshot())
                visitor.page.keyboard.press("Escape")
        visit.close()


def _round(shot: bytes) -> None:
    bright = np.asarray(Image.open(io.BytesIO(shot)).convert("L")) > 200
    middle = bright[bright.shape[0] // 2].sum(), bright[:, bright.shape[1] // 2].sum()
    assert middle[0] > 100 and abs(int(middle[0]) - int(middle[1])) <= 0.03 * middle[0]


@pytest.mark.parametrize("size", [(1280, 720), (390, 844), (844, 390)], ids=_named)
def test_a_single_shot_is_played(visit: Any, world: World, tmp_path: Path, size: tuple[int, int]) -> None:
    with serve(tmp_path / "single", *world.arguments, "--play", "single_shot") as running:
        visitor: Visitor = visit(running, size, "?tasks=0,1")
        visitor.begin()
        page = visitor.page
        street = _measured(visitor, f"{_named(size)}-single-shot")
        assert street["picture"] > min(size) * 0.6
        for hidden in ("[data-turn]", "[data-zoom]", "#walk", "#more", "#label-field", '[data-call="pin"]'):
            assert page.locator(hidden).first.is_hidden()
        for number, screen in enumerate(("play", "final")):
            visitor.tab("map")
            page.locator("#map").click(position={"x": 120, "y": 80})
            page.click('[data-call="guess"]')
            visitor.settled("reveal")
            assert PLACES[number][2] in visitor.text("#reveal")
            page.click("#next")
            visitor.settled(screen)
        assert [step["op"] for step in visitor.steps] == ["guess", "guess"]
        visit.close()


def test_two_fingers_zoom(visit: Any, server: Server) -> None:
    """A pinch on the picture is one zoom, or one look where it turns as well; on the map it asks nobody."""
    visitor: Visitor = visit(server, (390, 844), "?tasks=0")
    page = visitor.page
    visitor.begin()
    fingers = page.context.new_cdp_session(page)

    def pinch(selector: str, start: float, end: float, drift: float = 0.0) -> None:
        box = page.locator(selector).bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

        def touch(kind: str, apart: float, moved: float = 0.0) -> None:
            points = [{"x": x + moved + s * apart / 2, "y": y, "id": i} for i, s in enumerate((-1, 1))]
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points if apart else []})

        touch("touchStart", start)
        for part in (0.25, 0.5, 0.75, 1.0):
            touch("touchMove", start + part * (end - start), part * drift)
        touch("touchEnd", 0.0)

    seen = visitor.spend(lambda: pinch("#frame", 80, 160))
    assert visitor.steps[-1]["op"] == "zoom" and abs(seen["fov_deg"] - 45) <= 2
    seen = visitor.spend(lambda: pinch("#frame", 200, 100))
    assert visitor.steps[-1]["op"] == "zoom" and abs(seen["fov_deg"] - 90) <= 4
    seen = visitor.spend(lambda: pinch("#frame", 80, 120, drift=-60))
    assert visitor.steps[-1]["op"] == "look" and seen["fov_deg"] < 70 and 5 < seen["heading_deg"] < 60
    assert page.evaluate("visualViewport.scale") == 1
    visitor.tab("map")
    before = page.locator("#map").screenshot()
    pinch("#map", 60, 200)
    page.wait_for_timeout(300)
    assert page.locator("#map").screenshot() != before
    assert page.input_value("#lat") == "" and len(visitor.steps) == 3


def test_a_person_may_do_what_a_model_may(visit: Any, server: Server) -> None:
    """Pitch, field of view and walks reach as far as the tools' own bounds."""
    bounds = {tool["name"]: tool for tool in server.get("/schema")["tools"]}
    look = json.dumps(bounds["look"])
    assert '"minimum": -90' in look and '"maximum": 90' in look and '"maximum": 120' in look
    visitor: Visitor = visit(server, query="?tasks=0")
    visitor.begin()
    keys = visitor.page.keyboard

    def aim(*names: str) -> dict[str, Any]:
        for name in names:
            keys.press(name)
        return visitor.spend(lambda: keys.press("Enter"))

    assert aim(*["ArrowUp"] * 7)["pitch_deg"] == 90
    assert aim(*["ArrowDown"] * 14)["pitch_deg"] == -90
    assert aim(*["-"] * 3)["fov_deg"] == 120
    assert aim(*["+"] * 9)["fov_deg"] == 10
    assert aim(*["ArrowUp"] * 6, *["-"] * 6)["pitch_deg"] == 0
    up = visitor.drag("#frame", 0, 180)
    for _ in range(3):
        visitor.spend(up)
    assert visitor.observation["pitch_deg"] == 90
    farthest = visitor.page.locator("#meters-walked option").last.get_attribute("value")
    assert farthest == "1000" and '"maximum": 1000' in json.dumps(bounds["move"])
