"""What was reached from which targets, kept on disk for as long as no first-party source changes.

Following every asset's code takes longer than planning over what is found, and between two commands nothing
has usually changed. The key is the text of all sources, this package's own included, never their times.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

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
        files = sorted(path for package in packages for path in (root / package).rglob("*.py"))
        found = [[str(path.relative_to(root)), sha256_file(path)] for path in files]
        self._sources = sha256_hex(canonical_json(found))
        self._new = False
        self._known = self._read()

    def get(self, targets: Iterable[str], apart: Iterable[str]) -> dict[str, str] | None:
        """What was reached, as symbol to digest; None where these were not followed yet."""
        return self._known.get(_key(targets, apart))

    def put(self, targets: Iterable[str], apart: Iterable[str], reached: Mapping[str, str]) -> None:
        """Remember it until `keep`."""
        self._known[_key(targets, apart)] = dict(reached)
        self._new = True

    def keep(self) -> None:
        """Write what is new; a folder that cannot be written to costs time and nothing else."""
        if not self._new:
            return
        self._new = False
        try:
            atomic_write(self._file, json.dumps({"sources": self._sources, "closures": self._known}).encode())
        except OSError:
            return

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            found = json.loads(self._file.read_bytes())
            return dict(found["closures"]) if found["sources"] == self._sources else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def _key(targets: Iterable[str], apart: Iterable[str]) -> str:
    return json.dumps([sorted(targets), sorted(apart)])
