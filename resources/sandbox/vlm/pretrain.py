"""A vision tower learns places before the language model is asked anything.

Without it a warm start by conversations never uses the picture: the language model finds the average place
and stays there. The tower alone is trained, on views of the small world, to name the country and to point at
the place on the sphere; the head is thrown away afterwards.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from resources.sandbox.vlm.small_world import SmallWorld
from resources.sandbox.vlm.tower import tower_features

BATCH = 48
WARM_UP = 50
NORTH_SHARE = 0.4
"""Share of views that face north, as every episode's first does."""

SMOOTHING = 0.05
POINT_WEIGHT = 3.0
SAY_EVERY = 200


def pretrain(
    tower: Any,
    world: SmallWorld,
    steps: int,
    seed: int,
    learning_rate: float = 3e-3,
    say: Callable[[str], None] = lambda _: None,
) -> float:
    """Train a tower in place.

    Args:
        tower: the vision model of a tiny model.
        world: whose views.
        steps: optimizer steps of 48 views.
        seed: of the draws and the head.
        learning_rate: peak; warmed up and taken down linearly.
        say: told of step and loss.

    Returns:
        Mean loss of the last hundred steps.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    known = sorted(set(world.codes))
    country = torch.tensor([known.index(code) for code in world.codes])
    points = torch.from_numpy(unit_vectors(world.lat, world.lon)).float()
    head = nn.Linear(int(tower.config.out_hidden_size), len(known) + 3)
    parameters = [*tower.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=0.02)
    tower.train()
    losses: list[float] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / WARM_UP) * max(0.03, 1.0 - step / steps)
        which = rng.integers(0, len(world.codes), BATCH)
        turned = rng.integers(0, world.views.shape[1], BATCH)
        heading = np.where(rng.random(BATCH) < NORTH_SHARE, 0, turned)
        shift = int(rng.integers(-5, 6))
        pictures = np.roll(world.views[which, heading], shift, axis=2)
        said = head(tower_features(tower, pictures).mean(dim=1))
        loss = functional.cross_entropy(said[:, :-3], country[which], label_smoothing=SMOOTHING)
        loss = loss + POINT_WEIGHT * ((said[:, -3:] - points[which]) ** 2).sum(dim=1).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
        if step % SAY_EVERY == SAY_EVERY - 1:
            recent = float(np.mean(losses[-SAY_EVERY:]))
            say(f"vision: step {step + 1:,} of {steps:,}, loss {recent:.2f}")
    tower.eval()
    return float(np.mean(losses[-100:]))


def unit_vectors(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions in degrees as points on the unit sphere, (n, 3)."""
    phi, theta = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(phi) * np.cos(theta), np.cos(phi) * np.sin(theta), np.sin(phi)], axis=1)
