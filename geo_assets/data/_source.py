"""The profile's Mapillary, opened for the duration of a stage.

Live asks the addresses and the token of the settings. Sandbox and recorded start our own Mapillary server on
the loopback interface and speak to it through the same client; it leaves when the stage does.

How hard a source is asked never alters what comes out, so it is not part of any version:
`GEO_REQUESTS_PER_MINUTE` (default 3000) bounds graph and tile requests, `GEO_WORKERS` (default 8) the
requests under way at once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from env_service.canonical import sha256_file
from env_service.errors import GeoError
from geo_assets.config.settings import Settings
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.fingerprint import code_version
from geo_assets.lineage.versions import content_version
from resources.mapillary import MapillaryClient
from resources.processes import ServerProcess

SERVER = "resources.sandbox.mapillary_server"
SANDBOX_TOKEN = "MLY|sandbox|7d1f"
REQUESTS_PER_MINUTE = 3000.0
WORKERS = 8
START_TIMEOUT_S = 120.0


@contextmanager
def open_mapillary(stage: Stage, share: float = 1.0) -> Iterator[MapillaryClient]:
    """A client for the profile's Mapillary; a stand-in that it needs is started and stopped with it.

    Args:
        share: part of the request budget this user may take, when several ask at once.

    Raises:
        GeoError: live without a token, recorded without its folder, or the stand-in does not start.
    """
    settings = stage.settings
    if settings.profile == "live" or settings.graph_url:
        if not settings.mapillary_token.get_secret_value():
            raise GeoError(
                "MAPILLARY_ACCESS_TOKEN is not set, and the live profile asks Mapillary",
                "Set it to the client token of your Mapillary application, or unset GEO_PROFILE",
            )
        tiles = settings.tiles_url or settings.graph_url
        token = settings.mapillary_token.get_secret_value()
        with _client(settings.graph_url, tiles, token, REQUESTS_PER_MINUTE * share) as client:
            yield client
        return
    server = ServerProcess(
        SERVER, _server_arguments(stage), name="sandbox Mapillary", start_timeout_s=START_TIMEOUT_S
    )
    with server, _client(server.url, server.url, SANDBOX_TOKEN, None) as client:
        yield client


def workers() -> int:
    """Requests under way at once.

    Raises:
        GeoError: `GEO_WORKERS` is no positive number.
    """
    return int(_positive("GEO_WORKERS", WORKERS))


def source_code(stage: Stage) -> tuple[str, ...]:
    """What runs at the far end where that is ours: the stand-in of the sandbox."""
    return (SERVER,) if stage.settings.profile == "sandbox" else ()


def source_identity(stage: Stage) -> Any:
    """What a stage's answers depend on besides code: the stand-in's world, or the records.

    Declared as an extra input of every stage that asks Mapillary. Live has none: what Mapillary answers shows
    in the data version of the stage that asked.
    """
    if stage.settings.profile == "sandbox":
        return {"world": asdict(stage.specs.world)}
    if stage.settings.profile == "recorded":
        return {"recorded": _records(stage.settings.recorded_dir)}
    return None


def source_version(stage: Stage) -> str:
    """One hash that tells two sources apart, so that nothing asked from one is taken for the other's."""
    code = code_version(source_code(stage), extra=source_identity(stage))
    return content_version([stage.settings.profile, stage.settings.graph_url, code])


def _client(graph: str, tiles: str, token: str, pace: float | None) -> MapillaryClient:
    if pace is not None:
        pace = pace / REQUESTS_PER_MINUTE * _positive("GEO_REQUESTS_PER_MINUTE", REQUESTS_PER_MINUTE)
    return MapillaryClient(graph, tiles, token, requests_per_minute=pace)


def _server_arguments(stage: Stage) -> list[str]:
    settings = stage.settings
    if settings.profile == "recorded":
        return ["--recorded", str(_recorded_folder(settings))]
    world = stage.specs.world
    return [
        "--world-seed", str(world.seed),
        "--pano-sequences", str(world.pano_sequences),
        "--perspective-sequences", str(world.perspective_sequences),
    ]  # fmt: skip


def _recorded_folder(settings: Settings) -> Path:
    if not (settings.recorded_dir / "frames.parquet").is_file():
        raise GeoError(
            f"{settings.recorded_dir} holds no frames.parquet, where the recorded profile finds its rows",
            "Set GEO_RECORDED to a folder with frames.parquet, panos/ and tiles/",
        )
    return settings.recorded_dir


@cache
def _records(folder: Path) -> list[Any]:
    """The recorded rows by content and the pictures by name and size (they are hashed when mirrored)."""
    rows = folder / "frames.parquet"
    if not rows.is_file():
        return []
    pictures = sorted([path.name, path.stat().st_size] for path in (folder / "panos").glob("*.jpg"))
    return [sha256_file(rows), pictures]


def _positive(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        value = float(text) if text else float(default)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise GeoError(f"{variable}={text!r} is no positive number", f"Unset it, or set it to {default:g}")
    return value
