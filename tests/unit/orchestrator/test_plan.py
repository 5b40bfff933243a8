from __future__ import annotations

from typing import Any

import pytest
from builders import (
    NOW,
    SlotBuilder,
    a_job,
    a_run,
    a_slot,
    a_wish,
    an_intent,
    blind,
    seen,
    token,
)
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.actions import Action, Cancel, HandOver, Submit
from orchestrator.decisions.control import Control
from orchestrator.decisions.edits import with_intents
from orchestrator.decisions.models import LIVE, Ledger, SlotStatus, Submission, SubmissionState, Verdict
from orchestrator.decisions.plan import (
    CANCEL_AGAIN_S,
    Limits,
    is_over,
    next_attempt,
    plan,
)
from orchestrator.executors.base import JobState

ALL = Limits(slots=100, max_jobs=None, others=0)


def planned(ledger: Ledger, control: Control | None = None, limits: Limits = ALL, **more: Any) -> list[Action]:
    serial = iter(range(1000, 2000))
    folders = more.pop("folders", {})
    return plan(ledger, control or a_wish(), limits, folders, more.pop("now", NOW), lambda: f"{next(serial):08x}")


def submits(actions: list[Action]) -> list[tuple[int, int]]:
    return [(action.slot, action.attempt) for action in actions if isinstance(action, Submit)]


def waiting(name: str | None = None, **more: Any) -> Submission:
    return a_job(name, sighting=seen(JobState.PENDING), **more)


def running(name: str | None = None, **more: Any) -> Submission:
    return a_job(name, sighting=seen(), **more)


def ended(name: str) -> Submission:
    return a_job(name, state=SubmissionState.ENDED)


class TestSubmitting:
    def test_a_new_slot_gets_its_first_attempt(self) -> None:
        assert submits(planned(a_run(a_slot()))) == [(0, 0)]

    def test_the_token_names_slot_and_attempt(self) -> None:
        assert planned(a_run(a_slot(), a_slot(1)))[1] == Submit(1, 0, "s1-a0-000003e9")

    def test_folders_of_attempts_that_the_ledger_forgot_are_not_used_again(self) -> None:
        assert submits(planned(a_run(a_slot()), folders={0: 6})) == [(0, 7)]

    def test_an_ended_attempt_is_followed_by_the_next(self) -> None:
        run = a_run(a_slot().with_attempt(ended(token()), verdict=Verdict.HANDED_OVER))
        assert submits(planned(run, folders={0: 0})) == [(0, 1)]

    def test_a_submission_that_came_to_nothing_is_repeated_for_the_same_attempt(self) -> None:
        run = a_run(a_slot().with_attempt(an_intent(state=SubmissionState.NOT_SUBMITTED)))
        assert submits(planned(run)) == [(0, 0)]

    @pytest.mark.parametrize("status", [SlotStatus.FINISHED, SlotStatus.FAILED])
    def test_a_slot_that_is_done_gets_nothing(self, status: SlotStatus) -> None:
        assert planned(a_run(a_slot(status=status))) == []

    def test_a_slot_that_has_to_wait_waits_to_the_second(self) -> None:
        assert planned(a_run(a_slot(not_before=NOW + 1))) == []
        assert submits(planned(a_run(a_slot(not_before=NOW)))) == [(0, 0)]

    @pytest.mark.parametrize("state", sorted(LIVE))
    @pytest.mark.parametrize("sighting", [None, seen(), blind()])
    def test_a_slot_with_a_submission_that_may_live_is_occupied(self, state: SubmissionState, sighting: Any) -> None:
        run = a_run(a_slot().with_attempt(a_job(state=state, sighting=sighting)))
        assert planned(run) == []

    def test_a_live_job_of_an_older_attempt_occupies_the_slot_too(self) -> None:
        slot = a_slot().with_attempt(a_job(job_id=None), verdict=Verdict.CRASHED)
        slot = slot.with_attempt(ended(token(0, 1)), verdict=Verdict.HANDED_OVER)
        assert planned(a_run(slot)) == []

    def test_a_claimed_attempt_is_never_submitted_again(self) -> None:
        run = a_run(a_slot().with_attempt(an_intent(state=SubmissionState.NOT_SUBMITTED), claimed_by=token()))
        assert submits(planned(run, folders={0: 0})) == []


class TestLimits:
    def test_the_users_other_jobs_count(self) -> None:
        run = a_run(a_slot(), a_slot(1), a_slot(2))
        assert submits(planned(run, limits=Limits(slots=3, max_jobs=4, others=2))) == [(0, 0), (1, 0)]

    def test_our_live_submissions_count_whatever_is_known_of_them(self) -> None:
        run = a_run(a_slot().with_attempt(an_intent()), a_slot(1), a_slot(2))
        assert submits(planned(run, limits=Limits(slots=3, max_jobs=2, others=0))) == [(1, 0)]

    def test_no_room_is_no_error(self) -> None:
        assert planned(a_run(a_slot()), limits=Limits(slots=1, max_jobs=2, others=5)) == []

    def test_slots_beyond_the_number_wanted_get_nothing(self) -> None:
        assert submits(planned(a_run(a_slot(), a_slot(1)), limits=Limits(1, None, 0))) == [(0, 0)]

    def test_a_job_beyond_the_number_wanted_is_asked_to_hand_over(self) -> None:
        run = a_run(a_slot(status=SlotStatus.FINISHED), a_slot(1).with_attempt(running(token(1))))
        assert planned(run, limits=Limits(1, None, 0)) == [HandOver(1, 0, token(1), "101")]

    def test_a_job_beyond_the_number_wanted_gets_time_to_hand_over(self) -> None:
        job = running(token(1))
        run = a_run(a_slot(status=SlotStatus.FINISHED), a_slot(1).with_attempt(job, asked_to_hand_over_at=NOW - 1))
        assert planned(run, Control(), limits=Limits(1, None, 0)) == []


class TestTidying:
    def test_a_waiting_job_of_an_attempt_that_is_taken_is_cancelled(self) -> None:
        slot = a_slot().with_attempt(running(), waiting(token(serial=2), job_id="102"), claimed_by=token())
        (cancel,) = planned(a_run(slot))
        assert isinstance(cancel, Cancel)
        assert cancel.job_id == "102"

    def test_a_running_duplicate_is_left_to_end_by_itself(self) -> None:
        slot = a_slot().with_attempt(running(), running(token(serial=2), job_id="102"), claimed_by=token())
        assert planned(a_run(slot)) == []

    def test_any_job_of_an_attempt_that_was_overtaken_is_cancelled(self) -> None:
        slot = a_slot().with_attempt(running()).with_attempt(running(token(0, 1), job_id="102"))
        (cancel,) = planned(a_run(slot))
        assert isinstance(cancel, Cancel)
        assert (cancel.attempt, cancel.job_id) == (0, "101")

    def test_a_cancel_is_repeated_only_after_a_while(self) -> None:
        for ago, again in ((CANCEL_AGAIN_S - 1, 0), (CANCEL_AGAIN_S, 1)):
            slot = a_slot().with_attempt(running(cancelled_at=NOW - ago))
            assert len(planned(a_run(slot.with_attempt(running(token(0, 1), job_id="102"))))) == again

    def test_a_waiting_job_of_an_attempt_that_has_ended_is_cancelled(self) -> None:
        slot = a_slot().with_attempt(waiting(), claimed_by=token(), verdict=Verdict.CRASHED)
        (cancel,) = planned(a_run(slot))
        assert isinstance(cancel, Cancel)


class TestStopping:
    def test_a_running_job_is_asked_to_hand_over_once(self) -> None:
        assert planned(a_run(a_slot().with_attempt(running())), a_wish("stop")) == [HandOver(0, 0, token(), "101")]
        asked = a_slot().with_attempt(running(), asked_to_hand_over_at=NOW - 1)
        assert planned(a_run(asked), a_wish("stop")) == []

    def test_a_stop_at_once_is_one_for_a_slot_that_is_put_aside_too(self) -> None:
        paused = a_slot(on_request=True, status=SlotStatus.PAUSED).with_attempt(running())
        (cancel,) = planned(a_run(paused), a_wish("stop-now"))
        assert isinstance(cancel, Cancel)

    def test_a_waiting_job_is_cancelled_because_it_has_nothing_to_save(self) -> None:
        (cancel,) = planned(a_run(a_slot().with_attempt(waiting())), a_wish("stop"))
        assert isinstance(cancel, Cancel)

    def test_a_job_that_we_cannot_see_is_asked_not_cancelled(self) -> None:
        run = a_run(a_slot().with_attempt(a_job(sighting=blind())))
        assert planned(run, a_wish("stop")) == [HandOver(0, 0, token(), "101")]

    def test_an_intent_without_an_id_is_asked_by_its_file(self) -> None:
        run = a_run(a_slot().with_attempt(an_intent()))
        assert planned(run, a_wish("stop")) == [HandOver(0, 0, token(), None)]

    def test_the_grace_is_given_in_full_and_then_ends(self) -> None:
        for ago, cancels in ((180.0, 0), (180.1, 1)):
            run = a_run(a_slot().with_attempt(running(), asked_to_hand_over_at=NOW - ago))
            assert len(planned(run, a_wish("stop", grace_s=180))) == cancels

    def test_at_once_means_at_once(self) -> None:
        run = a_run(a_slot().with_attempt(running()), a_slot(1).with_attempt(waiting(token(1), job_id="102")))
        actions = planned(run, a_wish("stop-now"))
        assert [action.job_id for action in actions if isinstance(action, Cancel)] == ["101", "102"]

    def test_at_once_is_not_delayed_by_the_cancel_of_a_duplicate(self) -> None:
        duplicate = running(token(0, 0, 1), job_id="102", cancelled_at=NOW - 1)
        slot = a_slot().with_attempt(running(), duplicate, claimed_by=token())
        (cancel,) = planned(a_run(slot), a_wish("stop-now"))
        assert isinstance(cancel, Cancel)
        assert cancel.job_id == "101"

    @pytest.mark.parametrize("wish", ["stop", "stop-now"])
    def test_an_id_that_a_complete_queue_does_not_have_is_not_named_to_the_scheduler(self, wish: str) -> None:
        lost = a_job(sighting=blind(), absent_since=NOW - 60)
        actions = planned(a_run(a_slot().with_attempt(lost, claimed_by=token())), a_wish(wish))
        assert [action.job_id for action in actions if isinstance(action, Cancel | HandOver)] in ([], [None])
        asked = a_run(a_slot().with_attempt(lost, claimed_by=token(), asked_to_hand_over_at=NOW - 9999))
        assert planned(asked, a_wish(wish)) == []


class TestTheEnd:
    def test_a_run_is_over_when_every_slot_is_done(self) -> None:
        run = a_run(a_slot(status=SlotStatus.FINISHED), a_slot(1, status=SlotStatus.FAILED))
        assert is_over(run, a_wish(), Limits(2, None, 0))

    def test_a_slot_that_wants_a_job_keeps_it_going(self) -> None:
        assert not is_over(a_run(a_slot(not_before=NOW + 99)), a_wish(), Limits(1, None, 0))

    def test_a_stop_is_over_when_no_job_may_live(self) -> None:
        assert is_over(a_run(a_slot()), a_wish("stop"), ALL)
        assert not is_over(a_run(a_slot().with_attempt(an_intent())), a_wish("stop-now"), ALL)

    def test_slots_beyond_the_number_wanted_only_matter_while_they_have_a_job(self) -> None:
        finished = a_slot(status=SlotStatus.FINISHED)
        assert is_over(a_run(finished, a_slot(1)), a_wish(), Limits(1, None, 0))
        assert not is_over(a_run(finished, a_slot(1).with_attempt(running(token(1)))), a_wish(), Limits(1, None, 0))


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

    @given(ledgers(), WISHES, LIMITS)
    def test_no_slot_is_submitted_twice_in_one_tick(self, ledger: Ledger, control: Control, limits: Limits) -> None:
        chosen = [slot for slot, _ in submits(planned(ledger, control, limits))]
        assert len(chosen) == len(set(chosen))

    @given(ledgers(), LIMITS)
    def test_the_limit_is_never_crossed_by_us(self, ledger: Ledger, limits: Limits) -> None:
        new = len(submits(planned(ledger, limits=limits)))
        if new and limits.max_jobs is not None:
            assert live_jobs(ledger) + new + limits.others <= limits.max_jobs

    @given(ledgers(), st.sampled_from(["stop", "stop-now"]).map(a_wish), LIMITS)
    def test_a_stop_submits_nothing(self, ledger: Ledger, control: Control, limits: Limits) -> None:
        assert submits(planned(ledger, control, limits)) == []

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

    @given(ledgers(), WISHES, LIMITS)
    def test_the_same_facts_give_the_same_plan(self, ledger: Ledger, control: Control, limits: Limits) -> None:
        assert planned(ledger, control, limits) == planned(ledger, control, limits)

    @given(ledgers(), WISHES, LIMITS)
    def test_only_jobs_that_may_live_are_asked_or_ended(self, ledger: Ledger, control: Control, limits: Limits) -> None:
        live = {s.token for slot in ledger.slots for attempt in slot.attempts for s in attempt.live}
        for action in planned(ledger, control, limits):
            assert isinstance(action, Submit) or action.token in live

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


def test_the_attempt_to_submit_is_none_for_an_occupied_slot() -> None:
    assert next_attempt(a_slot().with_attempt(an_intent()).built, -1) is None
