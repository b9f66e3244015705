"""What the stand-in answers to a request: Mapillary's routes, refusals and habits over a `Catalogue`.

| route | answer |
|---|---|
| `/maps/vtp/mly1_public/2/{z}/{x}/{y}?access_token=` | a vector tile, 204 where empty, 403 without token |
| `/image_ids?sequence_id=` | ids in the order of the drive |
| `/{image_id}?fields=` | one entity, fields it does not have left out |
| `/images?bbox=`, `image_ids=` or `sequence_ids=` `&fields=&limit=` | entities; dense boxes refused |
| `/img/{image_id}/{size}.jpg?oe=&oh=` | a picture, while its link is valid |
| `/datasets/osv5m/sequences?limit=` | ids of flat sequences, as the OSV-5M dataset would list them |
| `/sandbox/stats` | requests so far by route and status, faults injected |

Pure request in, answer out: `mapillary_server` puts it on a socket.
"""

import json
import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from resources.sandbox.catalogue import ENTITY_FIELDS, PICTURE_FIELDS, Box, Catalogue, Entity
from resources.sandbox.faults import Fault, Faults, Route
from resources.sandbox.links import LinkSigner
from resources.sandbox.rate_limit import RateWindow

SANDBOX_TOKEN = "MLY|sandbox|7d1f"
"""What to send when the server was started without a token of its own; it is no secret."""

TOKEN_PREFIX = "MLY|"
TILE_PREFIX = "/maps/vtp/mly1_public/2/"
LOWEST_ZOOM, HIGHEST_ZOOM = 6, 14
LARGEST_SEARCH_DEG2 = 0.01
MOST_RESULTS = 2000
DENSE = "Please reduce the amount of data you're asking for, then retry your request"


@dataclass(frozen=True)
class Reply:
    """One answer. `drop` closes the connection unanswered; `cut` sends half of the body it announced."""

    status: int
    body: bytes = b""
    content_type: str = "application/json; charset=UTF-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Habits:
    """How strict the stand-in is.

    Attributes:
        token: the one accepted token; None accepts every well-formed one.
        dense_limit: images in a search box beyond which it is refused.
        retry_after_s: seconds in the `Retry-After` of injected rate limits.
    """

    token: str | None = None
    dense_limit: int = 60
    retry_after_s: int = 0


class MapillaryApp:
    """The routes over one catalogue; safe for many threads."""

    def __init__(
        self, catalogue: Catalogue, links: LinkSigner, limits: RateWindow, faults: Faults, habits: Habits
    ) -> None:
        self._catalogue, self._links, self._limits, self._faults = catalogue, links, limits, faults
        self._habits = habits
        self._stats: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, target: str, authorization: str, base_url: str) -> Reply:
        """The answer to `GET target`.

        Args:
            target: path and query as they came.
            authorization: the `Authorization` header, "" where there is none.
            base_url: how the client addressed this server; links start with it.
        """
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/sandbox/stats":
            with self._lock:
                return _json(200, dict(sorted(self._stats.items())))
        route, reply = self._route(parts.path, query, authorization, base_url)
        self._note(f"{route} {'dropped' if reply.drop else reply.status}")
        return reply

    def _route(
        self, path: str, query: dict[str, str], authorization: str, base_url: str
    ) -> tuple[str, Reply]:
        if path.startswith("/img/"):
            return "picture", self._picture(path, query)
        if path == "/datasets/osv5m/sequences":
            return "dataset", self._dataset(query)
        if path.startswith(TILE_PREFIX):
            return "tile", self._tile(path, query)
        batch = path == "/images" and "image_ids" in query
        if path not in ("/images", "/image_ids") and not path[1:].isdigit():
            return "unknown", _error(404, f"Unknown path components: {path}", 2500, "OAuthException")
        refused = self._token_refusal(authorization, query) or self._limit_refusal()
        if refused is not None:
            return path.strip("/") if path.startswith("/image") else "image", refused
        thing = "&".join(
            [path, *(f"{name}={query[name]}" for name in sorted(query) if name != "access_token")]
        )
        fault = self._inject("batch" if batch else "graph", thing)
        if path == "/image_ids":
            return "image_ids", _spoil(self._image_ids(query), fault, self._habits)
        if path == "/images":
            return "images", _spoil(self._images(query, base_url), fault, self._habits)
        return "image", _spoil(self._image(path[1:], query, base_url), fault, self._habits)

    # --- refusals ---------------------------------------------------------------------------------------

    def _token_refusal(self, authorization: str, query: dict[str, str]) -> Reply | None:
        scheme, _, sent = authorization.partition(" ")
        token = sent.strip() if scheme in ("OAuth", "Bearer") else query.get("access_token", "")
        if not token:
            return _error(500, "Invalid OAuth 2.0 Access Token", 190, error_data={})
        if not token.startswith(TOKEN_PREFIX):
            return _error(401, "Failed to decode", 190, "OAuthException")
        if self._habits.token is not None and token != self._habits.token:
            return _error(401, "Error validating application", 190, "OAuthException")
        return None

    def _limit_refusal(self) -> Reply | None:
        seconds = self._limits.refusal()
        return None if seconds is None else _limit_reached(math.ceil(seconds))

    def _inject(self, route: Route, thing: str) -> Fault | None:
        fault = self._faults.choose(route, thing)
        if fault is not None:
            self._note(f"fault {fault}")
        return fault

    def _note(self, what: str) -> None:
        with self._lock:
            self._stats[what] += 1

    # --- routes -----------------------------------------------------------------------------------------

    def _tile(self, path: str, query: dict[str, str]) -> Reply:
        token = query.get("access_token", "")
        if not token.startswith(TOKEN_PREFIX) or (self._habits.token not in (None, token)):
            return Reply(403)
        limited = self._limit_refusal()
        if limited is not None:
            return limited
        address = path.removeprefix(TILE_PREFIX).split("/")
        if len(address) != 3 or not all(part.isascii() and part.isdigit() for part in address):
            return Reply(404)
        z, x, y = map(int, address)
        if not (LOWEST_ZOOM <= z <= HIGHEST_ZOOM and x < 1 << z and y < 1 << z):
            return Reply(404)
        tile = self._catalogue.tile(z, x, y)
        reply = Reply(200, tile, "application/x-protobuf") if tile else Reply(204)
        return _spoil(reply, self._inject("tile", path), self._habits)

    def _image_ids(self, query: dict[str, str]) -> Reply:
        ids = self._catalogue.image_ids(query.get("sequence_id", ""))
        return _json(200, {"data": [{"id": image_id} for image_id in ids]})

    def _image(self, image_id: str, query: dict[str, str], base_url: str) -> Reply:
        fields = _asked_fields(query)
        if isinstance(fields, Reply):
            return fields
        entity = self._entity(image_id, fields, base_url)
        if entity is None:
            return _error(
                400,
                f"Unsupported get request. Object with ID '{image_id}' does not exist, cannot be loaded due "
                "to missing permissions, or does not support this operation",
                100,
                error_subcode=33,
            )
        return _json(200, entity)

    def _images(self, query: dict[str, str], base_url: str) -> Reply:
        fields = _asked_fields(query)
        if isinstance(fields, Reply):
            return fields
        limit = int(query["limit"]) if query.get("limit", "").isdigit() else MOST_RESULTS
        if "image_ids" in query:
            ids = query["image_ids"].split(",")
        elif "sequence_ids" in query:
            ids = [i for name in query["sequence_ids"].split(",") for i in self._catalogue.image_ids(name)]
        else:
            box = _box(query.get("bbox", ""))
            if box is None:
                return _error(400, "Invalid parameter: bbox, image_ids or sequence_ids is needed", 100)
            ids = list(self._catalogue.images_in(box))
            area = (box[2] - box[0]) * (box[3] - box[1])
            # The limit cuts the answer, not the scan: asking for one image of a dense box is refused as well.
            if len(ids) > self._habits.dense_limit or area > LARGEST_SEARCH_DEG2 * 1.000001:
                return _error(500, DENSE, 1, "OAuthException")
        entities = (self._entity(image_id, fields, base_url) for image_id in ids)
        found = [entity for entity in entities if entity is not None]
        return _json(200, {"data": found[: min(limit, MOST_RESULTS)]})

    def _entity(self, image_id: str, fields: list[str], base_url: str) -> Entity | None:
        entity = self._catalogue.entity(image_id)
        if entity is None:
            return None
        sizes = self._catalogue.picture_sizes(image_id)
        for name, size in PICTURE_FIELDS.items():
            if name in fields and size in sizes:
                path = f"/img/{image_id}/{size}.jpg"
                entity[name] = f"{base_url}{path}?{self._links.query(path)}"
        return {name: entity[name] for name in dict.fromkeys([*fields, "id"]) if name in entity}

    def _picture(self, path: str, query: dict[str, str]) -> Reply:
        refusal = self._links.refusal(path, query.get("oe", ""), query.get("oh", ""))
        if refusal is not None:
            return Reply(403, refusal.encode(), "text/plain")
        image_id, _, name = path.removeprefix("/img/").partition("/")
        fault = self._inject("picture", path)
        if fault in ("unavailable", "html", "drop", "expired"):
            return _spoil(Reply(200), fault, self._habits)  # a picture is costly to draw: not for a fault
        picture = self._catalogue.picture(image_id, name.removesuffix(".jpg"))
        if picture is None:
            return Reply(404, b"Not Found", "text/plain")
        return _spoil(Reply(200, picture, "image/jpeg"), fault, self._habits)

    def _dataset(self, query: dict[str, str]) -> Reply:
        limit = int(query["limit"]) if query.get("limit", "").isdigit() else 40
        names = self._catalogue.perspective_sequences()[:limit]
        return _json(200, {"data": [{"id": name} for name in names]})


# --- shapes of answers ----------------------------------------------------------------------------------


def _json(status: int, content: Any, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, json.dumps(content, separators=(",", ":")).encode(), headers=headers or {})


def _error(status: int, message: str, code: int, kind: str = "MLYApiException", **more: Any) -> Reply:
    return _json(status, {"error": {"message": message, "type": kind, "code": code, **more}})


def _limit_reached(seconds: int) -> Reply:
    body = {"message": "Application request limit reached", "type": "MLYApiException"}
    return _json(
        429, {"error": {**body, "is_transient": True, "code": 4}}, {"Retry-After": str(max(0, seconds))}
    )


def _spoil(reply: Reply, fault: Fault | None, habits: Habits) -> Reply:
    """The reply as the fault leaves it."""
    if fault == "unavailable":
        return _error(500, "temporarily unavailable", 2)
    if fault == "limit":
        return _limit_reached(habits.retry_after_s)
    if fault == "timeout":
        return _error(400, "Timeout", -2, "OAuthException", error_subcode=3404014, is_transient=False)
    if fault == "html":
        page = b"<!DOCTYPE html><html><head><title>Error</title></head><body>Sorry.</body></html>"
        return Reply(200, page, "text/html; charset=utf-8")
    if fault == "expired":
        return Reply(403, b"URL signature expired", "text/plain")
    if fault == "empty":
        return _json(200, {"data": []})
    if fault == "drop":
        return Reply(reply.status, drop=True)
    if fault == "cut":
        return Reply(reply.status, reply.body, reply.content_type, reply.headers, cut=len(reply.body) > 1)
    return reply


def _asked_fields(query: dict[str, str]) -> list[str] | Reply:
    fields = [name.strip() for name in query.get("fields", "id").split(",") if name.strip()]
    for name in fields:
        if name not in ENTITY_FIELDS:
            return _error(400, f"Tried accessing nonexisting field ({name}) on node type (ChunkObject)", 100)
    return fields


def _box(text: str) -> Box | None:
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        return None
    if not all(map(math.isfinite, (west, south, east, north))) or west > east or south > north:
        return None
    return west, south, east, north
