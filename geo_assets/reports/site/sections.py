"""What each section of the page shows, put together from rows that stand in files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from env_service.tasks import Task
from geo_assets.reports.arm_data import CURVE
from geo_assets.reports.site.collect import BoardPart, Learning, Material, Training
from geo_assets.reports.site.credits import credit_of
from geo_assets.reports.site.interval_chart import IntervalRow, interval_chart
from geo_assets.reports.site.scatter_chart import Point, scatter_chart
from geo_assets.reports.site.tables import Table, table_of
from geo_assets.reports.site.training_chart import small_charts, training_chart

BOARD = {
    "arm": "{label}",
    "#": "{rank}",
    "mean of k": "{mean_of_k:.4f}",
    "standard error": "{standard_error:.4f}",
    "95 % interval": "{ci95_low:.4f} to {ci95_high:.4f}",
    "best of k": "{best_of_k:.4f}",
    "pass@1, 200 km": "{pass_at_1_200km:.3f}",
    "pass@k, 200 km": "{pass_at_k_200km:.3f}",
    "median km": "{median_km:,.0f}",
    "tasks × k": "{tasks} × {k}",
}
BEHAVIOUR = {
    "arm": "{label}",
    "turns": "{turns:.1f}",
    "looks": "{looks:.1f}",
    "moves": "{moves:.1f}",
    "pins": "{pins:.1f}",
    "cost": "{cost:.3f}",
    "country %": "{country_pct:.1f}",
    "≤\u00a0200\u00a0km %": "{within200_pct:.1f}",
    "≤\u00a0750\u00a0km %": "{within750_pct:.1f}",
    "floored %": "{env_floor_pct:.1f}",
    "no guess %": "{no_guess_pct:.1f}",
    "forced %": "{forced_pct:.1f}",
    "fabricated %": "{fabricated_pct:.1f}",
    "tokens": "{tokens_out:,.0f}",
}
GAINS = {
    "pair": "{label} − {against_label}",
    "family": "{family}",
    "difference": "{delta:+.4f}",
    "standard error": "{standard_error:.4f}",
    "95 % interval (±1.96 se)": "{ci95_low:+.4f} to {ci95_high:+.4f}",
    "bootstrap 95 %": "{bootstrap95_low:+.4f} to {bootstrap95_high:+.4f}",
    "p (Holm)": "{p_said}",
    "significant": "{significant}",
    "better on": "{better_on} of {tasks}",
    "detectable": "{detectable:.4f}",
    "by guessing at all": "{guessed_at_all:+.4f} ± {guessed_at_all_se:.4f}",
    "by guessing closer": "{closer:+.4f} ± {closer_se:.4f}",
}
FAMILIES = {"base": "base arm", "ladder": "next below"}
RELATIONS = {"base": "Against the base arm", "ladder": "Against the next one below"}


@dataclass(frozen=True)
class Headline:
    """The page's first lines: one sentence, and figures with their names."""

    sentence: str
    figures: tuple[tuple[str, str], ...]


def headline(material: Material) -> Headline:
    """What there is, and who leads the first board."""
    arms, episodes = len(material.players), sum(player.data.episodes for player in material.players)
    figures = [
        (f"{len(material.tasks):,}", "places to guess"),
        (f"{len({task.country_code or task.country for task in material.tasks}):,}", "countries"),
        (f"{arms:,}", "arms"),
        (f"{episodes:,}", "episodes played"),
    ]
    ranked = [row for board in material.boards[:1] for row in board.rows if row["complete"]]
    if not ranked:
        return Headline("No arm has finished its sweep yet; what stands so far is below.", tuple(figures))
    best = ranked[0]
    sentence = f"{best['label']} leads with a reward of {best['mean_of_k']:.3f}"
    if best["ci95_low"] is not None:
        sentence += f" (95 % interval {best['ci95_low']:.3f} to {best['ci95_high']:.3f})"
    if len(ranked) > 1:
        sentence += f"; {ranked[-1]['label']} closes the board with {ranked[-1]['mean_of_k']:.3f}"
    return Headline(f"{sentence}. Rewards are under {CURVE}.", tuple(figures))


def board_chart(part: BoardPart) -> Markup:
    """A board as dots with intervals."""
    rows = [
        IntervalRow(
            row["label"],
            row["mean_of_k"],
            row["ci95_low"],
            row["ci95_high"],
            row["best_of_k"],
            note=incomplete(row),
            kind=row["kind"],
        )
        for row in part.rows
    ]
    figures = "; ".join(f"{row['label']} {row['mean_of_k']:.3f}" for row in part.rows if row["complete"])
    label = f"{part.label}: mean reward and 95 % interval of {len(rows)} arms. {figures}"
    return interval_chart(rows, label, f"reward ({CURVE})", extra_name="best of k")


def board_table(part: BoardPart) -> Table:
    """Scores of a board."""
    return table_of(f"{part.label}: scores", [_named(row) for row in part.rows], BOARD)


def behaviour_table(part: BoardPart) -> Table:
    """Behaviour columns of a board."""
    return table_of(
        f"{part.label}: behaviour, means and shares over scored episodes",
        [_named(row) for row in part.rows],
        BEHAVIOUR,
    )


def gains_chart(part: BoardPart) -> Markup:
    """Paired differences of a board, both families under a heading each."""
    rows = [
        IntervalRow(
            row["label"] if relation == "base" else f"{row['label']} − {row['against_label']}",
            row["delta"],
            row["ci95_low"],
            row["ci95_high"],
            group=words if relation == "ladder" else f"{words}, {row['against_label']}",
            kind="significant" if row["significant"] else "",
        )
        for relation, words in RELATIONS.items()
        for row in part.gains
        if row["relation"] == relation
    ]
    label = f"{part.label}: {len(rows)} paired differences in reward with their 95 % intervals"
    return interval_chart(rows, label, f"difference in reward ({CURVE})", difference=True)


def gains_table(part: BoardPart) -> Table:
    """Paired differences of a board."""
    rows = [
        row
        | {
            "family": FAMILIES.get(row["relation"], row["relation"]),
            "significant": {True: "yes", False: "no"}.get(row["significant"]),
            "p_said": _p(row["p_holm"]),
        }
        for row in part.gains
    ]
    return table_of(f"{part.label}: paired differences, task by task", rows, GAINS)


def turns_chart(material: Material) -> Markup:
    """Turns against score over the complete arms of all boards."""
    labels = {(player.data.sweep, player.data.slug): player.label for player in material.players}
    points = [
        Point(
            labels.get((part.name, row["arm"])) or labels.get(("", row["arm"])) or str(row["label"]),
            row["turns"],
            row["mean_of_k"],
            row["ci95_low"],
            row["ci95_high"],
            row["kind"],
        )
        for part in material.boards
        for row in part.rows
        if row["complete"]
    ]
    label = "Mean turns against mean reward: " + "; ".join(
        f"{point.label} {point.x:.1f} turns, {point.y:.3f}" for point in points
    )
    return scatter_chart(points, label, "mean turns of an episode", f"reward ({CURVE})")


def training_parts(training: Training) -> dict[str, Any]:
    """Charts and table of one run."""
    steps = len(training.lines)
    ends = ", ".join(f"{score.label} {score.mean:.3f}" for score in training.scores)
    label = f"{training.label}: training reward over {steps} steps, raw and smoothed" + (
        f", beside the scores on held-out tasks: {ends}" if ends else ""
    )
    rows = [
        {
            "step": str(score.step),
            "weights": score.label,
            "mean": score.mean,
            "low": score.low,
            "high": score.high,
        }
        for score in training.scores
    ]
    columns = {
        "step": "{step}",
        "weights": "{weights}",
        "score": "{mean:.4f}",
        "95 % interval": "{low:.4f} to {high:.4f}",
    }
    return {
        "run": training,
        "chart": training_chart(training.lines, training.scores, label),
        "small": small_charts(training.lines),
        "table": table_of(f"{training.label}: scores on held-out tasks ({CURVE})", rows, columns),
    }


def learning_chart(learning: Learning) -> Markup:
    """Rewards of players without pictures, of the base arm and of the adapter, on the same tasks."""
    rows = [
        IntervalRow(
            row["label"],
            row["mean"],
            row["ci95_low"],
            row["ci95_high"],
            group=_learning_group(row, learning),
            kind={"base": "base", "adapter": "trained"}.get(row["group"], "blind"),
        )
        for row in learning.scores
        if row["mean"] is not None
    ]
    label = f"Reward of {len(rows)} kinds of answers on the same held-out tasks, with 95 % intervals"
    return interval_chart(rows, label, f"reward ({CURVE})")


def tasks_table(tasks: Sequence[Task]) -> Table:
    """Every eval task: where it is, and whose pictures it has."""
    rows = []
    for task in tasks:
        credit = credit_of(task)
        where = f"{task.start.lat:.3f}, {task.start.lon:.3f}".replace("-", "−")
        rows.append(
            [
                str(task.task_index),
                task.country,
                where,
                task.start.captured_at or "–",
                f"{len(task.frames)}",
                credit.contributor,
                credit.licence,
            ]
        )
    return Table(
        f"The {len(tasks):,} eval tasks",
        ["task", "country", "latitude, longitude", "captured", "frames", "pictures by", "licence"],
        rows,
        texts=frozenset({0, 1, 5, 6}),
    )


def versions_table(material: Material) -> Table:
    """Which version of every parent the page was made from."""
    rows = [[name, version] for name, version in material.versions]
    return Table(
        "Data versions of everything this page was made from",
        ["asset", "data version"],
        rows,
        texts=frozenset({0, 1}),
    )


def incomplete(row: dict[str, Any]) -> str:
    """Said of an arm without figures."""
    return "" if row["complete"] else f"incomplete: {row['episodes']} of {row['tasks'] * row['k']} episodes"


def _p(value: float | None) -> str | None:
    """A p value; rows keep six decimals, so a smaller one would read as none at all."""
    return None if value is None else f"{value:.2g}" if value >= 1e-4 else "< 0.0001"


def _named(row: dict[str, Any]) -> dict[str, Any]:
    words = incomplete(row)
    return row | {"label": f"{row['label']} ({words})"} if words else row


def _learning_group(row: dict[str, Any], learning: Learning) -> str:
    if row["run"] is None:
        return {"blind": "No picture, nothing known"}.get(row["group"], "No picture, told the true country")
    return learning.labels.get(row["run"], row["run"])
