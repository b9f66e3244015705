"""A small repository to take code versions in, file by file."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from graph_lab import Lab  # noqa: E402

from geo_assets.lineage import fingerprint, references  # noqa: E402

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


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A small graph of real assets, unbuilt."""
    monkeypatch.setattr(references, "ROOT", tmp_path)
    monkeypatch.setattr(references, "FIRST_PARTY", ("tinygraph",))
    monkeypatch.syspath_prepend(str(tmp_path))
    # Edits within one second would else find the compiled text of before.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made = Lab(tmp_path)
    yield made
    made.instance.dispose()
    for name in [name for name in sys.modules if name.split(".")[0] == "tinygraph"]:
        del sys.modules[name]
    fingerprint.forget()
