"""The Mapillary client: coverage tiles, the graph, and pictures behind signed links.

```python
client = MapillaryClient(graph_url, tiles_url, token, requests_per_minute=3000)
columns = decode_sequences(client.tile(6, 33, 22), 6, 33, 22)
frames = client.images(client.image_ids(columns.id[0]))
jpeg = client.picture(next(iter(frames)))
```

The same client speaks to Mapillary and to the sandbox. It is safe to share between threads, which then
share one pace; passing faults are tried again with backoff and jitter, `Retry-After` is obeyed by all
threads, and every way to fail is a class of `mapillary_errors`. The token goes out in a header to the graph
and in the query to the tile server, and nowhere else: not into errors, logs, repr or a pickle.

Left out: paging through `/images` (boxes are split instead), and every endpoint the harvest does not use.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from env_service.errors import GeoError
from resources._mapillary_answers import (
    Answer,
    graph_content,
    listed,
    object_id,
    picture_content,
    tile_content,
)
from resources._mapillary_asking import Asker, Patience
from resources._mapillary_transport import RequestLimiter, Secret, Transport
from resources.mapillary_errors import (
    DenseBox,
    LinkExpired,
    MapillaryError,
    NotFound,
    RateLimited,
    ServiceUnavailable,
    TokenRefused,
    UnexpectedAnswer,
)

__all__ = [
    "FRAME_FIELDS",
    "DenseBox",
    "LinkExpired",
    "MapillaryClient",
    "MapillaryError",
    "NotFound",
    "RateLimited",
    "RequestLimiter",
    "ServiceUnavailable",
    "TokenRefused",
    "UnexpectedAnswer",
]

T = TypeVar("T")
Entity = dict[str, Any]

FRAME_FIELDS = (
    "id",
    "geometry",
    "computed_geometry",
    "compass_angle",
    "computed_compass_angle",
    "captured_at",
    "is_pano",
    "camera_type",
    "quality_score",
    "creator",
    "make",
    "model",
    "width",
    "height",
    "sequence",
    "thumb_2048_url",
    "thumb_original_url",
)
"""What a frame is asked for; the service silently leaves out whatever it does not have."""

TILE_PATH = "/maps/vtp/mly1_public/2/{z}/{x}/{y}"
SEARCH_LIMIT = 2000
"""Most images one search answers with; a full answer may be a cut one, so its box is split as well."""
SEARCH_AREA_DEG2 = 0.01
"""Documented upper bound of a search box; larger boxes are split before they are asked."""
LARGEST_BOX_DEG = 0.5
SMALLEST_BOX_DEG = 2e-6
BATCH = 50


class MapillaryClient:
    """Mapillary over HTTP.

    Args:
        base_url: address of the graph, without a trailing slash.
        tiles_url: address of the tile server.
        token: client access token; empty makes the first request fail with `TokenRefused`.
        requests_per_minute: pace of graph and tile requests together, retries included; pictures come from
            a delivery network and are not counted. None for no limit.
        timeout_s: longest silence within one answer; ten times that for the whole of it.
        attempts: tries per request before a passing fault is raised.
        backoff_s, backoff_max_s: first and longest pause between tries, before jitter.
        longest_wait_s: a `Retry-After` beyond this is not waited for but raised as `RateLimited`.
        limiter: a pace shared with other clients, instead of one from `requests_per_minute`.
    """

    def __init__(
        self,
        base_url: str,
        tiles_url: str,
        token: str,
        *,
        requests_per_minute: float | None = None,
        timeout_s: float = 30.0,
        attempts: int = 6,
        backoff_s: float = 0.5,
        backoff_max_s: float = 30.0,
        longest_wait_s: float = 300.0,
        limiter: RequestLimiter | None = None,
    ) -> None:
        self.base_url, self.tiles_url = base_url.rstrip("/"), tiles_url.rstrip("/")
        self._settings: dict[str, Any] = {
            "requests_per_minute": requests_per_minute,
            "timeout_s": timeout_s,
            "attempts": attempts,
            "backoff_s": backoff_s,
            "backoff_max_s": backoff_max_s,
            "longest_wait_s": longest_wait_s,
        }
        self._limiter = limiter or RequestLimiter(requests_per_minute)
        patience = Patience(attempts, backoff_s, backoff_max_s, longest_wait_s)
        self._asker = Asker(Secret(token.strip()), self._limiter, Transport(timeout_s), patience)

    def __repr__(self) -> str:
        return f"MapillaryClient({self.base_url!r}, {self.tiles_url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        # A pickle may end in a file or a queue. The copy works, but has no token until it is given one.
        return _restored, (self.base_url, self.tiles_url, self._settings)

    def with_token(self, token: str) -> "MapillaryClient":
        """The same client with a token: what an unpickled one needs before it can ask anything."""
        return MapillaryClient(self.base_url, self.tiles_url, token, limiter=self._limiter, **self._settings)

    def __enter__(self) -> "MapillaryClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._asker.transport.close()

    @property
    def counts(self) -> dict[str, int]:
        """Requests so far: `requests` in all, `retries` among them, and one figure per kind of fault."""
        return self._asker.counts

    # --- what can be asked ------------------------------------------------------------------------------

    def tile(self, z: int, x: int, y: int) -> bytes:
        """Raw bytes of a coverage tile as they came (possibly gzip); b"" where there is no coverage.

        Raises:
            TokenRefused, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `mapillary_errors`.
        """
        what = f"tile {z}/{x}/{y}"
        url = self.tiles_url + TILE_PATH.format(z=z, x=x, y=y)
        try:
            return self._asker.ask("tile", url, {}, what, tile_content)
        except NotFound:
            return b""

    def image_ids(self, sequence_id: str) -> list[str]:
        """Ids of a sequence's images in the order of the drive; [] for a sequence nobody knows.

        Raises:
            TokenRefused, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `mapillary_errors`.
        """

        def read(answer: Answer, what: str) -> list[str]:
            ids = [str(row["id"]) for row in listed(answer, what)]
            if not all(map(_possible, ids)):
                raise UnexpectedAnswer(f"Ids that no image can have came instead of {what}")
            return ids

        query = {"sequence_id": sequence_id}
        try:
            return self._graph("/image_ids", query, f"the frames of sequence {sequence_id}", read)
        except NotFound:
            return []

    def image(self, image_id: str, fields: Sequence[str] = FRAME_FIELDS) -> Entity:
        """One image's fields; what the service does not have is missing from the dictionary.

        Raises:
            NotFound: there is no such image, or it is withheld.
            TokenRefused, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `mapillary_errors`.
        """

        def read(answer: Answer, what: str) -> Entity:
            entity = graph_content(answer, what)
            if object_id(entity, what) != str(image_id):
                raise UnexpectedAnswer(f"Another image came instead of {what}")
            return {**entity, "id": str(image_id)}

        return self._graph(f"/{_safe(image_id)}", {"fields": _fields(fields)}, f"image {image_id}", read)

    def images(self, image_ids: Iterable[str], fields: Sequence[str] = FRAME_FIELDS) -> dict[str, Entity]:
        """Fields of many images, asked in batches, in the order given; missing images are left out.

        The batch endpoint sometimes answers with an empty list for images that exist, so whatever it does
        not bring is asked for one by one.

        Raises:
            TokenRefused, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `mapillary_errors`.
        """
        wanted = [image_id for image_id in dict.fromkeys(map(str, image_ids)) if _possible(image_id)]
        found: dict[str, Entity] = {}
        for start in range(0, len(wanted), BATCH):
            self._fetch_batch(wanted[start : start + BATCH], fields, found)
        for image_id in wanted:
            if image_id not in found:
                try:
                    found[image_id] = self.image(image_id, fields)
                except NotFound:
                    continue
        return {image_id: found[image_id] for image_id in wanted if image_id in found}

    def images_in_bbox(
        self,
        west: float,
        south: float,
        east: float,
        north: float,
        limit: int | None = None,
        fields: Sequence[str] = FRAME_FIELDS,
    ) -> list[Entity]:
        """Images within a box of degrees, each once; boxes refused as too dense are split in four.

        Args:
            west, south, east, north: the box, at most 0.5° wide and high; west > east crosses 180°.
            limit: stop once that many are found; None finds all.
            fields: as for `image`.

        Raises:
            DenseBox: even a box of some 20 cm was refused.
            GeoError: the box is too large to search; coverage tiles are the way.
            TokenRefused, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `mapillary_errors`.
        """
        width = east - west if east >= west else east + 360.0 - west
        if south > north or width > LARGEST_BOX_DEG or north - south > LARGEST_BOX_DEG:
            raise GeoError(
                f"A box from {west}, {south} to {east}, {north} cannot be searched for images",
                f"Search within {LARGEST_BOX_DEG}°, or read coverage tiles",
            )
        boxes = [(west, south, east, north)]
        if west > east:
            boxes = [(-180.0, south, east, north), (west, south, 180.0, north)]
        found: dict[str, Entity] = {}
        while boxes and (limit is None or len(found) < limit):
            box = boxes.pop()
            rows = self._search(box, limit, fields)
            if rows is None:
                boxes.extend(_quarters(box))
            else:
                found.update((str(row["id"]), row) for row in rows)
        return list(found.values())[:limit]

    def download(self, url: str, what: str = "") -> bytes:
        """Bytes of a JPEG behind a signed link; the token is not sent.

        Args:
            url: the link.
            what: the picture as it reads in a sentence; by default the file name in the link.

        Raises:
            LinkExpired: the link is over; resolve it again.
            NotFound, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `mapillary_errors`.
        """
        # The query of a link is its signature: errors name the rest.
        what = what or f"picture {urlsplit(url).path.rsplit('/', 1)[-1] or 'without a name'}"
        return self._asker.ask("picture", url, {}, what, picture_content)

    def picture(self, image_id: str, *, original: bool = False) -> bytes:
        """JPEG of an image, 2048 px wide or as captured; its link is resolved now, and again once if over.

        Raises:
            NotFound: the image, or that size of it, does not exist.
            LinkExpired: the second link was refused as well.
            TokenRefused, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `mapillary_errors`.
        """
        what = f"the {'original' if original else '2048 px'} picture of image {image_id}"
        try:
            return self.download(self.picture_url(image_id, original=original), what)
        except LinkExpired:
            self._asker.count("links resolved again")
        return self.download(self.picture_url(image_id, original=original), what)

    def picture_url(self, image_id: str, *, original: bool = False) -> str:
        """A fresh signed link; it expires, so it is for use at once and not for storing.

        Raises:
            NotFound: the image, or that size of it, does not exist.
            TokenRefused, RateLimited, ServiceUnavailable, UnexpectedAnswer: see `mapillary_errors`.
        """
        field = "thumb_original_url" if original else "thumb_2048_url"
        url = self.image(image_id, ("id", field)).get(field)
        if not isinstance(url, str) or not url:
            raise NotFound(f"Mapillary has no {'original' if original else '2048 px'} picture of {image_id}")
        return url

    # --- how it is asked --------------------------------------------------------------------------------

    def _fetch_batch(self, ids: list[str], fields: Sequence[str], found: dict[str, Entity]) -> None:
        query = {"image_ids": ",".join(ids), "fields": _fields(fields)}
        try:
            rows = self._graph("/images", query, f"{len(ids)} images from {ids[0]} on", listed)
        except DenseBox:
            half = len(ids) // 2
            for part in (ids[:half], ids[half:]) if half else ():
                self._fetch_batch(part, fields, found)
            return
        except NotFound:
            return
        asked = set(ids)
        found.update((row["id"], row) for row in rows if row["id"] in asked)

    def _search(
        self, box: tuple[float, float, float, float], limit: int | None, fields: Sequence[str]
    ) -> list[Entity] | None:
        """Images in one box, or None where it must be split first."""
        west, south, east, north = box
        smallest = max(east - west, north - south) <= SMALLEST_BOX_DEG
        if (east - west) * (north - south) > SEARCH_AREA_DEG2:
            return None
        corners = ",".join(f"{value:.9f}" for value in box)
        page = min(limit or SEARCH_LIMIT, SEARCH_LIMIT)
        query = {"bbox": corners, "limit": str(page), "fields": _fields(fields)}
        try:
            rows = self._graph("/images", query, f"the images in box {corners}", listed)
        except DenseBox:
            self._asker.count("boxes split")
            if smallest:
                raise
            return None
        if len(rows) >= SEARCH_LIMIT and limit is None and not smallest:
            return None
        return rows

    def _graph(self, path: str, params: dict[str, str], what: str, read: Callable[[Answer, str], T]) -> T:
        return self._asker.ask("graph", self.base_url + path, params, what, read)


def _restored(base_url: str, tiles_url: str, settings: Mapping[str, Any]) -> MapillaryClient:
    return MapillaryClient(base_url, tiles_url, "", **settings)


def _fields(fields: Sequence[str]) -> str:
    return ",".join(fields)


def _possible(image_id: str) -> bool:
    return image_id.isascii() and image_id.isdigit()


def _safe(image_id: str) -> str:
    """An image id fit for a path; ids are digits upstream.

    Raises:
        NotFound: no image can have that id.
    """
    if not _possible(str(image_id)):
        raise NotFound(f"Mapillary has no image {str(image_id)[:80]!r}: image ids are digits")
    return str(image_id)


def _quarters(box: tuple[float, float, float, float]) -> list[tuple[float, float, float, float]]:
    west, south, east, north = box
    middle, centre = (west + east) / 2.0, (south + north) / 2.0
    return [
        (west, south, middle, centre),
        (middle, south, east, centre),
        (west, centre, middle, north),
        (middle, centre, east, north),
    ]
