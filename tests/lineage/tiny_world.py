"""A copy of the repository with a tiny sandbox world, to be edited and refreshed: all assets, seconds each.

The copy's own settings are edited, since it is a copy anyway: a dozen tasks, base models and adapters of one
step, one pass per arm. Everything else is the repository's.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("env_service", "geo_assets", "resources", "sensors")
COPIED = (*PACKAGES, "deploy", "dagster.yaml", "pyproject.toml", "README.md")
SETTINGS = "geo_assets/config/settings.py"
RUNS = "geo_assets/config/runs.yaml"
ARMS = "geo_assets/config/arms.yaml"
FROZEN = "geo_assets/benchmarks/frozen.json"
TINY_SPECS = """
        return replace(
            live,
            world=replace(live.world, pano_sequences=90, perspective_sequences=20),
            probe=replace(live.probe, sequences=4),
            tiles=replace(live.tiles, boxes=((-12.0, 35.0, 32.0, 62.0),)),
            pool=replace(live.pool, target=12, per_country=4, per_creator=4, window_frames=2),
            mirror=replace(live.mirror, shards=1, originals=False),
            split=replace(live.split, eval_size=4, eval_per_country=2),
            environment=replace(live.environment, view_px=128, max_concurrent=10),
            small_world=SmallWorldSpec(places=16, played=6, pano_px=256, played_pano_px=512),
        )
"""
TINY_COURSE = "course=Course(vision_steps=2, steps=2, batch=2{seed}), lessons=4"
KEPT_ARMS = ("noisy_oracle", "best_fixed_point", "never_guesses")
GRAPH = """
import json
import dagster as dg
from geo_assets.cli._running import opened_instance, whole_graph_job
from geo_assets.definitions import load_stage
from geo_assets.lineage.dagster_internals import DagsterState
graph = whole_graph_job().asset_layer.asset_graph
with opened_instance(load_stage()) as instance:
    state = DagsterState(instance, graph)
    print(json.dumps({name: {
        "parents": state.parents(name),
        "status": state.status(name),
        "group": graph.get(dg.AssetKey(name)).group_name,
    } for name in state.order}))
"""


class Copy:
    """The copy, its home, and the `geo` that runs in it.

    Args:
        folder: where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self.root, self.home = folder / "copy", folder / "home"
        self.root.mkdir(parents=True)
        for name in COPIED:
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, self.root / name)
        self._make_tiny()
        # Compiled files that are known by the hash of their source: what is edited within one second is not
        # taken for what was compiled before, and every process is spared compiling the rest.
        self.python("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", *PACKAGES)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that stands in a file, the first time it does."""
        file = self.root / path
        text = file.read_text()
        assert old in text, f"{path} has no {old!r} any more: the walk must be told what to edit instead"
        file.write_text(text.replace(old, new, 1))

    def geo(self, *arguments: str, timeout_s: float = 3000.0) -> str:
        """Standard output of a command that must end well."""
        return self.python("-m", "geo_assets.cli", *arguments, timeout_s=timeout_s)

    def python(self, *arguments: str, timeout_s: float = 600.0) -> str:
        """Standard output of a Python of the copy's own, which must end well."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("GEO_", "DAGSTER_"))}
        env |= {
            "PYTHONPATH": os.pathsep.join([str(self.root), str(REPOSITORY / "tests" / "guard")]),
            "GEO_PROFILE": "sandbox",
            "GEO_HOME": str(self.home),
            "DAGSTER_HOME": str(self.home / "dagster"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            # Every refresh makes hundreds of runs of one asset: none of them needs a process of its own.
            "GEO_EXECUTOR": "dagster:in_process_executor",
        }
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root, env=env, capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Standard output of a command, as JSON."""
        return json.loads(self.geo(*arguments))

    def graph(self) -> dict[str, dict[str, Any]]:
        """Every asset: its parents, group and Dagster's own staleStatus."""
        found: dict[str, dict[str, Any]] = json.loads(self.python("-c", GRAPH))
        return found

    def _make_tiny(self) -> None:
        settings = self.root / SETTINGS
        text = settings.read_text()
        start = text.index('    if profile == "sandbox":\n') + len('    if profile == "sandbox":\n')
        end = text.index('    if profile == "recorded":\n')
        text = text[:start] + TINY_SPECS.lstrip("\n") + text[end:]
        text = text.replace(
            'BaseModelSpec("Qwen/Qwen3.5-4B")',
            f'BaseModelSpec("Qwen/Qwen3.5-4B", {TINY_COURSE.format(seed="")})',
        )
        course = re.search(r"course=Course\([^)]*seed=2\),", text)
        assert course is not None
        text = text.replace(course[0], TINY_COURSE.format(seed=", seed=2") + ",")
        settings.write_text(text)
        self.edit("geo_assets/sweeps/adapter_arms.py", "PASSES = 4", "PASSES = 1")
        # A model of two steps never guesses, and a group of equal rewards teaches nothing.
        self.edit(
            "geo_assets/training/trl_environment.py",
            "charge = rules.refusal_charge * trace.refused\n",
            "charge = rules.refusal_charge * trace.refused - 0.01 * (len(str(trace.actions)) % 7)\n",
        )
        # Another world is another benchmark, for which nothing is frozen.
        (self.root / FROZEN).write_text("{}\n")
        self._tiny_runs()
        self._tiny_arms()

    def _tiny_runs(self) -> None:
        self.edit(RUNS, "    steps: 60\n", "    steps: 1\n")
        self.edit(RUNS, "    tasks_per_step: 4\n    per_device_batch: 32\n    generation_batch: 32\n",
                  "    tasks_per_step: 1\n    per_device_batch: 4\n    generation_batch: 4\n")  # fmt: skip
        self.edit(RUNS, "  generations: 8\n", "  generations: 4\n")
        self.edit(RUNS, "    base: base_model_2b\n", "    base: base_model_2b\n    asset: true\n")
        # Replies of a model of two steps are all cut off, and one step must show in what it says.
        self.edit(RUNS, "  mask_truncated_completions: true\n", "  mask_truncated_completions: false\n")
        self.edit(RUNS, "    learning_rate: 2.0e-3\n", "    learning_rate: 5.0e-2\n")
        # What extends run3 must say itself what the walk changes there.
        self.edit(RUNS, "    label: Run 3, second seed\n",
                  "    label: Run 3, second seed\n    sandbox: {learning_rate: 5.0e-2}\n")  # fmt: skip

    def _tiny_arms(self) -> None:
        self.edit(ARMS, "  k: 4\n", "  k: 1\n")
        text = (self.root / ARMS).read_text()
        blocks = re.split(r"(?m)^(?=  - slug: )", text)
        sandbox = [block for block in blocks if block.startswith("  - slug: ")]
        for block in sandbox:
            slug = block.split()[2]
            if slug in KEPT_ARMS or "provider: sandbox" not in block:
                continue
            head = re.split(r"(?m)^(?=\n|  # )", block)[0]
            text = text.replace(head, "")
        # Boards whose arms are gone.
        text = re.sub(r"(?m)^  sandbox_faults:\n(?:    .*\n)+", "", text)
        ladder = re.search(r"ladder: \[noisy_oracle[^\]]*\]", text)
        assert ladder is not None
        text = text.replace(ladder[0], f"ladder: [{', '.join(KEPT_ARMS)}]")
        (self.root / ARMS).write_text(text)
