from __future__ import annotations

from builders import NOW, Look, SlotBuilder, a_job, a_look, a_row, a_run, a_slot, a_wish, gone, token

from orchestrator.decisions.actions import Action, Cancel, Release, Submit
from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import BadNode, Ledger, Seen, SlotStatus, Verdict
from orchestrator.decisions.nodes import excluded
from orchestrator.decisions.outcomes import AGAIN_S
from orchestrator.decisions.plan import RELEASE_WAIT_S, Limits, plan
from orchestrator.decisions.sightings import FOR_EVER_S
from orchestrator.decisions.verdicts import LAUNCH_FAILED, judge
from orchestrator.executors.base import JobState

LIMITS = Limits(slots=1, max_jobs=None, others=0)
HELD = "launch failed requeued held"


def waits(reason: str, *, at: float = NOW - 30, **job: object) -> SlotBuilder:
    sighting = Seen(state=JobState.PENDING, raw_state="PENDING", at=at, reason=reason)
    return a_slot().with_attempt(a_job(sighting=sighting, **job))


def planned(ledger: Ledger) -> list[Action]:
    return plan(ledger, a_wish(), LIMITS, {}, NOW, lambda: "0" * 8)


def looked(reason: str, *after_s: float, ledger: Ledger | None = None, partition: str = "gpu", **job: object) -> Ledger:
    """The ledger after a look at each of these times that showed the job waiting for `reason`."""
    ledger = ledger or a_run(a_slot().with_attempt(a_job(**job)))
    for seconds in after_s:
        row = a_row(state=JobState.PENDING, reason=reason, partition=partition)
        ledger, _ = a_look(NOW + seconds).seeing(row).folded_into(ledger)
    return ledger


class TestFailedLaunches:
    def test_a_job_that_slurm_holds_after_a_failed_launch_is_released_once(self) -> None:
        for words in (HELD, HELD.replace(" ", "_")):
            assert planned(a_run(waits(words))) == [Release(0, 0, token(), "101")]
        assert planned(a_run(waits(HELD, released_at=NOW - 60))) == []

    def test_the_second_time_it_is_cancelled_and_its_node_is_to_blame(self) -> None:
        (cancel,) = planned(a_run(waits(HELD, at=NOW, released_at=NOW - RELEASE_WAIT_S)))
        assert isinstance(cancel, Cancel)
        ours = a_job(cancelled_at=NOW, cancelled_for=cancel.why)
        assert judge(Evidence(), gone("CANCELLED"), ours) == (Verdict.NODE_FAILED, LAUNCH_FAILED)

    def test_that_costs_the_program_no_failure_and_the_slot_a_delay_only_when_it_repeats(self) -> None:
        job = a_job(cancelled_at=NOW, cancelled_for=LAUNCH_FAILED, node="n7")
        look = a_look().seeing(a_row(state=JobState.ENDED, raw="CANCELLED"))
        ledger, _ = look.folded_into(a_run(a_slot().with_attempt(job)))
        slot = ledger.slots[0]
        assert (slot.status, slot.failures, slot.node_failures) == (SlotStatus.ACTIVE, 0, 1)
        assert [bad.node for bad in ledger.nodes] == ["n7"]
        assert [type(action) for action in planned(ledger)] == [Submit]

    def test_what_a_person_holds_is_left_alone(self) -> None:
        for reason in ("JobHeldUser", "JobHeldAdmin"):
            ledger = looked(reason, 0, 86400)
            assert planned(ledger) == []
            assert ledger.slots[0].status is SlotStatus.ACTIVE


class TestJobsThatWouldWaitForEver:
    def test_such_a_job_is_cancelled_and_its_slot_stopped_with_slurms_reason(self) -> None:
        ledger = looked("PartitionTimeLimit", 0, FOR_EVER_S)
        assert ledger.slots[0].status is SlotStatus.FAILED
        assert "lower slurm.time_limit" in ledger.slots[0].why
        assert "Slurm says PartitionTimeLimit" in ledger.slots[0].why
        assert [type(action) for action in planned(ledger)] == [Cancel]

    def test_where_the_run_had_jobs_before_the_slot_tries_again_in_an_hour(self) -> None:
        began = a_run(a_slot().with_attempt(a_job()), a_slot(1, jobs=5))
        ledger = looked("PartitionTimeLimit", 0, FOR_EVER_S, ledger=began)
        slot = ledger.slots[0]
        assert (slot.status, slot.not_before) == (SlotStatus.ACTIVE, NOW + FOR_EVER_S + AGAIN_S)
        assert "lower slurm.time_limit" in slot.why
        assert [type(action) for action in planned(ledger)] == [Cancel]
        still, events = self.queue_shows(JobState.PENDING, "PENDING").folded_into(ledger)
        assert (still.slots[0].not_before, events) == (slot.not_before, [])
        ours = a_job(sighting=slot.attempts[0].submissions[0].sighting, cancelled_at=NOW, cancelled_for="for ever")
        ledger = a_run(a_slot().with_attempt(ours).but(why=slot.why, not_before=slot.not_before), a_slot(1, jobs=5))
        ended = self.queue_shows(JobState.ENDED, "CANCELLED").folded_into(ledger)[0].slots[0]
        assert (ended.status, ended.why, ended.failures) == (SlotStatus.ACTIVE, slot.why, 0)
        assert ended.not_before == slot.not_before

    @staticmethod
    def queue_shows(state: JobState, raw: str) -> Look:
        return a_look(NOW + 99).seeing(a_row(state=state, raw=raw, reason="PartitionTimeLimit", partition="gpu"))

    def test_what_one_of_its_partitions_does_not_take_may_run_in_another_one(self) -> None:
        for reason in ("PartitionTimeLimit", "PartitionNodeLimit", "QOSMaxWallDurationPerJobLimit"):
            ledger = looked(reason, 0, 86400, partition="long,short")
            assert ledger.slots[0].status is SlotStatus.ACTIVE
            assert planned(ledger) == []

    def test_a_reservation_that_is_gone_ends_it(self) -> None:
        for words in ("Reservation course was deleted", "Reservation_my_course_is_invalid"):
            ledger = looked(words, 0, FOR_EVER_S)
            assert ledger.slots[0].status is SlotStatus.FAILED
            assert "take the reservation out of slurm.extra" in ledger.slots[0].why

    def test_one_look_is_not_enough_nor_two_in_a_hurry(self) -> None:
        ledger = looked("PartitionTimeLimit", 0, FOR_EVER_S - 1)
        assert ledger.slots[0].status is SlotStatus.ACTIVE
        assert planned(ledger) == []

    def test_a_reason_that_passed_between_begins_anew(self) -> None:
        ledger = looked("PartitionTimeLimit", 0)
        ledger = looked("Priority", 30, ledger=ledger)
        ledger = looked("PartitionTimeLimit", FOR_EVER_S, ledger=ledger)
        assert ledger.slots[0].status is SlotStatus.ACTIVE

    def test_an_outage_between_changes_nothing(self) -> None:
        ledger = looked("PartitionTimeLimit", 0)
        ledger, _ = a_look(NOW + 30).failing("down").folded_into(ledger)
        assert looked("PartitionTimeLimit", FOR_EVER_S, ledger=ledger).slots[0].status is SlotStatus.FAILED

    def test_the_words_of_a_stopped_slot_survive_the_end_of_its_job(self) -> None:
        ledger = looked("PartitionTimeLimit", 0, FOR_EVER_S, cancelled_at=NOW)
        look = a_look(NOW + 99).seeing(a_row(state=JobState.ENDED, raw="CANCELLED"))
        assert "PartitionTimeLimit" in look.folded_into(ledger)[0].slots[0].why

    def test_our_own_exclusions_are_given_up_first(self) -> None:
        nodes = (BadNode(node="n1", excluded_until=NOW + 3600),)
        run = a_run(a_slot().with_attempt(a_job(exclude=("n1",))), nodes=nodes)
        ledger = looked("BadConstraints", 0, FOR_EVER_S, ledger=run)
        assert ledger.slots[0].status is SlotStatus.ACTIVE
        assert excluded(ledger.nodes, NOW + FOR_EVER_S) == ()
        assert [type(action) for action in planned(ledger)] == [Cancel]


def test_bad_nodes_are_named_to_the_scheduler() -> None:
    nodes = (BadNode(node="n1", excluded_until=NOW + 60), BadNode(node="n2", excluded_until=NOW - 60))
    (action,) = planned(a_run(a_slot(), nodes=nodes))
    assert isinstance(action, Submit)
    assert action.exclude == ("n1",)


def test_nothing_is_submitted_while_the_queue_is_unseen() -> None:
    assert planned(a_run(a_slot(), blind_since=NOW - 60)) == []
