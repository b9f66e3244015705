"""Puts the helpers of this folder within reach; one served world and one taught model for all tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from base_models_fixtures import built, lessons, processor, untrained, url  # noqa: F401
from training_lab import make_model, served, write_world


@pytest.fixture(scope="session")
def lab_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks in three colours."""
    return write_world(tmp_path_factory.mktemp("training") / "world")


@pytest.fixture(scope="session")
def lab_url(lab_config: Path) -> Iterator[str]:
    """The address that serves them."""
    with served(lab_config) as server:
        yield server.url


@pytest.fixture(scope="session")
def lab_model(lab_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that calls tools."""
    return make_model(tmp_path_factory.mktemp("model") / "model", lab_url)
