"""A small repository to take code versions in, file by file."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from graph_lab import Lab

from geo_assets.lineage import fingerprint, references
from geo_assets.lineage.refreshing import refresh

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules of a repository whose one package is `geo_assets`: `write(stage="…", helper="…")`."""
    package = tmp_path / "geo_assets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(references, "ROOT", tmp_path)

    def write(**modules: str) -> None:
        for name, text in modules.items():
            path = package.joinpath(f"{name}.py")
            path.parent.mkdir(exist_ok=True)
            if path.parent != package:
                (path.parent / "__init__.py").touch()
            path.write_text(dedent(text))
        fingerprint.forget()

    yield write
    fingerprint.forget()


@contextmanager
def _lab(root: Path) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(references, "ROOT", root)
        patch.setattr(references, "FIRST_PARTY", ("tinygraph",))
        patch.syspath_prepend(str(root))
        # Edits within one second would else find the compiled text of before.
        patch.setattr(sys, "dont_write_bytecode", True)
        made = Lab(root)
        yield made
        made.instance.dispose()
        for name in [name for name in sys.modules if name.split(".")[0] == "tinygraph"]:
            del sys.modules[name]
    fingerprint.forget()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A small graph of real assets, unbuilt."""
    with _lab(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One such graph for the tests of a module."""
    with _lab(tmp_path_factory.mktemp("kept")) as made:
        yield made


@pytest.fixture
def built(kept: Lab) -> Lab:
    """A graph as its sources were first, every asset built and fresh."""
    kept.reset()
    done = refresh(kept.instance, kept.graph, kept.stage, kept.run, tell=lambda line: None)
    assert not done.failed and not done.skipped
    return kept
