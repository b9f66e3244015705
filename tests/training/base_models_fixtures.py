"""Fixtures of the tests of base models, each made once for all of their files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from base_models_lab import (
    BASE,
    SMALLER,
    Built,
    lessons_of_each_kind,
    materialized,
    served_world,
    small_stage,
)

from geo_assets.config.settings import BASE_2B, BASE_4B
from geo_assets.training.base_models import NAMES
from geo_assets.training.lessons import (
    Lesson,
)
from geo_assets.training.tiny_base_model import tiny_base_model
from geo_assets.training.warm_start_world import warm_start_world
from resources.sandbox.vlm import small_world
from resources.sandbox.vlm.architecture import build
from resources.sandbox.vlm.processor import load_processor


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both assets, materialized; a bring-up that was killed before has left its half model behind."""
    stage = small_stage(tmp_path_factory.mktemp("base_models") / "home")
    drawn = materialized(warm_start_world, stage)
    half = stage.settings.home / BASE / "model.part"
    half.mkdir(parents=True)
    (half / "left_behind.safetensors").touch()
    return Built(stage, drawn, materialized(tiny_base_model(BASE), stage))


@pytest.fixture(scope="session")
def url(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The environment over the small world."""
    with served_world(built.world, tmp_path_factory.mktemp("served")) as address:
        yield address


@pytest.fixture(scope="session")
def lessons(url: str, built: Built) -> list[Lesson]:
    """Two looks and a guess (twice), a guess at once, a look and no guess."""
    return lessons_of_each_kind(url, small_world.read(built.world))


@pytest.fixture(scope="session")
def processor(built: Built) -> Any:
    """The base model's processor."""
    return load_processor(built.model)


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of the two shipped shapes with random weights."""
    folder = tmp_path_factory.mktemp("untrained")
    for name, spec in ((BASE, BASE_4B), (SMALLER, BASE_2B)):
        build(folder / name, spec.shape, ["any words will do"], [])
    return {name: folder / name for name in NAMES}
