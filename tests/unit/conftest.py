"""Unit tests: pure, quick, on any machine. This file sets Hypothesis's manners."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No deadline: two cores shared with other work make single examples slow without any fault of the code.
settings.register_profile(
    "anchorleg", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("anchorleg")
