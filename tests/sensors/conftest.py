"""A small graph under automation, and a budget for it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lineage"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sweeps"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "doubles"))

from sensors_lab import Automated, write_budget

from geo_assets.lineage import fingerprint, references

Budget = Callable[..., None]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Automated]:
    """One graph for the tests of a module."""
    root = tmp_path_factory.mktemp("automated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(references, "ROOT", root)
        patch.setattr(references, "FIRST_PARTY", ("tinygraph",))
        patch.syspath_prepend(str(root))
        patch.setattr(sys, "dont_write_bytecode", True)
        made = Automated(root)
        yield made
        made.instance.dispose()
        for name in [name for name in sys.modules if name.split(".")[0] == "tinygraph"]:
            del sys.modules[name]
    fingerprint.forget()


@pytest.fixture
def lab(kept: Automated) -> Automated:
    """The graph as its sources were first, built, in an instance in which nothing was spent."""
    kept.renew()
    return kept


@pytest.fixture
def budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    """Writes the budget: `budget(run, day, month, auto="false")`."""
    path = tmp_path / "budget.yaml"
    monkeypatch.setenv("GEO_BUDGET", str(path))
    return lambda run, day, month, auto="false": write_budget(path, run, day, month, auto)
