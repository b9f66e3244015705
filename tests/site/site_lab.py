"""A small home with everything that the site reads: sweeps that were really played, boards, a run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports_lab import publish_adapter, three_arms
from sweeps_lab import Lab, build_environment, lab_arm, lab_run

from geo_assets.lineage.assets import Made
from geo_assets.lineage.folders import AssetFolder
from geo_assets.reports import learning_controls
from geo_assets.reports.board_table import make_board
from geo_assets.reports.paired_gains import make_gains
from geo_assets.reports.report_site import make_site
from geo_assets.reports.tables import write_table
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweeps
from geo_assets.sweeps.factory import facts_of, sweep_version
from geo_assets.sweeps.names import folder_name
from geo_assets.sweeps.outcomes import write_outcomes
from geo_assets.sweeps.serving import policy_options, served_environment
from geo_assets.sweeps.version import POLICY_SERVER, episodes_version
from resources.processes import ServerProcess

TASKS, PASSES = 3, 2
ARMS = ("noisy_oracle", "best_fixed_point", "never_guesses")
FAR = [[5000.0, None], [9000.0, 9000.0], [700.0, 700.0]]
NEAR = [[10.0, 30.0], [100.0, 300.0], [50.0, 900.0]]
STEPS = 12
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@dataclass(frozen=True)
class Built:
    """A finished site and the home it stands in."""

    home: Path
    made: Made

    @property
    def folder(self) -> Path:
        """The site's folder."""
        return self.home / "report_site"

    @property
    def page(self) -> str:
        """The page's text."""
        return (self.folder / "index.html").read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        """Its address on disk."""
        return (self.folder / "index.html").as_uri()

    def data(self) -> dict[str, Any]:
        """What the page's data script holds."""
        text = (self.folder / "data.js").read_text(encoding="utf-8")
        found: dict[str, Any] = json.loads(text.removeprefix("window.geoReport = ").removesuffix(";\n"))
        return found


def adapters() -> tuple[AdapterSweep, ...]:
    """The one adapter of the lab."""
    return adapter_sweeps("sandbox")[:1]


def build_lab(home: Path) -> None:
    """Serve the tasks and the policies, play them, and make the tables."""
    config = build_environment(home, TASKS)
    with (
        served_environment(config, 4) as served,
        ServerProcess(POLICY_SERVER, policy_options(config), name="policies") as policies,
    ):
        lab = Lab(home, served.url, policies.url)
        for slug in ARMS:
            sweep_into(lab, slug)
    publish_adapter(home, adapters()[0], FAR, NEAR)
    train(home)
    make_board(_published(home, "board_table"), three_arms(), adapters())
    make_gains(_published(home, "paired_gains"), three_arms(), adapters())
    learn(home)
    further_report(home)


def sweep_into(lab: Lab, slug: str) -> None:
    """Play one policy over all tasks and publish its sweep."""
    arm = lab_arm(slug, k=PASSES)
    folder = AssetFolder(lab.home, folder_name(slug))
    swept = lab.sweep(arm, folder.path)
    write_outcomes(folder.path, swept.records)
    folder.publish(sweep_version(arm, swept), facts_of(arm, swept, TASKS, "lab-1", "harness-1"))


def publish_unscored(home: Path, slug: str) -> None:
    """A sweep of which no episode could be scored."""
    folder = AssetFolder(home, folder_name(slug))
    folder.file("episodes.jsonl").write_bytes(b"")
    missing = [(sample, task) for sample in range(PASSES) for task in range(TASKS)]
    facts = {"tasks": TASKS, "k": PASSES, "environment_version": "lab-1", "harness_version": "h"}
    folder.publish(episodes_version([], missing, PASSES), facts)


def train(home: Path) -> None:
    """The metrics of a training run."""
    folder = AssetFolder(home, f"adapter_{adapters()[0].run.slug}")
    lines = [
        {
            "step": step,
            "reward": 0.3 + 0.02 * step + 0.05 * (-1) ** step,
            "looks": 2 - step / 10,
            "median_km": None,
        }
        | {"no_guess_share": max(0.0, 0.3 - step / 20), "entropy": 0.9 - step / 30}
        for step in range(1, STEPS + 1)
    ]
    folder.file("metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder.publish("trained", {})


def learn(home: Path) -> None:
    """What `learning_controls` found, by hand: one control, one claim that holds, one that does not."""
    folder = AssetFolder(home, learning_controls.NAME)
    run = adapters()[0].run.slug
    claims = [
        {
            "run": run,
            "claim": "gain",
            "figure": 0.17,
            "low": 0.12,
            "high": 0.22,
            "holds": True,
            "says": "It gains",
        },
        {
            "run": run,
            "claim": "sees",
            "figure": -0.1,
            "low": -0.2,
            "high": 0.1,
            "holds": False,
            "says": "It sees",
        },
        {"run": run, "claim": "both", "holds": False, "says": "Both", "why_not": "the sweep is incomplete"},
    ]
    scores = [
        {
            "row": "land",
            "group": "blind",
            "label": "Random land",
            "complete": True,
            "mean": 0.15,
            "note": EVIL,
        },
        {"run": run, "row": "base", "group": "base", "label": "Base", "complete": True, "mean": 0.36},
    ]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in learning_controls.SCHEMAS}
    rows |= {learning_controls.NAME: scores, learning_controls.CLAIMED: claims}
    for name, schema in learning_controls.SCHEMAS.items():
        write_table(folder.path, name, [dict.fromkeys(schema.names) | row for row in rows[name]], schema)
    folder.file(f"{learning_controls.RUNS}.json").write_text(json.dumps([{"run": run, "label": "Run 3"}]))
    folder.publish("learnt", {})


def further_report(home: Path) -> None:
    """A report that the page knows nothing of, with words that a page must not take for its own."""
    folder = AssetFolder(home, "slice_table")
    body = {
        "title": "Reward by continent",
        "note": "Means over tasks.",
        "columns": ["continent", "mean_reward", "tasks", "holds"],
        "rows": [
            {"continent": "Europe", "mean_reward": 0.51234567, "tasks": 3, "holds": True},
            {"continent": EVIL, "mean_reward": -0.25, "tasks": 1200, "holds": None},
        ],
    }
    folder.file("slice_table.json").write_text(json.dumps(body))
    folder.publish("sliced", {})


def build_site_in(home: Path) -> Built:
    """Build the site of a home."""
    reports = ["board_table", "paired_gains", "learning_controls", "slice_table"]
    return Built(home, make_site(lab_run(home, "report_site"), three_arms(), adapters(), reports))


def _published(home: Path, name: str) -> Any:
    run = lab_run(home, name)
    run.folder().publish("made", {})
    return run
