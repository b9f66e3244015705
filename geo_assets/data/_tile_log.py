"""What has been fetched of the coverage, kept so that a killed or repeated run asks only for what it lacks.

Bytes stand once under their content hash (`tiles/<sha256>.mvt`). `fetched.jsonl` is a log: one line per tile
that came, with when it did; the last line of a tile holds. Its first line names the source, and tiles of one
source are never taken for another's. A torn last line, left by a kill, is cut off; a line that was altered
costs one more request. The times are needed to tell what is too old; they stay out of `index.json`, which is
what the data version is made of.
"""

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write, sha256_file, sha256_hex
from env_service.errors import GeoError
from geo_assets.data._journal import header_of, sealed, sweep_parts, unsealed

LOG, INDEX, TILES = "fetched.jsonl", "index.json", "tiles"
TILE = re.compile(r"[0-9]{1,2}/[0-9]{1,8}/[0-9]{1,8}")


@dataclass(frozen=True)
class StoredTile:
    """A tile that has been fetched: content hash, size, and when (seconds since 1970 UTC)."""

    sha256: str
    size: int
    at: float


class TileLog:
    """The tiles of one source in one folder.

    Args:
        folder: the asset's folder.
        source: identifies where the tiles come from.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self.source = source
        self.stored: dict[str, StoredTile] = {}
        (folder / TILES).mkdir(parents=True, exist_ok=True)
        sweep_parts(folder / TILES)
        self._load()

    def fresh(self, tile: str, max_age_s: float) -> bool:
        """Whether a tile is there as it came, and young enough."""
        known = self.stored.get(tile)
        if known is None or time.time() - known.at > max_age_s:
            return False
        return self._whole(known)

    def _whole(self, known: StoredTile) -> bool:
        """Whether the bytes are there and are those that came; all of the world takes seconds to hash."""
        path = tile_path(self.folder, known.sha256)
        return path.is_file() and path.stat().st_size == known.size and sha256_file(path) == known.sha256

    def add(self, tile: str, data: bytes) -> None:
        """Store a tile's bytes, then write down that they are there."""
        digest = sha256_hex(data)
        path = tile_path(self.folder, digest)
        known = StoredTile(digest, len(data), time.time())
        if not self._whole(known):
            atomic_write(path, data)
        self.stored[tile] = known
        with (self.folder / LOG).open("ab") as stream:
            stream.write(_line(tile, self.stored[tile]))

    def publish(self, tiles: list[str], failed: dict[str, str]) -> dict[str, dict[str, Any]]:
        """Write the index of the wanted tiles, shorten the log, drop bytes nothing refers to.

        Returns:
            Tile name to content hash and size, for the tiles that are there.
        """
        index = {
            tile: {"sha256": self.stored[tile].sha256, "bytes": self.stored[tile].size}
            for tile in tiles
            if tile in self.stored
        }
        body = {"tiles": index, "failed": failed}
        atomic_write(self.folder / INDEX, json.dumps(body, indent=1, sort_keys=True).encode() + b"\n")
        lines = [_line(tile, self.stored[tile]) for tile in sorted(self.stored)]
        atomic_write(self.folder / LOG, header_of(self.source) + b"".join(lines))
        wanted = {known.sha256 for known in self.stored.values()}
        for path in (self.folder / TILES).glob("*.mvt"):
            if path.stem not in wanted:
                path.unlink()
        return index

    def _load(self) -> None:
        path = self.folder / LOG
        data = path.read_bytes() if path.exists() else b""
        whole, _, torn = data.rpartition(b"\n")
        lines = whole.split(b"\n") if whole else []
        if not lines or lines[0] + b"\n" != header_of(self.source):
            atomic_write(path, header_of(self.source))
            return
        for line in lines[1:]:
            try:
                row = unsealed(line)
                self.stored[row["tile"]] = StoredTile(row["sha256"], int(row["bytes"]), float(row["at"]))
            except (ValueError, KeyError, TypeError):
                continue  # a damaged line costs one more request, nothing else
        if torn:
            atomic_write(path, whole + b"\n")


def tile_path(folder: Path, sha256: str) -> Path:
    """Where a tile's bytes stand."""
    return folder / TILES / f"{sha256}.mvt"


def read_index(folder: Path) -> dict[str, str]:
    """Tile name to content hash, as the finished asset lists them.

    Raises:
        GeoError: the index is gone or is not one.
    """
    try:
        body = json.loads((folder / INDEX).read_text())
        return {_named(tile): str(entry["sha256"]) for tile, entry in body["tiles"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise GeoError(
            f"{folder / INDEX} cannot be read",
            "Run: dagster asset materialize --select coverage_tiles; tiles that came are not asked for again",
        ) from None


def _named(tile: str) -> str:
    if not TILE.fullmatch(tile):
        raise ValueError(f"{tile!r} names no tile")
    return tile


def _line(tile: str, known: StoredTile) -> bytes:
    row = {"tile": tile, "sha256": known.sha256, "bytes": known.size, "at": round(known.at, 3)}
    return sealed(row)
