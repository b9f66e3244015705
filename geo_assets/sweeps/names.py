"""How an arm's slug names its asset and its folder."""

ASSET_PREFIX = "sweep_"


def asset_name(slug: str) -> str:
    """Name of the asset that sweeps an arm."""
    return f"{ASSET_PREFIX}{slug}"


def folder_name(slug: str) -> str:
    """Folder of an arm's episodes below the profile's home."""
    return f"sweeps/{slug}"
