"""Who is better than whom, and by how much: every pair of a board, paired task by task.

Each arm against the base arm of its board, and against the next arm below it on the ladder, only within one
environment, one harness, one task set, one k and one protocol; an adapter against the base arm of its own
sweep and no other. The standard error and the 95 % interval are separate, labelled columns; beside them a
bootstrap interval over tasks, Holm's adjustment within each family of pairs, the smallest detectable
difference, and the gain split into guessing at all and guessing closer, each part with its own error and
interval. Costs seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg
import pyarrow as pa

from env_service.canonical import atomic_write
from geo_assets.config.arms import Arms, BoardSpec
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun
from geo_assets.lineage.versions import content_version
from geo_assets.reports import statistics
from geo_assets.reports._boards import boards_asset, boards_markdown, recomputed
from geo_assets.reports._report_text import grid
from geo_assets.reports.arm_data import CURVE, ArmData, board_data, boards_of, comparable
from geo_assets.reports.charts import inline_png, interval_chart
from geo_assets.reports.tables import column, rounded, table_metadata, write_table
from geo_assets.sweeps.adapter_arms import AdapterSweep

NAME = "paired_gains"
SIGNIFICANT = 0.05
Relation = Literal["base", "ladder"]

SCHEMA = pa.schema(
    [
        column("board", pa.string(), "which board"),
        column("relation", pa.string(), "against the board's base arm, or the next below on its ladder"),
        column("arm", pa.string(), "slug"),
        column("against", pa.string(), "slug of the other"),
        column("label", pa.string(), "name"),
        column("against_label", pa.string(), "name of the other"),
        column("tasks", pa.int32(), "tasks paired"),
        column("k", pa.int32(), "passes"),
        column("delta", pa.float64(), "mean over tasks of the difference of means over samples"),
        column("standard_error", pa.float64(), "of delta: sd(n - 1) / sqrt(n)"),
        column("ci95_half_width", pa.float64(), "1.96 standard errors"),
        column("ci95_low", pa.float64(), "delta - 1.96 standard errors"),
        column("ci95_high", pa.float64(), "delta + 1.96 standard errors"),
        column("t95_low", pa.float64(), "the interval by Student's t, under 60 tasks"),
        column("t95_high", pa.float64(), "the interval by Student's t, under 60 tasks"),
        column("bootstrap95_low", pa.float64(), "2.5 % point over resampled tasks"),
        column("bootstrap95_high", pa.float64(), "97.5 % point over resampled tasks"),
        column("p", pa.float64(), "two-sided, from delta / standard error"),
        column("p_holm", pa.float64(), "Holm-adjusted over the pairs of this board and relation"),
        column("significant", pa.bool_(), "p_holm < 0.05"),
        column("better_on", pa.int32(), "tasks on which the arm is better"),
        column("detectable", pa.float64(), "smallest detectable difference: 2.80 standard errors"),
        column("guessed_at_all", pa.float64(), "part of delta that comes from guessing at all"),
        column("guessed_at_all_se", pa.float64(), "its standard error"),
        column("guessed_at_all_ci95_low", pa.float64(), "guessed_at_all - 1.96 standard errors"),
        column("guessed_at_all_ci95_high", pa.float64(), "guessed_at_all + 1.96 standard errors"),
        column("closer", pa.float64(), "gain by guessing closer, over tasks where both guessed"),
        column("closer_se", pa.float64(), "its standard error"),
        column("closer_ci95_low", pa.float64(), "closer - 1.96 standard errors"),
        column("closer_ci95_high", pa.float64(), "closer + 1.96 standard errors"),
        column("closer_tasks", pa.int32(), "tasks where both guessed"),
        column("curve", pa.string(), "curve of the rewards"),
        column("protocol", pa.string(), "how turns were exchanged"),
        column("environment_version", pa.string(), "environment played"),
        column("sweep_version", pa.string(), "data version of the arm's sweep"),
        column("against_version", pa.string(), "data version of the other's sweep"),
    ]
)

MARKDOWN = {
    "pair": "{label} − {against_label}",
    "relation": "{relation}",
    "delta": "{delta:+.4f}",
    "standard error": "{standard_error:.4f}",
    "95 % interval (±1.96 se)": "{ci95_low:+.4f} to {ci95_high:+.4f}",
    "bootstrap 95 %": "{bootstrap95_low:+.4f} to {bootstrap95_high:+.4f}",
    "p (Holm)": "{p_holm:.2g}",
    "significant": "{significant}",
    "better on": "{better_on} of {tasks}",
    "detectable": "{detectable:.4f}",
    "guessed at all": "{guessed_at_all:+.4f}",
    "guessed at all: standard error": "{guessed_at_all_se:.4f}",
    "guessed at all: 95 % interval": "{guessed_at_all_ci95_low:+.4f} to {guessed_at_all_ci95_high:+.4f}",
    "guessed closer": "{closer:+.4f}",
    "guessed closer: standard error": "{closer_se:.4f}",
    "guessed closer: 95 % interval": "{closer_ci95_low:+.4f} to {closer_ci95_high:+.4f}",
}
TEXT = {
    "arm": "{label}",
    "against": "{against_label}",
    "delta": "{delta:+.3f}",
    "se": "{standard_error:.4f}",
    "95 % interval": "{ci95_low:+.3f} {ci95_high:+.3f}",
    "p (Holm)": "{p_holm:.2g}",
    "better": "{better_on}/{tasks}",
}


@dataclass(frozen=True)
class Pair:
    """An arm and the one it is measured against."""

    relation: Relation
    arm: ArmData
    against: ArmData

    @property
    def obstacle(self) -> str:
        """Why the two cannot be paired; empty where they can."""
        for side in (self.arm, self.against):
            if not side.complete:
                return f"{side.slug} is incomplete ({side.episodes} of {side.expected} episodes)"
        own, other = str(self.arm.spec.protocol), str(self.against.spec.protocol)
        if own != other:
            return f"protocols differ ({own}, {other})"
        return ""


def paired_gains_asset(stage: Stage) -> GeoAsset:
    """The asset for one profile; its parents are the profile's sweeps.

    Raises:
        ArmsFileError: the arms or the runs file cannot be used.
    """
    return boards_asset(stage, NAME, make_gains)


def make_gains(run: StageRun, arms: Arms, adapters: Sequence[AdapterSweep] = ()) -> Made:
    """Compute the pairs and write them.

    Raises:
        MissingUpstream: a sweep has not been made.
        UnequalComparison: arms of a board differ in environment, harness, passes or tasks.
    """
    boards = boards_of(arms, adapters)
    data = {board.name: board_data(run, board) for board in boards}
    folder = run.folder().path
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    pictures: dict[str, Any] = {}
    for number, on in enumerate(boards):
        name, board, own_data = on.name, on.spec, data[on.name]
        comparable(list(own_data.values()), f"Board {name}")
        found = pairs(board, own_data)
        skipped += [f"{p.arm.slug} − {p.against.slug}: {p.obstacle}" for p in found if p.obstacle]
        own = gain_rows(name, [pair for pair in found if not pair.obstacle])
        rows += own
        png = _chart(board, own_data[board.base].spec.label, own)
        path = folder / (f"{NAME}_{name}.png" if number else f"{NAME}.png")
        atomic_write(path, png)
        pictures[f"picture_{name}"] = dg.MetadataValue.md(inline_png(png, f"{board.label}, paired"))
        pictures[f"picture_{name}_path"] = dg.MetadataValue.path(str(path))
    write_table(folder, NAME, rows, SCHEMA, grid(rows, TEXT))
    facts = {
        "pairs": len(rows),
        "significant": sum(bool(row["significant"]) for row in rows),
        "skipped": skipped,
        "curve": CURVE,
    }
    metadata = {
        "table": dg.MetadataValue.md(boards_markdown(boards, rows, MARKDOWN)),
        "not_paired": dg.MetadataValue.md("\n".join(f"- {line}" for line in skipped) or "none"),
        **table_metadata(rows, SCHEMA),
        **pictures,
    }
    version = content_version({"rows": rows, "skipped": skipped})
    return Made(version, facts, metadata, [recomputed(data.values())])


def pairs(board: BoardSpec, data: dict[str, ArmData]) -> list[Pair]:
    """Every arm against the base, then every arm against the next below on the ladder.

    A ladder of two would only repeat the pair with the base.
    """
    base = data[board.base]
    against_base = [Pair("base", data[slug], base) for slug in board.ladder if slug != board.base]
    steps = zip(board.ladder, board.ladder[1:], strict=False) if len(board.ladder) > 2 else ()
    return against_base + [Pair("ladder", data[upper], data[lower]) for upper, lower in steps]


def gain_rows(board: str, found: Sequence[Pair]) -> list[dict[str, Any]]:
    """Rows of one board; Holm's adjustment is made within each relation."""
    rows = [_row(board, pair) for pair in found]
    for relation in ("base", "ladder"):
        family = [row for row in rows if row["relation"] == relation and row["p"] is not None]
        for row, adjusted in zip(family, statistics.holm([row["p"] for row in family]), strict=True):
            row["p_holm"] = adjusted
            row["significant"] = adjusted < SIGNIFICANT
    return [rounded(row) for row in rows]


def _row(board: str, pair: Pair) -> dict[str, Any]:
    arm, against = pair.arm, pair.against
    gain = statistics.paired_gain(
        arm.reward_matrix,
        against.reward_matrix,
        arm.matrix(arm.guessed),
        against.matrix(against.guessed),
    )
    whole, split = gain.estimate, gain.split
    return {
        "board": board,
        "relation": pair.relation,
        "arm": arm.slug,
        "against": against.slug,
        "label": arm.spec.label,
        "against_label": against.spec.label,
        "tasks": whole.n,
        "k": arm.k,
        "delta": whole.mean,
        "standard_error": whole.se,
        "ci95_half_width": whole.ci95.half_width if whole.ci95 else None,
        "ci95_low": whole.ci95.low if whole.ci95 else None,
        "ci95_high": whole.ci95.high if whole.ci95 else None,
        "t95_low": whole.t95.low if whole.t95 else None,
        "t95_high": whole.t95.high if whole.t95 else None,
        "bootstrap95_low": gain.bootstrap95.low,
        "bootstrap95_high": gain.bootstrap95.high,
        "p": gain.p,
        "p_holm": None,
        "significant": None,
        "better_on": gain.better_on,
        "detectable": gain.detectable,
        "guessed_at_all": split.guessed_at_all.mean,
        "guessed_at_all_se": split.guessed_at_all.se,
        **_interval("guessed_at_all", split.guessed_at_all),
        "closer": split.closer.mean if split.closer else None,
        "closer_se": split.closer.se if split.closer else None,
        **_interval("closer", split.closer),
        "closer_tasks": split.closer.n if split.closer else 0,
        "curve": CURVE,
        "protocol": arm.spec.protocol,
        "environment_version": arm.environment_version,
        "sweep_version": arm.sweep_version,
        "against_version": against.sweep_version,
    }


def _interval(name: str, part: statistics.Estimate | None) -> dict[str, float | None]:
    reach = part.ci95 if part else None
    return {
        f"{name}_ci95_low": reach.low if reach else None,
        f"{name}_ci95_high": reach.high if reach else None,
    }


def _chart(board: BoardSpec, base: str, rows: list[dict[str, Any]]) -> bytes:
    """Both families of pairs under a heading each; a pair that stands in both is drawn in both."""
    families = [[row for row in rows if row["relation"] == relation] for relation in ("base", "ladder")]
    labels = [row["label"] for row in families[0]]
    labels += [f"{row['label']} − {row['against_label']}" for row in families[1]]
    drawn = [row for family in families for row in family]
    return interval_chart(
        labels=labels,
        means=[row["delta"] for row in drawn],
        lows=[row["ci95_low"] for row in drawn],
        highs=[row["ci95_high"] for row in drawn],
        title=f"{board.label}: paired difference in reward ({CURVE})",
        mean_name="mean difference, 95 % interval (±1.96 standard errors)",
        zero_line=True,
        groups=[
            (f"Each arm against the base arm, {base}", len(families[0])),
            ("Each arm against the next one below", len(families[1])),
        ],
    )
