"""What a first sweep is for: which model to train, and how much one pass can mislead.

For every arm: the headroom that training could take (best of k minus mean of k: what it can do once in k
tries and does not do every time), the failures that are about form and not about places (no guess,
fabrication), whether it uses its tools, and its size with the card that a LoRA run of it fits. Beside it the
rank of every arm at pass@1 and over all passes. An arm is suggested for training if its weights are open and
their size is known, it uses tools, and among those has the most headroom per square root of its size: a
choice of ours, printed with its figures so that another can be made. Costs a second.
"""

import re
from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from env_service.canonical import atomic_write
from geo_assets.config.arms import Arms
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun
from geo_assets.lineage.versions import content_version
from geo_assets.reports._boards import boards_asset, boards_markdown, recomputed
from geo_assets.reports._played import figures
from geo_assets.reports._report_text import grid
from geo_assets.reports.arm_data import CURVE, ArmData, Board, board_data, boards_of, comparable
from geo_assets.reports.charts import inline_png, interval_chart
from geo_assets.reports.tables import column, rounded, table_metadata, write_table
from geo_assets.sweeps.adapter_arms import AdapterSweep

NAME = "first_look"
CLOSED = ("anthropic", "openai")
SIZE = re.compile(r"(?<![0-9A-Za-z.])(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)
GIB_PER_BILLION = 2.0
"""Weights in bfloat16."""

LORA_FACTOR, LORA_EXTRA_GIB = 1.6, 12.0
"""Weights, their copy for generation and activations of a LoRA run, as a rule of thumb and no measurement."""

CARDS = (("24 GB", 24.0), ("A100 80 GB", 80.0), ("4 x A100 80 GB", 320.0))
USES_TOOLS = 1.0
"""Calls besides the guess, per episode, from which an arm counts as using its tools."""

SCHEMA = pa.schema(
    [
        column("board", pa.string(), "which board"),
        column("arm", pa.string(), "slug"),
        column("label", pa.string(), "name"),
        column("provider", pa.string(), "which far end serves it"),
        column("open_weights", pa.bool_(), "its weights can be had"),
        column("billions", pa.float64(), "parameters as its name says; null where it says nothing"),
        column("card", pa.string(), "the smallest card on which a LoRA run fits, by rule of thumb"),
        column("mean_of_k", pa.float64(), "mean over tasks of the mean reward over samples"),
        column("best_of_k", pa.float64(), "mean over tasks of the best reward"),
        column("headroom", pa.float64(), "best_of_k - mean_of_k"),
        column("no_guess_pct", pa.float64(), "no usable guess, % of episodes"),
        column("fabricated_pct", pa.float64(), "environment's side invented, % of episodes"),
        column("turns", pa.float64(), "mean calls"),
        column("tool_calls", pa.float64(), "mean calls besides the guess"),
        column("pass1", pa.float64(), "mean reward of the first pass alone"),
        column("rank_pass1", pa.int32(), "place by the first pass alone"),
        column("rank", pa.int32(), "place by mean_of_k"),
        column("moved", pa.int32(), "places gained from the first pass to all passes"),
        column("suggested", pa.bool_(), "what to train, by the rule in the description"),
        column("why", pa.string(), "why it is suggested, or is not"),
        column("curve", pa.string(), "curve of the rewards"),
    ]
)

MARKDOWN = {
    "arm": "{label}",
    "headroom": "{headroom:.4f}",
    "mean of k": "{mean_of_k:.4f}",
    "best of k": "{best_of_k:.4f}",
    "no guess %": "{no_guess_pct:.1f}",
    "fabricated %": "{fabricated_pct:.1f}",
    "calls besides the guess": "{tool_calls:.1f}",
    "billions": "{billions:g}",
    "card": "{card}",
    "rank at pass@1": "{rank_pass1}",
    "rank": "{rank}",
    "train it": "{suggested}",
    "why": "{why}",
}
TEXT = {
    "arm": "{label}",
    "headroom": "{headroom:.3f}",
    "mean": "{mean_of_k:.3f}",
    "none %": "{no_guess_pct:.0f}",
    "invented %": "{fabricated_pct:.0f}",
    "calls": "{tool_calls:.1f}",
    "B": "{billions:g}",
    "@1": "{rank_pass1}",
    "rank": "{rank}",
    "train": "{suggested}",
}


def first_look_asset(stage: Stage) -> GeoAsset:
    """The asset for one profile: its arms, and the base arms that adapters are trained from.

    Raises:
        ArmsFileError: the arms or the runs file cannot be used.
    """
    return boards_asset(stage, NAME, make_first_look)


def make_first_look(run: StageRun, arms: Arms, adapters: Sequence[AdapterSweep] = ()) -> Made:
    """Compute headroom, failures, sizes and ranks, and write them.

    Raises:
        MissingUpstream: a sweep has not been made.
        UnequalComparison: arms of a board differ in environment, harness, passes or tasks.
    """
    boards = boards_of(arms, adapters)
    data = {board.name: board_data(run, board) for board in boards}
    rows: list[dict[str, Any]] = []
    for board in boards:
        own = [arm for arm in data[board.name].values() if arm.complete and arm.spec.kind != "trained"]
        comparable(own, f"First look {board.name}")
        rows += look_rows(board, own)
    choose(rows)
    rows = [rounded(row) for row in rows]
    folder = run.folder().path
    png = _chart(rows)
    atomic_write(folder / f"{NAME}.png", png)
    write_table(folder, NAME, rows, SCHEMA, grid(rows, TEXT))
    suggested = [row["arm"] for row in rows if row["suggested"]]
    facts = {
        "arms": len(rows),
        "suggested": ", ".join(suggested) or "none",
        "ranks_moved": sum(bool(row["moved"]) for row in rows),
        "curve": CURVE,
    }
    metadata = {
        "table": dg.MetadataValue.md(boards_markdown(boards, rows, MARKDOWN)),
        "picture": dg.MetadataValue.md(inline_png(png, "Headroom of every arm")),
        **table_metadata(rows, SCHEMA),
    }
    return Made(content_version(rows), facts, metadata, [recomputed(data.values())])


def look_rows(board: Board, arms: Sequence[ArmData]) -> list[dict[str, Any]]:
    """Rows of one board, most headroom first."""
    rows = [_row(board.name, arm) for arm in arms]
    for name, by in (("rank_pass1", "pass1"), ("rank", "mean_of_k")):
        for place, row in enumerate(sorted(rows, key=lambda row: (-row[by], row["arm"])), start=1):
            row[name] = place
    for row in rows:
        row["moved"] = row["rank_pass1"] - row["rank"]
    return sorted(rows, key=lambda row: (-row["headroom"], row["arm"]))


def choose(rows: Sequence[dict[str, Any]]) -> None:
    """Mark what to train, and say of every row why or why not."""
    fit = []
    for row in rows:
        row["suggested"] = False
        if not row["open_weights"]:
            row["why"] = "its weights cannot be had"
        elif row["billions"] is None:
            row["why"] = "its size is not known"
        elif row["card"] is None:
            row["why"] = "too large for one machine"
        elif row["tool_calls"] < USES_TOOLS:
            row["why"] = f"it hardly uses its tools ({row['tool_calls']:.1f} calls)"
        else:
            row["why"] = "others have more headroom for their size"
            fit.append(row)
    best = max(fit, key=lambda row: (row["headroom"] / row["billions"] ** 0.5, row["arm"]), default=None)
    if best is not None:
        best |= {"suggested": True, "why": f"most headroom for its size, on {best['card']}"}


def billions_of(model: str) -> float | None:
    """Billions of parameters as a model's name says them (the first such number); None where it does not."""
    found = SIZE.search(model.replace("_", "-"))
    return float(found.group(1)) if found else None


def card_for(billions: float) -> str | None:
    """The smallest card on which a LoRA run fits, by rule of thumb; None above the largest machine."""
    needed = billions * GIB_PER_BILLION * LORA_FACTOR + LORA_EXTRA_GIB
    return next((name for name, gib in CARDS if needed <= gib), None)


def _row(board: str, arm: ArmData) -> dict[str, Any]:
    found, rewards, billions = figures(arm), arm.reward_matrix, billions_of(arm.spec.model)
    empty: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    return empty | {
        "board": board,
        "arm": arm.slug,
        "label": arm.spec.label,
        "provider": arm.spec.provider,
        "open_weights": arm.spec.provider not in CLOSED and arm.spec.kind != "policy",
        "billions": billions,
        "card": card_for(billions) if billions is not None else None,
        **{
            name: found[name]
            for name in ("mean_of_k", "best_of_k", "no_guess_pct", "fabricated_pct", "turns")
        },
        "headroom": found["best_of_k"] - found["mean_of_k"],
        "tool_calls": max(0.0, found["turns"] - (1.0 - found["no_guess_pct"] / 100.0)),
        "pass1": float(rewards[:, 0].mean()),
        "curve": CURVE,
    }


def _chart(rows: Sequence[dict[str, Any]]) -> bytes:
    return interval_chart(
        labels=[row["label"] for row in rows],
        means=[row["mean_of_k"] for row in rows],
        lows=[row["mean_of_k"] for row in rows],
        highs=[row["best_of_k"] for row in rows],
        extra=[row["best_of_k"] for row in rows],
        title=f"Headroom: from mean of k to best of k ({CURVE})",
        mean_name="mean of k, and up to best of k",
        extra_name="best of k",
    )
