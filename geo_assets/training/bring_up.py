"""From a small world to a tiny base model: its teacher plays, and it learns. Imports torch."""

from collections.abc import Callable
from pathlib import Path

import torch

from geo_assets.training.lessons import play_lessons
from geo_assets.training.warm_start import warm_start
from resources.sandbox.vlm.small_world import read
from resources.sandbox.vlm.specs import BaseModelSpec


def bring_up(
    folder: Path,
    spec: BaseModelSpec,
    world_folder: Path,
    url: str,
    max_turns: int,
    say: Callable[[str], None],
) -> dict[str, float]:
    """Write a base model.

    Args:
        folder: where to.
        spec: what it is made from.
        world_folder: the small world, `url` the environment served over it.
        max_turns: the turn budget of the environment.
        say: told how far it is.

    Returns:
        Last losses of vision and conversation.
    """
    torch.set_num_threads(1)  # two threads on busy cores spin, and floats would depend on how many there are
    world = read(world_folder)
    places = list(zip(world.lat.tolist(), world.lon.tolist(), strict=True))
    lessons = play_lessons(
        url, places, spec.lessons, spec.course.seed, max_turns, spec.shape.view_px, spec.faults, say
    )
    return warm_start(folder, spec.shape, spec.course, spec.faults, world, lessons, say)
