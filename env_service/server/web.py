"""`/web`: the play page, as the files it is made of.

The page is a client like any other: it plays over `/ws`, and nothing here reads a task, a picture or a
session. What is computed here is the world's outlines, which are the same for every task. In production mode
there is no route by which a page could play, so `/web` says that this server takes agents only.
"""

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from env_service.geography import Detail, geography

FOLDER = Path(__file__).resolve().parents[1] / "web"
UNITS_PER_DEGREE = 1000
"""Thousandths of a degree: 111 m, far below what the outlines themselves are true to."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_OUTLINES: dict[str, Detail] = {"outlines-110m.bin": "110m", "outlines-50m.bin": "50m"}
_PAGES = {"": "index.html", "credits": "credits.html"}
AGENTS_ONLY = "agents.html"

_HEADERS = {
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # Nothing is loaded from elsewhere, and pictures arrive as text over the session's own socket.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'"
    ),
}


def add_web(app: FastAPI, simulation: bool) -> None:
    """Register `/web` and what lies below it.

    Args:
        app: the service.
        simulation: whether there is a `/ws` for the page to play over.
    """

    def page(request: Request) -> Response:
        return _answer(request, _file(_PAGES[""]))

    def part(request: Request) -> Response:
        name = request.path_params["name"]
        if name in _OUTLINES:
            return _answer(request, _outlines(_OUTLINES[name]))
        name = _PAGES.get(name, name)
        return _answer(request, _file(name)) if name in _names() else Response(status_code=404)

    def agents_only(request: Request) -> Response:
        words = (FOLDER / AGENTS_ONLY).read_bytes()
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        headers = {**_HEADERS, "content-security-policy": policy}
        return Response(words, 404, headers, media_type=_TYPES[".html"])

    def add(path: str, endpoint: Callable[[Request], Response]) -> None:
        app.router.routes.append(Route(path, endpoint, methods=["GET"], include_in_schema=False))

    if not simulation:
        add("/web", agents_only)
        return
    add("/web", page)
    # Relative, so that a proxy may put the service below a path of its own.
    add("/web/", lambda _: RedirectResponse("../web"))
    add("/web/{name}", part)


@dataclass(frozen=True)
class _Body:
    """Bytes to serve, compressed once, under a tag that changes with them."""

    plain: bytes
    packed: bytes
    kind: str
    tag: str

    @classmethod
    def of(cls, plain: bytes, kind: str) -> "_Body":
        digest = hashlib.sha256(plain).hexdigest()[:20]
        return cls(plain, gzip.compress(plain, 6, mtime=0), kind, f'"{digest}"')


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    """The files that may be asked for; any other name is not there."""
    return frozenset(file.name for file in FOLDER.iterdir() if file.suffix in _TYPES)


@lru_cache(maxsize=64)
def _file(name: str) -> _Body:
    file = FOLDER / name
    return _Body.of(file.read_bytes(), _TYPES[file.suffix])


@lru_cache(maxsize=2)
def _outlines(detail: Detail) -> _Body:
    return _Body.of(outlines(detail), "application/octet-stream")


def outlines(detail: Detail) -> bytes:
    """The world's land and borders for the page's map; the same for every task.

    Little-endian 32-bit whole numbers: count of land rings, count of border lines, the lengths of all of them
    in points, then the points as (longitude, latitude) differences in `UNITS_PER_DEGREE`, starting anew with
    each line.

    Args:
        detail: "110m" for the whole world, "50m" (with small islands) for a closer look.
    """
    known = geography()
    rings = known.land_outlines(detail)
    if detail == "50m":
        rings = rings + known.island_outlines()
    borders = known.border_lines(detail)
    lines = [_steps(line) for line in (*rings, *borders)]
    head = np.array([len(rings), len(borders), *(len(line) for line in lines)])
    packed: bytes = np.concatenate([head, *(line.ravel() for line in lines)]).astype("<i4").tobytes()
    return packed


def _steps(line: NDArray[np.float32]) -> NDArray[np.int64]:
    """(n, 2) degrees as whole differences; points that fall on the one before them are left out."""
    whole = np.round(line.astype(np.float64) * UNITS_PER_DEGREE).astype(np.int64)
    kept = np.ones(len(whole), bool)
    kept[1:] = (whole[1:] != whole[:-1]).any(axis=1)
    return np.diff(whole[kept], axis=0, prepend=np.zeros((1, 2), np.int64))


def _answer(request: Request, body: _Body) -> Response:
    headers = {**_HEADERS, "etag": body.tag, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == body.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(body.packed, headers={**headers, "content-encoding": "gzip"}, media_type=body.kind)
    return Response(body.plain, headers=headers, media_type=body.kind)
