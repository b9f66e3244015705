"""A vision tower learns places before the language model is asked anything.

Without it a warm start by conversations never uses the picture: the language model finds the average place
and stays there. The tower alone is trained, on views of the small world, to name the country, to say in which
part of the world it is, and to point at the place on the sphere. What its head believes of a view is also
what the language model is drilled in: the guess that would earn most if the belief were true.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from torch import nn
from torch.nn import functional

from env_service.scoring import training_score
from resources.sandbox.vlm.small_world import SmallWorld
from resources.sandbox.vlm.tower import tower_features

BATCH = 48
WARM_UP = 50
NORTH_SHARE = 0.4
"""Share of views that face north, as every episode's first does."""

SMOOTHING = 0.05
POINT_WEIGHT = 10.0
PART_WEIGHT = 2.0
PARTS = 80
PART_BLUR_KM = 400.0
"""How fast the share of a part falls with the distance from its middle."""

EARTH_RADIUS_KM = 6371.0
SAY_EVERY = 200


def pretrain(
    tower: Any,
    world: SmallWorld,
    steps: int,
    seed: int,
    learning_rate: float = 3e-3,
    say: Callable[[str], None] = lambda _: None,
) -> "Belief":
    """Train a tower in place.

    Args:
        tower: the vision model of a tiny model.
        world: whose views.
        steps: optimizer steps of 48 views.
        seed: of the draws and the head.
        learning_rate: peak; warmed up and taken down linearly.
        say: told of step and loss.

    Returns:
        What the tower's head has learnt to believe of a view.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    known = sorted(set(world.codes))
    country = torch.tensor([known.index(code) for code in world.codes])
    points = torch.from_numpy(unit_vectors(world.lat, world.lon)).float()
    middles, parts = parts_of(points.numpy(), min(PARTS, len(points)), seed)
    countries, cells = len(known), parts.shape[1]
    head = nn.Linear(int(tower.config.out_hidden_size), countries + cells + 3)
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
        named, part = said[:, :countries], said[:, countries:-3]
        loss = functional.cross_entropy(named, country[which], label_smoothing=SMOOTHING)
        loss = loss + PART_WEIGHT * functional.cross_entropy(part, parts[which])
        loss = loss + POINT_WEIGHT * ((said[:, -3:] - points[which]) ** 2).sum(dim=1).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if step % SAY_EVERY == SAY_EVERY - 1:
            recent = float(np.mean(losses[-SAY_EVERY:]))
            say(f"vision: step {step + 1:,} of {steps:,}, loss {recent:.2f}")
    tower.eval()
    return Belief(head, countries, middles, float(np.mean(losses[-100:])))


class Belief:
    """What a tower's head believes, as the guess that would earn most if it were true.

    Args:
        head: linear, over the mean of a view's features.
        countries: outputs in front of those for the parts of the world.
        middles: unit vectors of the parts' middles, (parts, 3).
        loss: mean loss of the last hundred steps.
    """

    def __init__(self, head: Any, countries: int, middles: NDArray[np.float64], loss: float) -> None:
        self._head, self._first, self._last = head, countries, countries + len(middles)
        self.loss = loss
        distance_km = EARTH_RADIUS_KM * np.arccos(np.clip(middles @ middles.T, -1.0, 1.0))
        score = np.vectorize(training_score)(distance_km)
        self._score = torch.from_numpy(score).float()
        lat = np.degrees(np.arcsin(middles[:, 2]))
        lon = np.degrees(np.arctan2(middles[:, 1], middles[:, 0]))
        self._guesses = list(zip(lat.tolist(), lon.tolist(), strict=True))

    def guesses(self, features: torch.Tensor) -> list[tuple[float, float]]:
        """Latitude and longitude in degrees for features (n, tokens, width)."""
        with torch.no_grad():
            parts = self._head(features.mean(dim=1))[:, self._first : self._last].softmax(dim=1)
            best = (parts @ self._score).argmax(dim=1)
        return [self._guesses[int(part)] for part in best]


def parts_of(points: NDArray[np.float32], count: int, seed: int) -> tuple[NDArray[np.float64], torch.Tensor]:
    """Parts of the world: their middles (parts, 3), and their share in each place (places, parts).

    k-means of the places, blurred.

    Neighbouring parts share a place, so that what is learnt of one helps with the next.
    """
    middles, _ = kmeans2(points, count, minit="++", seed=seed)
    middles /= np.maximum(np.linalg.norm(middles, axis=1, keepdims=True), 1e-6)
    distance_km = EARTH_RADIUS_KM * np.arccos(np.clip(points @ middles.T, -1.0, 1.0))
    share = torch.softmax(torch.from_numpy(-distance_km / PART_BLUR_KM).float(), dim=1)
    return middles.astype(np.float64), share


def unit_vectors(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions in degrees as points on the unit sphere, (n, 3)."""
    phi, theta = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(phi) * np.cos(theta), np.cos(phi) * np.sin(theta), np.sin(phi)], axis=1)
