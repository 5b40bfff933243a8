from __future__ import annotations

from typing import Any

import pytest
from builders import (
    FORGET_AFTER_S,
    NOW,
    SUBMIT_GRACE_S,
    Look,
    a_claim,
    a_job,
    a_look,
    a_row,
    an_exit,
    an_intent,
    blind,
    job_dir,
    seen,
    token,
)
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Attempt, Blind, Gone, Seen, Sighting, Submission
from orchestrator.decisions.sightings import (
    HEARTBEAT_SILENT_S,
    OUTPUT_MISSING,
    RAN_TWICE,
    RECORD_MISSING,
    RECORD_WAIT_S,
    SETTLE_S,
    is_cancelled_by_somebody,
    missing_from,
    never_accepted,
    sight,
)
from orchestrator.executors.base import JobRow, JobState, Poll

OTHER = token(serial=9)
FORGOTTEN = NOW - FORGET_AFTER_S - 1
SILENT = NOW - HEARTBEAT_SILENT_S - 1


def seen_by(
    look: Look,
    submission: Submission | None = None,
    evidence: Evidence | None = None,
    beat_changed_at: float | None = None,
) -> Sighting | None:
    submission = submission or a_job()
    return sight(
        submission,
        Attempt(number=0, submissions=(submission,), heartbeat_changed_at=beat_changed_at),
        evidence or Evidence(),
        look.poll,
        look.history,
        job_dir=job_dir(submission.token),
        now=NOW,
        forget_after_s=FORGET_AFTER_S,
    )


def not_asked() -> Look:
    return Look(history=None)


class TestFindingTheRow:
    def test_a_job_is_known_by_its_work_folder_not_by_its_id(self) -> None:
        rows = (a_row(OTHER, job_id="101"), a_row(job_id="7"))
        row = Poll(at=NOW, rows=rows).of(job_dir(token()))
        assert row is not None
        assert row.job_id == "7"

    def test_a_slash_at_the_end_does_not_hide_it(self) -> None:
        assert a_look().seeing(a_row(work_dir=job_dir(token()) + "/")).poll.of(job_dir(token())) is not None

    def test_a_longer_name_is_another_job(self) -> None:
        assert a_look().seeing(a_row(work_dir=job_dir(token()) + "0")).poll.of(job_dir(token())) is None

    @pytest.mark.parametrize("states", [(JobState.ENDED, JobState.RUNNING), (JobState.PENDING, JobState.ENDED)])
    def test_of_an_id_that_runs_twice_the_living_one_counts(self, states: tuple[JobState, ...]) -> None:
        row = a_look().seeing(*[a_row(state=state) for state in states]).poll.of(job_dir(token()))
        assert row is not None
        assert row.state is not JobState.ENDED


class TestMissing:
    def test_an_outage_misses_nothing(self) -> None:
        assert not missing_from(a_look().failing("timed out").poll, a_job(), job_dir(token()))

    def test_a_poll_from_before_the_submission_misses_nothing(self) -> None:
        assert not missing_from(a_look().poll, an_intent(at=NOW), job_dir(token()))

    def test_a_job_that_has_ended_and_is_still_listed_is_not_missing(self) -> None:
        assert not missing_from(a_look().seeing(a_row(state=JobState.ENDED)).poll, a_job(), job_dir(token()))

    def test_a_complete_later_poll_without_it_misses_it(self) -> None:
        assert missing_from(a_look().seeing(a_row(OTHER)).poll, a_job(), job_dir(token()))


class TestProofs:
    def test_its_own_exit_record_is_believed_even_in_an_outage(self) -> None:
        sighting = seen_by(a_look().failing("down"), evidence=Evidence(exit=an_exit(75)))
        assert isinstance(sighting, Gone)
        assert "exit record" in sighting.proof

    def test_its_own_exit_record_beats_a_queue_that_still_shows_it(self) -> None:
        assert isinstance(seen_by(a_look().seeing(a_row()), evidence=Evidence(exit=an_exit(0))), Gone)

    def test_the_exit_record_of_another_submission_proves_nothing(self) -> None:
        assert isinstance(seen_by(a_look().seeing(a_row()), evidence=Evidence(exit=an_exit(0, OTHER))), Seen)

    def test_a_duplicate_has_ended(self) -> None:
        sighting = seen_by(a_look().seeing(a_row()), evidence=Evidence(duplicates=(token(),)))
        assert isinstance(sighting, Gone)
        assert "duplicate" in sighting.proof

    def test_a_terminal_row_in_the_queue_is_proof_and_keeps_slurms_word(self) -> None:
        sighting = seen_by(a_look().seeing(a_row(state=JobState.ENDED, raw="TIMEOUT", node="n7")))
        assert isinstance(sighting, Gone)
        assert (sighting.raw_state, sighting.node) == ("TIMEOUT", "n7")

    def test_a_terminal_row_in_the_history_is_proof(self) -> None:
        sighting = seen_by(a_look().remembering(a_row(state=JobState.ENDED, raw="PREEMPTED")))
        assert isinstance(sighting, Gone)
        assert sighting.raw_state == "PREEMPTED"

    @pytest.mark.parametrize("asked", [None, "SIGTERM"])
    def test_of_a_cancel_the_history_says_by_whom(self, asked: str | None) -> None:
        cancelled = a_row(state=JobState.ENDED, raw="CANCELLED")
        look = a_look().seeing(cancelled).remembering(a_row(state=JobState.ENDED, raw="CANCELLED by 33"))
        evidence = Evidence(claim=a_claim(), exit=an_exit(75, asked=asked) if asked else None)
        sighting = seen_by(look, evidence=evidence)
        assert isinstance(sighting, Gone)
        assert sighting.raw_state == "CANCELLED by 33"
        assert is_cancelled_by_somebody(a_job(), look.poll, job_dir(token()))
        assert not is_cancelled_by_somebody(a_job(cancelled_at=NOW - 9), look.poll, job_dir(token()))

    @pytest.mark.parametrize("more", [{"raw": "COMPLETED"}, {"raw": "CANCELLED by 33", "job_id": "7"}])
    def test_the_history_of_another_end_is_not_its(self, more: dict[str, str]) -> None:
        look = a_look().seeing(a_row(state=JobState.ENDED, raw="CANCELLED"))
        sighting = seen_by(look.remembering(a_row(state=JobState.ENDED, **more)))
        assert isinstance(sighting, Gone)
        assert sighting.raw_state == "CANCELLED"

    @pytest.mark.parametrize("status", ["ok", "disabled"])
    @pytest.mark.parametrize("beat", [None, SILENT])
    def test_long_absence_without_history_and_heartbeat_is_proof(self, status: str, beat: float | None) -> None:
        job = a_job(absent_since=FORGOTTEN)
        assert isinstance(seen_by(a_look().remembering(status=status), job, beat_changed_at=beat), Gone)


class TestWithoutAHistory:
    """What Slurm remembers of ended jobs says nothing of one that it lost: its silence is the proof."""

    LOST = NOW - HEARTBEAT_SILENT_S - 1

    @staticmethod
    def seen_after(absent_since: float, beat: float | None, status: str = "disabled") -> Sighting | None:
        return seen_by(a_look().remembering(status=status), a_job(absent_since=absent_since), beat_changed_at=beat)

    @pytest.mark.parametrize("beat", [None, SILENT])
    def test_a_lost_and_silent_job_is_over_long_before_slurm_would_have_forgotten_it(self, beat: float | None) -> None:
        sighting = self.seen_after(self.LOST, beat)
        assert isinstance(sighting, Gone)
        assert sighting.proof == "absent from the queue for 121 s, there is no history, and no heartbeat"

    @pytest.mark.parametrize(
        ("absent_since", "beat"), [(LOST + 1, SILENT), (LOST + 1, None), (LOST, SILENT + 1), (LOST - 900, NOW - 30)]
    )
    def test_neither_a_shorter_absence_nor_a_beat_within_it_is_proof(
        self, absent_since: float, beat: float | None
    ) -> None:
        assert isinstance(self.seen_after(absent_since, beat), Blind)

    def test_a_history_is_given_its_time(self) -> None:
        assert isinstance(self.seen_after(self.LOST, SILENT, "ok"), Blind)


class TestWhenItWillBeDecided:
    """`proven_at`: the same look from then on is proof, and any look before is none."""

    @pytest.mark.parametrize("status", ["ok", "disabled"])
    @given(absent=st.floats(0, 110), beat=st.none() | st.floats(0, 500))
    def test_a_job_that_left_the_queue(self, status: str, absent: float, beat: float | None) -> None:
        def look(at: float) -> Sighting | None:
            job = a_job(absent_since=NOW - absent)
            attempt = Attempt(number=0, heartbeat_changed_at=None if beat is None else NOW - beat)
            when = a_look(at).remembering(status=status)
            where = {"job_dir": job_dir(job.token), "now": at, "forget_after_s": FORGET_AFTER_S}
            return sight(job, attempt, Evidence(), when.poll, when.history, **where)

        now = look(NOW)
        assert isinstance(now, Blind)
        assert now.proven_at is not None
        assert isinstance(look(now.proven_at - 1), Blind)
        assert isinstance(look(now.proven_at + 1), Gone)

    def test_a_record_or_a_word_that_is_missing_is_waited_for_a_minute(self) -> None:
        clean = a_look().seeing(a_row(state=JobState.ENDED, raw="COMPLETED"))
        record = seen_by(clean, evidence=Evidence(claim=a_claim()))
        word = seen_by(clean.seeing(a_row()), evidence=Evidence(claim=a_claim(), exit=an_exit(75, asked="SIGTERM")))
        for found in (record, word):
            assert isinstance(found, Blind)
            assert found.proven_at == NOW + RECORD_WAIT_S

    def test_the_output_of_a_job_that_failed_before_it_began_is_waited_for_a_minute(self) -> None:
        failed = a_look().seeing(a_row(state=JobState.ENDED, raw="FAILED"))
        nothing = Evidence(has_output=False)
        found = seen_by(failed, evidence=nothing)
        assert isinstance(found, Blind)
        assert (found.error, found.proven_at) == (OUTPUT_MISSING, NOW + RECORD_WAIT_S)
        waited = a_job(sighting=found.model_copy(update={"since": NOW - RECORD_WAIT_S}))
        assert isinstance(seen_by(failed, waited, nothing), Gone)
        assert isinstance(seen_by(failed, evidence=Evidence()), Gone)
        assert isinstance(seen_by(failed, evidence=Evidence(claim=a_claim(), has_output=False)), Gone)
        cancelled = a_look().seeing(a_row(state=JobState.ENDED, raw="CANCELLED"))
        assert isinstance(seen_by(cancelled, evidence=nothing), Gone)

    def test_a_word_is_waited_for_also_where_the_sigterm_came_in_the_middle_of_a_hand_over(self) -> None:
        for terminated, kind in ((True, Blind), (False, Gone)):
            ended = an_exit(75, asked="deadline", terminated=terminated)
            found = seen_by(a_look().seeing(a_row()), evidence=Evidence(claim=a_claim(), exit=ended))
            assert isinstance(found, kind)

    def test_a_first_run_that_fell_silent(self) -> None:
        found = TestAnIdThatRunsTwice.seen_after(TestAnIdThatRunsTwice.LATER, 20, NOW - 10)
        assert isinstance(found, Blind)
        assert found.proven_at == NOW - 10 + HEARTBEAT_SILENT_S

    def test_where_the_scheduler_is_silent_nobody_can_say(self) -> None:
        for look in (a_look().failing("down"), a_look().remembering(status="blind", error="slurmdbd is down")):
            found = seen_by(look, a_job(absent_since=NOW - 10))
            assert isinstance(found, Blind)
            assert found.proven_at is None


class TestALateRecord:
    """A terminal row of a clean end, and no exit record in sight yet."""

    @staticmethod
    def seen_after(job: Submission, evidence: Evidence | None = None) -> Sighting | None:
        clean = a_row(state=JobState.ENDED, raw="COMPLETED")
        return seen_by(a_look().seeing(clean), job, evidence or Evidence(claim=a_claim()))

    @pytest.mark.parametrize("evidence", [Evidence(claim=a_claim()), Evidence(), Evidence(has_output=False)])
    def test_it_is_waited_for_whether_its_claim_is_seen_or_not(self, evidence: Evidence) -> None:
        assert isinstance(self.seen_after(a_job(sighting=seen()), evidence), Blind)

    def test_it_is_not_waited_for_longer_than_a_network_folder_can_hide_it(self) -> None:
        waited = [RECORD_WAIT_S - 1, RECORD_WAIT_S]
        sightings = [self.seen_after(a_job(sighting=Blind(since=NOW - s, error=RECORD_MISSING))) for s in waited]
        assert [type(sighting) for sighting in sightings] == [Blind, Gone]

    def test_an_outage_before_does_not_shorten_the_wait(self) -> None:
        job = a_job(sighting=Blind(since=NOW - 900, error="slurmctld is down"))
        assert isinstance(self.seen_after(job), Blind)

    def test_any_other_end_is_believed_at_once(self) -> None:
        failed = a_look().seeing(a_row(state=JobState.ENDED, raw="NODE_FAIL"))
        assert isinstance(seen_by(failed, evidence=Evidence(claim=a_claim())), Gone)


class TestAnIdThatRunsTwice:
    """What the scheduler knows is its second run. The first has the claim; it ends by its word, or falls silent."""

    LATER = a_row(state=JobState.ENDED, raw="CANCELLED", started_at=NOW - 400, ends_at=NOW - 400)

    @staticmethod
    def seen_after(row: JobRow, waited_s: float, beat_changed_at: float | None, **more: Any) -> Sighting | None:
        job = a_job(sighting=Blind(since=NOW - waited_s, error=RAN_TWICE))
        evidence = Evidence(claim=a_claim(at=NOW - 500), **more)
        looks = (a_look().seeing(row), a_look().remembering(row))
        found = [seen_by(look, job, evidence, beat_changed_at) for look in looks]
        assert type(found[0]) is type(found[1])
        return found[0]

    @pytest.mark.parametrize("raw", ["CANCELLED", "COMPLETED", "NODE_FAIL"])
    def test_a_start_after_the_claim_is_not_the_claimants(self, raw: str) -> None:
        sighting = self.seen_after(self.LATER.model_copy(update={"raw_state": raw}), 3600, NOW - 20)
        assert isinstance(sighting, Blind)
        assert sighting.error == RAN_TWICE

    def test_a_start_before_the_claim_is(self) -> None:
        sighting = self.seen_after(self.LATER.model_copy(update={"started_at": NOW - 501}), 0, NOW - 20)
        assert isinstance(sighting, Gone)

    @pytest.mark.parametrize(("told", "is_second"), [(NOW - 400, False), (NOW - 410, True)])
    def test_where_the_job_was_told_its_start_the_nodes_clock_does_not_count(
        self, told: float, *, is_second: bool
    ) -> None:
        evidence = Evidence(claim=a_claim(at=NOW - 500).model_copy(update={"start": f"{told:.0f}"}))
        seen = seen_by(a_look().seeing(self.LATER), a_job(), evidence, NOW - 20)
        assert isinstance(seen, Blind if is_second else Gone)

    def test_its_second_run_says_so_itself_whatever_the_clocks(self) -> None:
        row = self.LATER.model_copy(update={"started_at": NOW - 9000, "raw_state": "COMPLETED"})
        assert isinstance(self.seen_after(row, 3600, NOW - 20, duplicates=(token(),)), Blind)

    @pytest.mark.parametrize(("waited_s", "beat"), [(HEARTBEAT_SILENT_S + 1, SILENT), (HEARTBEAT_SILENT_S + 1, None)])
    def test_a_silent_heart_is_its_end(self, waited_s: float, beat: float | None) -> None:
        assert isinstance(self.seen_after(self.LATER, waited_s, beat), Gone)

    @pytest.mark.parametrize("beat", [SILENT, None])
    def test_a_heart_that_nobody_watched_must_be_watched_first(self, beat: float | None) -> None:
        assert isinstance(self.seen_after(self.LATER, HEARTBEAT_SILENT_S - 1, beat), Blind)

    def test_its_own_word_is_believed_at_once(self) -> None:
        assert isinstance(self.seen_after(self.LATER, 0, NOW, exit=an_exit(75), duplicates=(token(),)), Gone)


class TestNoProofs:
    @pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING, JobState.ENDING, JobState.UNKNOWN])
    def test_every_other_state_is_a_living_job_also_one_that_nobody_knows(self, state: JobState) -> None:
        sighting = seen_by(a_look().seeing(a_row(state=state, raw="SOMETHING_NEW")))
        assert isinstance(sighting, Seen)
        assert (sighting.state, sighting.raw_state) == (state, "SOMETHING_NEW")

    def test_the_first_absence_is_blindness(self) -> None:
        assert isinstance(seen_by(a_look()), Blind)

    def test_absence_that_is_not_long_enough_is_blindness(self) -> None:
        assert isinstance(seen_by(a_look(), a_job(absent_since=NOW - FORGET_AFTER_S)), Blind)

    def test_long_absence_with_a_heartbeat_is_blindness(self) -> None:
        sighting = seen_by(a_look(), a_job(absent_since=FORGOTTEN), beat_changed_at=NOW - HEARTBEAT_SILENT_S)
        assert isinstance(sighting, Blind)

    def test_long_absence_is_blindness_while_the_history_does_not_answer(self) -> None:
        look = a_look().remembering(status="blind", error="slurmdbd is down")
        sighting = seen_by(look, a_job(absent_since=FORGOTTEN))
        assert isinstance(sighting, Blind)
        assert sighting.error == "slurmdbd is down"

    def test_long_absence_is_blindness_while_the_history_was_not_asked(self) -> None:
        assert isinstance(seen_by(not_asked(), a_job(absent_since=FORGOTTEN)), Blind)

    def test_an_outage_is_blindness_since_its_beginning_with_its_words(self) -> None:
        job = a_job(sighting=blind(since=NOW - 900), absent_since=FORGOTTEN)
        assert seen_by(a_look().failing("slurmctld is down"), job) == Blind(since=NOW - 900, error="slurmctld is down")

    def test_blindness_begins_at_the_poll_that_failed(self) -> None:
        assert seen_by(a_look().failing("down"), a_job(sighting=seen())) == Blind(since=NOW, error="down")

    def test_a_poll_from_before_the_submission_changes_nothing(self) -> None:
        assert seen_by(a_look(), a_job(at=NOW)) is None
        assert seen_by(a_look(), a_job(at=NOW, sighting=seen())) == seen()

    def test_a_running_row_of_the_history_does_not_keep_a_job_that_the_queue_forgot_and_that_fell_silent(self) -> None:
        look = a_look().remembering(a_row(state=JobState.RUNNING))
        assert isinstance(seen_by(look, a_job(absent_since=NOW - 86400), beat_changed_at=NOW - 86400), Gone)

    @given(
        state=st.sampled_from([None, JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN]),
        history=st.sampled_from(["ok", "disabled", "blind"]),
        failing=st.booleans(),
        absent_for=st.none() | st.floats(0, 1),
        beat_ago=st.none() | st.floats(0, 1e6),
    )
    def test_nothing_but_a_proof_ends_a_job(
        self, state: JobState | None, history: str, failing: bool, absent_for: float | None, beat_ago: float | None
    ) -> None:
        look = a_look().seeing(*([a_row(state=state)] if state else [])).remembering(status=history)
        look = look.failing("down") if failing else look
        longest_s = HEARTBEAT_SILENT_S if history == "disabled" else FORGET_AFTER_S
        job = a_job(absent_since=None if absent_for is None else NOW - absent_for * longest_s)
        beat = None if beat_ago is None else NOW - beat_ago
        assert not isinstance(seen_by(look, job, beat_changed_at=beat), Gone)


class TestNeverAccepted:
    @staticmethod
    def proven(look: Look, intent: Submission | None = None, evidence: Evidence | None = None) -> bool:
        return never_accepted(
            intent or an_intent(absent_since=NOW - 300),
            evidence or Evidence(),
            look.poll,
            look.history,
            job_dir=job_dir(token()),
            submit_grace_s=SUBMIT_GRACE_S,
        )

    @pytest.mark.parametrize("status", ["ok", "disabled"])
    def test_two_clean_answers_after_the_grace_prove_it(self, status: str) -> None:
        assert self.proven(a_look().remembering(status=status))

    def test_within_the_grace_nothing_is_proven(self) -> None:
        assert not self.proven(a_look(), an_intent(at=NOW - SUBMIT_GRACE_S, absent_since=NOW - SUBMIT_GRACE_S))

    def test_a_queue_that_answers_for_the_first_time_after_an_outage_proves_nothing_yet(self) -> None:
        assert not self.proven(a_look(), an_intent(at=NOW - 3600))
        assert not self.proven(a_look(), an_intent(at=NOW - 3600, absent_since=NOW - SETTLE_S / 2))
        assert self.proven(a_look(), an_intent(at=NOW - 3600, absent_since=NOW - 2 * SETTLE_S))

    def test_a_history_from_within_the_grace_proves_nothing(self) -> None:
        old = Look(history=a_look(NOW - 500).history)
        assert not self.proven(old)

    def test_an_outage_of_either_proves_nothing(self) -> None:
        assert not self.proven(a_look().failing("down"))
        assert not self.proven(a_look().remembering(status="blind"))
        assert not self.proven(not_asked())

    def test_a_row_anywhere_disproves_it_whatever_its_state(self) -> None:
        for state in JobState:
            assert not self.proven(a_look().seeing(a_row(state=state)))
            assert not self.proven(a_look().remembering(a_row(state=state)))

    def test_a_claim_by_it_disproves_it(self) -> None:
        assert not self.proven(a_look(), evidence=Evidence(claim=a_claim()))

    def test_the_claim_of_another_does_not(self) -> None:
        assert self.proven(a_look(), evidence=Evidence(claim=a_claim(OTHER)))
