"""An arctangent that gives the same bits on every processor.

NumPy's own is another routine where the processor has AVX-512 than where it has not, and the last bits of the
two differ. This one is made of additions, multiplications, divisions and square roots, which IEEE 754 rounds
in one way only. Its error is below 1e-15 rad.
"""

import math

import numpy as np
from numpy.typing import NDArray

# arctan(a) = a - a^3/3 + a^5/5 - ... (Gregory's series); for a below tan(pi / 16) the terms past these are
# under 1e-17.
_TERMS = 12


def arctan2_exact(y: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The angle of the point (x, y) in radians, in [-pi, pi], for arrays that broadcast against each other.

    Where both are 0 the answer is 0.
    """
    y, x = np.broadcast_arrays(y, x)
    tall, wide = np.abs(y), np.abs(x)
    low, high = np.minimum(tall, wide), np.maximum(tall, wide)
    # In [0, 1]; halving the angle twice by tan(t/2) = tan t / (1 + sqrt(1 + tan^2 t)) brings it below 0.199.
    tangent = low / np.where(high == 0.0, 1.0, high)
    for _ in range(2):
        tangent = tangent / (1.0 + np.sqrt(1.0 + tangent * tangent))
    square = tangent * tangent
    series = np.full_like(square, 1.0 / (2 * _TERMS - 1))
    for term in range(_TERMS - 2, -1, -1):
        series *= square
        np.subtract(1.0 / (2 * term + 1), series, out=series)
    angle = 4.0 * (tangent * series)
    angle = np.where(tall > wide, math.pi / 2.0 - angle, angle)
    angle = np.where(x < 0.0, math.pi - angle, angle)
    result: NDArray[np.float64] = np.where(y < 0.0, -angle, angle)
    return result
