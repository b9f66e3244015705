"""What tables of boards have in common: their declaration, and the check of figures against data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from geo_assets.config.arms import Arms, load_arms
from geo_assets.lineage.assets import Check, CheckSpec, GeoAsset, Made, Stage, StageRun, geo_asset
from geo_assets.reports.arm_data import ArmData, Board, board_assets, boards_of
from geo_assets.reports.tables import Row, markdown
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweeps
from geo_assets.sweeps.sidecar import read_outcomes

RECOMPUTED = "recomputed_from_episodes"
RECOMPUTED_SAYS = "What the JSON lines give equals what the outcome tables hold, to the last bit."
Maker = Callable[[StageRun, Arms, Sequence[AdapterSweep]], Made]


def boards_asset(
    stage: Stage,
    name: str,
    make: Maker,
    *,
    kinds: Iterable[str] = ("csv", "parquet", "png"),
    deps: Sequence[str] = (),
    checks: Sequence[CheckSpec] = (),
    adapters: bool = True,
    extra: Callable[[Stage], Any] = lambda stage: None,
) -> GeoAsset:
    """The asset of one profile that makes a table of boards.

    Args:
        stage: the profile.
        name: the asset's.
        make: makes it; its module is the asset's, in description, code reference and code version.
        kinds: what Dagster shows.
        deps: parents besides the sweeps.
        checks: besides the one that every table has.
        adapters: whether adapters and their base arms are in it.
        extra: further declared inputs of the code version.

    Raises:
        ArmsFileError: the arms or the runs file cannot be used.
    """
    arms = load_arms(stage.settings.profile)
    trained = adapter_sweeps(stage.settings.profile) if adapters else ()
    boards = boards_of(arms, trained)

    @geo_asset(
        name=name,
        group="reports",
        deps=[*board_assets(boards), *deps],
        spec=lambda specs: boards_value(boards),
        kinds=kinds,
        checks=[CheckSpec(RECOMPUTED, RECOMPUTED_SAYS), *checks],
        extra=extra,
    )
    @wraps(make)
    def table(run: StageRun) -> Made:
        return make(run, arms, trained)

    return table


def recomputed(boards: Iterable[Mapping[str, ArmData]]) -> Check:
    """Hold the arrays that a table was made from, read from JSON lines, against the outcome tables."""
    arms = {str(arm.path): arm for board in boards for arm in board.values()}
    differing = [f"{arm.swept_as}/{arm.slug}" for arm in arms.values() if not _same(arm)]
    figures = {
        "arms": len(arms),
        "episodes": sum(arm.episodes for arm in arms.values()),
        "differing": len(differing),
        "limit": 0,
    }
    return Check(RECOMPUTED, not differing, figures | ({"which": ", ".join(differing)} if differing else {}))


def _same(arm: ArmData) -> bool:
    table = read_outcomes(arm.path).table
    held = {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in table.column_names}
    wanted = (held["sample"] < arm.k) & (held["task_index"] < arm.tasks)
    return set(held) == set(arm.columns) and all(
        _equal(arm.columns[name], values[wanted]) for name, values in held.items()
    )


def _equal(ours: Any, other: Any) -> bool:
    if ours.dtype == object or other.dtype == object:
        return bool(ours.tolist() == other.tolist())
    return bool(np.array_equal(ours, other, equal_nan=ours.dtype.kind == "f"))


def boards_markdown(boards: Sequence[Board], rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """One Markdown table per board, under the board's label where there are several."""
    tables = [markdown([row for row in rows if row["board"] == board.name], columns) for board in boards]
    if len(boards) < 2:
        return "".join(tables)
    labelled = zip(boards, tables, strict=True)
    return "\n\n".join(f"**{board.spec.label}**\n\n{table}" for board, table in labelled)


def boards_value(boards: Sequence[Board]) -> dict[str, Any]:
    """What the boards contribute to a table: who stands on them, from which sweep, and under what name."""
    return {
        board.name: {
            "board": board.spec.model_dump(mode="json"),
            "sweep": board.sweep,
            "arms": {arm.slug: [arm.label, arm.kind] for arm in board.arms},
        }
        for board in boards
    }
