"""What can be said of one submission: a table, and what holds for every answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import FORGET_AFTER_S, NOW, Look, a_job, a_look, a_row, an_intent, job_dir, token
from hypothesis import given
from hypothesis import strategies as st
from slot_text import Case, cases_of, check

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Attempt, Blind, Gone, Ledger, Sighting, Submission
from orchestrator.decisions.sightings import (
    HEARTBEAT_SILENT_S,
    missing_from,
    never_accepted,
    sight,
)
from orchestrator.executors.base import JobState

OTHER = token(serial=9)


@cases_of("sightings.txt")
def test_what_can_be_said(case: Case) -> None:
    check(case)


def seen_by(look: Look, job: Submission, beat_at: float | None, at: float = NOW) -> Sighting | None:
    attempt = Attempt(number=0, submissions=(job,), heartbeat_changed_at=beat_at)
    facts = replace(look, at=at).facts(Ledger(run_id="r", epoch=0))
    return sight(job, attempt, Evidence(), facts)


@pytest.mark.parametrize("states", [(JobState.ENDED, JobState.RUNNING), (JobState.PENDING, JobState.ENDED)])
def test_of_an_id_that_runs_twice_the_living_one_counts(states: tuple[JobState, ...]) -> None:
    row = a_look().seeing(*[a_row(state=state) for state in states]).poll.of(job_dir(token()))
    assert row is not None
    assert row.state is not JobState.ENDED


@pytest.mark.parametrize(
    ("look", "job", "is_missing"),
    [
        (a_look().failing("timed out"), a_job(), False),
        (a_look(), an_intent(at=NOW), False),
        (a_look().seeing(a_row(state=JobState.ENDED)), a_job(), False),
        (a_look().seeing(a_row(OTHER)), a_job(), True),
    ],
    ids=["outage", "older than the submission", "ended and still listed", "complete, later and without it"],
)
def test_what_a_poll_misses(look: Look, job: Submission, *, is_missing: bool) -> None:
    assert missing_from(look.poll, job, job_dir(token())) is is_missing


def test_a_history_from_within_the_grace_proves_nothing() -> None:
    look, intent = Look(history=a_look(NOW - 500).history), an_intent(absent_since=NOW - 300)
    assert not never_accepted(intent, Evidence(), look.facts(Ledger(run_id="r", epoch=0)))


@pytest.mark.parametrize("status", ["ok", "disabled"])
@given(absent=st.floats(0, 110), beat=st.none() | st.floats(0, 500))
def test_the_same_look_is_proof_from_then_on_and_none_before(status: str, absent: float, beat: float | None) -> None:
    def look(at: float) -> Sighting | None:
        beat_at = None if beat is None else NOW - beat
        return seen_by(a_look(at).remembering(status=status), a_job(absent_since=NOW - absent), beat_at, at)

    now = look(NOW)
    assert isinstance(now, Blind)
    assert now.proven_at is not None
    assert isinstance(look(now.proven_at - 1), Blind)
    assert isinstance(look(now.proven_at + 1), Gone)


@given(
    state=st.sampled_from([None, JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN]),
    history=st.sampled_from(["ok", "disabled", "blind"]),
    failing=st.booleans(),
    absent_for=st.none() | st.floats(0, 1),
    beat_ago=st.none() | st.floats(0, 1e6),
)
def test_nothing_but_a_proof_ends_a_job(
    state: JobState | None, history: str, failing: bool, absent_for: float | None, beat_ago: float | None
) -> None:
    look = a_look().seeing(*([a_row(state=state)] if state else [])).remembering(status=history)
    look = look.failing("down") if failing else look
    longest_s = HEARTBEAT_SILENT_S if history == "disabled" else FORGET_AFTER_S
    job = a_job(absent_since=None if absent_for is None else NOW - absent_for * longest_s)
    beat_at = None if beat_ago is None else NOW - beat_ago
    assert not isinstance(seen_by(look, job, beat_at), Gone)
