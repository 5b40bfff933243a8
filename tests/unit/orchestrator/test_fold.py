from __future__ import annotations

from typing import Any

import pytest
from builders import (
    FORGET_AFTER_S,
    NOW,
    SUBMIT_GRACE_S,
    a_claim,
    a_job,
    a_look,
    a_row,
    a_run,
    a_slot,
    an_exit,
    an_intent,
    blind,
    job_dir,
    progress,
    seen,
    token,
)

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.fold import ATTEMPTS_KEPT
from orchestrator.decisions.models import Blind, Gone, Ledger, Slot, SlotStatus, Submission, SubmissionState, Verdict
from orchestrator.decisions.plan import next_attempt
from orchestrator.decisions.sightings import SETTLE_S
from orchestrator.executors.base import JobRow, JobState
from orchestrator.sections import RelaySection

SECOND = token(serial=2)
FAILURE_BUDGET = RelaySection().failure_budget


def only_slot(ledger: Ledger) -> Slot:
    (slot,) = ledger.slots
    return slot


def submissions(ledger: Ledger) -> tuple[Submission, ...]:
    return tuple(s for attempt in only_slot(ledger).attempts for s in attempt.submissions)


def states(ledger: Ledger) -> list[SubmissionState]:
    return [s.state for s in submissions(ledger)]


class TestAdoption:
    def test_a_row_of_ours_that_the_ledger_lost_is_adopted_with_its_id(self) -> None:
        ledger, events = a_look().seeing(a_row(token(0, 4), job_id="77")).folded_into(a_run(a_slot()))
        (attempt,) = only_slot(ledger).attempts
        assert attempt.number == 4
        assert [(s.token, s.job_id, s.state) for s in attempt.live] == [(token(0, 4), "77", SubmissionState.SUBMITTED)]
        assert events[0]["kind"] == "adopted"

    @pytest.mark.parametrize(
        "row",
        [
            a_row(state=JobState.ENDED),
            a_row(token(slot=1)),
            a_row(work_dir="/runs/other/jobs/" + token()),
            a_row(work_dir=job_dir("somebody-elses-job")),
            a_row(work_dir=job_dir(token()) + "/deeper"),
        ],
    )
    def test_other_rows_are_not(self, row: object) -> None:
        look = a_look().seeing(row)  # type: ignore[arg-type]
        assert only_slot(look.folded_into(a_run(a_slot()))[0]).attempts == ()

    def test_a_newer_claim_is_adopted_and_counts_as_a_started_job(self) -> None:
        claim = a_claim(token(0, 3), job_id="55")
        look = a_look().seeing(a_row(token(0, 3), job_id="55")).finding(Evidence(claim=claim), attempt=3)
        ledger, events = look.folded_into(a_run(a_slot()))
        assert only_slot(ledger).attempts[0].claimed_by == token(0, 3)
        assert only_slot(ledger).jobs == 1
        assert [event["kind"] for event in events] == ["adopted", "started"]

    def test_a_newer_claim_that_has_ended_meanwhile_is_judged_at_once(self) -> None:
        name = token(0, 3)
        evidence = Evidence(claim=a_claim(name), exit=an_exit(75, name, newest=500), progress=progress(500))
        ledger, _ = a_look().finding(evidence, attempt=3).folded_into(a_run(a_slot()))
        assert only_slot(ledger).attempts[0].verdict is Verdict.HANDED_OVER
        assert next_attempt(only_slot(ledger), newest_folder=3) == 4

    def test_the_job_that_the_claim_names_is_adopted_where_another_was_expected(self) -> None:
        run = a_run(a_slot().with_attempt(an_intent()))
        look = a_look().seeing(a_row(), a_row(SECOND, job_id="102")).reading(Evidence(claim=a_claim(SECOND)))
        ledger, _ = look.folded_into(run)
        (attempt,) = only_slot(ledger).attempts
        assert attempt.claimed_by == SECOND
        assert {s.token for s in attempt.submissions} == {token(), SECOND}

    def test_folding_the_same_look_twice_adopts_once(self) -> None:
        look = a_look().seeing(a_row()).reading(Evidence(claim=a_claim()))
        once, _ = look.folded_into(a_run(a_slot().with_attempt(a_job())))
        twice, events = look.folded_into(once)
        assert twice == once
        assert events == []

    def test_a_job_of_an_attempt_that_was_overtaken_is_adopted_so_that_it_can_be_ended(self) -> None:
        run = a_run(a_slot().with_attempt(a_job(token(0, 5)), number=5))
        look = a_look().seeing(a_row(token(0, 5)), a_row(token(0, 2), job_id="9"))
        ledger, _ = look.folded_into(run)
        assert [attempt.number for attempt in only_slot(ledger).attempts] == [2, 5]

    @pytest.mark.parametrize("state", [SubmissionState.NOT_SUBMITTED, SubmissionState.ENDED])
    def test_a_job_that_was_given_up_and_shows_in_the_queue_after_all_is_live_again(
        self, state: SubmissionState
    ) -> None:
        run = a_run(a_slot().with_attempt(a_job(state=state, job_id=None)))
        ledger, _ = a_look().seeing(a_row()).folded_into(run)
        assert only_slot(ledger).attempts[0].live

    def test_a_job_that_was_accepted_late_ends_its_attempt_like_any_other(self) -> None:
        given_up = an_intent(state=SubmissionState.NOT_SUBMITTED)
        run = a_run(a_slot().with_attempt(given_up, a_job(SECOND, job_id="102")))
        ended = Evidence(claim=a_claim(), exit=an_exit(75), duplicates=(SECOND,), newest_checkpoint=50)
        ledger, _ = a_look().reading(ended).folded_into(run)
        assert only_slot(ledger).attempts[0].verdict is Verdict.HANDED_OVER

    def test_an_intent_whose_row_ends_in_a_slash_still_learns_its_job_id(self) -> None:
        look = a_look().seeing(a_row(work_dir=job_dir(token()) + "/", job_id="77"))
        ledger, _ = look.folded_into(a_run(a_slot().with_attempt(an_intent())))
        assert submissions(ledger)[0].job_id == "77"

    def test_an_intent_that_only_the_history_knows_learns_its_job_id(self) -> None:
        look = a_look().remembering(a_row(job_id="77"))
        ledger, _ = look.folded_into(a_run(a_slot().with_attempt(an_intent())))
        assert submissions(ledger)[0].job_id == "77"

    def test_an_intent_that_shows_in_the_queue_was_submitted(self) -> None:
        look = a_look().seeing(a_row(job_id="77"))
        ledger, _ = look.folded_into(a_run(a_slot().with_attempt(an_intent())))
        assert [(s.state, s.job_id) for s in submissions(ledger)] == [(SubmissionState.SUBMITTED, "77")]

    def test_the_doubt_about_a_submission_ends_when_its_job_is_seen(self) -> None:
        unclear = an_intent(state=SubmissionState.UNCERTAIN, note="sbatch timed out")
        run = a_run(a_slot(why="it is not clear whether the last submission was accepted").with_attempt(unclear))
        assert only_slot(a_look().seeing(a_row()).folded_into(run)[0]).why == ""


class TestTwoJobsOfOneAttempt:
    def test_the_claim_decides_and_the_loser_ends_alone(self) -> None:
        run = a_run(a_slot().with_attempt(a_job(), a_job(SECOND, job_id="102")))
        evidence = Evidence(claim=a_claim(SECOND), duplicates=(token(),))
        ledger, _ = a_look().seeing(a_row(SECOND, job_id="102")).reading(evidence).folded_into(run)
        assert states(ledger) == [SubmissionState.ENDED, SubmissionState.SUBMITTED]
        assert only_slot(ledger).attempts[0].verdict is None
        assert next_attempt(only_slot(ledger), 0) is None

    def test_the_end_of_the_claimant_ends_the_attempt_while_the_other_still_waits(self) -> None:
        run = a_run(a_slot().with_attempt(a_job(), a_job(SECOND, job_id="102")))
        evidence = Evidence(claim=a_claim(), exit=an_exit(75, asked="deadline"))
        waiting = a_row(SECOND, JobState.PENDING, job_id="102")
        ledger, _ = a_look().seeing(waiting).reading(evidence).folded_into(run)
        assert only_slot(ledger).attempts[0].verdict is Verdict.HANDED_OVER
        assert next_attempt(only_slot(ledger), 0) is None

    @pytest.mark.parametrize("state", [JobState.RUNNING, JobState.ENDED])
    def test_the_second_run_of_an_id_says_nothing_of_the_first_which_has_the_claim(self, state: JobState) -> None:
        run = a_run(a_slot().with_attempt(a_job(), heartbeat=3, heartbeat_changed_at=NOW - 20))
        evidence = Evidence(claim=a_claim(), duplicates=(token(),), beat=3)
        look = a_look().seeing(a_row(state=state, raw="COMPLETED")).remembering()
        ledger, _ = look.reading(evidence).folded_into(run)
        assert only_slot(ledger).attempts[0].verdict is None
        assert next_attempt(only_slot(ledger), 0) is None

    def test_a_node_that_would_not_start_an_id_again_cancels_it_and_not_a_person(self) -> None:
        run = a_run(a_slot().with_attempt(a_job()))
        saved = Evidence(claim=a_claim(at=NOW - 500), exit=an_exit(75, asked="SIGTERM"), progress=progress(100))
        refused = a_row(state=JobState.ENDED, raw="CANCELLED", node="n1", started_at=NOW - 400, ends_at=NOW - 400)
        for look in (a_look().seeing(refused), a_look().remembering(refused)):
            ledger, _ = look.reading(saved).folded_into(run)
            assert only_slot(ledger).attempts[0].verdict is Verdict.HANDED_OVER
            assert only_slot(ledger).status is SlotStatus.ACTIVE
        person = refused.model_copy(update={"started_at": NOW - 505, "ends_at": NOW - 5})
        ledger, _ = a_look().seeing(person).reading(saved).folded_into(run)
        assert only_slot(ledger).status is SlotStatus.PAUSED

    def test_the_scheduler_ending_the_loser_does_not_end_the_attempt(self) -> None:
        run = a_run(a_slot().with_attempt(a_job(), a_job(SECOND, job_id="102")))
        rows = (a_row(state=JobState.ENDED, raw="COMPLETED"), a_row(SECOND, job_id="102"))
        ledger, _ = a_look().seeing(*rows).reading(Evidence(claim=a_claim(SECOND))).folded_into(run)
        assert only_slot(ledger).attempts[0].verdict is None


class TestEnds:
    def test_an_intent_that_came_to_nothing_leaves_its_attempt_to_the_next_submission(self) -> None:
        ledger, _ = a_look().folded_into(a_run(a_slot().with_attempt(an_intent(absent_since=NOW - 300))))
        assert states(ledger) == [SubmissionState.NOT_SUBMITTED]
        assert only_slot(ledger).failures == 0
        assert next_attempt(only_slot(ledger), -1) == 0

    def test_a_submission_with_an_id_is_never_held_for_not_submitted(self) -> None:
        ledger, _ = a_look().folded_into(a_run(a_slot().with_attempt(a_job())))
        assert states(ledger) == [SubmissionState.SUBMITTED]

    def test_a_job_killed_before_its_claim_ends_its_attempt(self) -> None:
        look = a_look().seeing(a_row(state=JobState.ENDED, raw="FAILED"))
        ledger, _ = look.folded_into(a_run(a_slot().with_attempt(a_job())))
        assert only_slot(ledger).attempts[0].verdict is Verdict.CRASHED
        assert next_attempt(only_slot(ledger), 0) == 1

    def test_an_unknown_state_ends_nothing(self) -> None:
        look = a_look().seeing(a_row(state=JobState.UNKNOWN, raw="HIBERNATING"))
        ledger, _ = look.folded_into(a_run(a_slot().with_attempt(a_job())))
        assert only_slot(ledger).attempts[0].live

    def test_absence_is_counted_from_the_first_complete_poll_without_it(self) -> None:
        run = a_run(a_slot().with_attempt(a_job(sighting=seen())))
        ledger, _ = a_look(NOW).folded_into(run)
        ledger, _ = a_look(NOW + 60).failing("down").folded_into(ledger)
        ledger, _ = a_look(NOW + FORGET_AFTER_S).folded_into(ledger)
        assert submissions(ledger)[0].absent_since == NOW
        assert isinstance(submissions(ledger)[0].sighting, Blind)
        ledger, _ = a_look(NOW + FORGET_AFTER_S + 1).folded_into(ledger)
        assert states(ledger) == [SubmissionState.ENDED]

    def test_a_job_that_shows_again_was_never_absent(self) -> None:
        run = a_run(a_slot().with_attempt(a_job(absent_since=NOW - 900, sighting=blind())))
        ledger, _ = a_look().seeing(a_row()).folded_into(run)
        assert submissions(ledger)[0].absent_since is None

    def test_a_heartbeat_is_dated_by_our_clock_when_it_changes(self) -> None:
        run = a_run(a_slot().with_attempt(a_job()))
        ledger, _ = a_look(NOW).seeing(a_row()).reading(Evidence(beat=3)).folded_into(run)
        ledger, _ = a_look(NOW + 30).seeing(a_row()).reading(Evidence(beat=3)).folded_into(ledger)
        assert only_slot(ledger).attempts[0].heartbeat_changed_at == NOW

    def test_an_outage_ends_nothing_and_is_dated(self) -> None:
        run = a_run(a_slot().with_attempt(a_job(absent_since=NOW - 86400)))
        ledger, events = a_look().failing("slurmctld is down").folded_into(run)
        ledger, _ = a_look(NOW + 60).failing("still down").folded_into(ledger)
        assert only_slot(ledger).attempts[0].live
        assert (ledger.blind_since, ledger.blind_error) == (NOW, "still down")
        assert [event["kind"] for event in events] == ["blind"]

    def test_sight_regained_ends_the_outage(self) -> None:
        run = a_run(a_slot().with_attempt(a_job()), blind_since=NOW - 60, blind_error="down")
        ledger, _ = a_look().seeing(a_row()).folded_into(run)
        assert (ledger.blind_since, ledger.blind_error) == (None, "")

    def test_the_end_is_told_once_with_what_was_saved(self) -> None:
        run = a_run(a_slot().with_attempt(a_job()))
        ended = an_exit(75, asked="deadline", newest=500)
        evidence = Evidence(claim=a_claim(), exit=ended, progress=progress(500, step=510))
        ledger, events = a_look().reading(evidence).folded_into(run)
        ended = [event for event in events if event["kind"] == "ended"]
        assert [(e["verdict"], e["cause"], e["step"], e["checkpoint_step"]) for e in ended] == [
            (Verdict.HANDED_OVER, "deadline", 510, 500)
        ]
        assert a_look(NOW + 1).folded_into(ledger)[1] == []

    @pytest.mark.parametrize(("start_step", "saved"), [(0, 0), (400, 400)])
    def test_a_checkpoint_that_no_successor_finds_is_not_told_as_saved(self, start_step: int, saved: int) -> None:
        ended = an_exit(75, asked="deadline", newest=None)
        lost = Evidence(claim=a_claim(), exit=ended, progress=progress(1000, 9000), start_step=start_step)
        ledger, events = a_look().reading(lost).folded_into(a_run(a_slot().with_attempt(a_job())))
        assert [event["checkpoint_step"] for event in events if event["kind"] == "ended"] == [saved]
        assert only_slot(ledger).attempts[0].checkpoint_step is None

    def test_what_a_program_that_is_done_reports_as_saved_is_told_so(self) -> None:
        done = Evidence(claim=a_claim(), exit=an_exit(0, newest=None), progress=progress(1000, 1000))
        _, events = a_look().reading(done).folded_into(a_run(a_slot().with_attempt(a_job())))
        assert [event["checkpoint_step"] for event in events if event["kind"] == "ended"] == [1000]

    def test_only_the_newest_attempts_stay_but_never_without_a_live_one(self) -> None:
        slot = a_slot().with_attempt(a_job(token(0, 0)))
        for number in range(1, 8):
            ended = a_job(token(0, number), state=SubmissionState.ENDED)
            slot = slot.with_attempt(ended, verdict=Verdict.HANDED_OVER)
        ledger, _ = a_look().seeing(a_row()).folded_into(a_run(slot))
        numbers = [attempt.number for attempt in only_slot(ledger).attempts]
        assert numbers == [0, *range(8 - ATTEMPTS_KEPT, 8)]

    def test_a_job_that_cannot_end_is_not_taken_for_a_new_one(self) -> None:
        slot = a_slot()
        by_its_word = Gone(proof="exit.json", at=NOW, by_job=True)
        for number in range(ATTEMPTS_KEPT + 1):
            job = a_job(token(0, number), job_id=str(100 + number), state=SubmissionState.ENDED)
            ended = job.model_copy(update={"sighting": by_its_word})
            slot = slot.with_attempt(ended, verdict=Verdict.HANDED_OVER)
        ledger = a_run(slot)
        look = a_look().seeing(a_row(token(0, 0), job_id="100", state=JobState.ENDING))
        for _ in range(3):
            ledger, events = look.folded_into(ledger)
            assert events == []
        assert only_slot(ledger).attempts[0].verdict is Verdict.HANDED_OVER

    def test_an_end_stands_in_a_ledger_though_newer_attempts_came_to_nothing(self) -> None:
        slot = a_slot().with_attempt(a_job())
        for number in range(2, 2 + ATTEMPTS_KEPT):
            ended = a_job(token(0, number), state=SubmissionState.ENDED)
            slot = slot.with_attempt(ended, verdict=Verdict.NOT_NEEDED, ahead=True)
        ledger, _ = (
            a_look().reading(Evidence(claim=a_claim(), exit=an_exit(75), newest_checkpoint=5)).folded_into(a_run(slot))
        )
        assert only_slot(ledger).attempts[0].verdict is Verdict.HANDED_OVER
        ledger, _ = a_look(NOW + 30).folded_into(ledger)
        assert only_slot(ledger).current == only_slot(ledger).attempts[0]


class TestTheBudget:
    @staticmethod
    def after(evidence: Evidence, **slot: Any) -> Slot:
        run = a_run(a_slot(**slot).with_attempt(a_job()))
        return only_slot(a_look().reading(evidence).folded_into(run)[0])

    def test_a_crash_without_a_new_checkpoint_counts(self) -> None:
        assert self.after(Evidence(claim=a_claim(), exit=an_exit(1)), failures=1).failures == 2

    def test_a_crash_after_a_new_checkpoint_sets_it_back(self) -> None:
        assert self.after(Evidence(claim=a_claim(), exit=an_exit(1), newest_checkpoint=7), failures=3).failures == 0

    def test_a_hand_over_sets_it_back_and_is_counted(self) -> None:
        slot = self.after(Evidence(claim=a_claim(), exit=an_exit(75), newest_checkpoint=7), failures=3, hand_overs=4)
        assert (slot.failures, slot.hand_overs) == (0, 5)

    @pytest.mark.parametrize("raw", ["PREEMPTED", "CANCELLED"])
    def test_what_others_do_to_a_job_does_not_count(self, raw: str) -> None:
        run = a_run(a_slot(failures=2).with_attempt(a_job()))
        look = a_look().seeing(a_row(state=JobState.ENDED, raw=raw)).reading(Evidence(claim=a_claim()))
        assert only_slot(look.folded_into(run)[0]).failures == 2

    def test_the_last_failure_stops_the_slot_with_its_cause(self) -> None:
        evidence = Evidence(claim=a_claim(), exit=an_exit(1), log_tail="KeyError: 'nets'")
        slot = self.after(evidence, failures=FAILURE_BUDGET - 1)
        assert slot.status is SlotStatus.FAILED
        assert "KeyError: 'nets'" in slot.why
        assert next_attempt(slot, 0) is None

    def test_one_failure_less_does_not(self) -> None:
        evidence = Evidence(claim=a_claim(), exit=an_exit(1))
        assert self.after(evidence, failures=FAILURE_BUDGET - 2).status is SlotStatus.ACTIVE

    def test_do_not_requeue_stops_the_slot_at_once(self) -> None:
        slot = self.after(Evidence(claim=a_claim(), exit=an_exit(93), log_tail="wrong task"))
        assert (slot.status, slot.why) == (SlotStatus.FAILED, "wrong task")

    def test_finished_is_finished(self) -> None:
        slot = self.after(Evidence(claim=a_claim(), exit=an_exit(0), progress=progress(1000, 1000)), failures=2)
        assert (slot.status, slot.step, slot.total) == (SlotStatus.FINISHED, 1000, 1000)


def test_a_clean_end_whose_record_is_not_visible_yet_is_waited_for() -> None:
    run = a_run(a_slot().with_attempt(a_job()))
    look = a_look().seeing(a_row(state=JobState.ENDED, raw="COMPLETED")).reading(Evidence(claim=a_claim(), beat=4))
    assert only_slot(look.folded_into(run)[0]).attempts[0].verdict is None


def test_a_node_whose_clock_is_ahead_does_not_keep_its_slot() -> None:
    claim = a_claim(at=NOW + 86400)
    look = a_look().seeing(a_row(state=JobState.ENDED, raw="FAILED")).finding(Evidence(claim=claim))
    assert only_slot(look.folded_into(a_run(a_slot()))[0]).attempts[0].verdict is Verdict.CRASHED


class TestAClockThatWasSetBack:
    """An intent of an hour from now: no poll would ever be later than it."""

    AHEAD = NOW + 3600

    def test_an_intent_that_never_became_a_job_is_still_given_up(self) -> None:
        ledger = a_run(a_slot().with_attempt(an_intent(at=self.AHEAD)))
        for at in (NOW, NOW + SETTLE_S, NOW + SUBMIT_GRACE_S + 2 * SETTLE_S):
            assert states(ledger) == [SubmissionState.INTENT]
            ledger, _ = a_look(at).folded_into(ledger)
        assert states(ledger) == [SubmissionState.NOT_SUBMITTED]

    def test_it_is_not_given_up_at_the_first_look(self) -> None:
        ledger, _ = a_look().folded_into(a_run(a_slot().with_attempt(an_intent(at=self.AHEAD))))
        [intent] = submissions(ledger)
        assert (intent.state, intent.intent_at) == (SubmissionState.INTENT, NOW - 1)

    def test_its_job_is_seen(self) -> None:
        run = a_run(a_slot().with_attempt(an_intent(token(), at=self.AHEAD)))
        ledger, _ = a_look().seeing(a_row(job_id="7")).folded_into(run)
        [job] = submissions(ledger)
        assert (job.state, job.job_id) == (SubmissionState.SUBMITTED, "7")

    def test_a_job_that_left_the_queue_is_not_waited_for_longer_than_before(self) -> None:
        job = a_job(absent_since=self.AHEAD, sighting=blind(since=self.AHEAD))
        slot = a_slot().with_attempt(job, heartbeat_changed_at=self.AHEAD)
        ledger, _ = a_look().folded_into(a_run(slot, written_at=self.AHEAD))
        assert states(ledger) == [SubmissionState.SUBMITTED]  # what was watched under the wrong clock proves nothing
        ledger, _ = a_look(NOW + FORGET_AFTER_S + 1).folded_into(ledger)
        assert states(ledger) == [SubmissionState.ENDED]

    def test_what_a_program_is_given_to_end_in_is_not_lengthened(self) -> None:
        slot = a_slot().with_attempt(a_job(), aborted_at=self.AHEAD, asked_to_hand_over_at=self.AHEAD)
        ledger, _ = a_look().seeing(a_row()).folded_into(a_run(slot, written_at=self.AHEAD, blind_since=self.AHEAD))
        attempt = only_slot(ledger).attempts[0]
        assert (attempt.aborted_at, attempt.asked_to_hand_over_at) == (NOW, NOW)


@pytest.mark.parametrize(
    ("evidence", "row", "worked_s"),
    [
        ({"exit": an_exit(75, at=NOW - 3 * 86_400)}, None, 14_400.0),  # its own word
        ({}, a_row(state=JobState.ENDED, raw="NODE_FAIL", started_at=NOW - 273_600, ends_at=NOW - 270_000), 3600.0),
        ({"progress": progress(5).model_copy(update={"at": NOW - 272_600})}, a_row(state=JobState.ENDED), 1000.0),
        ({}, a_row(state=JobState.ENDED), 0.0),
    ],
    ids=["its own record", "the scheduler", "its last report", "nobody"],
)
def test_a_job_has_worked_to_its_end_and_not_until_somebody_looked(
    evidence: dict[str, Any], row: JobRow | None, worked_s: float
) -> None:
    run = a_run(a_slot().with_attempt(a_job(at=NOW - 273_700), claimed_by=token(), started_at=NOW - 273_600))
    look = a_look().reading(Evidence(claim=a_claim(at=NOW - 273_600), **evidence))
    after, _ = (look.seeing(row) if row is not None else look).folded_into(run)
    assert (only_slot(after).attempts[0].verdict is not None, only_slot(after).worked_s) == (True, worked_s)


def test_a_limit_that_a_machine_with_a_later_clock_learned_is_tried_again_at_once() -> None:
    full = a_run(a_slot()).model_copy(update={"written_at": NOW + 3600, "full_at": 3, "full_until": NOW + 3660})
    assert a_look().folded_into(full)[0].full_until == NOW
