"""The layout holds: one import direction, the agreed top level, locks that agree, no host named."""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    *(".ci", ".gitignore", "CITATION.cff", "LICENSE", "Makefile", "README.md", "dagster.yaml", "deploy"),
    *("docs", "env.sh", "env_service", "geo_assets", "pyproject.toml", "resources", "sensors", "tests"),
    "workspace.yaml",
}


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [REPOSITORY / line for line in listed.stdout.splitlines() if (REPOSITORY / line).is_file()]


def test_imports_point_one_way() -> None:
    tool = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([str(tool)], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_top_level_is_the_agreed_one() -> None:
    assert {path.relative_to(REPOSITORY).parts[0] for path in _tracked()} <= TOP_LEVEL


def test_locks_agree_and_the_cpu_lock_has_no_cuda() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (REPOSITORY / "deploy" / "locks" / name).read_text().splitlines()
        return dict(line.split("==", 1) for line in lines if "==" in line)

    cpu, gpu = pins("cpu.txt"), pins("gpu.txt")
    assert len(cpu) > 100 and "vllm" in gpu and "vllm" not in cpu
    assert {name: cpu[name] for name in cpu.keys() & gpu.keys()} == {
        name: gpu[name] for name in cpu.keys() & gpu.keys()
    }
    assert set(cpu) <= set(gpu)
    assert not [name for name in cpu if name.startswith(("nvidia", "cuda", "triton"))]


def test_every_dependency_is_justified() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text()
    block = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    names = {match.lower() for match in re.findall(r'^\s+"([A-Za-z0-9_-]+)[><=]', block, re.MULTILINE)}
    lines = (REPOSITORY / "docs" / "dependencies.md").read_text().lower()
    assert names and not [name for name in names if f"`{name}`" not in lines]


def test_no_registry_host_and_no_machine_path_is_named() -> None:
    # A registry is known by its paths, so that this test need not name one either.
    hosts = re.compile(
        rb"index-url|https?://[^\s\"')]*(?:registry|/simple\b|/whl\b|/packages/)|/root/|/home/[a-z]+/"
    )
    skip = {Path(__file__).resolve()}
    assert not [str(p) for p in _tracked() if p.resolve() not in skip and hosts.search(p.read_bytes())]


def test_definitions_import_fast_libraries_only() -> None:
    heavy = ("torch", "gradio", "transformers")
    code = f"import geo_assets.definitions, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
