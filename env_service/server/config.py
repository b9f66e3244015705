"""What an operator sets, from a JSON file, flags or variables, and the game loaded from it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from env_service import __version__
from env_service.errors import GeoError
from env_service.game import Credit, Game, Rules, Split
from env_service.geography import geography
from env_service.imagery import ImageryBackend, MapillaryBackend, PerspectiveBackend
from env_service.models import Mode
from env_service.scoring import BOARD_V1, GAME, Curve
from env_service.store import PanoramaStore
from env_service.street_view import StreetViewBackend
from env_service.tasks import DuplicateKey, distinct_keys, read_tasks
from env_service.views import NADIR_CAP_DEG, PanoramaCache

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
CURVES = {curve.name: curve for curve in (GAME, BOARD_V1)}


def _known_rule(rule: str) -> str:
    if not re.fullmatch(r"sequential|random|fixed:[0-9]{1,9}", rule):
        raise PydanticCustomError(
            "rule", "it is one of sequential, random, fixed:N with a task's number for N"
        )
    return rule


class ConfigError(GeoError):
    """A configuration that cannot be served."""


class SplitConfig(BaseModel):
    """One split: a task file, a picture store, and how the store's pictures are looked at.

    Attributes:
        panos: the picture store; for `street_view` the address of the service.
        imagery: the backend. The first two read the store alone; `street_view` asks the network.
        terms_confirmed: `street_view` is refused without it, in sweeps as everywhere.
        nadir_cap_deg: radius of the cap over contributors' logos at the foot of a panorama; 0 for none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: str
    panos: str
    imagery: Literal["mapillary", "perspective", "street_view"] = "mapillary"
    terms_confirmed: bool = False
    nadir_cap_deg: Annotated[float, Field(ge=0, le=45, allow_inf_nan=False)] = NADIR_CAP_DEG


class ServerConfig(BaseModel):
    """Everything a server needs to know. The JSON file of `--config` has these keys; all but `splits` have
    defaults.

    Attributes:
        splits: name -> task file and pictures; the first is the default split and the one MCP sessions play.
        mode: "simulation" serves /reset, /step, /state, /ws and /mcp; "production" serves tools only, over
            /mcp.
        play: which tools there are: "agentic", "nmpz" or "single_shot".
        curve: "game", "board-v1", or an object with a name and the numbers of a curve.
        max_concurrent: sessions at once, over all transports.
        idle_s: an unused session ends after this.
        step_timeout_s: a call that takes longer ends its session.
        park_after_s: an MCP or HTTP session unused for this long may lose its slot to a newcomer (and get it
            back).
        drain_s: longest wait for answers in flight at SIGTERM.
        assign: which task a new MCP session gets: "sequential", "random" or "fixed:N".
        origins: browser Origins besides the service's own.
        cache_mb: memory for decoded panoramas.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    splits: Annotated[dict[str, SplitConfig], Field(min_length=1)]
    mode: Literal["simulation", "production"] = "simulation"
    play: Mode = "agentic"
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 12
    view_px: Annotated[int, Field(ge=64, le=2048)] = 640
    environment_version: str = __version__
    curve: str | dict[str, Any] = "game"
    credit: Credit = "none"
    max_concurrent: Annotated[int, Field(ge=1, le=4096)] = 16
    idle_s: Seconds = 300.0
    step_timeout_s: Seconds = 30.0
    park_after_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 15.0
    drain_s: Seconds = 20.0
    assign: Annotated[str, AfterValidator(_known_rule)] = "sequential"
    origins: tuple[str, ...] = ()
    cache_mb: Annotated[int, Field(ge=16)] = 512


def read_config(path: Path | str) -> dict[str, Any]:
    """The keys of a configuration file; relative paths in it are taken from the file's own folder.

    Raises:
        ConfigError: it cannot be read or is no JSON object.
    """
    file = Path(path)
    try:
        values = json.loads(file.read_text("utf-8"), object_pairs_hook=distinct_keys)
    except OSError as error:
        raise ConfigError(
            f"the configuration {file} cannot be read ({error.strerror})", "Check --config."
        ) from error
    except DuplicateKey as error:
        raise ConfigError(f"the configuration {file} is ambiguous: {error}", "Correct the file.") from error
    except ValueError as error:
        raise ConfigError(f"the configuration {file} is not JSON ({error})", "Correct the file.") from error
    except RecursionError:
        raise ConfigError(f"the configuration {file} is nested too deep", "Correct the file.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"the configuration {file} is not a JSON object", "Correct the file.")
    splits = values.get("splits")
    for split in splits.values() if isinstance(splits, dict) else ():
        for key in ("tasks", "panos"):
            if isinstance(split, dict) and isinstance(split.get(key), str):
                split[key] = _from_folder(file.parent, split[key])
    return values


def make_config(values: dict[str, Any], variables: Mapping[str, str] | None = None) -> ServerConfig:
    """Check the keys. Raises ConfigError, which names the first that is wrong.

    Args:
        values: the keys of `ServerConfig`.
        variables: key -> environment variable, for keys that came from one; a refusal names the variable.
    """
    try:
        config = ServerConfig.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        words = _lowered(fault["msg"])
        if variables and where in variables:
            name = variables[where]
            raise ConfigError(
                f"the variable {name} is wrong: {words}", f"Correct or unset {name}."
            ) from error
        raise ConfigError(
            f"the configuration is wrong at {where}: {words}", "See --help for what may be set."
        ) from error
    if variables and "curve" in variables and config.curve not in CURVES:
        name = variables["curve"]
        words = f"it is one of {', '.join(CURVES)}"
        raise ConfigError(f"the variable {name} is wrong: {words}", f"Correct or unset {name}.")
    return config


def check_flags(flags: dict[str, Any]) -> str | None:
    """What is wrong with values given on a command line, or None. What needs the task file is not looked at.

    Args:
        flags: some of the keys of `ServerConfig`.
    """
    nothing_yet = {"splits": {"eval": {"tasks": "", "panos": ""}}}
    try:
        ServerConfig.model_validate({**nothing_yet, **flags})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        return f"argument --{str(fault['loc'][0]).replace('_', '-')}: {_lowered(fault['msg'])}"
    if flags.get("curve", "game") not in CURVES:
        return f"argument --curve: it is one of {', '.join(CURVES)}"
    return None


def load_game(config: ServerConfig) -> Game:
    """Read the task files and open the stores. No picture is required to be there yet.

    Raises:
        TaskFileError: a task file cannot be used; it names the line.
        ConfigError: a picture folder that does not exist, or an unknown curve.
    """
    cache = PanoramaCache(config.cache_mb << 20)
    splits = {name: _split(split, cache) for name, split in config.splits.items()}
    rules = Rules(
        mode=config.play,
        max_turns=config.max_turns,
        view_px=config.view_px,
        curve=_curve(config.curve),
        credit=config.credit,
        environment_version=config.environment_version,
    )
    return Game(splits, geography(), rules, cache)


def _lowered(message: str) -> str:
    return f"{message[:1].lower()}{message[1:]}"


def _split(config: SplitConfig, cache: PanoramaCache) -> Split:
    tasks = read_tasks(config.tasks)
    if config.imagery == "street_view":
        if not config.terms_confirmed:
            raise ConfigError(
                "street_view imagery is off until its terms are confirmed",
                "Read the service's terms; then set terms_confirmed to true in this split.",
            )
        return Split(tasks, StreetViewBackend(config.panos))
    if "://" not in config.panos and not Path(config.panos).is_dir():
        raise ConfigError(
            f"there is no picture folder {config.panos}", "Check --panos, or mirror the pictures first."
        )
    store = PanoramaStore(config.panos)
    backend: ImageryBackend = (
        PerspectiveBackend(store, cache)
        if config.imagery == "perspective"
        else MapillaryBackend(store, cache, config.nadir_cap_deg)
    )
    return Split(tasks, backend)


def _curve(value: str | dict[str, Any]) -> Curve:
    if isinstance(value, str):
        if value not in CURVES:
            raise ConfigError(f"there is no curve {value!r}", f"Known curves: {', '.join(CURVES)}.")
        return CURVES[value]
    try:
        curve = Curve(**value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the curve cannot be used: {error}", "Give it a name and numbers in range."
        ) from error
    if curve.name in CURVES and curve != CURVES[curve.name]:
        raise ConfigError(f"the name {curve.name!r} belongs to another curve", "Give this one its own name.")
    return curve


def _from_folder(folder: Path, value: str) -> str:
    return value if "://" in value or Path(value).is_absolute() else str(folder / value)
