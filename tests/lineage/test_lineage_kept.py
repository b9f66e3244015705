"""What is kept on disk is of the state of the sources that it is served for, and is not trusted blindly."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from geo_assets.lineage import _closures, fingerprint, references
from geo_assets.lineage.fingerprint import code_version

Write = Callable[..., None]
TARGET = "geo_assets.stage:run"
BEFORE, AFTER = "def run(): return 1\n", "def run(): return 2\n"


def _again(root: Path) -> str:
    fingerprint.forget()
    fingerprint._tables(root)  # every source is hashed here
    return code_version([TARGET])


def test_a_file_that_is_saved_between_hash_and_parse_and_reverted(write: Write) -> None:
    write(stage=BEFORE)
    true = code_version([TARGET])
    root = references.ROOT
    stage = root / "geo_assets" / "stage.py"
    fingerprint.forget()
    fingerprint._tables(root)
    stage.write_text(AFTER)
    other = code_version([TARGET])
    stage.write_text(BEFORE)  # reverted before the end, so that all hashes are those of the start
    fingerprint.keep()
    assert other != true
    assert _again(root) == true


def test_a_file_that_is_saved_before_the_end(write: Write) -> None:
    write(stage=BEFORE)
    root = references.ROOT
    true = _again(root)
    (root / "geo_assets" / "stage.py").write_text(AFTER)
    fingerprint.keep()
    assert not (root / _closures.CACHE).exists()
    assert _again(root) != true


SHAPES = ["3", "[]", "[1]", "{}", "null", "[" * 100_000]


@pytest.mark.parametrize("text", SHAPES)
def test_another_shape_counts_as_absent(write: Write, text: str) -> None:
    write(stage=BEFORE)
    true = code_version([TARGET])
    for name in (_closures.CACHE, references.CACHE):
        (references.ROOT / name).parent.mkdir(exist_ok=True)
        (references.ROOT / name).write_text(text)
    assert _again(references.ROOT) == true


@pytest.mark.parametrize("value", [3, [], {"a": 3}, {"a": {"b": 1}}])
def test_closures_of_another_shape_count_as_absent(write: Write, value: object) -> None:
    write(stage=BEFORE)
    true = code_version([TARGET])
    fingerprint.keep()
    file = references.ROOT / _closures.CACHE
    body = json.loads(file.read_bytes())
    if isinstance(value, dict):
        value = dict.fromkeys(body["closures"], value["a"])
    file.write_text(json.dumps(body | {"closures": value}))
    assert _again(references.ROOT) == true


@pytest.mark.parametrize(
    ("field", "value"),
    [("unknown", 1), ("digest", 1), ("refs", 3), ("refs", [1]), ("names", [1]), ("faults", [1])],
)
def test_symbols_of_another_shape_count_as_absent(write: Write, field: str, value: object) -> None:
    write(stage=BEFORE)
    true = code_version([TARGET])
    file = references.ROOT / references.CACHE
    body = json.loads(file.read_bytes())
    for table in body.values():
        for unit in table["units"]:
            unit[field] = value
    file.write_text(json.dumps(body))
    assert _again(references.ROOT) == true
