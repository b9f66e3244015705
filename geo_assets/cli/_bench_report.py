"""Rows of `geo bench report`: a board from the outcome tables against the same board from the JSON lines.

The episodes are invented and as long as published ones are: 13,589 of seventeen arms in 1.4 GB of lines,
written to the machine's temporary folder and removed afterwards.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from env_service.errors import GeoError
from geo_assets.cli._bench_rows import Pair

EPISODES, TASKS, K = 13_589, 200, 4
TURNS, WORDS_PER_TURN = 12, 1400
GOAL = 100.0


def _board() -> Pair:
    from geo_assets.reports._episode_arms import find_arms
    from geo_assets.reports.episode_report import arm_rows

    kept = tempfile.TemporaryDirectory(prefix="geo-bench-")
    folder = Path(kept.name)
    write_episodes(folder, EPISODES, WORDS_PER_TURN)

    def ours() -> list[dict[str, Any]]:
        return arm_rows(find_arms([folder], trusted=folder)[0])

    def plain() -> list[dict[str, Any]]:
        return board_by_lines(folder)

    made = ours()  # from the lines: there are no tables yet
    if not made == ours() == plain():
        raise GeoError("The board from the tables differs from the board from the JSON lines")
    reference = "json.loads of every line, then the same figures"
    return Pair(plain, ours, 30, reference, GOAL, close=kept.cleanup)


ROWS: dict[str, Callable[[], Pair]] = {"board of 13,589 episodes": _board}


def write_episodes(folder: Path, episodes: int, words: int, tasks: int = TASKS, k: int = K) -> None:
    """Invented sweeps, one folder per arm, the last of them cut short.

    Args:
        episodes: in all; arms are filled one after the other with tasks × k each.
        words: words of reasoning of every turn.
    """
    from env_service.geodesy import destination

    dice, left, arm = np.random.default_rng(11), episodes, 0
    while left > 0:
        target = folder / f"arm_{arm:02d}" / "episodes.jsonl"
        target.parent.mkdir(parents=True)
        with target.open("wb") as stream:
            for number in range(min(left, tasks * k)):
                km = float(dice.exponential(800.0 + 200.0 * arm))
                guess = destination(10.0, 20.0, float(dice.uniform(0, 360)), min(km, 19_000.0))
                stream.write(_line(arm, number % tasks, number // tasks, guess, dice, words))
        left -= tasks * k
        arm += 1


def board_by_lines(folder: Path) -> list[dict[str, Any]]:
    """The same rows the plain way: every line through `json.loads`, then lists of what is wanted of it."""
    from env_service.geodesy import haversine_km
    from geo_assets.reports._played import Played, figures

    rows = []
    for path in sorted(folder.glob("*/episodes.jsonl")):
        columns: dict[str, list[Any]] = {}
        seen = []
        with path.open("rb") as lines:
            for line in lines:
                record = json.loads(line)
                result, counts = record["result"], record["result"]["counts"]
                guessed = result["outcome"] == "guess"
                place = [result[key] for key in ("guess_lat", "guess_lon", "true_lat", "true_lon")]
                values = {
                    "distance_km": haversine_km(*place) if guessed else float("nan"),
                    "cost": result["cost"],
                    "turns": len(record["turns"]),
                    "looks": counts.get("look", 0),
                    "moves": counts.get("move", 0),
                    "pins": counts.get("place_pin", 0),
                    "country_hit": result["country_hit"],
                    "forced": result["forced"],
                    "fabricated": result["fabricated"],
                    "completion_tokens": result["completion_tokens"],
                }
                for name, value in values.items():
                    columns.setdefault(name, []).append(value)
                seen.append((record["sample"], record["task_index"]))
        tasks, k = len({task for _, task in seen}), max(sample for sample, _ in seen) + 1
        arrays = {name: np.array(values) for name, values in columns.items()}
        arm = Played(tasks=tasks, k=k, complete=len(seen) == tasks * k, columns=arrays)
        rows.append(_row(path.parent.name, arm, figures(arm) if arm.complete else None))
    return sorted(rows, key=lambda row: (not row["complete"], -(row["mean_of_k"] or 0.0), row["arm"]))


def _row(name: str, arm: Any, found: dict[str, Any] | None) -> dict[str, Any]:
    from geo_assets.reports.episode_report import ARM_FIGURES

    empty = {**dict.fromkeys(ARM_FIGURES), "pass_at": dict.fromkeys(("25", "200", "750"))}
    shape = {"arm": name, "tasks": arm.tasks, "k": arm.k, "complete": arm.complete}
    return {**shape, **(found or empty), "provider_errors": None}


def _line(
    arm: int, task: int, sample: int, guess: tuple[float, float], dice: np.random.Generator, words: int
) -> bytes:
    from env_service.geodesy import haversine_km

    name, had = f"arm_{arm:02d}", bool(dice.random() < 0.95)
    cost = round(0.01 * int(dice.integers(0, 12)), 2)
    pose = {"frame_index": 0, "heading_deg": 0.0, "pitch_deg": 0.0, "fov_deg": 90.0}
    turn = {
        "reply": 1, "messages_sha256": "0" * 64, "text": "I look.", "reasoning": "a wide road " * words,
        "finish_reason": "stop", "prompt_tokens": 900, "completion_tokens": 90, "tool": "look",
        "arguments": "{}", "action": {"op": "look"}, "image_kind": "view", "image_sha256": "0" * 64,
        "feedback": "Facing N", "cost": cost, "turns_left": 3, "demanded": False,
        "pose_before": pose, "pose_after": pose,
    }  # fmt: skip
    turns = [{**turn, "turn": number} for number in range(1, int(dice.integers(2, TURNS + 1)))]
    result: dict[str, Any] = {
        "outcome": "guess" if had else "no_guess", "cost": cost, "env_reward": 0.0, "env_curve": "game",
        "distance_km": haversine_km(*guess, 10.0, 20.0) if had else None,
        "guess_lat": guess[0] if had else None, "guess_lon": guess[1] if had else None,
        "guess_how": "fields" if had else "", "guess_country_code": "TD" if had else None, "raw_guess": "",
        "true_lat": 10.0, "true_lon": 20.0, "country_code": "TD", "country_hit": had, "region_hit": had,
        "forced": not had, "fabricated": False, "failures": [], "counts": {"look": len(turns)},
        "moved_m": 0.0, "replies": len(turns), "unfinished_replies": 0, "prompt_tokens": 9000,
        "completion_tokens": 90 * len(turns),
    }  # fmt: skip
    record = {
        "schema_version": 1, "arm": name, "split": "eval", "task_index": task, "task_id": f"eval-{task:05d}",
        "sample": sample, "seed": sample, "opening_sha256": "0" * 64, "turns": turns, "result": result,
        "provenance": {
            "environment_version": "e", "harness_version": "h", "prompt_version": "p", "protocol": "tools",
            "model_asked": name, "models_reported": [name], "libraries": {},
        },
    }  # fmt: skip
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
