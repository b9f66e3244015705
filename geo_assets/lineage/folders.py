"""One folder per asset under the profile's home, and the marker that says what stands in it.

`_asset.json` is written last and in one step, so a folder without it is unfinished, whatever else it
holds. Consumers read their parents only through `require`, which turns a missing parent into one sentence
and the command that builds it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write
from env_service.errors import GeoError

MARKER = "_asset.json"


class MissingUpstream(GeoError):
    """An asset was asked for before one that it is made from."""


@dataclass(frozen=True)
class Published:
    """What a finished asset folder says of itself.

    Attributes:
        name: the asset.
        path: its folder.
        data_version: content hash of what it produced.
        facts: small JSON values that consumers and reports may read (counts, figures).
    """

    name: str
    path: Path
    data_version: str
    facts: dict[str, Any]


class AssetFolder:
    """The folder of one asset.

    Args:
        home: the profile's home folder.
        name: the asset's name; a sweep's is `sweeps/<slug>`.
    """

    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self.path = home / name

    def file(self, *parts: str) -> Path:
        """Path of a file inside, its folder made."""
        path = self.path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def publish(self, data_version: str, facts: dict[str, Any] | None = None) -> Published:
        """Say that the asset is finished and what it is; call it last."""
        published = Published(self.name, self.path, data_version, dict(facts or {}))
        body = {"asset": self.name, "data_version": data_version, "facts": published.facts}
        atomic_write(self.path / MARKER, json.dumps(body, indent=2, allow_nan=False).encode() + b"\n")
        return published

    def built(self) -> Published | None:
        """What stands here, or None where nothing finished does.

        Raises:
            GeoError: the marker is there but cannot be read.
        """
        path = self.path / MARKER
        if not path.exists():
            return None
        try:
            body = json.loads(path.read_text())
            return Published(self.name, self.path, str(body["data_version"]), dict(body["facts"]))
        except (OSError, ValueError, KeyError, TypeError):
            raise GeoError(f"{path} is damaged", f"Remove it and run: geo build {self.name}") from None


def require(home: Path, name: str, needed_by: str, folder: str | None = None) -> Published:
    """The finished parent `name` of the asset `needed_by`.

    Args:
        folder: where it stands below `home`, if not under its own name.

    Raises:
        MissingUpstream: it has not been built; the message names the command that builds it.
    """
    published = AssetFolder(home, folder or name).built()
    if published is None:
        raise MissingUpstream(
            f"{needed_by} needs {name}, which has not been built in {home}",
            f"Run: dagster asset materialize --select '*{name}'",
        )
    return published
