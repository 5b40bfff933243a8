from __future__ import annotations

from builders import NOW, Look, a_claim, a_job, a_look, a_row, a_run, a_slot, a_wish, gone, progress, seen, token

from orchestrator.decisions.evidence import Evidence, Progress
from orchestrator.decisions.models import Abort, Action, Cancel, Ledger, Verdict
from orchestrator.decisions.plan import Limits, plan
from orchestrator.decisions.sightings import BEGIN_STALLS, LOOKS, limit_s
from orchestrator.decisions.verdicts import judge
from orchestrator.executors.base import JobState

STALL_S = 600.0
LIMITS = Limits(slots=1, max_jobs=None, others=0, stall_s=STALL_S)


def report(step: int, at: float = NOW) -> Progress:
    return progress(0, step=step).model_copy(update={"at": at})


def watch(*reports: Progress | None, every_s: float = 30.0, beats: bool = True, look: Look | None = None) -> Ledger:
    """The ledger after looks at one running job, one per report (None: the folder shows no progress file)."""
    ledger = a_run(a_slot().with_attempt(a_job(sighting=seen(), at=NOW - 60)), written_at=NOW)
    base = look or a_look()
    for number, one in enumerate(reports):
        at = NOW + every_s * number
        evidence = Evidence(claim=a_claim(), progress=one, beat=number if beats else 1)
        shown = Look(at=at, error=base.error, history=None).seeing(a_row()).reading(evidence)
        ledger, _ = shown.folded_into(ledger, since_last_look_s=every_s)
    return ledger


def planned(ledger: Ledger, at: float) -> list[Action]:
    return plan(ledger, a_wish(), LIMITS, {}, at, lambda: "0" * 8)


def aborts(ledger: Ledger, looks: int, every_s: float = 30.0) -> list[Action]:
    return [a for a in planned(ledger, NOW + every_s * (looks - 1)) if isinstance(a, Abort)]


class TestSilence:
    def test_a_program_that_reports_the_same_for_too_long_is_stalled(self) -> None:
        same = [report(5)] * 21
        assert not aborts(watch(*same[:-1]), 20)
        assert aborts(watch(*same), 21) == [Abort(0, 0, token(), "no progress for 10 min")]

    def test_without_a_heartbeat_it_is_the_nodes_trouble(self) -> None:
        assert not aborts(watch(*[report(5)] * 40, beats=False), 40)

    def test_time_in_which_its_heart_stood_still_is_no_silence(self) -> None:
        """A job was suspended, and beats again before its program can report."""
        ledger = watch(*[report(5)] * 40, beats=False)
        at = NOW + 30.0 * 40
        look = Look(at=at, error=None, history=None).seeing(a_row())
        ledger, _ = look.reading(Evidence(claim=a_claim(), progress=report(5), beat=2)).folded_into(
            ledger, since_last_look_s=30.0
        )
        assert not aborts(ledger, 41)

    def test_a_controller_that_was_away_for_a_day_has_seen_one_look_of_silence(self) -> None:
        ledger = watch(report(5), report(5), every_s=86400.0)
        assert ledger.slots[0].attempts[0].quiet_s == STALL_S / LOOKS
        assert not aborts(ledger, 2, 86400.0)

    def test_a_slot_that_reports_seldom_is_given_its_time(self) -> None:
        seldom = [report(step) for step in (1, 2, 3) for _ in range(10)]  # a new step each 300 s
        slot = watch(*seldom).slots[0]
        assert slot.usual_s == 300.0
        assert limit_s(slot, STALL_S) == 1500.0


class TestNeverBegun:
    @staticmethod
    def watched(looks: int, state: JobState = JobState.RUNNING, claimed_from: int | None = None) -> Ledger:
        """After looks of 30 s at a job that the queue shows in `state`, claimed from one of the looks on."""
        ledger = a_run(a_slot().with_attempt(a_job(sighting=seen(state), at=NOW - 60)), written_at=NOW)
        for number in range(looks):
            claim = a_claim() if claimed_from is not None and number >= claimed_from else None
            look = Look(at=NOW + 30.0 * number, history=None).seeing(a_row(state=state))
            ledger, _ = look.reading(Evidence(claim=claim)).folded_into(ledger, since_last_look_s=30.0)
        return ledger

    def test_a_job_that_runs_and_claims_nothing_is_ended_and_its_node_is_to_blame(self) -> None:
        looks = int(BEGIN_STALLS * STALL_S / 30)
        assert planned(self.watched(looks - 1), NOW + 30.0 * looks) == []
        (cancel,) = planned(self.watched(looks), NOW + 30.0 * looks)
        assert isinstance(cancel, Cancel)
        ours = a_job(cancelled_at=NOW, cancelled_for=cancel.why)
        assert judge(Evidence(), gone("CANCELLED"), ours)[0] is Verdict.NODE_FAILED
