"""Folders carried to a job and back, over a folder or any fsspec address, checked by hash on arrival.

A folder is there when its manifest is: it is written last, names every file with its SHA-256, and may hold a
report. Half a folder, from a kill or a cut connection, therefore reads as none.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from env_service.canonical import atomic_write, sha256_file
from env_service.errors import GeoError

MANIFEST = "_manifest.json"


class BrokenArtifact(GeoError):
    """What a job stored is not there, or cannot be read at the moment."""


class DamagedArtifact(BrokenArtifact):
    """What is stored is not what was stored: it reads the same however often it is asked for."""


def put_folder(source: Path, url: str, report: Mapping[str, Any] | None = None) -> None:
    """Store a folder, links followed, and its manifest last.

    Args:
        source: a folder of files.
        url: folder or fsspec address to store it at.
        report: JSON to keep in the manifest.

    Raises:
        BrokenArtifact: the address cannot be written.
    """
    source = source.resolve()
    names = {
        path.relative_to(source).as_posix(): path for path in sorted(source.rglob("*")) if path.is_file()
    }
    manifest = {"files": {name: sha256_file(path) for name, path in names.items()}, "report": report or {}}
    body = json.dumps(manifest, sort_keys=True, allow_nan=False).encode()
    try:
        filesystem, root = fsspec.url_to_fs(url)
        here = isinstance(filesystem, LocalFileSystem)
        for name, path in names.items():
            if here:
                Path(f"{root}/{name}").parent.mkdir(parents=True, exist_ok=True)
            filesystem.put_file(str(path), f"{root}/{name}")
        if here:
            atomic_write(Path(f"{root}/{MANIFEST}"), body)
        else:
            filesystem.pipe_file(f"{root}/{MANIFEST}", body)
    except (OSError, ImportError, ValueError) as error:
        raise BrokenArtifact(f"{url} cannot be written ({type(error).__name__}: {error})") from None


def read_manifest(url: str) -> dict[str, Any] | None:
    """What a stored folder holds: {"files": {name: sha256}, "report": …}; None where none is finished.

    Raises:
        BrokenArtifact: the address cannot be read.
        DamagedArtifact: what stands there is no manifest.
    """
    try:
        filesystem, root = fsspec.url_to_fs(url)
        filesystem.invalidate_cache()
        body = filesystem.cat_file(f"{root}/{MANIFEST}")
    except FileNotFoundError:
        return None
    except (OSError, ImportError, ValueError, TypeError) as error:
        raise BrokenArtifact(f"{url} cannot be read ({type(error).__name__}: {error})") from None
    try:
        found = dict(json.loads(body))
        if not isinstance(found["files"], dict) or not isinstance(found["report"], dict):
            raise TypeError("no files, or no report")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedArtifact(
            f"The manifest at {url} cannot be read ({type(error).__name__}: {error})"
        ) from None
    return found


def get_folder(url: str, target: Path) -> dict[str, Any]:
    """Bring a stored folder back.

    Args:
        url: where it was stored.
        target: folder that it is written to.

    Returns:
        The report of its manifest.

    Raises:
        BrokenArtifact: it is unfinished, or cannot be read.
        DamagedArtifact: a file is gone, or is not what was stored.
    """
    manifest = read_manifest(url)
    if manifest is None:
        raise BrokenArtifact(f"Nothing finished is stored at {url}")
    filesystem, root = fsspec.url_to_fs(url)
    for name, digest in manifest["files"].items():
        path = (target / name).resolve()
        if not path.is_relative_to(target.resolve()):
            raise DamagedArtifact(f"The manifest at {url} names a file outside of its folder: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        for last in (False, True):  # twice: a transfer that was cut short is not damage
            try:
                filesystem.get_file(f"{root}/{name}", str(path))
            except FileNotFoundError:
                raise DamagedArtifact(f"{url}/{name} is not there any more") from None
            except OSError as error:
                raise BrokenArtifact(f"{url}/{name} cannot be read ({type(error).__name__})") from None
            if sha256_file(path) == digest:
                break
            if last:
                raise DamagedArtifact(f"{url}/{name} is not what was stored there")
    return dict(manifest["report"])


def refuse_folder(url: str) -> None:
    """Take the manifest of a stored folder away, so that it reads as unfinished; its files stay for a look.

    Raises:
        BrokenArtifact: it cannot be taken away.
    """
    try:
        filesystem, root = fsspec.url_to_fs(url)
        filesystem.rm_file(f"{root}/{MANIFEST}")
    except FileNotFoundError:
        return
    except (OSError, ImportError, ValueError) as error:
        raise BrokenArtifact(
            f"{url}/{MANIFEST} cannot be removed ({type(error).__name__}: {error})", "Remove it by hand"
        ) from None


def remove_folder(url: str) -> None:
    """Remove a stored folder, where it is there; a failure leaves it behind and harms nobody."""
    try:
        filesystem, root = fsspec.url_to_fs(url)
        filesystem.rm(root, recursive=True)
    except (OSError, ImportError, ValueError):
        return
