"""A folder that runs the environment with nothing else of this repository beside it.

It holds the service's sources and data, the task index, the configuration, the hashes of the pictures, and
`manifest.json` with the hash of every file. Pictures stay in the store: a local one is reached through the
link `panos`, so that no path of this machine is part of the bundle's content; a remote one by its address,
with the driver among the requirements and credentials from the environment of whoever runs it.
"""

import json
import shutil
import subprocess
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from env_service.canonical import sha256_file
from env_service.errors import GeoError
from geo_assets.config.settings import REPOSITORY, EnvironmentSpec
from geo_assets.environment._behaviour import CONFIG, configuration, write_configuration
from geo_assets.lineage.folders import Published
from geo_assets.lineage.versions import manifest_version

PACKAGE = "env_service"
MANIFEST, IMAGERY, PANOS = "manifest.json", "imagery.json", "panos"
REQUIREMENTS = "requirements.txt"
DRIVERS = {"s3": "s3fs", "hf": "huggingface-hub"}
"""What a container installs besides to read its pictures from a store of that kind."""
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")

PLAY_PAGE = "web"
"""Carried along without being an input: a new play page alone makes nothing stale."""


def bundled_files() -> tuple[str, ...]:
    """Files of the service besides its code that a bundle holds, as inputs of a code version."""
    top = REPOSITORY / PACKAGE
    files = sorted(path for path in top.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
    inner = [(path, path.relative_to(top).parts) for path in files]
    return tuple(
        str(path.relative_to(REPOSITORY))
        for path, parts in inner
        if parts[0] != PLAY_PAGE and not any(part.startswith(".") for part in parts)
    )


def build_bundle(
    folder: Path,
    index: Published,
    mirror: Published,
    store_url: str,
    version: str,
    spec: EnvironmentSpec,
    split: str = "eval",
) -> dict[str, str]:
    """Make the bundle in `folder`, in place of an earlier one.

    Returns:
        Path within the bundle to SHA-256, for every file but the manifest itself.
    """
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(REPOSITORY / PACKAGE, new / PACKAGE, ignore=LEFT_OUT)
    # At the top of the folder a container and a Space look for them.
    for name in ("Dockerfile", "README.md"):
        shutil.copyfile(new / PACKAGE / name, new / name)
    _require_driver(new / PACKAGE / REQUIREMENTS, store_url)
    (new / "tasks").mkdir()
    shutil.copyfile(index.path / "tasks.jsonl", new / "tasks" / f"{split}.jsonl")
    shutil.copyfile(mirror.path / "manifest.json", new / IMAGERY)
    local = "://" not in store_url
    config = configuration(split, f"tasks/{split}.jsonl", PANOS if local else store_url, version, spec)
    write_configuration(new / CONFIG, config)
    files = {
        str(path.relative_to(new)): sha256_file(path) for path in sorted(new.rglob("*")) if path.is_file()
    }
    (new / MANIFEST).write_text(json.dumps({"files": files}, indent=1) + "\n")
    if local:
        (new / PANOS).symlink_to(Path(store_url).absolute(), target_is_directory=True)
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return files


def _require_driver(requirements: Path, store_url: str) -> None:
    driver = DRIVERS.get(store_url.partition("://")[0]) if "://" in store_url else None
    if driver is not None:
        text = requirements.read_text(encoding="utf-8")
        requirements.write_text(f"{text}{driver}=={installed(driver)}\n", encoding="utf-8")


def bundle_version(files: dict[str, str]) -> str:
    """Content version of a bundle."""
    return manifest_version(files)


def bundle_environment(folder: Path) -> dict[str, str]:
    """Variables under which Python takes the service from the bundle and from nowhere else."""
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def runs_from(folder: Path, environ: dict[str, str]) -> None:
    """Prove that the variables above do what they say.

    Raises:
        GeoError: Python takes the service from another place.
    """
    program = f"import {PACKAGE}; print({PACKAGE}.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, **bundle_environment(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    origin = Path(found.stdout.strip() or ".").resolve()
    if not origin.is_relative_to(folder.resolve()):
        raise GeoError(
            f"The bundle {folder} is not what runs: {PACKAGE} comes from {origin}",
            "Look for a .pth file or an installed env_service that goes before PYTHONPATH",
        )


def read_bundle(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle.

    Raises:
        GeoError: there is no bundle.
    """
    try:
        return dict(json.loads((folder / MANIFEST).read_text()))
    except (OSError, ValueError):
        raise GeoError(
            f"{folder} holds no bundle", "Run: dagster asset materialize --select '*deployment_local'"
        ) from None


def altered(folder: Path) -> list[str]:
    """Files of a bundle that are gone or differ from its manifest.

    Raises:
        GeoError: there is no bundle.
    """
    files = read_bundle(folder)["files"]
    return [
        name
        for name, digest in files.items()
        if not (folder / name).is_file() or sha256_file(folder / name) != digest
    ]
