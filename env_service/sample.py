"""Three drawn places, to try the service without any pictures: `python -m env_service.server --sample`.

A drawn place shows sky, ground, a road that runs north and the names of the four directions, so that turning,
zooming and walking can be seen to work. There is nothing in it to recognise; real tasks come from a task file
and a panorama store.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from env_service.canonical import atomic_write
from env_service.geodesy import destination
from env_service.tasks import Task, write_tasks
from env_service.views import Picture, encode_jpeg

WIDTH, HEIGHT = 1024, 512
FRAMES, FRAMES_APART_KM = 3, 0.012
PLACES = (
    ("Paris", 48.8566, 2.3522, "France", "FR"),
    ("Nairobi", -1.2864, 36.8172, "Kenya", "KE"),
    ("Sydney", -33.8688, 151.2093, "Australia", "AU"),
)
_GROUNDS = ((104, 122, 84), (158, 118, 82), (132, 132, 118))


def write_sample(folder: Path) -> tuple[Path, Path]:
    """Draw the places into a folder. Returns (task file, folder of pictures)."""
    panos, tasks = folder / "panos", folder / "sample.jsonl"
    panos.mkdir(parents=True, exist_ok=True)
    rows = [_row(index) for index in range(len(PLACES))]
    for index, row in enumerate(rows):
        for number, frame in enumerate(row["frames"]):
            atomic_write(panos / f"{frame['image_id']}.jpg", encode_jpeg(_draw(index, number)))
    write_tasks(tasks, [Task.model_validate(row) for row in rows])
    return tasks, panos


def _row(index: int) -> dict[str, Any]:
    name, lat, lon, country, code = PLACES[index]
    frames = []
    for number in range(FRAMES):
        at = destination(lat, lon, 0.0, FRAMES_APART_KM * number)
        frames.append(
            {
                "image_id": f"sample-{index}-{number}",
                "lat": at[0],
                "lon": at[1],
                "compass_angle": 0.0,
                "captured_at": "2024-06",
                "is_pano": True,
            }
        )
    return {
        "task_index": index,
        "task_id": f"sample-{index}",
        "country": country,
        "country_code": code,
        "sequence_id": f"sample-{name.lower()}",
        "provider": "sample",
        "start_frame": FRAMES // 2,
        "frames": frames,
        "attribution": {},
        "meta": {},
    }


def _draw(index: int, number: int) -> Picture:
    """A panorama whose middle faces north, HEIGHT x WIDTH x 3."""
    image = Image.new("RGB", (WIDTH, HEIGHT), (150, 190, 230))
    draw = ImageDraw.Draw(image)
    horizon = HEIGHT // 2
    draw.rectangle((0, horizon, WIDTH, HEIGHT), fill=_GROUNDS[index])
    # A road 8 m wide under a camera 2.5 m above it, towards north and south.
    for middle in (0, WIDTH // 2, WIDTH):
        edge = []
        for row in range(horizon + 1, HEIGHT):
            ahead = 2.5 / math.tan(math.pi * (row - horizon) / HEIGHT)
            half = math.atan2(4.0, max(ahead, 0.01)) / (2 * math.pi) * WIDTH
            edge.append((row, half))
        draw.polygon(
            [(middle - half, row) for row, half in edge] + [(middle + half, row) for row, half in edge[::-1]],
            fill=(90, 90, 94),
        )
    dice = np.random.default_rng(index)
    for _ in range(24):
        at, tall = int(dice.integers(WIDTH)), int(dice.integers(10, 50))
        # Walking on makes everything beside the road a little larger.
        tall += 4 * number
        draw.rectangle((at, horizon - tall, at + tall // 2, horizon + 4), fill=(120, 96 + tall, 110))
    quarter = WIDTH // 4
    for column, word in ((0, "S"), (quarter, "W"), (2 * quarter, "N"), (3 * quarter, "E"), (WIDTH, "S")):
        draw.text((column, horizon - 90), word, fill=(40, 44, 52), anchor="mm", font_size=36)
    return np.asarray(image)
