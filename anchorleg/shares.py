"""How sure a share of yes-or-noes is: one definition for tables, pictures and the viewer. Standard library."""

from __future__ import annotations

import math

#: 95 % of a normal distribution lie within so many standard errors.
_Z95 = 1.96


def wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a `share` of `count` yes-or-noes (Wilson 1927): within 0 to 1, and never of no width, so
    one success of one is no certainty. Of none nothing is known: 0 to 1.
    """
    if count <= 0:
        return 0.0, 1.0
    centre = share + _Z95**2 / (2 * count)
    half = _Z95 * math.sqrt(max(0.0, share * (1 - share)) / count + (_Z95 / (2 * count)) ** 2)
    scale = 1 + _Z95**2 / count
    return max(0.0, min(share, (centre - half) / scale)), min(1.0, max(share, (centre + half) / scale))
