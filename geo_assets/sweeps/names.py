"""How an arm's slug names its asset and its folder, and how a folder names its sweep."""

from pathlib import Path

ASSET_PREFIX = "sweep_"
SWEEPS = "sweeps"


def asset_name(slug: str) -> str:
    """Name of the asset that sweeps an arm."""
    return f"{ASSET_PREFIX}{slug}"


def folder_name(slug: str) -> str:
    """Folder of an arm's episodes below the profile's home."""
    return f"{SWEEPS}/{slug}"


def member_folder(sweep: str, arm: str) -> str:
    """Folder of one arm's episodes where a sweep plays several."""
    return f"{folder_name(sweep)}/{arm}"


def sweep_slug(folder: Path) -> str:
    """What to type after `geo sweep` for a folder of episodes."""
    return folder.parent.name if folder.parent.parent.name == SWEEPS else folder.name
