"""`geo walkthrough`: one scripted episode on a built environment, printed turn by turn, frames saved.

Plays through the real service with the real client: what is printed is what an agent would be told, and
the truth appears only in the last turn.
"""

import base64
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from env_service.models import GeoObservation

# Turn, zoom, walk, test a candidate, read the map: every kind of tool once, then a guess from the pin.
SCRIPT: tuple[dict[str, Any], ...] = (
    {"op": "look", "heading_deg": 90},
    {"op": "look", "heading_deg": 180},
    {"op": "pan", "delta_deg": 45},
    {"op": "zoom", "fov_deg": 30},
    {"op": "move", "direction": "forward", "meters": 60},
    {"op": "move", "direction": "backward", "meters": 30},
    {"op": "pin", "lat": 48.7758, "lon": 9.1829, "label": "first idea"},
    {"op": "view_map", "lat": 48.7758, "lon": 9.1829, "span_deg": 1},
    {"op": "measure", "lat_a": 48.7758, "lon_a": 9.1829, "lat_b": 48.1374, "lon_b": 11.5755},
    {"op": "guess", "lat": 48.7758, "lon": 9.1829, "confidence": 0.6, "reasoning": "scripted"},
)
SUFFIX = {"view": "jpg", "map": "png"}


def walkthrough(
    index: int = typer.Option(0, min=0, help="Task of the eval split."),
    out: Path = typer.Option(Path("build/walkthrough"), help="Folder for the frames."),
) -> None:
    """Play one scripted episode and print it turn by turn."""
    from env_service.client import GeoGuessrEnv
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import require
    from resources.processes import ServerProcess

    home = load_stage().settings.home
    built = require(home, "eval_environment", "geo walkthrough")
    out.mkdir(parents=True, exist_ok=True)
    arguments = ["--config", str(built.path / "config.json"), "--port", "0"]
    with (
        ServerProcess("env_service.server", arguments, name="environment service") as server,
        GeoGuessrEnv(server.url) as env,
    ):
        result = env.reset(split="eval", index=index)
        print(f"task {index} of split eval, served from {built.path}\n")
        print(textwrap.fill(result.observation.prompt.strip(), 78), "\n")
        _turn(0, {"op": "reset"}, result.observation, out)
        for turn, action in enumerate(_affordable(result.observation.steps_remaining), start=1):
            if result.done:
                break
            result = env.step(action)
            _turn(turn, action, result.observation, out)
    end = result.observation
    print(f"\n{_truth(end)}")
    print(f"score {end.score or 0.0:.4f}, cost {end.action_cost:.2f}, reward {result.reward or 0.0:.4f}")
    credit = end.metadata.get("attribution", {})
    print("imagery:", ", ".join(f"{key} {value}" for key, value in credit.items() if value), "(modified)")
    print(f"frames in {out}")


def _affordable(turns: int) -> tuple[dict[str, Any], ...]:
    """The script, cut so that its guess is the last turn of a smaller budget."""
    return (*SCRIPT[: max(0, turns - 1)], SCRIPT[-1]) if turns < len(SCRIPT) else SCRIPT


def _truth(end: "GeoObservation") -> str:
    """What the episode ended with, in words."""
    if end.true_lat is None or end.true_lon is None:
        return "The episode is not over: no guess."
    where = f"The truth was {end.true_lat:.4f}, {end.true_lon:.4f}"
    return (
        f"{where}: {end.distance_km:.1f} km away." if end.distance_km is not None else f"{where}: no guess."
    )


def _turn(turn: int, action: dict[str, Any], seen: "GeoObservation", out: Path) -> None:
    arguments = ", ".join(f"{key}={value}" for key, value in action.items() if key != "op")
    saved = ""
    if seen.image_base64 and seen.image_kind in SUFFIX:
        picture = out / f"turn-{turn:02d}-{action['op']}.{SUFFIX[seen.image_kind]}"
        picture.write_bytes(base64.b64decode(seen.image_base64))
        saved = f" -> {picture.name}"
    camera = f"heading {seen.heading_deg:5.1f}, fov {seen.fov_deg:3.0f}"
    print(f"turn {turn:2d}  {action['op']}({arguments})")
    print(f"         {camera}, {seen.steps_remaining} turns left, cost {seen.action_cost:.2f}{saved}")
    for line in (seen.feedback or "").strip().splitlines():
        print(f"         | {line}")
