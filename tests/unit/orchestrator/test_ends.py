from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.ends import delay_after, lead_warning
from orchestrator.decisions.models import Slot
from orchestrator.sections import RelaySection

RELAY = RelaySection()


@given(st.integers(1, 50), st.lists(st.floats(0, 86400), min_size=1, max_size=8))
def test_a_delay_is_always_one_of_the_configs(failures: int, delays: list[float]) -> None:
    relay = RelaySection(retry_delays_seconds=delays)
    assert delay_after(failures, relay) in delays
    assert delay_after(99, relay) == delays[-1]


@pytest.mark.parametrize(
    ("hand_over_s", "limit_s", "advice"),
    [
        ((20.0, 95.0, 30.0), 3600, ["lead_seconds is 120: set it to 190"]),
        ((95.0,), 300, ["lead_seconds is 120: set it to 190, and slurm.time_limit to 0:09:30"]),  # 190 s would not fit
        ((60.0,), 3600, []),
        ((), 3600, []),
    ],
)
def test_a_long_hand_over_is_told_with_what_to_do(
    hand_over_s: tuple[float, ...], limit_s: float, advice: list[str]
) -> None:
    said = lead_warning(Slot(index=0, hand_over_s=hand_over_s), 120, limit_s)
    assert said.split(", and ", 1)[1:] == advice
