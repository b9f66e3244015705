"""The world on which the tiny base models are brought up: places of its own, seen through the environment.

It is another world than the project's (another seed, other drives), so that a base model has never seen a
task of the pool. Of every place eight views are kept, all around at 90 degrees, for the vision tower; of the
first few the panorama too, with a task file, so that the environment can be served over them and whole
conversations played.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from env_service.canonical import atomic_write, sha256_file
from env_service.geography import geography
from env_service.store import PanoramaStore
from env_service.tasks import Frame, Task, write_tasks
from env_service.views import encode_jpeg, render_view
from resources.sandbox.earth.panorama import draw_panorama
from resources.sandbox.vlm.specs import SmallWorldSpec
from resources.sandbox.world import World, WorldFrame, WorldSequence, WorldSpec

TASKS, PANOS, PLACES, VIEWS = "tasks.jsonl", "panos", "places.json", "views"
HEADINGS = tuple(range(0, 360, 45))
FIELD_OF_VIEW_DEG = 90.0
OVERSAMPLED = 3
CHUNK = 100


@dataclass(frozen=True)
class SmallWorld:
    """A small world on disk.

    Attributes:
        folder: where it stands.
        lat, lon: of the places, degrees.
        codes: ISO code of each place's country.
        views: (places, 8, px, px, 3) uint8, north first, clockwise.
    """

    folder: Path
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    codes: tuple[str, ...]
    views: NDArray[np.uint8]


def make(folder: Path, spec: SmallWorldSpec, say: Callable[[str], None] = print, code: str = "") -> None:
    """Draw a small world into a folder; one begun by the same spec and code goes on where it stopped.

    Views are kept in chunks of 100 places, so an interruption costs one chunk.

    Args:
        folder: where to.
        spec: what it is made from.
        say: told how far it is.
        code: version of the code that draws; another one starts anew.
    """
    world = World.build(WorldSpec(seed=spec.seed, pano_sequences=spec.places, perspective_sequences=0))
    # Drives stand in clusters, country after country; shuffled, the played ones are a fair sample.
    order = np.random.default_rng([spec.seed, 3]).permutation(spec.places)
    drives = tuple(world.sequences[int(number)] for number in order)
    stamp = folder / "begun.json"
    begun = json.dumps({"spec": asdict(spec), "code": code}).encode()
    if not stamp.exists() or stamp.read_bytes() != begun:
        for old in (VIEWS, PANOS):
            shutil.rmtree(folder / old, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(stamp, begun)
    store = PanoramaStore(str(folder / PANOS))
    (folder / VIEWS).mkdir(exist_ok=True)
    for first in range(0, len(drives), CHUNK):
        path = folder / VIEWS / f"{first // CHUNK:04d}.npy"
        if path.exists():
            continue
        chunk = drives[first : first + CHUNK]
        seen = [_draw(drive, first + number, spec, store) for number, drive in enumerate(chunk)]
        part = path.with_suffix(".part")
        with part.open("wb") as stream:
            np.save(stream, np.stack(seen))
        part.replace(path)
        say(f"small world: {first + len(chunk):,} of {len(drives):,} places drawn")
    write_tasks(folder / TASKS, [_task(number, drive) for number, drive in enumerate(drives[: spec.played])])
    rows = [
        {"lat": _frame(drive).lat, "lon": _frame(drive).lon, "code": drive.country_code} for drive in drives
    ]
    atomic_write(folder / PLACES, json.dumps(rows).encode())


def read(folder: Path) -> SmallWorld:
    """A finished small world."""
    rows = json.loads((folder / PLACES).read_text())
    chunks = [np.load(path) for path in sorted((folder / VIEWS).glob("*.npy"))]
    return SmallWorld(
        folder=folder,
        lat=np.array([row["lat"] for row in rows]),
        lon=np.array([row["lon"] for row in rows]),
        codes=tuple(str(row["code"]) for row in rows),
        views=np.concatenate(chunks),
    )


def _frame(drive: WorldSequence) -> WorldFrame:
    """The one frame of a drive that is used, in its middle."""
    return drive.frames[len(drive.frames) // 2]


def _picture_id(frame: WorldFrame) -> str:
    """Id of a picture here: worlds number their frames alike, and these are not the project's."""
    return f"small{frame.image_id}"


def _draw(drive: WorldSequence, number: int, spec: SmallWorldSpec, store: PanoramaStore) -> NDArray[np.uint8]:
    """The eight views of a place, (8, px, px, 3); its panorama goes to the store if it is to be played."""
    scene = drive.scene(len(drive.frames) // 2)
    played = number < spec.played
    pano = draw_panorama(scene, spec.played_pano_px if played else spec.pano_px)
    if played:
        store.put(_picture_id(_frame(drive)), encode_jpeg(pano))
        # A second position, so that the environment offers to walk, as it does on the project's drives.
        behind = draw_panorama(drive.scene(len(drive.frames) // 2 - 1), spec.pano_px)
        store.put(_picture_id(drive.frames[len(drive.frames) // 2 - 1]), encode_jpeg(behind))
    size = spec.view_px * OVERSAMPLED
    views = []
    for heading in HEADINGS:
        view = render_view(pano, scene.heading_deg, heading, 0.0, FIELD_OF_VIEW_DEG, size)
        small = Image.fromarray(view).resize((spec.view_px, spec.view_px), Image.Resampling.BICUBIC)
        views.append(np.asarray(small))
    return np.stack(views)


def _task(number: int, drive: WorldSequence) -> Task:
    middle = len(drive.frames) // 2
    country = geography().country_by_code(drive.country_code)
    return Task(
        task_index=number,
        task_id=f"small-{number:05d}",
        country=country.name if country else drive.country_code,
        country_code=drive.country_code,
        sequence_id=drive.sequence_id,
        provider="sandbox",
        start_frame=1,
        frames=tuple(_task_frame(drive.frames[at]) for at in (middle - 1, middle)),
    )


def _task_frame(frame: WorldFrame) -> Frame:
    moment = datetime.fromtimestamp(frame.captured_at_ms / 1000, tz=UTC)
    return Frame(
        image_id=_picture_id(frame),
        lat=frame.lat,
        lon=frame.lon,
        compass_angle=frame.heading_deg % 360.0,
        captured_at=f"{moment:%Y-%m}",
    )


def files_of(folder: Path) -> dict[str, str]:
    """What a finished small world consists of: SHA-256 by relative path."""
    paths = [
        *(folder / VIEWS).glob("*.npy"),
        *(folder / PANOS).rglob("*.jpg"),
        folder / TASKS,
        folder / PLACES,
    ]
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in sorted(paths)}
