"""Puts the helpers of this folder and the doubles within reach."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "doubles")]

from fake_hub import FakeHub  # noqa: E402


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """A Hub whose jobs run here."""
    folder = tmp_path / "hub"
    folder.mkdir()
    with FakeHub(folder) as server:
        yield server
