"""Tileable noise, made once per process: grain for surfaces, clouds, and skylines."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

TILE = 512
"""Side of the square noise tiles, in samples; a power of two."""


@lru_cache(maxsize=8)
def noise_tile(seed: int, roughness: float) -> Floats:
    """A flattened TILE x TILE tile of zero mean and unit variance, seamless at its edges.

    Its spectrum falls with the frequency to the power `roughness`: 0 is white noise, 2 is cloud-like.
    """
    rng = np.random.default_rng([seed, 7004])
    spectrum = np.fft.rfft2(rng.standard_normal((TILE, TILE)))
    fy = np.fft.fftfreq(TILE)[:, None] * TILE
    fx = np.fft.rfftfreq(TILE)[None, :] * TILE
    frequency = np.maximum(np.hypot(fx, fy), 1.0)
    spectrum *= frequency ** (-roughness)
    spectrum[0, 0] = 0.0
    tile = np.fft.irfft2(spectrum, s=(TILE, TILE))
    flat: Floats = (tile / tile.std()).astype(np.float32).ravel()
    return flat


def sample_tile(tile: Floats, x: Floats, y: Floats, per_unit: float, shift: int = 0) -> Floats:
    """The tile at places (x, y), repeating; `per_unit` samples per unit of x and y, nearest sample."""
    column = np.floor(x * np.float32(per_unit)).astype(np.int32)
    row = np.floor(y * np.float32(per_unit)).astype(np.int32)
    column += np.int32(shift * 97)
    row += np.int32(shift * 57)
    column &= TILE - 1
    row &= TILE - 1
    row *= TILE
    row += column
    taken: Floats = tile.take(row, mode="wrap")
    return taken


@lru_cache(maxsize=64)
def skyline(seed: int, octaves: int, first: int) -> NDArray[np.float64]:
    """A closed curve around the horizon, 2048 values in [0, 1].

    A random walk's spectrum from `first` periods a turn on, `octaves` octaves wide.
    """
    rng = np.random.default_rng([seed & 0xFFFFFFFF, 7005])
    spectrum = np.zeros(1025, dtype=np.complex128)
    periods = np.arange(first, min(1025, first * 2**octaves))
    phases = rng.uniform(0.0, 2.0 * np.pi, len(periods))
    spectrum[periods] = np.exp(1j * phases) / periods**1.15
    curve = np.fft.irfft(spectrum, 2048)
    curve -= curve.min()
    curve /= curve.max()
    return np.asarray(curve, dtype=np.float64)
