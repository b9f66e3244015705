"""Real recorded Mapillary data as a catalogue: rows, pictures and tiles of a folder, shaped like the graph.

The folder holds `frames.parquet` (one row per image), `panos/<image_id>.jpg` (2048 px pictures of some) and
`tiles/z/x/y.mvt`. Nothing is made up: contributor names were taken out before recording, so entities carry a
creator id without a name, only recorded pictures have a link, and no original is claimed.
"""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from env_service.errors import GeoError
from resources.sandbox.catalogue import Box, Entity

COPIED_FIELDS = (
    "compass_angle",
    "computed_compass_angle",
    "captured_at",
    "is_pano",
    "camera_type",
    "quality_score",
    "make",
    "model",
    "width",
    "height",
)


class RecordedCatalogue:
    """A folder of recordings; see the module for its layout.

    Raises:
        GeoError: the folder or its `frames.parquet` is missing or of another layout.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        rows = _read_rows(folder / "frames.parquet")
        rows.sort(key=lambda row: (str(row["sequence_id"]), int(row["sequence_index"])))
        self._entities = {str(row["image_id"]): _entity(row) for row in rows}
        self._positions = [(float(row["lon"]), float(row["lat"]), str(row["image_id"])) for row in rows]
        self._sequences: dict[str, list[str]] = {}
        for row in rows:
            self._sequences.setdefault(str(row["sequence_id"]), []).append(str(row["image_id"]))
        pictures = folder / "panos"
        self._pictures = {path.stem for path in pictures.glob("*.jpg")} if pictures.is_dir() else set()

    def tile(self, z: int, x: int, y: int) -> bytes | None:
        """The recorded tile, byte for byte."""
        path = self._folder / "tiles" / str(z) / str(x) / f"{y}.mvt"
        return path.read_bytes() if path.is_file() else None

    def image_ids(self, sequence_id: str) -> list[str]:
        """Images in the order of `sequence_index`."""
        return list(self._sequences.get(sequence_id, ()))

    def entity(self, image_id: str) -> Entity | None:
        """The recorded row in the shape of the graph."""
        found = self._entities.get(image_id)
        return dict(found) if found is not None else None

    def picture_sizes(self, image_id: str) -> frozenset[str]:
        """ "2048" where the picture was recorded."""
        return frozenset({"2048"} if image_id in self._pictures and image_id in self._entities else ())

    def picture(self, image_id: str, size: str) -> bytes | None:
        """The recorded picture, byte for byte."""
        if size not in self.picture_sizes(image_id):
            return None
        return (self._folder / "panos" / f"{image_id}.jpg").read_bytes()

    def images_in(self, box: Box) -> list[str]:
        """Images whose stated position lies within the box."""
        west, south, east, north = box
        return [name for lon, lat, name in self._positions if west <= lon <= east and south <= lat <= north]

    def perspective_sequences(self) -> list[str]:
        """Sequences none of whose images is a panorama."""
        return sorted(
            sequence
            for sequence, images in self._sequences.items()
            if not any(self._entities[image].get("is_pano") for image in images)
        )


def _read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise GeoError(
            f"There is no {path}",
            "Set GEO_RECORDED to a folder with frames.parquet, panos/ and tiles/, or use another profile",
        )
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    needed = {"image_id", "sequence_id", "sequence_index", "lat", "lon", "creator_id", *COPIED_FIELDS}
    lacking = needed - set(rows[0] if rows else ())
    if lacking:
        raise GeoError(f"{path} lacks the columns {', '.join(sorted(lacking))}", "Record it again")
    return rows


def _entity(row: dict[str, Any]) -> Entity:
    entity: Entity = {
        "id": str(row["image_id"]),
        "sequence": str(row["sequence_id"]),
        "geometry": _point(row["lon"], row["lat"]),
    }
    if row.get("computed_geometry"):
        entity["computed_geometry"] = _point(*json.loads(row["computed_geometry"])[:2])
    if row.get("creator_id"):
        entity["creator"] = {"id": str(row["creator_id"])}
    for name in COPIED_FIELDS:
        value = row[name]
        # The graph leaves a field out rather than stating null.
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            entity[name] = value
    return entity


def _point(lon: float, lat: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [float(lon), float(lat)]}
