"""A report of raw episodes, ours or other people's: arms, paired gains, and what was refused.

Reads `**/episodes.jsonl` below some folders and nothing else, so that a published set of episodes can be
checked by anyone who has it. Every figure has one definition, shared with the tables of the graph; values are
not rounded, and what no record says is None. Holm's adjustment is over all arms but the baseline.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from env_service.errors import GeoError
from env_service.scoring import BOARD_V1, GAME, Curve
from geo_assets.reports import statistics
from geo_assets.reports._episode_arms import EpisodeArm, Refusal, find_arms
from geo_assets.reports._played import MEANS, THRESHOLDS_KM, figures
from geo_assets.reports.statistics import Interval, PairedGain

CURVES = {curve.name: curve for curve in (BOARD_V1, GAME)}
SIGNIFICANT = 0.05
ARM_FIGURES = (
    *("mean_of_k", "best_of_k", "pass_at", "median_km", *MEANS, "country_pct"),
    *(f"within_{km}_pct" for km in THRESHOLDS_KM),
    *("floored_pct", "no_guess_pct", "forced_pct", "fabricated_pct", "tokens_out"),
)
ALIKE = {
    "protocol": "protocols",
    "environment_version": "environment versions",
    "harness_version": "versions of the harness",
    "prompt_version": "versions of the prompt",
}
Report = dict[str, list[dict[str, Any]]]


def episode_report(
    folders: Sequence[Path],
    baseline: str = "",
    curve: str = BOARD_V1.name,
    say: Callable[[str], None] = lambda _: None,
    trusted: Path | None = None,
) -> Report:
    """The report of all arms below some folders.

    Args:
        folders: each holds `**/episodes.jsonl`, or is such a file.
        baseline: the arm that all others are paired with; if not given, the one base arm among them.
        curve: name of the curve of the rewards.
        say: told when an outcome table had to be made again.
        trusted: folder whose outcome tables are this machine's own work; elsewhere the lines are read.

    Returns:
        `arms` (best first, incomplete ones last and without figures), `paired` and `refused`; the shape is
        `docs/schemas/report.json`.

    Raises:
        GeoError: the curve or the baseline is unknown, or a folder holds no episodes.
    """
    arms, refused = find_arms(folders, curve_named(curve), say, trusted)
    rows = arm_rows(arms)
    base = _baseline(arms, baseline, refused)
    paired, not_paired = pair_rows(arms, base) if base is not None else ([], [])
    if base is None:
        not_paired = _unlike(arms)
    return {"arms": rows, "paired": paired, "refused": [_refusal(row) for row in [*refused, *not_paired]]}


def curve_named(name: str) -> Curve:
    """The curve that a report may use.

    Raises:
        GeoError: there is none of that name.
    """
    if name not in CURVES:
        raise GeoError(f"No report is made under the curve {name!r}", f"Use one of: {', '.join(CURVES)}")
    return CURVES[name]


def arm_rows(arms: Sequence[EpisodeArm]) -> list[dict[str, Any]]:
    """A row per arm, best first; incomplete ones last, in alphabetical order, without figures."""
    rows = [_arm_row(arm) for arm in arms]
    return sorted(rows, key=lambda row: (not row["complete"], -(row["mean_of_k"] or 0.0), row["arm"]))


def pair_rows(arms: Sequence[EpisodeArm], base: EpisodeArm) -> tuple[list[dict[str, Any]], list[Refusal]]:
    """Every other arm against the baseline, and the pairs that were refused."""
    rows: list[dict[str, Any]] = []
    refused: list[Refusal] = []
    for arm in arms:
        if arm is base:
            continue
        why = obstacle(arm, base)
        if why:
            refused.append(Refusal(f"{arm.name} − {base.name}", why))
            continue
        order = same_tasks(arm, base)
        gain = statistics.paired_gain(
            arm.reward_matrix[order],
            base.reward_matrix,
            arm.matrix(arm.guessed)[order],
            base.matrix(base.guessed),
        )
        rows.append(pair_row(arm.name, base.name, gain))
    tested = [row for row in rows if row["p_holm"] is not None]
    for row, adjusted in zip(tested, statistics.holm([row["p_holm"] for row in tested]), strict=True):
        row |= {"p_holm": adjusted, "significant": adjusted < SIGNIFICANT}
    return sorted(rows, key=lambda row: (-row["delta"], row["arm"])), refused


def obstacle(arm: EpisodeArm, base: EpisodeArm) -> str:
    """Why two arms cannot be paired; empty where they can."""
    for side in (arm, base):
        if not side.complete:
            return f"{side.name} is incomplete ({side.episodes:,} of {side.expected:,} episodes)"
    if arm.sweep != base.sweep:
        return "they were played in different sweeps, and drift between sweeps is as large as many gains"
    for column, words in ALIKE.items():
        own, other = arm.said[column], base.said[column]
        if own != other:
            return f"unequal {words} ({own or 'none'}, {other or 'none'})"
    if arm.k != base.k:
        return f"unequal k ({arm.k}, {base.k})"
    if same_tasks(arm, base) is None:
        common = len(set(arm.task_ids) & set(base.task_ids))
        return f"unequal task sets ({arm.tasks} and {base.tasks} tasks, {common} in both)"
    return ""


def same_tasks(arm: EpisodeArm, base: EpisodeArm) -> list[int] | None:
    """Rows of an arm's matrices that are the tasks of another's, in its order; None where they differ.

    A task is known by its id: two arms may number one set of tasks in two ways.
    """
    if arm.tasks != base.tasks:
        return None
    if arm.task_ids == base.task_ids:
        return list(range(arm.tasks))
    row = {task_id: at for at, task_id in enumerate(arm.task_ids)}
    once = len(row) == arm.tasks == len(set(base.task_ids))
    return [row[task_id] for task_id in base.task_ids] if once and set(base.task_ids) == set(row) else None


def pair_row(arm: str, base: str, gain: PairedGain) -> dict[str, Any]:
    """One row of `paired`; `p_holm` holds the plain p until it is adjusted."""
    whole, split = gain.estimate, gain.split
    closer = split.closer
    return {
        "arm": arm,
        "baseline": base,
        "n": whole.n,
        "delta": whole.mean,
        "se": whole.se,
        "ci95": _ends(whole.ci95),
        "t95": _ends(whole.t95),
        "boot95": _ends(gain.bootstrap95),
        "p_holm": gain.p,
        "better_on": gain.better_on,
        "significant": None,
        "from_guessing": {"delta": split.guessed_at_all.mean, "se": split.guessed_at_all.se},
        "from_closer": {
            "delta": closer.mean if closer else None,
            "se": closer.se if closer else None,
            "n": closer.n if closer else 0,
        },
    }


def _arm_row(arm: EpisodeArm) -> dict[str, Any]:
    absent: dict[str, Any] = dict.fromkeys(ARM_FIGURES)
    absent["pass_at"] = {str(km): None for km in THRESHOLDS_KM}
    found = figures(arm) if arm.complete else absent
    return {
        "arm": arm.name,
        "tasks": arm.tasks,
        "k": arm.k,
        "complete": arm.complete,
        **{name: found[name] for name in ARM_FIGURES},
        "provider_errors": arm.provider_errors,
    }


def _baseline(arms: Sequence[EpisodeArm], name: str, refused: Sequence[Refusal]) -> EpisodeArm | None:
    if not name:
        bases = [arm for arm in arms if arm.base]
        return bases[0] if len(bases) == 1 else None
    found = [arm for arm in arms if arm.name == name]
    if found:
        return found[0]
    if any(row.what == f"arm {name}" for row in refused):
        return None
    known = ", ".join(sorted(arm.name for arm in arms)) or "none"
    raise GeoError(f"No arm {name!r} has episodes there", f"The arms found are: {known}")


def _unlike(arms: Sequence[EpisodeArm]) -> list[Refusal]:
    """Without a baseline nobody is paired; that the arms cannot be compared at all is still said."""
    found = []
    for column, words in ALIKE.items():
        values = sorted({arm.said[column] or "none" for arm in arms})
        if len(values) > 1:
            found.append(Refusal("one ranking of these arms", f"mixed {words} ({', '.join(values)})"))
    if len({arm.k for arm in arms}) > 1:
        found.append(Refusal("one ranking of these arms", "unequal k"))
    return found


def _ends(interval: Interval | None) -> list[float] | None:
    return [interval.low, interval.high] if interval else None


def _refusal(row: Refusal) -> dict[str, str]:
    return {"what": row.what, "why": row.why}
