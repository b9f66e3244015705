"""A browser, and servers of the small world for it to play on."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "environment"))
sys.path.insert(0, str(Path(__file__).parent))

from environment_lab import FRAMES, PLACES, Server, World, serve, task_row, write_world
from web_lab import Visitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Five tasks on five continents, and two that share pictures with none of them."""
    folder = tmp_path_factory.mktemp("world")
    places = [*PLACES, PLACES[0], PLACES[1]]
    counts = [*FRAMES, 2, 2]
    rows = [task_row(i, place, count) for i, (place, count) in enumerate(zip(places, counts, strict=True))]
    return World(folder, *write_world(folder, rows))


@pytest.fixture(scope="session")
def server(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with three seats."""
    with serve(tmp_path_factory.mktemp("server"), *world.arguments, "--max-concurrent", "3") as running:
        yield running


# Not for the session: the driver keeps an event loop running in this thread, and later tests start their own.
@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """The system's Chromium, headless; where there is none, tests are skipped with this reason."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("needs a browser: install the package chromium (make browser)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's sandbox wants rights that a container does not give; the pages are our own.
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture
def visit(browser: "Browser") -> Iterator["VisitorFactory"]:
    """Makes visitors; each must leave without an error on its console."""
    factory = VisitorFactory(browser)
    yield factory
    factory.close()


class VisitorFactory:
    """Opens the play page for visitors that share nothing."""

    def __init__(self, browser: "Browser") -> None:
        self.browser = browser
        self.visitors: list[Visitor] = []

    def __call__(self, server: Server, size: tuple[int, int] = (1280, 800), query: str = "") -> Visitor:
        """A visitor at the start screen; a window with a side below 500 pixels is a phone's."""
        phone = min(size) < 500
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            has_touch=phone,
            is_mobile=phone,
            reduced_motion="reduce",
        )
        self.visitors.append(Visitor(context.new_page(), server.url, query))
        return self.visitors[-1]

    def close(self) -> None:
        """Close all, then complain. A test calls it before a server of its own ends, which would complain."""
        visitors, self.visitors = self.visitors, []
        for visitor in visitors:
            visitor.page.context.close()
        for visitor in visitors:
            visitor.complain()
