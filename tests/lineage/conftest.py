"""A small repository to take code versions in, file by file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from geo_assets.lineage import fingerprint, references

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
