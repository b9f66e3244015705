"""Data versions: content hashes that ignore when, where and how fast something was made."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from env_service.canonical import canonical_json, sha256_hex

LENGTH = 32


def content_version(value: Any) -> str:
    """Version of a JSON-like value or frozen dataclass: the first 32 hex digits of its SHA-256.

    Raises:
        ValueError: NaN or an infinity inside.
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return sha256_hex(canonical_json(value))[:LENGTH]


def manifest_version(entries: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Version of a manifest: hash over (name, content hash) pairs, sorted by name."""
    pairs = entries.items() if isinstance(entries, Mapping) else entries
    return content_version(sorted([name, digest] for name, digest in pairs))
