"""The other half of `test_simulator`: the odd seeds."""

from __future__ import annotations

import pytest
from profiles import SEEDS, Profile
from world import simulate


@pytest.mark.parametrize("seed", range(1, SEEDS, 2))
def test_a_month_on_a_bad_cluster(seed: int) -> None:
    measured = simulate(Profile.drawn(seed))
    assert measured["ticks"] > 5_000
