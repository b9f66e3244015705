"""Random numbers by counter: the same keys always give the same number, in any order and any process.

Scalars and arrays go through the same 64-bit mixing (the finaliser of SplitMix64), so a slot along the road
keeps its tree whether it is drawn alone or among a thousand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def unit(*keys: int) -> float:
    """A number in [0, 1) that depends on the integer keys alone."""
    state = _GOLDEN
    for key in keys:
        state = (state ^ (key & _MASK)) * _FIRST & _MASK
        state = (state ^ (state >> 29)) * _SECOND & _MASK
        state ^= state >> 32
    return (state >> 11) / 9007199254740992.0


def unit_table(seed: int, salt: int, slots: NDArray[np.int64], draws: int) -> NDArray[np.float64]:
    """For every slot `draws` numbers in [0, 1), shape (len(slots), draws): unit(seed, salt, slot, j)."""
    state = np.full((len(slots), draws), _GOLDEN, dtype=np.uint64)
    columns = (
        np.uint64(seed & _MASK),
        np.uint64(salt & _MASK),
        slots.astype(np.int64).view(np.uint64)[:, None],
        np.arange(draws, dtype=np.uint64)[None, :],
    )
    with np.errstate(over="ignore"):
        for key in columns:
            state = (state ^ key) * np.uint64(_FIRST)
            state = (state ^ (state >> np.uint64(29))) * np.uint64(_SECOND)
            state = state ^ (state >> np.uint64(32))
    return (state >> np.uint64(11)).astype(np.float64) / 9007199254740992.0


def text_key(text: str) -> int:
    """A key for `unit` made of a short text."""
    return int.from_bytes(text.encode("utf-8")[:7], "big")
