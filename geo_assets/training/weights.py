"""A hash of a model's weights: the tensors by name, and nothing about how a file lays them out.

Reads the `safetensors` format itself (a length, a JSON header, the bytes), so that no training package is
needed to say whether two adapters are the same.
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from env_service.errors import GeoError

SUFFIX = ".safetensors"
CHUNK = 1 << 20
MAX_HEADER = 100_000_000
METADATA = "__metadata__"


def weights_sha256(folder: Path) -> str:
    """SHA-256 over (name, dtype, shape, bytes) of every tensor in a folder's files, sorted by name.

    Raises:
        GeoError: there is no such file, a file is damaged, or two hold a tensor of one name.
    """
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise GeoError(f"{folder} holds no {SUFFIX} file")
    where: dict[str, tuple[Path, int, dict[str, Any]]] = {}
    for path in files:
        for name, offset, entry in _tensors(path):
            if name in where:
                raise GeoError(f"Tensor {name} stands in {where[name][0].name} and in {path.name}")
            where[name] = (path, offset, entry)
    digest = hashlib.sha256()
    for name, (path, offset, entry) in sorted(where.items()):
        begin, end = entry["data_offsets"]
        head = json.dumps([name, entry["dtype"], entry["shape"], end - begin], separators=(",", ":"))
        digest.update(head.encode())
        with path.open("rb") as stream:
            stream.seek(offset + begin)
            for piece in _pieces(stream, end - begin, path):
                digest.update(piece)
    return digest.hexdigest()


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor in a folder's files, by name; only the headers are read. Empty without a file.

    Raises:
        GeoError: a file is damaged.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for name, _, entry in _tensors(path):
            try:
                shapes[name] = tuple(int(size) for size in entry["shape"])
            except (KeyError, TypeError, ValueError):
                raise GeoError(f"{path} does not say the shape of {name:.80}", "Train it again") from None
    return shapes


def _tensors(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Name, start of the file's data, and header entry of each tensor."""
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > MAX_HEADER:
                raise ValueError("its header is too long")
            header = json.loads(stream.read(length))
    except (OSError, ValueError, struct.error) as error:
        raise GeoError(f"{path} is no readable {SUFFIX} file ({error})", "Train it again") from None
    for name, entry in header.items():
        if name != METADATA:
            yield name, 8 + length, entry


def _pieces(stream: BinaryIO, length: int, path: Path) -> Iterator[bytes]:
    while length:
        piece = stream.read(min(CHUNK, length))
        if not piece:
            raise GeoError(f"{path} ends in the middle of a tensor", "Train it again")
        length -= len(piece)
        yield piece
