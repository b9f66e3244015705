"""Where an opening picture was taken: the sandbox policies' only knowledge, keyed by the picture's SHA-256.

The opening view of every task is computed here exactly as the environment computes it (facing true north,
level, 90° wide), so a policy recognises an episode by the picture it is shown and by nothing else: no task id
travels in a request. Left out: single photographs, which have no north to face.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from env_service.canonical import sha256_hex
from env_service.store import PanoramaStore
from env_service.tasks import Task
from env_service.views import decode_jpeg, encode_jpeg, render_view

OPENING_FOV_DEG = 90.0


@dataclass(frozen=True)
class Truth:
    """Where one opening picture was taken, and the ISO code of the country (None where unknown)."""

    lat: float
    lon: float
    country_code: str | None


def opening_view(task: Task, store: PanoramaStore, view_px: int = 640) -> bytes:
    """The JPEG an episode of this task opens with: look(0), pitch 0, field of view 90.

    Raises:
        MissingFrame: the store does not hold the start frame.
    """
    frame = task.start
    pano = decode_jpeg(store.get(frame.image_id), channels=4)
    return encode_jpeg(render_view(pano, frame.compass_angle, 0.0, 0.0, OPENING_FOV_DEG, view_px))


def truths(tasks: Iterable[Task], store: PanoramaStore, view_px: int = 640) -> Mapping[str, Truth]:
    """Truth by the SHA-256 of the opening view.

    Raises:
        MissingFrame: the store does not hold a start frame.
    """
    found: dict[str, Truth] = {}
    for task in tasks:
        if task.start.is_pano:
            truth = Truth(task.start.lat, task.start.lon, task.country_code)
            found[sha256_hex(opening_view(task, store, view_px))] = truth
    return MappingProxyType(found)
