"""Live pictures from a street view service: fetched for one view, shown, and forgotten.

The service speaks the Street View Static API: one GET per view with panorama id, heading, pitch and field of
view. Nothing it sends is kept, neither on disk nor in memory, and no map is offered beside it (see
`Abilities.map`): its terms allow neither. It is used only where an operator has said that the terms are
confirmed (see `server.config`); no other backend ever asks a network.

A picture is decoded and encoded again, so that no metadata of the source travels on. The key comes from the
environment variable `GEO_STREET_VIEW_KEY` when it is needed and stands in no message: requests are made by
`bounded_get`, which follows no redirect, knows no proxy and puts no address into its errors.
"""

import http.client
import os
import time
from urllib.parse import SplitResult, urlencode, urlsplit

from env_service.bounded_get import bounded_get
from env_service.errors import GeoError
from env_service.imagery import Abilities, Direction, Move, fit, frame_ahead, walk
from env_service.store import BadPicture, require_decodable
from env_service.tasks import Task
from env_service.views import UnreadablePicture, decode_jpeg, encode_jpeg

KEY_VARIABLE = "GEO_STREET_VIEW_KEY"
DEFAULT_ADDRESS = "https://maps.googleapis.com/maps/api/streetview"
MAX_SIZE_PX = 640
"""The service makes no larger picture; a larger view is scaled up from it."""

MAX_ANSWER_BYTES = 4 << 20
TIMEOUT_S = 6.0
"""The longest that one try may take, from its connection to the last byte of its answer."""

WAITS_S = (0.3, 1.0)
"""Pauses before the second and third try at what may pass: too many requests, a fault of the service's own, a
connection that breaks."""

WHOLE_S = 20.0
"""The longest that all tries may take; it fits into a step's time limit of 30 s."""


class LiveImageryFailed(BadPicture):
    """The service gave no picture; the sentence names the frame and never the address or the key."""


class StreetViewBackend:
    """Looks anywhere at a panorama that lives elsewhere. Frames are panorama ids of the service.

    Args:
        address: of the service, https, or http on this machine.

    Raises:
        GeoError: the address is no such address.
    """

    name = "street_view"

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        self._at = _checked(address)

    def __repr__(self) -> str:
        return f"StreetViewBackend({self._at.hostname!r})"

    def abilities(self, task: Task) -> Abilities:
        """Everything but maps; walking needs a second panorama."""
        return Abilities(look=True, zoom=True, move=len(task.frames) > 1, map=False)

    def view(
        self,
        task: Task,
        frame_index: int,
        heading_deg: float,
        pitch_deg: float,
        fov_deg: float,
        size_px: int = 640,
    ) -> bytes:
        """See `ImageryBackend.view`. The same bytes only as long as the service sends the same.

        Raises:
            LiveImageryFailed: the service does not know the panorama, refused, failed three times, or sent no
                picture.
        """
        image_id = task.frames[frame_index].image_id
        edge = min(size_px, MAX_SIZE_PX)
        data = self._fetch(
            image_id,
            {
                "pano": image_id,
                "size": f"{edge}x{edge}",
                "heading": f"{heading_deg:.4f}",
                "pitch": f"{pitch_deg:.4f}",
                "fov": f"{fov_deg:.4f}",
                "return_error_code": "true",
            },
        )
        try:
            require_decodable(_name(image_id), data)
            picture = decode_jpeg(data)
        except (BadPicture, UnreadablePicture) as error:
            raise LiveImageryFailed(f"{_name(image_id)} is no complete JPEG", "Try again later.") from error
        return encode_jpeg(fit(picture, size_px))

    def flat(self, task: Task, frame_index: int) -> bool:
        """Never: the service turns every panorama."""
        return False

    def can_move(self, task: Task, frame_index: int, direction: Direction) -> bool:
        """See `imagery.frame_ahead`."""
        return frame_ahead(task, frame_index, direction)

    def move(self, task: Task, frame_index: int, direction: Direction, meters: float) -> Move:
        """See `imagery.walk`."""
        return walk(task, frame_index, direction, meters)

    def _fetch(self, image_id: str, query: dict[str, str]) -> bytes:
        key = os.environ.get(KEY_VARIABLE, "").strip()
        if not key:
            raise LiveImageryFailed(
                f"{_name(image_id)} cannot be asked for without a key", f"Set {KEY_VARIABLE}."
            )
        path = f"{self._at.path or '/'}?{urlencode({**query, 'key': key})}"
        fault = "it took too long"
        ends = time.monotonic() + WHOLE_S
        for wait in (0.0, *WAITS_S):
            time.sleep(wait)
            now = time.monotonic()
            if now >= ends:
                break
            try:
                status, data = self._get(path, min(now + TIMEOUT_S, ends))
            except (OSError, http.client.HTTPException) as error:
                fault = f"the connection failed ({type(error).__name__})"
                continue
            if status == 200:
                return data
            if status == 404:
                fix = "Take the task out of the file, or try again later."
                raise LiveImageryFailed(f"{_name(image_id)} is not known there", fix)
            if status == 429 or status >= 500:
                fault = f"the service answered {status}"
                continue
            fix = (
                f"Check {KEY_VARIABLE} and what it may do." if status in (401, 403) else "Check the address."
            )
            raise LiveImageryFailed(f"{_name(image_id)} was refused with status {status}", fix)
        raise LiveImageryFailed(f"{_name(image_id)} could not be fetched: {fault}", "Try again later.")

    def _get(self, path: str, ends: float) -> tuple[int, bytes]:
        wanted = {"Accept": "image/jpeg"}
        return bounded_get(self._at, path, wanted, ends=ends, most_bytes=MAX_ANSWER_BYTES)


def _name(image_id: str) -> str:
    return f"frame {image_id} of the street view service"


def _checked(address: str) -> SplitResult:
    try:
        at = urlsplit(address)
        port = at.port
    except ValueError:
        at, port = urlsplit(""), None
    local = at.hostname in ("127.0.0.1", "::1", "localhost")
    good = at.scheme == "https" or (at.scheme == "http" and local)
    if not (good and at.hostname and not at.query and not at.fragment and not at.username) or port == 0:
        raise GeoError(
            "the street view address is not an https address without a query",
            f"Give {DEFAULT_ADDRESS}, or leave it out.",
        )
    return at
