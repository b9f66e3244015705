"""Five rounds in a real browser, by mouse and by keyboard: what is shown is what the socket brought."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from environment_lab import PLACES, Server
from web_lab import Visitor

DESKTOP, PHONE = (1280, 800), (375, 667)
ACCESSIBLE = Path(__file__).with_name("accessible.js")
ORDER = "?tasks=2,0,1,3,4"
TRUTHS = [PLACES[index] for index in (2, 0, 1, 3, 4)]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_five_rounds(visit: Any, server: Server, size: tuple[int, int]) -> None:
    visitor: Visitor = visit(server, size, ORDER)
    page, name = visitor.page, "desktop" if size == DESKTOP else "phone"
    visitor.shoot(f"{name}-start")
    # A seat is taken by playing, not by looking.
    assert visitor.received == [] and not [a for a in visitor.addresses if a.startswith("ws:")]
    visitor.begin()
    _same_bytes(visitor)
    assert visitor.text("#turns") == "12 of 12" and visitor.text("#cost") == "0.00"

    turned = visitor.spend(visitor.drag("#frame", -120))
    assert 0 < turned["heading_deg"] < 90 and visitor.steps[-1]["op"] == "look"
    _same_bytes(visitor)
    page.mouse.wheel(0, -300)  # the pointer is on the picture
    zoomed = visitor.spend(lambda: page.mouse.wheel(0, -300))
    assert zoomed["fov_deg"] < 60 and visitor.steps[-1]["op"] == "zoom"
    _same_bytes(visitor)
    visitor.shoot(f"{name}-zoomed")
    _legible(visitor)
    walked = visitor.spend(lambda: page.click('[data-walk="forward"]'))
    assert walked["moved_meters"] > 0
    _same_bytes(visitor)

    visitor.tab("map")
    page.locator("#map").click(position={"x": 150, "y": 120})
    assert len(visitor.steps) == 3  # choosing a candidate asks nobody
    lat, lon = float(page.input_value("#lat")), float(page.input_value("#lon"))
    page.fill("#label", "perhaps")
    pinned = visitor.spend(lambda: page.click('[data-call="pin"]'))
    assert [(p["lat"], p["lon"], p["label"]) for p in pinned["pins"]] == [(lat, lon, "perhaps")]
    assert visitor.shown("#toolmap img") == base64.b64decode(pinned["image_base64"])
    assert pinned["feedback"] in visitor.text("#place-words")
    assert visitor.text("#turns") == "8 of 12" and visitor.text("#cost") == "0.09"
    visitor.shoot(f"{name}-pinned")
    _legible(visitor)
    _nothing_of_the_truth(visitor, server)

    for number, (lat, lon, country, code) in enumerate(TRUTHS, start=1):
        visitor.tab("map")
        page.fill("#lat", f"{lat + 1:.4f}")
        page.fill("#lon", f"{lon:.4f}")
        page.click('[data-call="guess"]')
        visitor.settled("reveal")
        end = visitor.observation
        told = visitor.text("#reveal")
        assert f"Round {number} of 5" in told and country in told and f"{end['score']:.3f}" in told
        assert end["metadata"]["verdict"].lower() in told.lower() and 100 < end["distance_km"] < 120
        assert f"{end['distance_km']:.0f} km" in told and f"contributor-{code}" in told
        assert len(json.loads(visitor.received[-1])["data"]["observation"]["image_base64"]) == 0
        if number == 1:
            visitor.shoot(f"{name}-reveal")
            _legible(visitor)
            assert page.locator("#reveal .trace > li").count() == 6
        page.click("#next")
        visitor.settled("play" if number < 5 else "final")
    rewards = [json.loads(f)["data"]["reward"] for f in visitor.received if '"distance_km":1' in f]
    assert len(rewards) == 5
    assert f"{sum(round(1000 * reward) for reward in rewards):,}" in visitor.text("#final-title")
    assert page.locator("#final tbody tr").count() == 5
    visitor.shoot(f"{name}-final")
    _legible(visitor)

    page.click("#again")
    visitor.settled("play")
    assert visitor.text("#points") == "0" or size == PHONE


def test_by_keyboard_alone(visit: Any, server: Server) -> None:
    visitor: Visitor = visit(server, query="?tasks=0,1")
    page = visitor.page
    keys = page.keyboard

    def focused() -> str:
        return str(page.evaluate("document.activeElement.id || document.activeElement.dataset.call || ''"))

    def tab_to(name: str) -> None:
        for _ in range(40):
            if focused() == name:
                return
            keys.press("Tab")
        raise AssertionError(f"{name} cannot be reached, focus is at {focused()}")

    tab_to("begin")
    keys.press("Enter")
    visitor.settled()
    assert focused() == "view"
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    keys.press("Escape")
    assert page.is_hidden("#aim") and visitor.steps == []
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    keys.press("ArrowUp")
    assert visitor.text("#aim-words").startswith("ENE 60°")
    assert visitor.spend(lambda: keys.press("Enter"))["heading_deg"] == 60
    assert visitor.steps == [{"op": "look", "heading_deg": 60, "pitch_deg": 15, "fov_deg": 90}]
    keys.press("+")
    assert visitor.spend(lambda: keys.press("Enter"))["fov_deg"] == 63
    assert visitor.spend(lambda: keys.press("w"))["moved_meters"] > 0
    keys.press("w")  # the last frame: nothing lies ahead, and nothing is spent
    page.locator("#feedback", has_text="Nothing was spent").wait_for()
    assert len(visitor.steps) == 3

    keys.press("m")
    assert focused() == "map"
    for key in ("+", "+", "ArrowUp", "ArrowRight"):
        keys.press(key)
    assert "Map centre" in visitor.text("#place-words")
    keys.press("Enter")
    assert "Candidate at" in visitor.text("#place-words")
    tab_to("pin")
    visitor.spend(lambda: keys.press("Enter"))
    tab_to("guess")
    keys.press("Enter")
    visitor.settled("reveal")
    assert focused() == "reveal-title"
    tab_to("next")
    keys.press("Enter")
    visitor.settled()
    keys.press("m")
    keys.press(" ")
    tab_to("guess")
    keys.press("Enter")
    visitor.settled("reveal")
    tab_to("next")
    keys.press("Enter")
    visitor.settled("final")
    assert focused() == "final-title"


def test_turns_run_out(visit: Any, server: Server) -> None:
    visitor: Visitor = visit(server, query="?tasks=0,1")
    visitor.begin()
    for _ in range(11):
        visitor.page.keyboard.press("ArrowRight")
        visitor.spend(lambda: visitor.page.keyboard.press("Enter"))
    assert "One turn is left" in visitor.text("#feedback") and visitor.text("#turns") == "1 of 12"
    visitor.page.keyboard.press("ArrowLeft")
    visitor.page.keyboard.press("Enter")
    visitor.settled("reveal")
    told = visitor.text("#reveal")
    assert "No guess" in told and "France" in told and "contributor-FR" in told


def _same_bytes(visitor: Visitor) -> None:
    """The picture on the page has the bytes of the latest view that came over the socket."""
    observation = visitor.observation
    assert observation["image_kind"] == "view"
    shown = visitor.shown()
    assert shown[:2] == b"\xff\xd8" and shown == base64.b64decode(observation["image_base64"])
    assert visitor.page.evaluate("document.querySelector('#picture').decode().then(() => true)")


def _nothing_of_the_truth(visitor: Visitor, server: Server) -> None:
    """Neither the page nor anything that it received names the place of the round."""
    lat, lon, country, _ = TRUTHS[0]
    told = ["contributor-", "sequence-", "make-", country, f"{lat:.2f}", f"{lon:.2f}", "1020", "eval-0000"]
    received = [json.loads(text)["data"] for text in visitor.received]
    for data in received:
        data["observation"].pop("image_base64")
    page = visitor.page.content()
    for picture in visitor.page.query_selector_all("img"):
        page = page.replace(str(picture.get_attribute("src")), "")
    for text in (json.dumps(received), page):
        assert [part for part in told if part in text] == []
    for data in received:
        observation = data["observation"]
        assert observation["true_lat"] is None and observation["distance_km"] is None
    # Besides the socket it asked for its own files and the address book, and for nothing else.
    paths = {a.removeprefix(server.url) for a in visitor.addresses if a.startswith(server.url)}
    others = {path for path in paths if not path.startswith("/web")}
    assert others == {"/schema", "/geoguesser_env/splits", "/geoguesser_env/num_tasks"}


def _legible(visitor: Visitor) -> None:
    """Contrast, names, sizes and nothing that sticks out to the side, of all that is visible."""
    found = visitor.page.evaluate(ACCESSIBLE.read_text())
    assert found["texts"] > 5
    assert found["faint"] == found["nameless"] == found["small"] == found["undescribed"] == []
    assert found["width"] <= found["room"]
