"""`env_service` on its own: a folder that plays with nothing of ours beside it, as OpenEnv judges it too."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from environment_lab import REPOSITORY, World, until
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import env_service.light_openenv  # noqa: F401  (keeps gradio, which takes seconds, out of this process)
from env_service.server.config import ServerConfig
from env_service.server.lifecycle import UVICORN

PACKAGE = REPOSITORY / "env_service"
OURS = ("geo_assets", "resources", "sensors", "tests")
# Runs a module of the folder, and fails if it, or what it imports, asks for anything else of this repository.
ALONE = f"""
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OURS!r}:
            raise ImportError("not alone: " + name)
sys.meta_path.insert(0, Refuse())
module, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, world: World) -> Path:
    """The package, a task file, pictures and a configuration; nothing else."""
    folder = tmp_path_factory.mktemp("alone") / "bundle"
    shutil.copytree(PACKAGE, folder / "env_service", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(world.tasks, folder / "eval.jsonl")
    shutil.copytree(world.panos, folder / "panos")
    splits = {"eval": {"tasks": "eval.jsonl", "panos": "panos"}}
    (folder / "config.json").write_text(json.dumps({"splits": splits}))
    return folder


@contextmanager
def alone(folder: Path, ready: Path, *arguments: str) -> Iterator[tuple[str, int]]:
    """A server whose only source of modules, besides installed packages, is a folder. (url, pid)."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GEO_")}
    environment |= {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    flags = ["--port", "0", "--ready-file", str(ready), "--exit-with-parent"]
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, "env_service.server", *flags, *arguments],
        stdin=subprocess.PIPE,
        cwd="/",
        env=environment,
    )
    try:
        until(lambda: ready.exists() or process.poll() is not None, 90)
        yield str(json.loads(ready.read_text())["url"]), process.pid
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def test_the_folder_plays_alone(bundle: Path, tmp_path: Path) -> None:
    from openenv.core import GenericEnvClient  # type: ignore[import-untyped]

    async def play(url: str) -> float:
        async with GenericEnvClient(base_url=url) as env:
            first = await env.reset(split="eval", index=0)
            assert first.observation["image_kind"] == "view"
            await env.step({"op": "look", "heading_deg": 90})
            pinned = await env.step({"op": "pin", "lat": 48.86, "lon": 2.3, "label": "x"})
            assert "Paris" in pinned.observation["feedback"] and pinned.observation["image_kind"] == "map"
            return float((await env.step({"op": "guess", "lat": 48.86, "lon": 2.3})).reward)

    with alone(bundle, tmp_path / "ready.json", "--config", str(bundle / "config.json")) as (url, pid):
        assert asyncio.run(play(url)) > 0.9
        maps = Path(f"/proc/{pid}/maps")
        assert not maps.exists() or "gradio" not in maps.read_text()
    where = "import env_service.server.app as app; print(app.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(bundle), "PYTHONSAFEPATH": "1"}
    found = subprocess.run(
        [sys.executable, "-c", where], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(bundle)


def test_with_nothing_configured_the_container_serves_a_sample(bundle: Path, tmp_path: Path) -> None:
    from env_service.client import GeoGuessrEnv, num_tasks

    with alone(bundle, tmp_path / "ready.json", "--sample") as (url, _), GeoGuessrEnv(url) as env:
        assert num_tasks(url, "sample") == 3
        north = env.reset(index=1).observation
        assert {"look", "move"} <= set(north.available_tools)
        east = env.step({"op": "look", "heading_deg": 90}).observation
        assert east.image_base64 != north.image_base64
        walked = env.step({"op": "move", "direction": "forward"}).observation
        assert 10 < walked.moved_meters < 14
        done = env.step({"op": "guess", "lat": -1.29, "lon": 36.82})
        assert done.observation.metadata["country"] == "Kenya" and (done.reward or 0) > 0.9


class _Subject:
    """A container that is none: the process of a copied folder."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.base_url = url
        self._stop = stop

    def inspect(self) -> dict[str, Any]:
        return {}

    def logs(self, max_bytes: int = 65536) -> str:
        return ""

    def stop(self) -> None:
        self._stop.set()


class _Processes:
    """OpenEnv's idea of a provider, on a machine without Docker: the image is a copy of the package."""

    name = "process"
    supported_network_modes = frozenset({"public", "no-network"})

    def __init__(self, scratch: Path) -> None:
        from openenv.validation.types import ProviderCapability  # type: ignore[import-untyped]

        self.capabilities = frozenset({ProviderCapability.IMAGE_BUILD})
        self.scratch = scratch

    def build(self, root: Path, execution: Any) -> str:
        assert (root / execution.dockerfile).is_file() and execution.context == "."
        shutil.copytree(root, self.scratch / "env_service", ignore=shutil.ignore_patterns("__pycache__"))
        return "sha256:" + "0" * 64

    def start(self, spec: Any) -> _Subject:
        assert not spec.env_vars
        stop, ready = threading.Event(), self.scratch / "ready.json"

        def run() -> None:
            with alone(self.scratch, ready, "--sample"):
                stop.wait(120)

        threading.Thread(target=run, daemon=True).start()
        until(ready.exists, 90)
        return _Subject(json.loads(ready.read_text())["url"], stop)


def test_openenv_validates_the_package_but_for_what_it_has_not_written(tmp_path: Path) -> None:
    from openenv.validation import Level, run_validation  # type: ignore[import-untyped]

    package = tmp_path / "package" / "env_service"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    report = run_validation(package, max_level=Level.SEMANTIC, provider=_Processes(tmp_path / "image"))
    found = {result.check_id: result for result in report.results}
    passed = {name for name, result in found.items() if result.status.value == "pass"}
    assert passed == {
        "static.manifest",
        "runtime.startup",
        "runtime.reward_well_formed",
        "runtime.observation_schema",
        "runtime.state_contract",
    }, {name: result.evidence for name, result in found.items() if result.status.value != "skip"}
    skipped = {name: " ".join(result.evidence) for name, result in found.items() if name not in passed}
    # It takes Docker to cut a subject off from the network and to measure that.
    assert "network_policy" in skipped.pop("runtime.network_policy")
    assert set(skipped.values()) == {"grader not implemented in this build"}
    assert report.verdict.value == "warn"


def test_openenv_reads_the_manifest() -> None:
    from openenv.validation.parsers.openenv_yaml import (  # type: ignore[import-untyped]
        OpenEnvYamlParser,
    )

    manifest = OpenEnvYamlParser().parse(PACKAGE)
    assert manifest.name == "geoguesser_env" and manifest.reward.range == (0.0, 1.0)
    assert (
        manifest.network.mode == "no-network" and manifest.execution.probe_path == "validation/runtime.json"
    )


def test_the_container_installs_what_the_lock_pins() -> None:
    def pins(path: Path) -> dict[str, str]:
        lines = (line.split(";")[0].strip() for line in path.read_text().splitlines())
        return dict(line.split("==", 1) for line in lines if re.match(r"^[\w.-]+==", line))  # type: ignore[misc]

    wanted, locked = pins(PACKAGE / "requirements.txt"), pins(REPOSITORY / "deploy" / "locks" / "cpu.txt")
    assert wanted and wanted == {name: locked[name] for name in wanted}
    assert {canonicalize_name(name) for name in _brought_along(wanted)} <= set(wanted)
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name != "build_vendored.py":
            imported |= set(re.findall(r"^\s*(?:import|from) ([a-z_]\w*)", path.read_text(), re.M))
    third_party = imported - set(sys.stdlib_module_names) - {"env_service"}
    provides = {"PIL": "pillow", "pydantic_core": "pydantic-core"}
    assert {provides.get(name, name) for name in third_party} <= set(wanted)


def _brought_along(names: Iterable[str]) -> set[str]:
    """All that is installed with these, by what they ask for on this machine."""
    found, todo = set(), [(name, "") for name in names]
    while todo:
        name, extra = todo.pop()
        if (name, extra) not in found:
            found.add((name, extra))
            for wanted in map(Requirement, metadata.requires(name) or ()):
                if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                    todo += [(wanted.name, more) for more in ("", *wanted.extras)]
    return {name for name, _ in found}


def test_the_card_and_the_dockerfile_agree_with_the_service() -> None:
    card = (PACKAGE / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front["sdk"] == "docker" and front["app_port"] == 8000 and "openenv" in front["tags"]
    assert len(front["short_description"]) <= 60
    docker = (PACKAGE / "Dockerfile").read_text()
    assert "--sample" in docker and "${PORT:-8000}" in docker and "HF_TOKEN" not in docker
    # A stop waits for answers in flight, then for the web server's own goodbye.
    patience = int(re.search(r"--stop-timeout (\d+)", card)[1])  # type: ignore[index]
    assert patience > ServerConfig.model_fields["drain_s"].default + UVICORN["timeout_graceful_shutdown"]
    assert re.search(r"^ARG BASE=python:3\.11\.\d+-slim-\w+$", docker, re.M)
    assert {"**/.*", "**/__pycache__"} <= set((PACKAGE / ".dockerignore").read_text().split())
    from env_service.environment import GeoGuessrEnvironment

    for spec in GeoGuessrEnvironment.specs():
        assert spec.when or f"`{spec.name}`" in card, spec.name


def test_the_container_command_chooses_what_to_serve(bundle: Path, tmp_path: Path) -> None:
    """The shell of the Dockerfile's CMD, with a python that says what it was asked."""
    line = next(
        row for row in (PACKAGE / "Dockerfile").read_text().splitlines() if row.startswith('CMD ["sh')
    )
    command = json.loads(line.removeprefix("CMD "))
    said = tmp_path / "bin"
    said.mkdir()
    (said / "python").write_text(
        '#!/bin/sh\necho "${GEO_ENV_CONFIG:-nothing} ${FORWARDED_ALLOW_IPS-nobody} $*"\n'
    )
    (said / "python").chmod(0o755)
    base = {"PATH": f"{said}:{os.environ['PATH']}"}

    def run(cwd: Path, **more: str) -> list[str]:
        return subprocess.run(
            command, cwd=cwd, env={**base, **more}, capture_output=True, text=True, check=True
        ).stdout.split()

    assert run(tmp_path)[0] == "nothing" and run(bundle)[0] == "config.json"
    assert run(bundle, GEO_ENV_CONFIG="/data/other.json")[0] == "/data/other.json"
    assert "--port 8000 " in " ".join(run(tmp_path)) and "--port 7860 " in " ".join(
        run(tmp_path, PORT="7860")
    )
    # Only a Space is known to have a proxy, and no way around it; what an operator says goes before.
    assert run(tmp_path)[1] == "nobody" and run(tmp_path, SPACE_ID="a/b")[1].startswith("10.0.0.0/8,")
    assert run(tmp_path, SPACE_ID="a/b", FORWARDED_ALLOW_IPS="10.9.9.9")[1] == "10.9.9.9"
