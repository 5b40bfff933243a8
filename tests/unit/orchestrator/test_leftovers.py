"""Jobs that said that they ended, and that Slurm still has: cancelled once that has lasted, whatever comes next."""

from __future__ import annotations

import pytest
from builders import NOW, Look, a_claim, a_job, a_look, a_row, a_run, a_slot, a_wish, an_exit, token

from orchestrator.decisions.actions import Cancel
from orchestrator.decisions.clocks import with_clock_set_back
from orchestrator.decisions.edits import with_intents
from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.fold import ATTEMPTS_KEPT
from orchestrator.decisions.leftovers import LEFT_S, WHY
from orchestrator.decisions.models import Gone, Ledger, SlotStatus, Submission, SubmissionState, Verdict
from orchestrator.decisions.plan import CANCEL_AGAIN_S, Limits, plan
from orchestrator.executors.base import JobState

OVER = Gone(proof="the job's own exit record", at=NOW - 5, by_job=True)
STILL_THERE = a_look().seeing(a_row())


def over(**more: object) -> Submission:
    return a_job(state=SubmissionState.ENDED, sighting=OVER, **more)


def a_run_of(job: Submission, **more: object) -> Ledger:
    return a_run(a_slot(status=SlotStatus.PAUSED, **more).with_attempt(job, verdict=Verdict.HANDED_OVER))


def after(look: Look, ledger: Ledger) -> Ledger:
    return look.folded_into(ledger)[0]


def left_since(ledger: Ledger) -> float | None:
    return ledger.slots[0].attempts[0].submissions[0].left_since


def cancelled(ledger: Ledger, now: float) -> list[Cancel]:
    limits = Limits(slots=1, max_jobs=None, others=0)
    found = plan(ledger, a_wish(), limits, {}, now, lambda: "0" * 8)
    return [action for action in found if isinstance(action, Cancel)]


def test_a_job_is_left_from_the_first_look_after_its_own_word() -> None:
    running = a_run(a_slot().with_attempt(a_job()))
    ended = after(STILL_THERE.reading(Evidence(claim=a_claim(), exit=an_exit(75))), running)
    assert left_since(ended) == NOW
    assert left_since(after(Look(at=NOW + 30).seeing(a_row()), ended)) == NOW


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING])
def test_it_is_cancelled_when_that_has_lasted(state: JobState) -> None:
    ledger = after(a_look().seeing(a_row(state=state)), a_run_of(over()))
    assert cancelled(ledger, NOW + LEFT_S - 1) == []
    assert cancelled(ledger, NOW + LEFT_S) == [Cancel(0, 0, token(), "101", WHY)]


def test_the_cancel_is_noted_and_made_again_only_after_a_while() -> None:
    ledger = a_run_of(over(left_since=NOW - LEFT_S, cancelled_at=NOW - 2 * LEFT_S))  # a cancel of before says nothing
    noted = with_intents(ledger, cancelled(ledger, NOW), NOW)
    assert noted.slots[0].attempts[0].submissions[0].cancelled_at == NOW
    assert cancelled(noted, NOW + CANCEL_AGAIN_S - 1) == []
    assert len(cancelled(noted, NOW + CANCEL_AGAIN_S)) == 1


@pytest.mark.parametrize("look", [a_look(), a_look().seeing(a_row(state=JobState.ENDING))], ids=["gone", "ending"])
def test_once_it_leaves_it_is_forgotten(look: Look) -> None:
    assert left_since(after(look, a_run_of(over(left_since=NOW - 50)))) is None


def test_an_outage_says_nothing_of_it_and_nothing_is_cancelled_in_one() -> None:
    ledger = after(a_look().failing("down"), a_run_of(over(left_since=NOW - LEFT_S)))
    assert left_since(ledger) == NOW - LEFT_S
    assert cancelled(ledger, NOW) == []


def test_a_job_that_somebody_else_called_over_is_no_leftover() -> None:
    by_queue = a_job(state=SubmissionState.ENDED, sighting=OVER.model_copy(update={"by_job": False, "at": NOW + 5}))
    assert left_since(after(STILL_THERE, a_run_of(by_queue))) is None


def test_it_stays_in_the_ledger_until_it_is_gone() -> None:
    slot = a_slot(status=SlotStatus.PAUSED)
    for number in range(ATTEMPTS_KEPT + 2):
        job = a_job(token(0, number), state=SubmissionState.ENDED, sighting=OVER)
        slot = slot.with_attempt(job, verdict=Verdict.HANDED_OVER)
    there = after(a_look().seeing(a_row(token(0, 1))), a_run(slot))
    assert [a.number for a in there.slots[0].attempts] == [1, 2, 3, 4]
    assert [a.number for a in after(a_look(), there).slots[0].attempts] == [2, 3, 4]


def test_a_clock_that_is_set_back_does_not_make_the_wait_longer() -> None:
    ledger = a_run_of(over(left_since=NOW)).model_copy(update={"written_at": NOW})
    assert left_since(with_clock_set_back(ledger, NOW - 86400)) == NOW - 86400
