"""The page in a real browser, opened from disk: keys, sliders, filters, paper, small screens, no script."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from site_lab import PASSES, TASKS, Built

from env_service.scoring import board_reward, flat_distance_km, game_reward
from geo_assets.reports.site.world_map import pixels

DESK = {"width": 1280, "height": 900}
CONTRAST = """() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const worded = "h1,h2,h3,h4,p,li,a,th,td,caption span,summary,dt,dd,label,output,svg text,blockquote";
  const found = [];
  for (const node of document.querySelectorAll(worded)) {
    const own = [...node.childNodes].some((part) => part.nodeType === 3 && part.textContent.trim());
    const seen = node.getClientRects().length && !node.closest("[hidden],.skip,.pin");
    if (!own || !seen) continue;
    const style = getComputedStyle(node), svg = node instanceof SVGElement;
    const ink = light(rgb(svg ? style.fill : style.color));
    const paper = light(ground(svg ? node.closest("svg").parentElement : node));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.push([ratio, node.tagName + " " + node.textContent.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""
SLIDE = """(slider, value) => {
  slider.value = value;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}"""
FORMULAS = """grid => grid.map(([km, cost]) => {
  const { gameReward, boardReward, flatDistance } = geoReport.formulas;
  return [gameReward(km, cost), boardReward(km, cost), cost ? flatDistance(cost) : -1];
})"""
FIRST_GUESS = """() => {
  const [task, sample, lat, lon] = geoReport.map.arms[0].guesses[0];
  const [x, y] = geoReport.project(lat, lon);
  const box = document.getElementById("world").getBoundingClientRect();
  return [box.left + (x / 1000) * box.width, box.top + (y / 1000) * box.width];
}"""


class Opened:
    """A page with everything that it complained of and asked for."""

    def __init__(self, browser: Any, built: Built, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESK, **options})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(built.url)

    def words(self, ident: str) -> str:
        """Text of an element by its id."""
        return str(self.page.inner_text(f"#{ident}"))

    def slide(self, ident: str, value: float) -> None:
        """Move a slider as a hand would."""
        self.page.eval_on_selector(f"#{ident}", SLIDE, value)


@pytest.fixture
def desk(browser: Any, built: Built) -> Iterator[Opened]:
    """The page on a desk; at the end it has neither complained nor asked for anything off the folder."""
    opened = Opened(browser, built)
    yield opened
    folder = built.folder.as_uri()
    assert opened.complaints == []
    assert len(opened.asked) >= 7
    assert [url for url in opened.asked if not url.startswith(f"{folder}/")] == []
    opened.context.close()


def test_arrow_keys_step_through_an_episode_to_its_answer(desk: Opened) -> None:
    page = desk.page
    page.focus("#viewer")
    steps = page.locator(".episode:not([hidden]) .step")
    count = steps.count()
    assert count >= 4
    seen = []
    for at in range(count):
        shown = page.locator(".step:visible")
        assert shown.count() == 1
        seen.append(shown.get_attribute("data-call"))
        picture = shown.locator("img")
        if picture.count():
            picture.evaluate("image => image.decode()")
            assert picture.evaluate("image => image.naturalWidth") > 100
        assert page.locator(".strip button[aria-current] span").last.inner_text().startswith(str(at))
        page.keyboard.press("ArrowRight")
    assert (seen[0], seen[-1]) == ("Opening", "The answer")
    assert "submit_guess" in seen
    assert page.locator(".step:visible .verdict").inner_text()
    assert page.locator(".bar-controls output").inner_text() == "The answer"
    page.keyboard.press("ArrowLeft")
    assert page.locator(".step:visible").get_attribute("data-call") == seen[-2]
    page.keyboard.press("Home")
    assert page.locator(".step:visible").get_attribute("data-call") == "Opening"
    page.get_by_role("button", name="To the answer").click()
    assert page.locator(".step:visible").get_attribute("data-call") == "The answer"


def test_another_arm_and_another_episode_are_chosen_by_name(desk: Opened) -> None:
    page = desk.page
    page.select_option(".pick select >> nth=0", label="Never guesses")
    assert page.locator(".episode:visible h3").inner_text().startswith("Never guesses")
    names = page.locator(".pick select >> nth=1").locator("option").all_inner_texts()
    page.select_option(".pick select >> nth=1", index=len(names) - 1)
    page.locator(".strip button").last.click()
    assert page.locator(".step:visible .verdict").inner_text() == "No usable guess."


def test_sliders_show_what_python_computes_and_where_it_is_flat(desk: Opened) -> None:
    for step, cost in ((0, 0.0), (200, 0.05), (465, 0.1), (700, 0.2), (1000, 0.6)):
        desk.slide("distance", step)
        desk.slide("cost", cost)
        km = desk.page.evaluate(f"geoReport.formulas.distanceAt({step})")
        assert float(desk.words("game-said")) == pytest.approx(game_reward(km, cost), abs=6e-4)
        assert float(desk.words("board-said")) == pytest.approx(board_reward(km, cost), abs=6e-4)
        flat = flat_distance_km(cost)
        said = desk.words("flat-said")
        assert said == ("nowhere" if cost == 0 else f"{flat:,.0f} km")
        words = desk.words("flat-words")
        assert ("lies where the game is flat" in words) == (km >= flat)
        assert ("capped at 0.20" in words) == (cost >= 0.2)
    line = desk.page.locator(".chart.wide svg[data-over=distance] .flat")
    assert float(line.get_attribute("x1")) == pytest.approx(
        34 + flat_distance_km(0.6) / 20015 * (500 - 12 - 34), abs=0.5
    )


def test_the_scripts_formulas_are_pythons(desk: Opened) -> None:
    grid = [
        (km, cost)
        for km in (0.0, 0.4, 25.0, 199.9, 750.0, 1492.7, 5000.0, 20015.0)
        for cost in (0.0, 0.013, 0.2, 0.9)
    ]
    found = desk.page.evaluate(FORMULAS, grid)
    for (km, cost), (game, board, flat) in zip(grid, found, strict=True):
        assert game == pytest.approx(game_reward(km, cost), rel=1e-12, abs=1e-15)
        assert board == pytest.approx(board_reward(km, cost), rel=1e-12)
        assert flat == pytest.approx(flat_distance_km(cost) if cost else -1)
    places = [(0.0, 0.0), (84.0, 180.0), (-58.0, -179.9), (51.5, -0.1), (-33.9, 151.2)]
    drawn = desk.page.evaluate("places => places.map(([lat, lon]) => geoReport.project(lat, lon))", places)
    for (lat, lon), (x, y) in zip(places, drawn, strict=True):
        assert (x, y) == (
            pytest.approx(float(pixels(lat, lon)[0])),
            pytest.approx(float(pixels(lat, lon)[1]), abs=1e-9),
        )


def test_the_map_filters_by_arm_task_and_distance(desk: Opened) -> None:
    page = desk.page
    assert desk.words("map-said").startswith(f"{TASKS * PASSES} guesses shown.")
    page.select_option("#map-arm", label="Never guesses")
    assert desk.words("map-said").startswith(f"0 guesses shown, {TASKS * PASSES} episodes without one.")
    page.select_option("#map-arm", label="All arms")
    everything = int(desk.words("map-said").split()[0])
    page.locator("#map-bands button", has_text="wrong part of the world").click()
    assert 0 < int(desk.words("map-said").split()[0]) < everything
    page.select_option("#map-task", index=2)
    rows = page.locator("#map-table tbody tr")
    assert rows.count() == int(desk.words("map-said").split()[0])
    assert page.locator("#map-table caption").inner_text().startswith("Guesses at task 1,")
    assert page.locator("#world .task.off").count() == TASKS - 1
    page.locator("#map-lines").uncheck()
    assert (
        page.locator("#world .lines path").evaluate_all(
            "paths => paths.map(path => path.getAttribute('d')).join('')"
        )
        == ""
    )


def test_the_map_zooms_and_comes_back(desk: Opened) -> None:
    page = desk.page
    whole = page.get_attribute("#world", "viewBox")
    page.select_option("#map-region", label="Europe")
    x, y, width, height = map(float, str(page.get_attribute("#world", "viewBox")).split())
    px, py = (float(axis) for axis in pixels(48.0, 11.0))
    assert x < px < x + width < 1000
    assert y < py < y + height
    page.click("#map-in")
    assert float(str(page.get_attribute("#world", "viewBox")).split()[2]) < width
    page.click("#map-whole")
    assert [float(part) for part in str(page.get_attribute("#world", "viewBox")).split()] == [
        float(part) for part in str(whole).split()
    ]


def test_a_pointer_over_a_guess_says_whose_it_is(desk: Opened) -> None:
    page = desk.page
    page.locator("#world").scroll_into_view_if_needed()
    spot = page.evaluate(FIRST_GUESS)
    page.mouse.move(*spot)
    assert re.match(r"Noisy oracle, task \d .*km off, reward 0\.\d{3}$", desk.words("map-tip"))


def test_without_a_script_tables_and_all_steps_are_there(browser: Any, built: Built) -> None:
    opened = Opened(browser, built, java_script_enabled=False)
    page = opened.page
    assert page.locator("table:visible").count() >= 7
    assert page.locator("table").first.locator("tbody tr").count() == 3
    assert "0.95" in page.locator("#rewards table").inner_text()
    assert not page.locator(".sliders").is_visible()
    assert not page.locator(".filters").is_visible()
    assert page.locator(".step:visible").count() == page.locator(".step").count() >= 20
    assert page.locator("#world .task").count() == TASKS
    opened.context.close()


def test_no_screen_is_too_narrow_or_too_wide(desk: Opened) -> None:
    page = desk.page
    for width in (320, 390, 768, 1100, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        narrow = page.locator(".chart.narrow:visible").count()
        assert (narrow > 0) == (width <= 640)


def test_words_stand_out_from_their_ground_in_light_and_dark(desk: Opened) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        desk.page.emulate_media(color_scheme=scheme)
        found = desk.page.evaluate(CONTRAST)
        assert len(found) > 250
        assert [one for one in found if one[0] < 4.5] == []
        grounds.add(desk.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


def test_structure_that_a_screen_reader_needs(desk: Opened) -> None:
    page = desk.page
    assert page.locator("h1").count() == 1
    levels = page.eval_on_selector_all("h1,h2,h3,h4", "all => all.map(one => Number(one.tagName[1]))")
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.locator("img:not([alt])").count() == 0
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0
    assert page.locator("table").count() == page.locator("table > caption").count()
    assert page.eval_on_selector_all("[id]", "all => all.length - new Set(all.map(one => one.id)).size") == 0
    unnamed = "all => all.filter(one => !one.labels?.length && !one.getAttribute('aria-label')).length"
    assert page.eval_on_selector_all("select, input", unnamed) == 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    still = "getComputedStyle(document.documentElement).scrollBehavior"
    assert page.evaluate(still) == "smooth"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(still) == "auto"


def test_on_paper_every_episode_stands_whole(desk: Opened) -> None:
    page = desk.page
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 6
    assert len(pdf) > 100_000
    # Afterwards the viewer is a viewer again.
    assert page.locator(".step:visible").count() == 1
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator(".bar-controls").first.is_visible()
    page.emulate_media(media="screen")


def test_an_episode_has_an_address(desk: Opened) -> None:
    key = desk.page.locator(".episode").last.get_attribute("id")
    desk.page.evaluate("key => { location.hash = key; }", key)
    desk.page.wait_for_function("key => !document.getElementById(key).hidden", arg=key)
    assert desk.page.locator(".episode:visible").get_attribute("id") == key
    desk.page.reload()
    assert desk.page.locator(".episode:visible").get_attribute("id") == key
