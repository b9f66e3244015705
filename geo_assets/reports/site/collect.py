"""What the page is made from: read from the folders of its parents, and nothing computed anew.

Board and gains are the rows of their own assets; episodes come through `arm_data`, which holds them against
what each sweep published. Whatever a profile does not have (adapters, learning, further reports) is left
out, and the page with it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_service.errors import GeoError
from env_service.tasks import Task, read_tasks
from geo_assets.config.arms import Arms
from geo_assets.lineage.assets import StageRun
from geo_assets.lineage.folders import AssetFolder, folder_of
from geo_assets.reports import learning_controls
from geo_assets.reports._learning_tables import (
    CHANGES_MARKDOWN,
    CLAIMS_MARKDOWN,
    GAINS_MARKDOWN,
    SCORES_MARKDOWN,
)
from geo_assets.reports._learning_text import learning_rows, verdict
from geo_assets.reports.arm_data import ArmData, Board, board_data, boards_of
from geo_assets.reports.board_table import board_rows_of
from geo_assets.reports.site.tables import Table, table_of, tables_in
from geo_assets.reports.site.training_chart import Score
from geo_assets.sweeps.adapter_arms import AdapterSweep
from geo_assets.sweeps.episode_file import EPISODES
from geo_assets.sweeps.names import folder_name, member_folder
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.serving import read_config

BOARD, GAINS, LEARNING, ENVIRONMENT = "board_table", "paired_gains", "learning_controls", "eval_environment"
CONFIG, METRICS = "config.json", "metrics.jsonl"
OWN_SECTIONS = (BOARD, GAINS, LEARNING)
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class BoardPart:
    """One board: its arms in a row each, and their paired gains."""

    name: str
    label: str
    base: str
    rows: Rows
    gains: Rows


@dataclass(frozen=True)
class Player:
    """One arm as one sweep played it.

    Attributes:
        key: its name among the page's arms; two sweeps may play the same base arm.
        label: its name for people, unlike every other's.
        board: label of its board.
        data: its episodes.
        folder: where they stand.
    """

    key: str
    label: str
    board: str
    data: ArmData
    folder: Path


@dataclass(frozen=True)
class Training:
    """One training run: the lines of its metrics, and what its sweep scored."""

    slug: str
    label: str
    base: str
    lines: Rows
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Report:
    """A report that has no section of its own: its tables as they stand in its file."""

    name: str
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Learning:
    """What `learning_controls` found: claims by run, and its tables."""

    claims: Rows
    labels: Mapping[str, str]
    scores: Rows
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Material:
    """Everything that the page is made from."""

    profile: str
    boards: tuple[BoardPart, ...]
    players: tuple[Player, ...]
    trainings: tuple[Training, ...]
    learning: Learning | None
    reports: tuple[Report, ...]
    tasks: tuple[Task, ...]
    config: Path
    versions: tuple[tuple[str, str], ...]


def collect(
    run: StageRun, arms: Arms, adapters: Sequence[AdapterSweep], reports: Sequence[str] = ()
) -> Material:
    """Read the parents.

    Args:
        run: the asset's run.
        arms, adapters: what the profile declares.
        reports: names of the report assets, those with sections of their own among them.

    Raises:
        MissingUpstream: a parent has not been built.
        AlteredSweep: episodes are not those that a sweep published.
    """
    boards = boards_of(arms, adapters)
    environment = run.require(ENVIRONMENT)
    config = environment.path / CONFIG
    parts = tuple(_board(run, board) for board in boards)
    players = tuple(player for board in boards for player in _players(run, board))
    names = [ENVIRONMENT, BOARD, GAINS, *reports]
    names += [f"sweep_{slug}" for slug in dict.fromkeys(s for board in boards for s in board.sweeps)]
    names += [f"adapter_{sweep.run.slug}" for sweep in adapters]
    return Material(
        profile=run.settings.profile,
        boards=parts,
        players=_told_apart(players),
        trainings=tuple(t for sweep in adapters if (t := _training(run, sweep, parts)) is not None),
        learning=_learning(run),
        reports=tuple(
            r for name in reports if name not in OWN_SECTIONS and (r := _report(run, name)) is not None
        ),
        tasks=_tasks(config),
        config=config,
        versions=tuple(_versions(run, names)),
    )


def record_of(player: Player, task: int, sample: int) -> EpisodeRecord:
    """One episode of an arm, from its file.

    Raises:
        GeoError: the file does not hold it.
    """
    # Most lines are passed over unparsed: an episode may take a hundred kilobytes.
    marks = f'"sample":{sample},'.encode(), f'"task_index":{task},'.encode()
    with (player.folder / EPISODES).open("rb") as handle:
        for line in handle:
            if all(mark in line for mark in marks):
                record = EpisodeRecord.model_validate_json(line)
                if record.key == (sample, task):
                    return record
    raise GeoError(
        f"{player.folder / EPISODES} does not hold task {task}, sample {sample}",
        f"Run: geo sweep {player.data.swept_as}",
    )


def _board(run: StageRun, board: Board) -> BoardPart:
    rows = [row for row in board_rows_of(run.require(BOARD).path) if row["board"] == board.name]
    gains = _json(run.require(GAINS).path / f"{GAINS}.json")
    own = [row for row in gains if row["board"] == board.name]
    return BoardPart(board.name, board.spec.label, board.spec.base, rows, own)


def _players(run: StageRun, board: Board) -> list[Player]:
    found = []
    for slug, data in board_data(run, board).items():
        folder = member_folder(board.sweep, slug) if board.sweep else folder_name(slug)
        key = f"{board.sweep}/{slug}" if board.sweep else slug
        found.append(Player(key, data.spec.label, board.spec.label, data, run.settings.home / folder))
    return found


def _told_apart(players: Sequence[Player]) -> tuple[Player, ...]:
    """Arms that share a name get their sweep's beside it."""
    labels = [player.label for player in players]
    return tuple(
        player
        if labels.count(player.label) == 1
        else Player(
            player.key, f"{player.label} ({player.data.swept_as})", player.board, player.data, player.folder
        )
        for player in players
    )


def _training(run: StageRun, sweep: AdapterSweep, boards: Sequence[BoardPart]) -> Training | None:
    folder = AssetFolder(run.settings.home, f"adapter_{sweep.run.slug}").built()
    if folder is None or not (folder.path / METRICS).exists():
        return None
    text = (folder.path / METRICS).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    own = next((board for board in boards if board.name == sweep.slug), None)
    rows = {row["arm"]: row for row in own.rows if row["complete"]} if own else {}
    last = int(lines[-1]["step"]) if lines else 0
    asked = ((0, sweep.base.slug), (last, sweep.adapter.slug))
    scores = tuple(
        Score(
            step,
            rows[slug]["label"],
            rows[slug]["mean_of_k"],
            rows[slug]["ci95_low"],
            rows[slug]["ci95_high"],
        )
        for step, slug in asked
        if slug in rows
    )
    return Training(sweep.run.slug, sweep.run.label, sweep.run.base, lines, scores)


def _learning(run: StageRun) -> Learning | None:
    built = AssetFolder(run.settings.home, LEARNING).built()
    if built is None:
        return None
    names = (
        learning_controls.NAME,
        learning_controls.GAINS,
        learning_controls.CHANGES,
        learning_controls.CLAIMED,
    )
    scores, gains, changes, claims = (learning_rows(built.path, name) for name in names)
    labels = {row["run"]: row["label"] for row in learning_rows(built.path, learning_controls.RUNS)}
    claims = [row | {"verdict": verdict(row)} for row in claims]
    tables = (
        table_of("Answers on the same held-out tasks", scores, SCORES_MARKDOWN),
        table_of("Paired differences", gains, GAINS_MARKDOWN),
        table_of("Play before and after training", changes, CHANGES_MARKDOWN),
        table_of("Claims, each a check of the asset", claims, CLAIMS_MARKDOWN),
    )
    return Learning(claims, labels, scores, tuple(table for table in tables if table.rows))


def _report(run: StageRun, name: str) -> Report | None:
    """A report's tables: those of the file that bears its name, or else of every JSON file that has some."""
    built = AssetFolder(run.settings.home, name).built()
    if built is None:
        return None
    first = built.path / f"{name}.json"
    files = [first] if first.exists() else sorted(built.path.glob("[!_]*.json"))
    tables = [table for path in files for table in tables_in(path, path.stem.replace("_", " ").capitalize())]
    return Report(name, tuple(tables)) if tables else None


def _tasks(config: Path) -> tuple[Task, ...]:
    return read_tasks(config.parent / str(read_config(config)["splits"]["eval"]["tasks"]))


def _versions(run: StageRun, names: Sequence[str]) -> list[tuple[str, str]]:
    """Data versions of the parents that stand."""
    built = [(name, AssetFolder(run.settings.home, folder_of(name)).built()) for name in dict.fromkeys(names)]
    return [(name, folder.data_version) for name, folder in built if folder is not None]


def _json(path: Path) -> Rows:
    rows: Rows = json.loads(path.read_text(encoding="utf-8"))
    return rows
