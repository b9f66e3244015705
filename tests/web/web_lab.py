"""One visitor of the play page, and everything that passed between page and server."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocket

SHOTS = Path(__file__).resolve().parents[2] / "build" / "web"


class Visitor:
    """A browser page with a record of frames, requests and complaints.

    Attributes:
        sent, received: messages over `/ws`, in order.
        addresses: every address asked for.
        expected: parts of console errors that the test provokes on purpose.
    """

    def __init__(self, page: "Page", url: str, query: str) -> None:
        self.page = page
        self.sent: list[dict[str, Any]] = []
        self.received: list[str] = []
        self.addresses: list[str] = []
        self.errors: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.addresses.append(request.url))
        page.on("websocket", self._listen)
        page.goto(f"{url}/web{query}")

    def _listen(self, socket: "WebSocket") -> None:
        self.addresses.append(socket.url)
        socket.on("framesent", lambda text: self.sent.append(json.loads(text)))
        socket.on("framereceived", lambda text: self.received.append(str(text)))

    # ---- what the page does

    def begin(self) -> None:
        """Start a game."""
        self.page.click("#begin")
        self.settled()

    def settled(self, screen: str = "play") -> None:
        """Wait until a screen shows and no call is under way."""
        self.page.wait_for_selector(f'body[data-screen="{screen}"][aria-busy="false"]')

    def spend(self, act: Callable[[], object]) -> dict[str, Any]:
        """Do something that must make exactly one call; the observation that it brought."""
        before, entries = len(self.steps), len(self.turns)
        act()
        self.page.locator(f"#trace > li:nth-child({entries + 1})").wait_for(state="attached")
        self.settled()
        assert len(self.steps) == before + 1
        return self.observation

    def tab(self, name: str) -> None:
        """Show a panel, where the page is so small that it shows one at a time."""
        button = self.page.locator(f'#tabs button[data-tab="{name}"]')
        if button.is_visible():
            button.click()

    def drag(self, selector: str, dx: float, dy: float = 0.0) -> Callable[[], None]:
        """A drag across an element, from its middle."""

        def act() -> None:
            box = self.page.locator(selector).bounding_box()
            assert box is not None
            x, y = box["x"] + box["width"] / 2 - dx / 2, box["y"] + box["height"] / 2 - dy / 2
            self.page.mouse.move(x, y)
            self.page.mouse.down()
            self.page.mouse.move(x + dx / 2, y + dy / 2, steps=3)
            self.page.mouse.move(x + dx, y + dy, steps=3)
            self.page.mouse.up()

        return act

    # ---- what passed

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Actions sent."""
        return [message["data"] for message in self.sent if message["type"] == "step"]

    @property
    def observation(self) -> dict[str, Any]:
        """The latest observation received."""
        frames = [json.loads(text) for text in self.received]
        found: dict[str, Any] = [f for f in frames if f["type"] == "observation"][-1]["data"]["observation"]
        return found

    @property
    def turns(self) -> list[Any]:
        """Entries of the rollout."""
        return self.page.query_selector_all("#trace > li")

    def shown(self, selector: str = "#picture") -> bytes:
        """The bytes of a picture on the page."""
        source = str(self.page.get_attribute(selector, "src"))
        assert source.startswith("data:image/")
        return base64.b64decode(source.split(",", 1)[1])

    def text(self, selector: str) -> str:
        """Text of an element, white space folded."""
        return " ".join(self.page.inner_text(selector).split())

    def shoot(self, name: str) -> None:
        """A screenshot under build/web, for people to look at."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")

    def complain(self) -> None:
        """Fail on errors of the console that were not expected, and on requests that left this machine."""
        unexpected = [e for e in self.errors if not any(part in e for part in self.expected)]
        assert not unexpected, unexpected
        away = {a for a in self.addresses if urlsplit(a).scheme not in ("data", "blob")}
        assert away and {urlsplit(address).hostname for address in away} == {"127.0.0.1"}
