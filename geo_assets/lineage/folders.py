"""One folder per asset under the profile's home, and the marker that says what stands in it.

`_asset.json` is written last and in one step, so a folder without it is unfinished, whatever else it
holds. Consumers read their parents only through `require`, which turns a missing parent into one sentence
and the command that builds it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from geo_assets.lineage.contents import Fault, altered, listing, parsed

MARKER = "_asset.json"
EPISODES = "episodes.jsonl"
SWEEPS = "sweeps"


class MissingUpstream(GeoError):
    """An asset was asked for before one that it is made from."""


class FailedUpstream(GeoError):
    """A parent stands, but one of its blocking checks failed."""


@dataclass(frozen=True)
class Published:
    """What a finished asset folder says of itself.

    Attributes:
        name: the asset.
        path: its folder.
        data_version: content hash of what it produced.
        facts: small JSON values that consumers and reports may read (counts, figures).
        failed_checks: names of its blocking checks that failed.
        files: what its folder held, see `contents`; empty where it was published before that was kept.
    """

    name: str
    path: Path
    data_version: str
    facts: dict[str, Any]
    failed_checks: tuple[str, ...] = ()
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)


class AssetFolder:
    """The folder of one asset.

    Args:
        home: the profile's home folder.
        name: the asset's name; a sweep's is `sweeps/<slug>`.
    """

    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self.asset = f"sweep_{name.removeprefix('sweeps/')}" if name.startswith("sweeps/") else name
        self.path = home / name

    def file(self, *parts: str) -> Path:
        """Path of a file inside, its folder made."""
        path = self.path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def publish(
        self, data_version: str, facts: dict[str, Any] | None = None, failed_checks: Sequence[str] = ()
    ) -> Published:
        """Say that the asset is finished and what it is; call it last.

        Args:
            data_version: content hash of what it produced.
            facts: small JSON values about it.
            failed_checks: blocking checks that failed; nothing is built on it then.
        """
        failed = tuple(sorted(failed_checks))
        files = listing(self.path, MARKER)
        published = Published(self.name, self.path, data_version, dict(facts or {}), failed, files)
        body: dict[str, Any] = {"asset": self.name, "data_version": data_version, "facts": published.facts}
        if failed:
            body["failed_checks"] = list(failed)
        body["files"] = files
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
            return _published(self.name, self.path, json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            fix = f"Remove that file and run: geo build --only {self.asset}"
            raise GeoError(f"{path} is damaged", fix) from None


def _published(name: str, path: Path, body: Any) -> Published:
    """What a marker says.

    Raises:
        ValueError, KeyError, TypeError: it is damaged.
    """
    if not isinstance(body, dict) or not isinstance(body["facts"], dict):
        raise ValueError("no marker")
    failed = tuple(str(check) for check in body.get("failed_checks", ()))
    version, files = str(body["data_version"]), parsed(body.get("files", {}))
    return Published(name, path, version, body["facts"], failed, files)


def fault_of(published: Published) -> Fault | None:
    """What is gone from an asset's folder, torn or edited since it was published; None where nothing is."""
    try:
        written = (published.path / MARKER).stat().st_mtime_ns
    except OSError:
        return Fault("missing", f"its {MARKER} is gone")
    return altered(published.path, published.files, written)


def folder_of(asset: str) -> str:
    """Where an asset's folder stands below the home: under its own name, sweeps under `sweeps/`."""
    return f"{SWEEPS}/{asset.removeprefix('sweep_')}" if asset.startswith("sweep_") else asset


def unfinished(published: Published) -> str:
    """Why a sweep is not whole, in words; empty where it is, and for what is no sweep.

    Its episodes are looked at where they could have changed: the last byte always, and every line where the
    file is younger than the marker.
    """
    facts = published.facts
    if published.path.parent.name != SWEEPS:
        return ""  # another asset's figures may well be called episodes, too
    if facts.get("complete") is False:
        wanted = facts.get("episodes", 0) + facts.get("unscored", 0)
        return f"{facts.get('unscored', 'some')} of {wanted or 'its'} episodes have not been scored"
    arms = facts.get("arms")
    parts = arms if isinstance(arms, dict) else {"": facts}
    for name, own in parts.items():
        path = published.path / name / EPISODES
        if "episodes" in own and (fault := _fault_of(path, int(own["episodes"]), published.path / MARKER)):
            return f"{path.relative_to(published.path.parent.parent)} {fault}"
    return ""


def _fault_of(path: Path, episodes: int, marker: Path) -> str:
    if not path.is_file():
        return "is gone"
    size = path.stat().st_size
    with path.open("rb") as handle:
        handle.seek(max(0, size - 1))
        if handle.read(1) not in (b"", b"\n"):
            return "ends in the middle of a line"
        if path.stat().st_mtime_ns > marker.stat().st_mtime_ns:
            handle.seek(0)
            found = sum(chunk.count(b"\n") for chunk in iter(lambda: handle.read(1 << 20), b""))
            if found != episodes:
                return f"holds {found} episodes, and {episodes} were published"
    return ""


def require_all(home: Path, names: Sequence[str], needed_by: str) -> None:
    """Refuse to start where several parents are missing, naming all of them and the one command for them.

    Raises:
        MissingUpstream: at least one has not been built.
    """
    missing = [name for name in names if AssetFolder(home, folder_of(name)).built() is None]
    if len(missing) > 1:
        raise MissingUpstream(
            f"{needed_by} needs {', '.join(missing)}, which have not been built in {home}",
            f"Run: dagster asset materialize --select '*{needed_by}'",
        )
    for name in missing:
        require(home, name, needed_by)


def require(home: Path, name: str, needed_by: str, folder: str | None = None) -> Published:
    """The finished parent `name` of the asset `needed_by`.

    Args:
        folder: where it stands below `home`, if not under its own name.

    Raises:
        MissingUpstream: it has not been built; the message names the command that builds it.
        FailedUpstream: a blocking check of it failed. Dagster stops what follows within one run; a later
            run would go on over it.
    """
    published = AssetFolder(home, folder or folder_of(name)).built()
    if published is None:
        raise MissingUpstream(
            f"{needed_by} needs {name}, which has not been built in {home}",
            f"Run: dagster asset materialize --select '*{name}'",
        )
    if published.failed_checks:
        names = ", ".join(published.failed_checks)
        raise FailedUpstream(
            f"{needed_by} is not built on {name}, whose blocking check failed: {names}",
            f"Look at the check's figures in Dagster, mend the cause, and run: geo build --only {name}",
        )
    return published
