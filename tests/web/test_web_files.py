"""The page's files as they are served, and what the page has nothing to do with."""

import re

import httpx
import numpy as np
import pytest
from environment_lab import Server
from fastapi import FastAPI
from fastapi.testclient import TestClient

from env_service.geography import geography
from env_service.server.web import FOLDER, UNITS_PER_DEGREE, add_web, outlines
from geo_assets.environment._behaviour import BEHAVIOUR
from geo_assets.lineage.fingerprint import fingerprint

LONGEST_BYTES = 400 * 110


def test_files_are_served_with_a_policy_and_a_tag(server: Server) -> None:
    with httpx.Client(base_url=server.url) as http:
        page = http.get("/web")
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        names = re.findall(r'(?:src|href)="(web/[^"]+)"', page.text)
        assert {"web/main.js", "web/base.css", "web/icon.svg", "web/credits"} <= set(names)
        for name in names:
            part = http.get(f"/{name}")
            assert part.status_code == 200 and part.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in part.headers["content-security-policy"]
            again = http.get(f"/{name}", headers={"if-none-match": part.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        plain = http.get("/web/main.js", headers={"accept-encoding": "identity"})
        assert plain.content == http.get("/web/main.js").content == (FOLDER / "main.js").read_bytes()
        assert http.get("/web/", follow_redirects=True).content == page.content
        for name in ("..%2fserver%2fapp.py", "nothing.js", "", "%2e%2e", "web.py", "index"):
            assert http.get(f"/web/{name}").status_code in (307, 404)


def test_no_file_names_another_host_to_load_from() -> None:
    for file in FOLDER.iterdir():
        text = file.read_text()
        assert len(text) <= LONGEST_BYTES, file.name
        loaded = re.findall(r'(?:src|import|from|url\(|@import)\s*[=(]?\s*["\']?(https?://[^"\')\s]+)', text)
        links = re.findall(r'<link[^>]+href="(https?:[^"]+)"', text)
        assert loaded == links == [], file.name


@pytest.mark.parametrize("detail", ["110m", "50m"])
def test_outlines_are_the_vendored_ones(detail: str, server: Server) -> None:
    served = httpx.get(f"{server.url}/web/outlines-{detail}.bin").content
    assert served == outlines(detail)  # type: ignore[arg-type]
    numbers = np.frombuffer(served, "<i4")
    rings, borders = numbers[:2].tolist()
    counts = numbers[2 : 2 + rings + borders]
    points = numbers[2 + rings + borders :].reshape(-1, 2)
    assert len(points) == counts.sum()
    known = geography()
    land = known.land_outlines(detail)  # type: ignore[arg-type]
    assert borders == len(known.border_lines(detail)) and rings >= len(land)  # type: ignore[arg-type]
    for number in (0, len(land) // 2, len(land) - 1):
        at = int(counts[:number].sum())
        line = np.cumsum(points[at : at + counts[number]], axis=0) / UNITS_PER_DEGREE
        assert np.abs(line[0] - land[number][0]).max() <= 0.5001 / UNITS_PER_DEGREE
        assert np.abs(line[-1] - land[number][-1]).max() <= 0.5001 / UNITS_PER_DEGREE
    assert len(served) < 1_000_000


def test_in_production_the_page_says_that_it_is_for_agents() -> None:
    app = FastAPI()
    add_web(app, simulation=False)
    http = TestClient(app)
    answer = http.get("/web")
    assert answer.status_code == 404 and "takes agents only" in answer.text
    for path in ("main.js", "outlines-110m.bin", "credits"):
        assert http.get(f"/web/{path}").status_code == 404


def test_foreign_pages_may_not_read_it(server: Server) -> None:
    for path in ("/web", "/web/main.js"):
        assert httpx.get(server.url + path, headers={"origin": "https://evil.example"}).status_code == 403
        assert httpx.get(server.url + path, headers={"origin": server.url}).status_code == 200


def test_the_page_is_no_part_of_what_an_environment_is() -> None:
    reached = {name.split(":")[0] for name in fingerprint(BEHAVIOUR).symbols}
    assert "env_service.environment" in reached
    assert not [name for name in reached if ".server" in name or ".web" in name]
    # Not of the server's either, as far as staleness goes: a changed page leaves every asset as it is.
    served = fingerprint([], runs=["env_service.server.__main__"]).symbols
    assert served and not [name for name in served if name.startswith("env_service.server.web:")]


def test_no_route_of_the_page_is_in_the_schema(server: Server) -> None:
    assert not [path for path in server.get("/openapi.json")["paths"] if "web" in path]
