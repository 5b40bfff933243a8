from __future__ import annotations

from typing import Any

import pytest
from builders import NOW, SlotBuilder, a_claim, a_job, a_look, a_row, a_run, a_slot, a_wish, an_exit, seen, token

from orchestrator.decisions.actions import Abort, Action, Cancel, HandOver, Submit
from orchestrator.decisions.ahead import AHEAD_WAIT_S
from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Ledger, Slot, SlotStatus, Submission, SubmissionState, Verdict
from orchestrator.decisions.plan import Limits, is_held, next_attempt, plan
from orchestrator.decisions.turns import Turns
from orchestrator.executors.base import JobState
from orchestrator.sections import QueueSection

AHEAD = Limits(slots=9, max_jobs=None, others=0, queue_ahead=True)
RUNGS = QueueSection.model_validate({"metric": "score", "halving": {"first_steps": 100, "factor": 3}})
AT_A_RUNG = Limits(slots=9, max_jobs=None, others=0, queue_ahead=True, turns=Turns(queue=RUNGS))
NEXT = token(0, 1)


def planned(ledger: Ledger, limits: Limits = AHEAD, wish: str = "run") -> list[Action]:
    return plan(ledger, a_wish(wish), limits, {}, NOW, lambda: "0" * 8)


def submits(actions: list[Action]) -> list[tuple[int, int, str | None]]:
    return [(a.slot, a.attempt, a.after) for a in actions if isinstance(a, Submit)]


def runs(index: int = 0, **attempt: Any) -> SlotBuilder:
    """A slot whose first attempt is claimed and runs as job 101."""
    job = a_job(token(index), sighting=seen())
    return a_slot(index).with_attempt(job, claimed_by=token(index), **attempt)


def queued(slot: SlotBuilder | None = None, **job: Any) -> SlotBuilder:
    """... with a successor behind it, as job 102."""
    more = {"job_id": "102", "sighting": seen(JobState.PENDING)} | job
    return (slot or runs()).with_attempt(a_job(NEXT, **more), ahead=True)


def only(ledger: Ledger) -> Slot:
    (slot,) = ledger.slots
    return slot


class TestQueueing:
    def test_a_running_claimant_gets_one_successor_behind_its_job(self) -> None:
        (action,) = planned(a_run(runs()))
        assert action == Submit(0, 1, NEXT[:-8] + "0" * 8, after="101", behind=0)
        assert planned(a_run(queued())) == []

    def test_only_where_it_is_asked_for(self) -> None:
        assert planned(a_run(runs()), Limits(slots=9, max_jobs=None, others=0)) == []

    @pytest.mark.parametrize(
        "slot",
        [
            a_slot().with_attempt(a_job(sighting=seen())),
            a_slot().with_attempt(a_job(sighting=seen(JobState.PENDING)), claimed_by=token()),
            runs(asked_to_hand_over_at=NOW - 1),
            runs(aborted_at=NOW - 1),
            runs().but(ahead_not_before=NOW + 1),
            runs().but(status=SlotStatus.FAILED),
        ],
        ids=["not claimed", "not running", "handing over", "stalled", "refused lately", "given up"],
    )
    def test_not_behind_a_job_that_is_not_settled(self, slot: SlotBuilder) -> None:
        assert submits(planned(a_run(slot))) == []

    @pytest.mark.parametrize(
        ("slot", "limits", "action"),
        [
            (runs().but(step=100, total=900, metric=0.5), AT_A_RUNG, HandOver),
            (runs(quiet_s=700.0, progress_mark="5 0 1.0", heartbeat_changed_at=NOW), AHEAD, Abort),
        ],
        ids=["at its rung", "stalled"],
    )
    def test_not_behind_a_job_that_is_asked_to_end_in_the_same_tick(
        self, slot: SlotBuilder, limits: Limits, action: type[Action]
    ) -> None:
        assert [type(one) for one in planned(a_run(slot), limits)] == [action]

    def test_not_after_a_person_took_it_out_of_the_queue(self) -> None:
        slot = queued(state=SubmissionState.ENDED)
        attempts = (slot.built.attempts[0], slot.built.attempts[1].model_copy(update={"verdict": Verdict.CANCELLED}))
        assert planned(a_run(slot.but(attempts=attempts))) == []

    def test_a_refused_one_is_tried_again_under_its_number(self) -> None:
        assert submits(planned(a_run(queued(state=SubmissionState.NOT_SUBMITTED)))) == [(0, 1, "101")]

    def test_every_current_attempt_comes_first(self) -> None:
        run = a_run(runs(), a_slot(1))
        assert submits(planned(run, Limits(9, 2, 0, queue_ahead=True))) == [(1, 0, None)]
        assert submits(planned(run, Limits(9, 3, 0, queue_ahead=True))) == [(1, 0, None), (0, 1, "101")]

    def test_a_slot_that_waits_keeps_its_place(self) -> None:
        assert planned(a_run(runs(), a_slot(1, not_before=NOW + 60)), Limits(9, 2, 0, queue_ahead=True)) == []

    @pytest.mark.parametrize(
        ("limits", "refused"),
        [(Limits(9, 2, 0, queue_ahead=True), {}), (AHEAD, {"full_at": 2, "full_until": NOW + 60})],
        ids=["known limit", "refused by the quota"],
    )
    def test_a_successor_gives_way_to_a_slot_without_a_job(self, limits: Limits, refused: dict[str, Any]) -> None:
        (cancel,) = planned(a_run(queued(), a_slot(1)).model_copy(update=refused), limits)
        assert isinstance(cancel, Cancel)
        assert cancel.job_id == "102"

    def test_a_queued_successor_never_makes_the_running_job_look_overtaken(self) -> None:
        slot = queued().built
        assert slot.current is slot.attempts[0]
        assert planned(a_run(queued()), Limits(9, None, 0)) == []


def after(slot: SlotBuilder, evidence: Evidence, *rows: Any, at: float = NOW) -> Slot:
    ledger, _ = a_look(at).seeing(*rows).reading(evidence).folded_into(a_run(slot))
    return only(ledger)


SUCCESSOR_WAITS = a_row(NEXT, state=JobState.PENDING, job_id="102")


class TestTheChange:
    def test_a_hand_over_makes_the_successor_current(self) -> None:
        done = Evidence(claim=a_claim(), exit=an_exit(75, asked="deadline"), newest_checkpoint=5)
        slot = after(queued(), done, SUCCESSOR_WAITS)
        assert slot.current is not None
        assert (slot.current.number, slot.current.ahead, slot.successor) == (1, False, None)
        assert planned(a_run(a_slot().but(**dict(slot)))) == []

    def test_so_does_a_death_without_a_record(self) -> None:
        ended = a_row(state=JobState.ENDED, raw="NODE_FAIL")
        slot = after(queued(), Evidence(claim=a_claim(), newest_checkpoint=5), ended, SUCCESSOR_WAITS)
        assert slot.current is not None
        assert slot.current.number == 1

    def test_a_refused_one_leaves_the_slot_what_its_job_ended_with(self) -> None:
        refused = queued(state=SubmissionState.NOT_SUBMITTED)
        ends = a_look().reading(Evidence(claim=a_claim(), exit=an_exit(93)))
        slot = only(ends.folded_into(a_run(refused))[0])
        assert slot.status is SlotStatus.FAILED
        assert slot.why != ""
        assert slot.current is not None
        assert slot.current.exit_code == 93

    def test_a_claim_makes_it_current_whatever_is_known_of_the_job_before(self) -> None:
        look = a_look().seeing(a_row(), a_row(NEXT, job_id="102")).reading(Evidence(claim=a_claim()))
        look = look.reading(Evidence(claim=a_claim(NEXT, job_id="102")), 0, 1)
        slot = only(look.folded_into(a_run(queued()))[0])
        assert slot.current is not None
        assert slot.current.number == 1

    @pytest.mark.parametrize(
        "ended",
        [
            Evidence(claim=a_claim(), exit=an_exit(1), newest_checkpoint=5),
            Evidence(claim=a_claim(), exit=an_exit(0)),
            Evidence(claim=a_claim(), exit=an_exit(93)),
        ],
        ids=["crashed", "finished", "do not requeue"],
    )
    def test_where_something_else_comes_next_it_is_cancelled(self, ended: Evidence) -> None:
        slot = after(queued(), ended, SUCCESSOR_WAITS)
        assert slot.current is slot.attempts[0]
        (cancel,) = planned(a_run(a_slot().but(**dict(slot))))
        assert isinstance(cancel, Cancel)
        assert cancel.job_id == "102"

    def test_it_does_not_follow_where_a_sigterm_came_in_the_hand_over(self) -> None:
        ended = Evidence(claim=a_claim(), exit=an_exit(75, asked="deadline", terminated=True), newest_checkpoint=5)
        slot = after(queued(), ended, a_row(state=JobState.ENDED, raw="TIMEOUT"), SUCCESSOR_WAITS)
        assert slot.current is slot.attempts[0]
        assert slot.current.verdict is Verdict.HANDED_OVER
        (cancel,) = planned(a_run(a_slot().but(**dict(slot))))
        assert isinstance(cancel, Cancel)

    def test_a_delay_comes_first(self) -> None:
        ended = a_row(state=JobState.ENDED, raw="OUT_OF_MEMORY")
        slot = after(queued().but(failures=1), Evidence(claim=a_claim()), ended, SUCCESSOR_WAITS)
        assert slot.not_before > NOW
        assert slot.current is slot.attempts[0]

    def test_what_declined_was_not_needed_and_the_next_attempt_has_a_new_number(self) -> None:
        slot = after(queued(), Evidence(claim=a_claim(), exit=an_exit(1), newest_checkpoint=5), SUCCESSOR_WAITS)
        declined = Evidence(duplicates=(NEXT,), declined=(NEXT,))
        ledger, _ = a_look().reading(declined, 0, 1).folded_into(a_run(a_slot().but(**dict(slot))))
        slot = only(ledger)
        assert slot.attempts[1].verdict is Verdict.NOT_NEEDED
        assert (slot.status, slot.failures, next_attempt(slot, -1)) == (SlotStatus.ACTIVE, 0, 2)

    def test_a_successor_that_a_person_cancelled_pauses_nothing_while_the_job_runs(self) -> None:
        rows = (a_row(), a_row(NEXT, state=JobState.ENDED, raw="CANCELLED", job_id="102"))
        slot = after(queued(), Evidence(claim=a_claim()), *rows)
        assert (slot.status, slot.successor) == (SlotStatus.ACTIVE, None)
        assert slot.attempts[1].verdict is Verdict.CANCELLED

    def test_one_that_ended_unasked_is_not_followed_by_another_at_once(self) -> None:
        rows = (a_row(), a_row(NEXT, state=JobState.ENDED, raw="BOOT_FAIL", job_id="102"))
        slot = after(queued(), Evidence(claim=a_claim()), *rows)
        assert (slot.ahead_not_before, slot.failures, slot.node_failures) == (NOW + AHEAD_WAIT_S, 0, 0)

    def test_a_controller_that_forgot_everything_knows_a_successor_from_its_predecessor(self) -> None:
        rows = (a_row(), SUCCESSOR_WAITS)
        ledger, _ = a_look().seeing(*rows).folded_into(a_run(a_slot()), ahead=frozenset({NEXT}))
        slot = only(ledger)
        assert [attempt.ahead for attempt in slot.attempts] == [False, True]
        assert not [a for a in planned(ledger) if isinstance(a, Cancel)]


class TestHolding:
    def test_a_stop_takes_the_successor_out_before_it_asks_the_job(self) -> None:
        cancel, ask = planned(a_run(queued()), wish="stop")
        assert isinstance(cancel, Cancel)
        assert (cancel.job_id, ask) == ("102", HandOver(0, 0, token(), "101"))

    @pytest.mark.parametrize(
        ("slot", "wish", "limits"),
        [
            (runs().but(status=SlotStatus.PAUSED), "run", AHEAD),
            (runs().but(status=SlotStatus.FINISHED), "run", AHEAD),
            (runs().but(not_before=NOW + 1), "run", AHEAD),
            (runs(), "stop", AHEAD),
            (runs(), "stop-now", AHEAD),
            (runs(), "run", Limits(0, None, 0)),
        ],
    )
    def test_a_slot_that_must_not_go_on_holds_its_successor(self, slot: SlotBuilder, wish: str, limits: Limits) -> None:
        assert is_held(slot.built, a_wish(wish), limits, NOW)
        assert not is_held(runs().built, a_wish(), AHEAD, NOW)


def test_the_words_of_a_refusal_ahead_do_not_touch_the_running_attempt() -> None:
    refused = Submission(token=NEXT, intent_at=NOW - 9, state=SubmissionState.NOT_SUBMITTED, note="quota")
    slot = runs().with_attempt(refused, ahead=True).but(ahead_not_before=NOW + 1)
    assert planned(a_run(slot)) == []
    assert slot.built.not_before == 0.0
