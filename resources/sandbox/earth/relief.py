"""Invented terrain height around a road: a fixed sum of plane waves.

The same function shapes the road (it follows the terrain within its grade limits) and the ground beside it,
so that cuttings, embankments and hidden dips appear by themselves and agree between frames of a sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_WAVELENGTHS_M = (2600.0, 1700.0, 1100.0, 720.0, 460.0, 300.0, 190.0, 130.0)


@dataclass(frozen=True, eq=False)
class Relief:
    """Terrain height as a sum of plane waves; arrays of one value per wave."""

    wave_x: FloatArray
    wave_y: FloatArray
    phase: FloatArray
    amplitude_m: FloatArray

    def height(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Height in metres at (x east, y north) metres, zero at the origin; any matching shapes."""
        total = np.zeros(np.broadcast(x, y).shape)
        for kx, ky, phase, amplitude in zip(
            self.wave_x, self.wave_y, self.phase, self.amplitude_m, strict=True
        ):
            total += amplitude * (np.sin(kx * x + ky * y + phase) - np.sin(phase))
        return total

    def height32(self, x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
        """`height` in single precision, for the many points of a picture."""
        total = np.full(x.shape, -np.sum(self.amplitude_m * np.sin(self.phase)), dtype=np.float32)
        for kx, ky, phase, amplitude in zip(
            self.wave_x, self.wave_y, self.phase, self.amplitude_m, strict=True
        ):
            wave = x * np.float32(kx)
            wave += y * np.float32(ky)
            wave += np.float32(phase)
            np.sin(wave, out=wave)
            wave *= np.float32(amplitude)
            total += wave
        return total


def relief_slope(hilliness: float) -> float:
    """Root-mean-square slope of the terrain (rise over run) for a hilliness in [0, 1]."""
    return 0.006 + 0.115 * math.pow(min(1.0, max(0.0, hilliness)), 1.25)


def make_relief(seed: int, hilliness: float) -> Relief:
    """The terrain of one seed; deterministic. `hilliness` 0 is a plain, 1 a mountain valley."""
    rng = np.random.default_rng([seed & 0xFFFFFFFF, 7001])
    wavelengths = np.asarray(_WAVELENGTHS_M)
    count = len(wavelengths)
    direction = rng.uniform(0.0, 2.0 * np.pi, count)
    phase = rng.uniform(0.0, 2.0 * np.pi, count)
    number = 2.0 * np.pi / wavelengths
    # A wave of amplitude A has an rms slope of A k / sqrt 2; every wave gets an equal share of the variance,
    # except the shortest ones, which would make the roadside lumpy.
    share = np.sqrt(np.array([1.2, 1.2, 1.2, 1.2, 1.1, 1.0, 0.7, 0.4]) / 8.0)
    amplitude = np.sqrt(2.0) * relief_slope(hilliness) * share / number
    return Relief(number * np.sin(direction), number * np.cos(direction), phase, amplitude)
