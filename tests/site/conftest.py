"""A site over a small world of real servers, built once, and a browser that opens it from disk."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sweeps"))
sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
sys.path.insert(0, str(Path(__file__).parent))

from site_lab import Built, build_lab, build_site_in

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Four tasks, three policies that really played them, one adapter, and the page of it all."""
    home = tmp_path_factory.mktemp("site")
    build_lab(home)
    return build_site_in(home)


# Not for the session: the driver keeps an event loop running in this thread, and later tests start their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium; the test is skipped, with this reason, where there is none."""
    if not CHROMIUM.exists():
        pytest.skip("needs a browser: install the package chromium (make browser)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            yield opened
        finally:
            opened.close()
