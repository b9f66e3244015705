"""Bytes that are the same wherever they are made: canonical JSON, SHA-256, and writes nobody sees half of."""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON cannot say.
        TypeError: the value holds something JSON has no form for.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def sha256_hex(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Lower-case hexadecimal SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as handle:
        while piece := handle.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def atomic_write(path: Path | str, data: bytes) -> None:
    """Replace `path` by `data` in one step: a reader, or a kill, sees the old file or the new one.

    Raises:
        OSError: the disk is full or the folder cannot be written; `path` is as it was before.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
