"""Code versions: what changes them, what does not, and what they refuse to guess."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from geo_assets.config.settings import PoolSpec
from geo_assets.lineage import fingerprint
from geo_assets.lineage.fingerprint import UnfollowableCode, closure, code_version


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small repository: stage imports helper, and nothing imports other."""
    package = tmp_path / "geo_assets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "stage.py").write_text(
        "from geo_assets.helper import twice\n\n\ndef run():\n    return twice(2)\n"
    )
    (package / "helper.py").write_text("import json\nimport math\n\n\ndef twice(x):\n    return x * 2\n")
    (package / "other.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(fingerprint, "ROOT", tmp_path)
    _forget()
    yield package
    _forget()


def _forget() -> None:
    for cached in (fingerprint._analyse, fingerprint._folder_hash):
        cached.cache_clear()


def _version(**more: object) -> str:
    _forget()
    return code_version(["geo_assets.stage"], **more)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""\nimport json\nimport math\n\n\ndef twice(x):\n    return x * 2\n',
        "import math\nimport json\n\n\ndef twice(x):\n    # why\n    return x * 2\n",
        'import json\nimport math\n\n\ndef twice(x):\n    """Twice x."""\n    return (x *\n            2)\n',
    ],
    ids=["docstring", "import order and comment", "formatting"],
)
def test_what_does_not_run_does_not_count(tree: Path, text: str) -> None:
    before = _version()
    (tree / "helper.py").write_text(text)
    assert ast.parse(text)
    assert _version() == before


def test_a_change_behind_an_import_counts(tree: Path) -> None:
    before = _version()
    (tree / "helper.py").write_text("import json\nimport math\n\n\ndef twice(x):\n    return x * 3\n")
    assert _version() != before


def test_a_module_nobody_imports_does_not_count(tree: Path) -> None:
    before = _version()
    (tree / "other.py").write_text("VALUE = 2\n")
    assert _version() == before
    assert _version(runs=["geo_assets.other"]) != before


def test_relative_imports_are_followed(tree: Path) -> None:
    (tree / "stage.py").write_text("from . import other\nfrom .helper import twice\n")
    _forget()
    assert closure(["geo_assets.stage"]) == [
        "geo_assets",
        "geo_assets.helper",
        "geo_assets.other",
        "geo_assets.stage",
    ]


def test_dynamic_imports_are_refused_by_file_and_line(tree: Path) -> None:
    (tree / "helper.py").write_text(
        "import importlib\n\n\ndef twice(x):\n    importlib.import_module('os')\n"
    )
    with pytest.raises(UnfollowableCode, match=r"geo_assets\.helper:5 calls import_module"):
        _version()


def test_the_spec_counts_by_value(tree: Path) -> None:
    assert _version(spec=PoolSpec(seed=1)) == _version(spec=PoolSpec(seed=1))
    assert _version(spec=PoolSpec(seed=1)) != _version(spec=PoolSpec(seed=2))
