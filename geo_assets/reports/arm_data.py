"""What a report reads of a sweep: raw figures per episode, and rewards recomputed from them.

Rewards are never read, and neither are distances: a distance is computed from guess and truth, a reward from
distance and cost through the one pinned curve, so no stored figure of another making has a way into a table.
What is read are the episodes themselves, and they must be the very ones that the sweep published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from env_service.errors import GeoError
from env_service.scoring import BOARD_V1
from geo_assets.config.arms import Arms, ArmSpec, BoardSpec
from geo_assets.lineage.assets import StageRun
from geo_assets.lineage.folders import Published
from geo_assets.reports._played import Played
from geo_assets.sweeps.adapter_arms import AdapterSweep
from geo_assets.sweeps.names import asset_name, folder_name, member_folder
from geo_assets.sweeps.published import AlteredSweep, read_published
from geo_assets.sweeps.version import harness_version

CURVE = BOARD_V1.name


class UnequalComparison(GeoError):
    """Arms that cannot stand in one table; the message names them and what differs."""


@dataclass(frozen=True)
class Board:
    """Arms that stand in one table.

    Attributes:
        name: the board's.
        spec: its label, base and ladder.
        arms: the arms of the ladder, in its order.
        sweep: slug of the one sweep that played all of them; empty where each has a sweep of its own.
    """

    name: str
    spec: BoardSpec
    arms: tuple[ArmSpec, ...]
    sweep: str = ""

    @property
    def sweeps(self) -> tuple[str, ...]:
        """Slugs of the sweeps that it is made from."""
        return (self.sweep,) if self.sweep else tuple(arm.slug for arm in self.arms)


@dataclass(frozen=True, kw_only=True)
class ArmData(Played):
    """The episodes of one arm of the graph.

    Attributes:
        spec: the arm.
        environment_version, harness_version, prompt_version: what was played, and by what.
        sweep_version: what came out.
        sweep: slug of the sweep that played it, where that is not the arm's own.
        path: folder of its episodes.
    """

    spec: ArmSpec
    environment_version: str
    harness_version: str
    prompt_version: str
    sweep_version: str
    sweep: str = ""
    path: Path = Path()

    @property
    def slug(self) -> str:
        """The arm's slug."""
        return self.spec.slug

    @property
    def swept_as(self) -> str:
        """What to type after `geo sweep` to play it."""
        return self.sweep or self.slug

    def matrix(self, values: NDArray[Any]) -> NDArray[Any]:
        """A column as tasks × samples, tasks in order.

        Raises:
            UnequalComparison: the arm is incomplete, so there is no such matrix.
        """
        if not self.complete:
            raise UnequalComparison(
                f"Arm {self.slug} has {self.episodes} of {self.expected} episodes",
                f"Complete it: geo sweep {self.swept_as} --resume",
            )
        return super().matrix(values)


def boards_of(arms: Arms, adapters: Sequence[AdapterSweep]) -> list[Board]:
    """Every board of a profile: those of the arms file, then one for each adapter with its own base arm."""
    declared = [
        Board(name, spec, tuple(arms.get(slug) for slug in spec.ladder)) for name, spec in arms.boards.items()
    ]
    return declared + [adapter_board(sweep) for sweep in adapters]


def adapter_board(sweep: AdapterSweep) -> Board:
    """The board of one adapter's sweep."""
    by_slug = {arm.slug: arm for arm in sweep.arms}
    spec = sweep.board
    return Board(sweep.slug, spec, tuple(by_slug[slug] for slug in spec.ladder), sweep.slug)


def board_assets(boards: Sequence[Board]) -> list[str]:
    """Names of the sweeps that boards are made from, in the order of the boards."""
    return list(dict.fromkeys(asset_name(slug) for board in boards for slug in board.sweeps))


def board_data(run: StageRun, board: Board) -> dict[str, ArmData]:
    """The arms of one board by slug, each from the sweep that the board means.

    Raises:
        MissingUpstream: a sweep has not been made; the message names the command.
        AlteredSweep: the episodes are not those that were published.
        DamagedEpisodes: a line among them is no episode.
    """
    return {arm.slug: _load(run, arm, board.sweep) for arm in board.arms}


def comparable(arms: Sequence[ArmData], table: str) -> None:
    """Make sure that arms may stand in one table.

    Raises:
        UnequalComparison: they differ in environment, harness, passes or tasks.
    """
    _same_play(arms, table)
    _same(arms, table, "environment versions", lambda arm: arm.environment_version)
    _same(arms, table, "numbers of passes (k)", lambda arm: arm.k)
    _same(arms, table, "numbers of tasks", lambda arm: arm.tasks)
    whole = [arm for arm in arms if arm.complete]
    _same(whole, table, "task sets", lambda arm: tuple(arm.columns["task_id"][: arm.tasks]))


def _same_play(arms: Sequence[ArmData], table: str) -> None:
    """Refuse arms that were played by different code or words, naming those that today's would play anew."""
    played = {(arm.harness_version, arm.prompt_version) for arm in arms}
    if len(played) < 2:
        return
    now = harness_version()
    old = [arm.slug for arm in arms if arm.harness_version != now] or [arm.slug for arm in arms]
    again = dict.fromkeys(arm.swept_as for arm in arms if arm.slug in old)
    raise UnequalComparison(
        f"{table} cannot compare arms that were played by {len(played)} versions of the harness; "
        f"played by another than today's: {', '.join(old)}",
        "Sweep them again: " + " && ".join(f"geo sweep {slug}" for slug in again),
    )


def _same(arms: Sequence[ArmData], table: str, what: str, of: Any) -> None:
    for other in arms[1:]:
        if of(other) != of(arms[0]):
            names = ",".join(dict.fromkeys(asset_name(arm.swept_as) for arm in (arms[0], other)))
            raise UnequalComparison(
                f"{table} cannot compare {arms[0].slug} and {other.slug}: they have unequal {what}",
                f"Sweep them alike: dagster asset materialize --select '{names}'",
            )


def _load(run: StageRun, arm: ArmSpec, sweep: str = "") -> ArmData:
    name = asset_name(sweep or arm.slug)
    published = run.require(name, folder_name(sweep or arm.slug))
    folder = _member(published, arm, sweep) if sweep else published
    swept = read_published(folder, name, run.say)
    columns: dict[str, NDArray[Any]] = {
        column: np.asarray(swept.outcomes.column(column).to_numpy(zero_copy_only=False))
        for column in swept.outcomes.column_names
    }
    return ArmData(
        spec=arm,
        tasks=swept.tasks,
        k=swept.k,
        complete=swept.complete,
        environment_version=swept.environment_version,
        harness_version=swept.harness_version,
        prompt_version=swept.prompt_version,
        sweep_version=swept.version,
        columns=columns,
        sweep=sweep,
        path=folder.path,
    )


def _member(published: Published, arm: ArmSpec, sweep: str) -> Published:
    """One arm of a sweep that played several, as the sweep published it."""
    facts = published.facts.get("arms")
    own = facts.get(arm.slug) if isinstance(facts, dict) else None
    if not isinstance(own, dict) or not isinstance(own.get("sweep_version"), str):
        raise AlteredSweep(
            f"{asset_name(sweep)} in {published.path} does not say what {arm.slug} played",
            f"Run: geo sweep {sweep} (episodes that are there are not played again)",
        )
    return Published(member_folder(sweep, arm.slug), published.path / arm.slug, own["sweep_version"], own)
