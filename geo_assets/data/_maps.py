"""Pictures for the asset pages: points and tiles on a world map, and sheets of panoramas.

Drawn with matplotlib's Agg canvas and Pillow, small enough to sit inside the metadata as a data address.
They are for looking at; no version depends on them.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import numpy as np

from env_service.geography import geography
from env_service.store import PanoramaStore

MAX_PICTURE_BYTES = 190_000
"""Metadata above this makes Dagster's pages slow and some transports lose it."""

SEA, LAND, COAST = "#eef3f7", "#d9dccf", "#b3b7a8"
THUMB_PX = (256, 128)
CREDIT = "Pictures: Mapillary contributors, CC BY-SA 4.0, reduced"


@dataclass(frozen=True)
class Points:
    """Positions drawn alike; degrees."""

    label: str
    lat: Sequence[float]
    lon: Sequence[float]
    colour: str
    size: float = 9.0


@dataclass(frozen=True)
class Boxes:
    """Filled boxes (west, south, east, north) in degrees, shaded by a value from 0 to 1."""

    label: str
    boxes: Sequence[tuple[float, float, float, float]]
    shade: Sequence[float]


def world_map(title: str, points: Sequence[Points] = (), boxes: Boxes | None = None) -> bytes:
    """PNG of the world, 900 px wide, plate carrée from 60°S to 80°N."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.0), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.02, 0.98, 0.9))
    axes.set_facecolor(SEA)
    rings = [np.asarray(ring, np.float64) for ring in geography().land_outlines("110m")]
    axes.add_collection(PolyCollection(rings, facecolor=LAND, edgecolor=COAST, linewidth=0.4))
    if boxes is not None and boxes.boxes:
        corners = [[(w, s), (e, s), (e, n), (w, n)] for w, s, e, n in boxes.boxes]
        shades = PolyCollection(corners, cmap="viridis_r", alpha=0.75, edgecolor="none", label=boxes.label)
        shades.set_array(np.asarray(boxes.shade, np.float64))
        axes.add_collection(shades)
    for group in points:
        label = f"{group.label} ({len(group.lat):,})"
        axes.scatter(group.lon, group.lat, s=group.size, c=group.colour, label=label, linewidths=0, alpha=0.8)
    axes.set_xlim(-180, 180)
    axes.set_ylim(-60, 80)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=10, loc="left")
    if points:
        axes.legend(loc="lower left", fontsize=8, framealpha=0.85, markerscale=1.6)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return _smaller_png(stream.getvalue())


def contact_sheet(pictures: Sequence[bytes], columns: int = 3, size: tuple[int, int] = THUMB_PX) -> bytes:
    """JPEG with reduced copies of JPEG pictures side by side; b"" for none."""
    from PIL import Image

    if not pictures:
        return b""
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * size[0], rows * size[1]), "white")
    for place, data in enumerate(pictures):
        with Image.open(io.BytesIO(data)) as picture:
            small = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
        sheet.paste(small, (place % columns * size[0], place // columns * size[1]))
    for quality in (85, 70, 50, 30):
        stream = io.BytesIO()
        sheet.save(stream, "JPEG", quality=quality)
        if stream.tell() <= MAX_PICTURE_BYTES:
            break
    return stream.getvalue()


def sample_panoramas(store: PanoramaStore, image_ids: Sequence[str], count: int = 6) -> bytes:
    """Contact sheet of panoramas spread evenly over a list of ids."""
    step = max(1, len(image_ids) // count)
    return contact_sheet([store.get(image_id) for image_id in image_ids[::step][:count]])


def picture(data: bytes, alt: str, credit: str = "") -> dict[str, Any]:
    """Metadata entry with a PNG or JPEG inside, or nothing where there is no picture."""
    if not data:
        return {}
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    text = f"![{alt}](data:image/{kind};base64,{base64.b64encode(data).decode()})"
    return {"picture": dg.MetadataValue.md(f"{text}\n\n{credit}" if credit else text)}


def _smaller_png(data: bytes) -> bytes:
    from PIL import Image

    if len(data) <= MAX_PICTURE_BYTES:
        return data
    for colours in (64, 16):
        with Image.open(io.BytesIO(data)) as drawn:
            stream = io.BytesIO()
            drawn.convert("RGB").quantize(colours).save(stream, "PNG", optimize=True)
        if stream.tell() <= MAX_PICTURE_BYTES:
            break
    return stream.getvalue()
