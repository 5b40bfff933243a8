"""What is to be done next: a table of decisions, and what holds for every ledger."""

from __future__ import annotations

from typing import Any

from builders import NOW, SlotBuilder, a_run, a_slot, a_wish, blind, seen, token
from hypothesis import given
from hypothesis import strategies as st
from slot_text import Case, cases_of, check

from orchestrator.decisions.edits import with_intents
from orchestrator.decisions.models import (
    Action,
    Cancel,
    HandOver,
    Ledger,
    SlotStatus,
    Submission,
    SubmissionState,
    Submit,
    Verdict,
)
from orchestrator.decisions.plan import Limits, plan
from orchestrator.decisions.requests import Control
from orchestrator.executors.base import JobState

ALL = Limits(slots=100, max_jobs=None, others=0)


@cases_of("plan.txt")
def test_the_next_thing_to_do(case: Case) -> None:
    check(case)


def planned(ledger: Ledger, control: Control | None = None, limits: Limits = ALL, **more: Any) -> list[Action]:
    serial = iter(range(1000, 2000))
    return plan(ledger, control or a_wish(), limits, more.pop("folders", {}), NOW, lambda: f"{next(serial):08x}")


def submits(actions: list[Action]) -> list[tuple[int, int]]:
    return [(action.slot, action.attempt) for action in actions if isinstance(action, Submit)]


SIGHTINGS = st.sampled_from([None, seen(), seen(JobState.PENDING), seen(JobState.UNKNOWN), blind()])
NUMBERS = st.integers(0, 3)


@st.composite
def slots(draw: st.DrawFn, index: int) -> SlotBuilder:
    slot = a_slot(
        index,
        status=draw(st.sampled_from([SlotStatus.ACTIVE] * 3 + [SlotStatus.FINISHED, SlotStatus.FAILED])),
        not_before=draw(st.sampled_from([0.0, NOW - 1, NOW + 1])),
    )
    for number in range(draw(NUMBERS)):
        jobs = []
        for serial in range(draw(NUMBERS)):
            state = draw(st.sampled_from(list(SubmissionState)))
            job_id = draw(st.sampled_from([None, f"{index}{number}{serial}"]))
            name = token(index, number, serial)
            jobs.append(
                Submission(
                    token=name,
                    intent_at=NOW - 99,
                    state=state,
                    job_id=job_id,
                    sighting=draw(SIGHTINGS),
                    cancelled_at=draw(st.sampled_from([None, NOW - 1, NOW - 999])),
                )
            )
        slot = slot.with_attempt(
            *jobs,
            claimed_by=draw(st.sampled_from([None, *[job.token for job in jobs]])),
            verdict=draw(st.sampled_from([None, *Verdict])),
            asked_to_hand_over_at=draw(st.sampled_from([None, NOW - 1, NOW - 999])),
        )
    return slot


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    return a_run(*[draw(slots(index)) for index in range(draw(NUMBERS))])


WISHES = st.sampled_from(["run", "stop", "stop-now"]).map(a_wish)
LIMITS = st.builds(Limits, slots=st.integers(1, 4), max_jobs=st.none() | st.integers(1, 4), others=st.integers(0, 4))


def live_jobs(ledger: Ledger) -> int:
    return sum(len(attempt.live) for slot in ledger.slots for attempt in slot.attempts)


class TestProperties:
    @given(ledgers(), WISHES, LIMITS)
    def test_no_slot_ever_gets_a_second_live_submission_on_purpose(
        self, ledger: Ledger, control: Control, limits: Limits
    ) -> None:
        for slot, _ in submits(planned(ledger, control, limits)):
            assert not any(attempt.live for attempt in ledger.slots[slot].attempts)

    @given(ledgers(), LIMITS)
    def test_the_limit_is_never_crossed_by_us(self, ledger: Ledger, limits: Limits) -> None:
        new = len(submits(planned(ledger, limits=limits)))
        if new and limits.max_jobs is not None:
            assert live_jobs(ledger) + new + limits.others <= limits.max_jobs

    @given(ledgers(), WISHES)
    def test_every_unfinished_slot_has_a_job_or_a_reason_or_gets_one(self, ledger: Ledger, control: Control) -> None:
        chosen = {slot for slot, _ in submits(planned(ledger, control))}
        for slot in ledger.slots:
            idle = slot.status is SlotStatus.ACTIVE and not any(attempt.live for attempt in slot.attempts)
            current = slot.current
            taken = current is not None and current.verdict is None and current.claimed_by is not None
            may = control.wish == "run" and slot.not_before <= NOW and not taken
            assert (slot.index in chosen) == (idle and may)

    @given(ledgers(), LIMITS)
    def test_a_new_attempt_is_above_everything_that_left_a_trace(self, ledger: Ledger, limits: Limits) -> None:
        folders = {slot.index: 5 for slot in ledger.slots}
        for slot, number in submits(planned(ledger, limits=limits, folders=folders)):
            current = ledger.slots[slot].current
            repeated = current is not None and current.verdict is None
            assert number == (current.number if repeated and current else 6)

    @given(ledgers(), LIMITS)
    def test_once_the_intents_are_written_nothing_more_is_submitted(self, ledger: Ledger, limits: Limits) -> None:
        actions = [action for action in planned(ledger, limits=limits) if isinstance(action, Submit)]
        after = with_intents(ledger, actions, NOW)
        assert live_jobs(after) == live_jobs(ledger) + len(actions)
        assert not {slot for slot, _ in submits(planned(after, limits=limits))} & {a.slot for a in actions}

    @given(ledgers(), LIMITS)
    def test_a_running_claimant_of_the_newest_attempt_is_left_alone_while_the_run_is_wanted(
        self, ledger: Ledger, limits: Limits
    ) -> None:
        limits = Limits(len(ledger.slots), limits.max_jobs, limits.others)
        for action in planned(ledger, limits=limits):
            if isinstance(action, HandOver | Cancel):
                slot = ledger.slots[action.slot]
                assert slot.current is not None
                if slot.current.verdict is not None:
                    continue  # a requeued job of an attempt that is over may go
                if slot.status is SlotStatus.FAILED:
                    continue  # it was queued behind the job whose end stopped the slot
                assert (action.attempt, action.token) != (slot.current.number, slot.current.claimed_by)
