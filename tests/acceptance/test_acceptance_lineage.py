"""The table of docs/staleness.md, walked on the real sandbox graph: a copy of the repository is edited and
refreshed, row by row, each on top of those before it.

Every asset is real and tiny: a dozen tasks, models and adapters of one or two steps, one pass per arm. A row
says what is edited and what must change; what is stale before, what Dagster itself says, and what reruns are
held against it.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lineage"))

from tiny_world import ARMS, REPOSITORY, RUNS, SETTINGS, Copy  # noqa: E402

Edit = tuple[str, str, str]
Graph = dict[str, dict[str, Any]]
TABLES = (
    "first_sweep_table", "board_table", "paired_gains", "first_look", "slice_table", "hacking_audit",
    "findings", "report_site",
)  # fmt: skip
PLAN = "staleness_plan"
TILES = "resources/_tile_writer.py"
OF_ADAPTERS = ("board_table", "paired_gains", "report_site")
OF_SWEEPS = (*OF_ADAPTERS, "first_sweep_table", "first_look", "slice_table", "findings")
OF_STATISTICS = (*OF_ADAPTERS, "first_sweep_table", "slice_table")


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        edits: what is done to the copy: file, old text, new text.
        changed: what must change, beside tables: names, or `adapters`, `sweeps` of the whole profile.
        path: what lies on the path there or is the edited thing itself; it may change.
        tables: those that must change. Others that read what changed may come out equal: what a tiny adapter
            says moves no median.
        equal: tables that share code with the edited thing and hold no figure of it, so they come out equal.
        reran: what must rerun and come out equal.
    """

    edits: tuple[Edit, ...]
    changed: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    equal: tuple[str, ...] = ()
    reran: tuple[str, ...] = ()


def _play_page() -> tuple[Edit, ...]:
    """An edit of the play page, wherever it is written, and of what else is outside every version."""
    edits: list[Edit] = [
        ("README.md", "\n", "\nEdited.\n"),
        ("geo_assets/cli/serve.py", "import typer\n", "import typer\n\nEDITED = 1\n"),
        ("sensors/__init__.py", "", "EDITED = 1\n"),
    ]
    page = REPOSITORY / "env_service" / "web"
    edits += [
        (str(file.relative_to(REPOSITORY)), "</", " </")
        for file in sorted(page.rglob("*"))
        if file.suffix in {".html", ".js"} and "</" in file.read_text(errors="ignore")
    ][:1]
    return tuple(edits)


ROWS: dict[str, Row] = {
    "comment, docstring, formatting": Row(
        (
            ("geo_assets/sweeps/harness.py", '"""Plays every', '"""It plays every'),
            ("geo_assets/sweeps/harness.py", "GRACE_S = ", "# A comment.\nGRACE_S   = "),
            ("env_service/views.py", '    """A square view', '    """One square view'),
            ("geo_assets/training/trainer.py", "import numpy as np\n", "import   numpy as np  # numbers\n"),
        ),
    ),
    "play page, README, CLI, sensors": Row(_play_page()),
    "price table": Row(
        (("geo_assets/config/prices.yaml", "usd_per_hour: 2.50", "usd_per_hour: 2.75"),),
        changed=("cost_table",),
    ),
    "reporting curve": Row(
        (("env_service/scoring.py", 'Curve("board-v1")', 'Curve("board-v1", long_decay_km=4000.0)'),),
        tables=(*OF_ADAPTERS, "first_look", "slice_table", "findings"),
        # The first sweep is paid by the game's own curve, and the audit's figures are no rewards.
        equal=("first_sweep_table", "hacking_audit"),
    ),
    "statistics code": Row(
        (("geo_assets/reports/statistics.py", "Z95 = 1.96", "Z95 = 1.9"),), tables=OF_STATISTICS
    ),
    "tile bytes, candidates come out equal": Row(
        (
            (
                TILES,
                "    parts += [_varint(5 << 3) + _varint(extent), _varint(15 << 3) + _varint(2)]\n",
                "    parts += [_varint(15 << 3) + _varint(2), _varint(5 << 3) + _varint(extent)]\n",
            ),
        ),
        changed=("coverage_tiles",),
        reran=("candidate_sequences",),
    ),
    "one arm's model under its protocol": Row(
        ((ARMS, "    model: never-guesses\n", "    model: random-land-point\n"),),
        changed=("sweep_never_guesses",),
        tables=OF_SWEEPS,
    ),
    "spec of run3": Row(
        (
            (
                RUNS,
                "    label: Run 3, run 2 with run 1's scaling\n",
                "    label: Run 3, run 2 with run 1's scaling\n    sandbox: {learning_rate: 7.0e-2}\n",
            ),
        ),
        changed=("adapter_run3", "sweep_adapter_run3"),
        tables=OF_ADAPTERS,
    ),
    "shared trainer code": Row(
        (("geo_assets/training/configuration.py", "learning_rate=run.lear", "learning_rate=1.5 * run.lear"),),
        changed=("adapters", "adapter sweeps"),
        tables=OF_ADAPTERS,
    ),
    "shared harness code": Row(
        (("geo_assets/sweeps/crew.py", 'f"{arm.slug}:{sample}"', 'f"{arm.slug}/{sample}"'),),
        changed=("sweeps",),
        tables=OF_SWEEPS,
    ),
    "a new revision of the 4B base model": Row(
        ((SETTINGS, "steps=2, batch=2), lessons=4", "steps=2, batch=2, seed=5), lessons=4"),),
        changed=("adapters on base_model_4b", "sweeps of adapters on base_model_4b"),
        path=("base_model_4b",),
        tables=OF_ADAPTERS,
    ),
    "an eval-only task": Row(
        (("geo_assets/data/task_split.py", "source, result.eval, ", "source, result.eval[:-1], "),),
        changed=("eval_split", "eval_mirror", "eval_environment", "sweeps"),
        tables=TABLES,
    ),
    "a train-only task": Row(
        (("geo_assets/data/task_split.py", "source, result.train, ", "source, result.train[1:], "),),
        changed=("train_split", "train_mirror", "train_environment", "adapters", "adapter sweeps"),
        tables=OF_ADAPTERS,
    ),
    "view rendering": Row(
        (
            (
                "env_service/views.py",
                "fov_deg, size_px)\n    height, width, channels",
                "fov_deg, size_px)\n    heading_deg += 7.0\n    height, width, channels",
            ),
        ),
        changed=(
            "eval_environment", "train_environment", "base_model_4b", "base_model_2b", "adapters", "sweeps",
        ),
        path=("warm_start_world",),
        tables=OF_ADAPTERS,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """The tiny world, everything built."""
    made = Copy(tmp_path_factory.mktemp("walk"))
    print("building the tiny graph", flush=True)
    done = made.json("refresh", "--json")
    assert done["failed"] == [] and done["skipped"] == []
    assert made.json("stale", "--json")["stale"] == []
    yield made


@pytest.mark.parametrize("name", ROWS, ids=str)
def test_exactly_the_row_changes(copy: Copy, name: str) -> None:
    row = ROWS[name]
    for edit in row.edits:
        if (copy.root / edit[0]).exists():
            copy.edit(*edit)
    graph = copy.graph()
    plan = copy.json("stale", "--json")
    stale = [one["asset"] for one in plan["stale"]]
    # Before anything reruns: the direct ones, of code alone; Dagster's own status says the same.
    assert {reason["kind"] for one in plan["stale"] for reason in one["reasons"]} <= {"code"}, plan
    assert {asset for asset, node in graph.items() if node["status"] == "STALE"} - {PLAN} == set(stale)
    below = _below(graph, stale)
    assert set(plan["may_follow"]) == below - set(stale) - {PLAN}
    first = _refreshed(copy, stale)
    # Dagster marks one hop: direct children of what changed are stale now, and nobody else.
    after = copy.graph()
    children = {asset for asset, node in after.items() if set(node["parents"]) & set(first["changed"])}
    waiting = {asset for asset, node in after.items() if node["status"] == "STALE"} - {PLAN}
    assert waiting == children - set(first["reran"]) - {PLAN}
    assert {one["asset"] for one in copy.json("stale", "--json")["stale"]} == waiting
    rest = copy.json("refresh", "--json")
    changed = {*first["changed"], *rest["changed"]}
    reran = [*first["reran"], *rest["reran"]]
    assert first["failed"] == rest["failed"] == [] and rest["skipped"] == []
    print(f"{name}: stale {stale}, reran {reran}, changed {sorted(changed)}", flush=True)

    must = _named(graph, row.changed)
    tables = {asset for asset in graph if graph[asset]["group"] == "reports"} - {PLAN}
    read = (_below(graph, changed) | set(stale)) & tables
    # A table that reads the thing and comes out equal has rerun and has not changed.
    may = {*row.path, *(read - set(TABLES)), *_follows(graph, changed)}
    may |= {asset for asset in stale if asset.startswith("deployment_")}
    assert must | set(row.tables) <= changed <= must | read | may
    assert not changed & set(row.equal) and set(row.reran) <= set(reran) - changed
    assert set(stale) | set(plan["may_follow"]) >= changed
    equal = set(reran) - changed
    assert all(set(graph[asset]["parents"]) & changed or asset in stale for asset in equal)
    assert copy.json("stale", "--json")["stale"] == []


def test_what_came_out_equal_stopped_the_refresh(copy: Copy) -> None:
    copy.edit(
        TILES,
        "    parts += [_varint(15 << 3) + _varint(2), _varint(5 << 3) + _varint(extent)]\n",
        "    parts += [_varint(5 << 3) + _varint(extent), _varint(15 << 3) + _varint(2)]\n",
    )
    copy.json("refresh", "--json", "--select", 'key:"coverage_tiles"')
    done = copy.json("refresh", "--json", "--select", 'key:"candidate_sequences" or key:"train_split"')
    assert done["reran"] == ["candidate_sequences"] and done["changed"] == []


def _refreshed(copy: Copy, names: list[str]) -> dict[str, Any]:
    if not names:
        return {"reran": [], "changed": [], "failed": [], "skipped": []}
    # Without what is stale both by itself and through another: it is built when the other has been.
    found: dict[str, Any] = copy.json(
        "refresh", "--json", "--select", " or ".join(f'key:"{n}"' for n in names)
    )
    return found


def _below(graph: Graph, names: Iterable[str]) -> set[str]:
    """Everything that is made from some assets."""
    found: set[str] = set()
    for asset, node in graph.items():  # parents first
        if set(node["parents"]) & {*names, *found}:
            found.add(asset)
    return found


def _follows(graph: Graph, changed: set[str]) -> set[str]:
    """Deployments and preflights of what changed."""
    return {asset for asset in _below(graph, changed) if asset.startswith(("deployment_", "preflight_"))}


def _named(graph: Graph, words: Iterable[str]) -> set[str]:
    """What a row's words mean on this graph; what the graph does not have yet is left out."""
    adapters = {asset for asset in graph if asset.startswith("adapter_")}
    sweeps = {asset for asset, node in graph.items() if node["group"] == "sweeps"}
    found: set[str] = set()
    for word in words:
        base = word.rpartition(" on ")[2]
        on_base = {asset for asset in adapters if base in graph[asset]["parents"]}
        found |= {
            "adapters": adapters,
            "sweeps": sweeps,
            "adapter sweeps": {asset for asset in sweeps if set(graph[asset]["parents"]) & adapters},
            f"adapters on {base}": on_base,
            f"sweeps of adapters on {base}": {s for s in sweeps if set(graph[s]["parents"]) & on_base},
        }.get(word, {word} & graph.keys())
    return found
