"""What was reached from which targets, kept on disk for as long as no first-party source changes.

Following every asset's code takes longer than planning over what is found, and between two commands nothing
has usually changed. The key is the text of all sources, this package's own included, never their times. They
may be saved while a command runs, so what was followed is kept only where every text that was parsed is the
one that was hashed at the start, and all of them still are at the end.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write, canonical_json, sha256_file, sha256_hex

CACHE = ".geo/closures.json"


class KeptClosures:
    """Closures of one state of the sources below a root.

    Args:
        root: the repository.
        packages: folders below it whose Python files count.
    """

    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self._file = root / CACHE
        self._root, self._packages = root, tuple(packages)
        self._snapshot = self._hashes()
        self._consistent = True
        self._new = False
        self._known = self._read()

    def get(self, targets: Iterable[str], apart: Iterable[str]) -> dict[str, str] | None:
        """What was reached, as symbol to digest; None where these were not followed yet."""
        return self._known.get(_key(targets, apart))

    def put(self, targets: Iterable[str], apart: Iterable[str], reached: Mapping[str, str]) -> None:
        """Remember it until `keep`."""
        self._known[_key(targets, apart)] = dict(reached)
        self._new = True

    def parsed(self, path: Path, digest: str) -> None:
        """Say that a file was parsed, and the hash of the text that was."""
        self._consistent &= self._snapshot.get(str(path.relative_to(self._root))) == digest

    def keep(self) -> None:
        """Write what is new; a folder that cannot be written to costs time and nothing else."""
        if not self._new:
            return
        self._new = False
        if not self._consistent or self._hashes() != self._snapshot:
            return
        kept = {"sources": _digest(self._snapshot), "closures": self._known}
        try:
            atomic_write(self._file, json.dumps(kept).encode())
        except OSError:
            return

    def _hashes(self) -> dict[str, str]:
        """Every source file to its hash; one that goes while this is read is left out."""
        files = sorted(path for package in self._packages for path in (self._root / package).rglob("*.py"))
        found: dict[str, str] = {}
        for path in files:
            with suppress(OSError):
                found[str(path.relative_to(self._root))] = sha256_file(path)
        return found

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            found = json.loads(self._file.read_bytes())
            return _closures(found["closures"]) if found["sources"] == _digest(self._snapshot) else {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}


def _closures(value: Any) -> dict[str, dict[str, str]]:
    """Closures from JSON.

    Raises:
        ValueError: it has another shape.
    """
    if not isinstance(value, dict) or not all(
        isinstance(reached, dict) and all(isinstance(digest, str) for digest in reached.values())
        for reached in value.values()
    ):
        raise ValueError("no closures")
    return value


def _digest(hashes: Mapping[str, str]) -> str:
    return sha256_hex(canonical_json(sorted(hashes.items())))


def _key(targets: Iterable[str], apart: Iterable[str]) -> str:
    return json.dumps([sorted(targets), sorted(apart)])
