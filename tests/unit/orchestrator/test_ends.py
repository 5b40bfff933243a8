from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import NOW, a_claim, a_job, a_look, a_row, a_run, a_slot, an_exit, progress, seen, token
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.ahead import wants_successor
from orchestrator.decisions.ends import HAND_OVERS_KEPT, delay_after, lead_warning
from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Slot, SlotStatus, Verdict
from orchestrator.executors.base import JobState
from orchestrator.sections import RelaySection

RELAY = RelaySection()
DELAYS = RELAY.retry_delays_seconds


def after(evidence: Evidence, raw: str | None = None, *, cancelled_at: float | None = None, **slot: Any) -> Slot:
    """The slot after one look at its only job's end."""
    look = a_look().reading(evidence)
    if raw is not None:
        look = look.seeing(a_row(state=JobState.ENDED, raw=raw))
    ledger, _ = look.folded_into(a_run(a_slot(**slot).with_attempt(a_job(cancelled_at=cancelled_at))))
    return ledger.slots[0]


CRASH = Evidence(claim=a_claim(), exit=an_exit(1), log_tail="KeyError: 'x'")


class TestDelays:
    @pytest.mark.parametrize(("failures", "delay_s"), [(0, 0.0), (1, 60.0), (2, 900.0), (3, 1800.0), (4, 3600.0)])
    def test_each_failure_in_a_row_waits_longer(self, failures: int, delay_s: float) -> None:
        slot = after(CRASH, failures=failures)
        assert slot.not_before == (NOW + delay_s if delay_s else 0.0)
        assert slot.why == f"job 101 failed: KeyError: 'x' (exit code 1) (failure {failures + 1} of 6)"

    def test_the_last_delay_goes_on(self) -> None:
        assert delay_after(99, RELAY) == DELAYS[-1]

    def test_a_failure_with_progress_is_followed_at_once(self) -> None:
        slot = after(CRASH.model_copy(update={"newest_checkpoint": 7}), failures=4, node_failures=2, stalls=1)
        assert (slot.failures, slot.node_failures, slot.stalls, slot.not_before) == (0, 0, 0, 0.0)

    def test_a_nodes_failure_delays_and_never_ends_the_slot(self) -> None:
        slot = after(Evidence(claim=a_claim()), "NODE_FAIL", failures=5, node_failures=40)
        assert (slot.status, slot.failures, slot.node_failures) == (SlotStatus.ACTIVE, 5, 41)
        assert slot.not_before == NOW + DELAYS[-1]

    def test_a_full_disk_delays_and_never_ends_the_slot(self) -> None:
        full = CRASH.model_copy(update={"log_tail": "OSError: [Errno 122] Disk quota exceeded"})
        slot = after(full, failures=5, node_failures=40)
        assert (slot.status, slot.failures, slot.node_failures) == (SlotStatus.ACTIVE, 5, 41)
        assert (slot.not_before, slot.why) == (
            NOW + DELAYS[-1],
            "job 101 failed: the disk quota is used up (exit code 1)",
        )

    def test_a_clock_that_was_set_back_does_not_lengthen_a_delay(self) -> None:
        ledger, _ = a_look().folded_into(a_run(a_slot(not_before=NOW + 7 * 86400)))
        assert ledger.slots[0].not_before == NOW + DELAYS[-1]

    @given(st.integers(1, 50), st.lists(st.floats(0, 86400), min_size=1, max_size=8))
    def test_a_delay_is_always_one_of_the_configs(self, failures: int, delays: list[float]) -> None:
        assert delay_after(failures, RelaySection(retry_delays_seconds=delays)) in delays


class TestCancels:
    def test_a_persons_cancel_pauses_the_slot_and_says_how_to_go_on(self) -> None:
        slot = after(Evidence(claim=a_claim()), "CANCELLED", failures=2)
        assert (slot.status, slot.failures) == (SlotStatus.PAUSED, 2)
        assert "`orchestrator start NAME` goes on" in slot.why

    def test_the_history_names_the_person(self) -> None:
        look = a_look().remembering(a_row(state=JobState.ENDED, raw="CANCELLED by 33")).reading(Evidence())
        ledger, _ = look.folded_into(a_run(a_slot().with_attempt(a_job())))
        assert ledger.slots[0].attempts[0].cause == "cancelled by user 33 (scancel)"

    def test_a_waiting_job_that_a_person_cancelled_pauses_too(self) -> None:
        assert after(Evidence(), "CANCELLED").status is SlotStatus.PAUSED

    def test_our_own_cancel_pauses_nothing(self) -> None:
        slot = after(Evidence(claim=a_claim()), "CANCELLED", cancelled_at=NOW - 5)
        assert (slot.status, slot.failures, slot.attempts[0].verdict) == (SlotStatus.ACTIVE, 0, Verdict.CANCELLED)

    def test_a_hand_over_by_a_persons_cancel_pauses_although_it_saved_everything(self) -> None:
        ended = Evidence(claim=a_claim(), exit=an_exit(75, asked="SIGTERM"), newest_checkpoint=9)
        slot = after(ended, "CANCELLED")
        assert (slot.status, slot.failures) == (SlotStatus.PAUSED, 0)

    @pytest.mark.parametrize("raw", ["PREEMPTED", "TIMEOUT", "NODE_FAIL", "COMPLETED"])
    def test_a_hand_over_by_anybody_elses_sigterm_goes_on(self, raw: str) -> None:
        ended = Evidence(claim=a_claim(), exit=an_exit(75, asked="SIGTERM"), newest_checkpoint=9)
        slot = after(ended, raw)
        assert (slot.status, slot.attempts[0].verdict) == (SlotStatus.ACTIVE, Verdict.HANDED_OVER)

    def test_a_program_that_is_done_is_done_whoever_cancelled_it(self) -> None:
        ended = Evidence(claim=a_claim(), exit=an_exit(0, asked="SIGTERM"), progress=progress(1000))
        assert after(ended, "CANCELLED").status is SlotStatus.FINISHED

    def test_the_end_of_an_older_attempt_pauses_nothing(self) -> None:
        slot = a_slot().with_attempt(a_job()).with_attempt(a_job("s0-a1-00000000", job_id="102"))
        look = a_look().seeing(a_row(state=JobState.ENDED, raw="CANCELLED"), a_row("s0-a1-00000000", job_id="102"))
        assert look.folded_into(a_run(slot))[0].slots[0].status is SlotStatus.ACTIVE


class TestAChangedNaming:
    """A program that began from `1000` and saves `step_2000` from now on: each of its jobs begins from `1000`."""

    @staticmethod
    def job(number: int) -> Evidence:
        times = {"started_at": NOW - 500, "deadline": NOW - 5}
        ended = an_exit(75, token(0, number), asked="deadline", newest=None, misnamed="step_2000", **times)
        return Evidence(claim=a_claim(token(0, number)), exit=ended, start_step=1000)

    def test_it_is_stopped_when_its_budget_is_used_up(self) -> None:
        ledger, failures = a_run(a_slot()), []
        for number in range(1 + RELAY.failure_budget):
            slot = replace(a_slot(), built=ledger.slots[0]).with_attempt(a_job(token(0, number)), number=number)
            ledger, _ = a_look().reading(self.job(number), attempt=number).folded_into(a_run(slot))
            failures.append(ledger.slots[0].failures)
        assert failures == [*range(RELAY.failure_budget), RELAY.failure_budget]
        assert ledger.slots[0].status is SlotStatus.FAILED
        assert "not step_2000" in ledger.slots[0].why

    @pytest.mark.parametrize("before", [{"start_step": 500}, {"newest_checkpoint": 1500}])
    def test_who_went_on_from_elsewhere_or_got_on_before_is_believed(self, before: dict[str, Any]) -> None:
        first = self.job(0).model_copy(update=before)
        ledger, _ = a_look().reading(first).folded_into(a_run(a_slot().with_attempt(a_job())))
        slot = replace(a_slot(), built=ledger.slots[0]).with_attempt(a_job(token(0, 1)))
        ledger, _ = a_look().reading(self.job(1), attempt=1).folded_into(a_run(slot))
        assert ledger.slots[0].attempts[-1].verdict is Verdict.HANDED_OVER


class TestStalls:
    STALL = Evidence(claim=a_claim(), exit=an_exit(-6, asked="stalled"), progress=progress(0))

    def test_the_first_is_a_failure_and_names_its_stacks(self) -> None:
        slot = after(self.STALL)
        assert (slot.status, slot.stalls, slot.failures) == (SlotStatus.ACTIVE, 1, 1)
        assert slot.attempts[0].cause == "no progress; its stacks are in job-101.err"

    def test_the_second_without_a_checkpoint_between_stops_the_slot(self) -> None:
        slot = after(self.STALL, stalls=1)
        assert slot.status is SlotStatus.FAILED
        assert "stalled" in slot.why

    def test_a_checkpoint_between_makes_it_the_first_again(self) -> None:
        slot = after(self.STALL.model_copy(update={"newest_checkpoint": 5}), stalls=1)
        assert (slot.status, slot.stalls) == (SlotStatus.ACTIVE, 0)


class TestTheLead:
    def ended(self, took_s: float, **slot: Any) -> Slot:
        out = an_exit(75, asked="deadline", asked_at=NOW - 5 - took_s)
        return after(Evidence(claim=a_claim(), exit=out, newest_checkpoint=9), **slot)

    def test_the_length_of_each_hand_over_is_remembered(self) -> None:
        assert self.ended(40.0, hand_over_s=(10.0,)).hand_over_s == (10.0, 40.0)

    def test_only_the_last_few_are(self) -> None:
        slot = self.ended(40.0, hand_over_s=tuple(float(n) for n in range(HAND_OVERS_KEPT)))
        assert slot.hand_over_s == (*(float(n) for n in range(1, HAND_OVERS_KEPT)), 40.0)

    def test_a_long_one_is_told_with_what_to_do(self) -> None:
        words = lead_warning(Slot(index=0, hand_over_s=(20.0, 95.0, 30.0)), 120)
        assert words == "handing over took 95 s, and lead_seconds is 120: set it to 190"

    @pytest.mark.parametrize("hand_over_s", [(), (60.0,)])
    def test_a_short_one_is_not(self, hand_over_s: tuple[float, ...]) -> None:
        assert lead_warning(Slot(index=0, hand_over_s=hand_over_s), 120) == ""


class TestABrake:
    """On jobs that save something and end at once of their own will."""

    @staticmethod
    def ended(early_ends: int, code: int = 75, ran_s: float = 300.0, **more: Any) -> Slot:
        ended = an_exit(code, newest=9, started_at=NOW - 5 - ran_s, deadline=NOW - 5 - ran_s + 4 * 3600, **more)
        return after(Evidence(claim=a_claim(), exit=ended, newest_checkpoint=9), early_ends=early_ends)

    @pytest.mark.parametrize("code", [75, 1])
    @pytest.mark.parametrize(
        ("before", "delay_s"), [(0, None), (1, None), (2, 60.0), (3, 60.0), (4, 900.0), (90, 3600.0)]
    )
    def test_from_the_third_in_a_row_on_they_wait_and_ever_longer(
        self, code: int, before: int, delay_s: float | None
    ) -> None:
        slot = self.ended(before, code)
        assert (slot.early_ends, slot.failures, slot.status) == (before + 1, 0, SlotStatus.ACTIVE)
        assert slot.not_before == (0.0 if delay_s is None else NOW + delay_s)
        assert bool(slot.why) is (delay_s is not None)

    @pytest.mark.parametrize("more", [{"ran_s": 1500.0}, {"asked": "asked to"}, {"asked": "deadline"}, {"code": -9}])
    def test_what_was_asked_for_took_its_time_or_was_killed_is_none(self, more: dict[str, Any]) -> None:
        slot = self.ended(2, **more)
        assert (slot.early_ends, slot.not_before) == (0, 0.0)

    def test_no_successor_is_queued_past_the_wait(self) -> None:
        job = a_job(sighting=seen())
        for early_ends, wanted in ((2, (1, "101")), (3, None)):
            slot = a_slot(early_ends=early_ends).with_attempt(job, claimed_by=token()).built
            assert wants_successor(slot, 0, NOW) == wanted
