from __future__ import annotations

from dataclasses import replace

import pytest
from builders import NOW, a_claim, a_job, a_look, a_run, a_slot, an_exit, token
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.ends import delay_after, lead_warning
from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Slot, SlotStatus
from orchestrator.sections import RelaySection

RELAY = RelaySection()


@given(st.integers(1, 50), st.lists(st.floats(0, 86400), min_size=1, max_size=8))
def test_a_delay_is_always_one_of_the_configs(failures: int, delays: list[float]) -> None:
    relay = RelaySection(retry_delays_seconds=delays)
    assert delay_after(failures, relay) in delays
    assert delay_after(99, relay) == delays[-1]


def test_a_program_that_changed_its_naming_is_stopped_when_its_budget_is_used_up() -> None:
    """It began from `1000` and saves `step_2000` from now on: each of its jobs begins from `1000`."""
    ledger, failures = a_run(a_slot()), []
    for number in range(1 + RELAY.failure_budget):
        name = token(0, number)
        times = {"started_at": NOW - 500, "deadline": NOW - 5}
        ended = an_exit(75, name, asked="deadline", newest=None, misnamed="step_2000", **times)
        slot = replace(a_slot(), built=ledger.slots[0]).with_attempt(a_job(name), number=number)
        left = Evidence(claim=a_claim(name), exit=ended, start_step=1000)
        ledger, _ = a_look().reading(left, attempt=number).folded_into(a_run(slot))
        failures.append(ledger.slots[0].failures)
    assert failures == [*range(RELAY.failure_budget), RELAY.failure_budget]
    assert ledger.slots[0].status is SlotStatus.FAILED
    assert "not step_2000" in ledger.slots[0].why


@pytest.mark.parametrize(
    ("hand_over_s", "words"),
    [
        ((20.0, 95.0, 30.0), "handing over took 95 s, and lead_seconds is 120: set it to 190"),
        ((60.0,), ""),
        ((), ""),
    ],
)
def test_a_long_hand_over_is_told_with_what_to_do(hand_over_s: tuple[float, ...], words: str) -> None:
    assert lead_warning(Slot(index=0, hand_over_s=hand_over_s), 120) == words
