"""Where a profile's far ends are, and what each stage is asked for.

Two kinds of values live here. `Settings` says where things are (home, store, tokens, addresses); it
never alters what an asset contains. The stage specs say what an asset contains; each is frozen, is part
of its asset's code version by value, and has one set of values per profile.
"""

import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import SecretStr

from env_service.errors import GeoError
from env_service.store import refuse_credentials
from resources.sandbox.vlm.specs import BaseModelSpec, Course, Shape, SmallWorldSpec

Profile = Literal["sandbox", "live", "recorded"]
REPOSITORY = Path(__file__).resolve().parents[2]
Box = tuple[float, float, float, float]
WORLD_BOX: Box = (-180.0, -58.0, 180.0, 78.0)


@dataclass(frozen=True)
class Settings:
    """One profile's places and credentials, read from the environment by `load_settings`.

    Attributes:
        profile: which far ends are used.
        home: the folder of everything the profile makes, one folder per asset.
        store_url: fsspec URL of the panorama store.
        recorded_dir: folder of recorded Mapillary data (recorded profile only).
        mapillary_token: access token (live profile; the sandbox has its own).
        graph_url, tiles_url: Mapillary's two addresses; empty means "start the stand-in".
    """

    profile: Profile
    home: Path
    store_url: str
    recorded_dir: Path
    mapillary_token: SecretStr = field(default=SecretStr(""), repr=False)
    graph_url: str = ""
    tiles_url: str = ""


def load_settings(environ: dict[str, str] | None = None) -> Settings:
    """Settings from `GEO_PROFILE`, `GEO_HOME`, `GEO_STORE_URL`, `GEO_RECORDED` and the Mapillary variables.

    Raises:
        GeoError: the profile is unknown, or the store's address holds credentials.
    """
    env = dict(os.environ if environ is None else environ)
    profile = env.get("GEO_PROFILE") or "sandbox"
    if profile not in get_args(Profile):
        known = ", ".join(get_args(Profile))
        raise GeoError(f"GEO_PROFILE={profile!r} is no profile", f"Set it to one of {known}, or unset it")
    home = Path(env.get("GEO_HOME") or REPOSITORY / ".geo" / profile).absolute()
    token = env.get("MAPILLARY_ACCESS_TOKEN", "")
    refuse_credentials(env.get("GEO_STORE_URL", ""))
    graph, tiles = env.get("MAPILLARY_GRAPH_URL", ""), env.get("MAPILLARY_TILES_URL", "")
    if profile == "live":
        graph = graph or "https://graph.mapillary.com"
        tiles = tiles or "https://tiles.mapillary.com"
    return Settings(
        profile=cast(Profile, profile),
        home=home,
        store_url=env.get("GEO_STORE_URL") or str(home / "mirrored_panoramas" / "store"),
        recorded_dir=Path(env.get("GEO_RECORDED") or REPOSITORY.parent / "shared" / "data" / "mapillary"),
        mapillary_token=SecretStr(token),
        graph_url=graph,
        tiles_url=tiles,
    )


@dataclass(frozen=True)
class WorldSpec:
    """The sandbox Earth: everything follows from these values."""

    seed: int = 7
    pano_sequences: int = 520
    perspective_sequences: int = 480


@dataclass(frozen=True)
class ProbeSpec:
    """How many sequences the source probe asks for, and the level of its interval."""

    sequences: int = 40
    confidence: float = 0.95


@dataclass(frozen=True)
class TilesSpec:
    """Coverage tiles wanted: boxes in degrees (west, south, east, north), zoom, and how many may fail."""

    boxes: tuple[Box, ...] = (WORLD_BOX,)
    zoom: int = 6
    max_age_days: float = 30.0
    max_failed_share: float = 0.01


@dataclass(frozen=True)
class CandidatesSpec:
    """Candidates are the tiles' panoramic sequences; `panoramic_only` says so where it is hashed."""

    panoramic_only: bool = True


@dataclass(frozen=True)
class PoolSpec:
    """How candidates become playable tasks.

    Attributes:
        target: tasks wanted; the pool ends there or when the candidates do.
        per_country, per_creator: caps applied before a frame is fetched.
        density_exponent: weight of a candidate is (candidates in its 1° cell) to this power.
        window_frames: frames of a window around the anchor, at most 24.
        windows_per_sequence: windows taken of one sequence; None takes every one that holds `min_frames`.
        min_frames: usable frames that make a window playable.
        nearest_country_km: how far offshore a start frame may lie and still take a country.
    """

    seed: int = 7
    target: int = 4000
    per_country: int = 120
    per_creator: int = 40
    density_exponent: float = -0.75
    window_frames: int = 24
    windows_per_sequence: int | None = 1
    min_frames: int = 2
    nearest_country_km: float = 25.0


@dataclass(frozen=True)
class MirrorSpec:
    """Pictures mirrored per task: every frame at 2048 px, and the original of the start frame."""

    originals: bool = True
    shards: int = 8


@dataclass(frozen=True)
class SplitSpec:
    """The contamination rules: kilometres, and how many eval tasks are carved."""

    buffer_km: float = 1.0
    eval_spacing_km: float = 1.0
    eval_size: int = 200
    eval_per_country: int = 4


@dataclass(frozen=True)
class EnvironmentSpec:
    """What an episode is: its one turn budget, the view's side in pixels, the mode, and the session cap."""

    max_turns: int = 12
    view_px: int = 640
    mode: Literal["agentic", "nmpz", "single_shot"] = "agentic"
    max_concurrent: int = 16

    def rules(self) -> dict[str, Any]:
        """What of it an episode depends on: all but the session cap, which is the server's."""
        return {name: value for name, value in asdict(self).items() if name != "max_concurrent"}


BASE_4B = BaseModelSpec("Qwen/Qwen3.5-4B")
BASE_2B = BaseModelSpec(
    "Qwen/Qwen3.5-2B",
    shape=Shape(hidden=48, vision_hidden=48),
    course=Course(vision_steps=500, steps=200, seed=2),
)
"""In the sandbox of another shape than the 4B, so that serving one's adapter on the other is a real fault."""


@dataclass(frozen=True)
class StageSpecs:
    """All stage specs of one profile."""

    world: WorldSpec = WorldSpec()
    probe: ProbeSpec = ProbeSpec()
    tiles: TilesSpec = TilesSpec()
    candidates: CandidatesSpec = CandidatesSpec()
    pool: PoolSpec = PoolSpec()
    mirror: MirrorSpec = MirrorSpec()
    split: SplitSpec = SplitSpec()
    environment: EnvironmentSpec = EnvironmentSpec()
    small_world: SmallWorldSpec = field(default_factory=SmallWorldSpec)
    base_model_4b: BaseModelSpec = BASE_4B
    base_model_2b: BaseModelSpec = BASE_2B


def stage_specs(profile: Profile) -> StageSpecs:
    """The values of one profile; sandbox and recorded override what live declares."""
    live = StageSpecs()
    if profile == "sandbox":
        return replace(
            live,
            pool=replace(live.pool, target=190, per_country=6, per_creator=6, window_frames=4),
            mirror=replace(live.mirror, shards=2),
            split=replace(live.split, eval_size=60, eval_per_country=2),
        )
    if profile == "recorded":
        return replace(
            live,
            # The recorded folder holds two zoom-14 tiles: one in Stuttgart, one in Singapore.
            tiles=replace(
                live.tiles, zoom=14, boxes=((9.17, 48.76, 9.18, 48.77), (103.81, 1.315, 103.815, 1.32))
            ),
            pool=replace(live.pool, windows_per_sequence=None),
            mirror=replace(live.mirror, originals=False, shards=2),
            split=replace(live.split, eval_spacing_km=0.5),
        )
    return live
