"""What a slot is said to be doing: a sentence for every state, and forecasts that promise no more than is known."""

from __future__ import annotations

from typing import Any

import pytest
from builders import NOW, a_job, a_slot, an_intent, blind, gone, token
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.edits import after_refusal
from orchestrator.decisions.models import Attempt, Blind, Seen, Slot, SlotStatus, SubmissionState, Verdict
from orchestrator.decisions.verdicts import ASKED_TO
from orchestrator.executors.base import JobState
from orchestrator.screens.forecast import forecast, waits_between
from orchestrator.screens.runview import OVER
from orchestrator.screens.situation import Around, situation
from orchestrator.screens.timeline import clock

HOUR = 3600.0
HOLDS = "job 12 failed: out of memory"
SIGN_OF_LIFE = "at the latest, unless the job shows a sign of life"


def around(**more: Any) -> Around:
    return Around(**({"run_name": "toy", "wish": "run", "alive": True, "slots": 1, "now": NOW} | more))


def pending(reason: str = "", **more: Any) -> Seen:
    known = {"state": JobState.PENDING, "raw_state": "PENDING", "at": NOW, "reason": reason}
    return Seen.model_validate(known | more)


def in_state(raw_state: str) -> Seen:
    return Seen(state=JobState.RUNNING, raw_state=raw_state, at=NOW)


SIGHTINGS = st.one_of(
    st.none(),
    st.just(blind()),
    st.just(gone()),
    st.builds(
        Seen,
        state=st.sampled_from(JobState),
        raw_state=st.just("SOMETHING_NEW"),
        at=st.just(NOW),
        reason=st.sampled_from(["", "Priority", "JobHeldUser", "BadConstraints", "What Is This"]),
    ),
)


@st.composite
def slots(draw: st.DrawFn) -> Slot:
    """Any slot, sensible or not: what is on the disk is shown."""
    attempts = []
    for number in range(draw(st.integers(0, 2))):
        job = a_job(
            token(0, number),
            job_id=draw(st.sampled_from([None, "12"])),
            state=draw(st.sampled_from(SubmissionState)),
            sighting=draw(SIGHTINGS),
        )
        claimed = draw(st.booleans())
        attempts.append(
            Attempt(
                number=number,
                submissions=(job,),
                claimed_by=job.token if claimed else None,
                ahead=draw(st.booleans()),
                asked_to_hand_over_at=draw(st.sampled_from([None, NOW])),
                started_at=NOW - 60 if claimed else None,
            )
        )
    return Slot(
        index=0,
        status=draw(st.sampled_from(SlotStatus)),
        why=draw(st.sampled_from(["", "words"])),
        attempts=tuple(attempts),
        not_before=draw(st.sampled_from([0.0, NOW + 60])),
        failures=draw(st.integers(0, 3)),
    )


AROUNDS = st.builds(
    around, wish=st.sampled_from(["run", "stop", "stop-now"]), alive=st.booleans(), slots=st.integers(0, 1)
)


@given(slots(), AROUNDS)
def test_every_state_has_a_word_and_says_what_comes_next_and_why_nothing_moves(slot: Slot, place: Around) -> None:
    found = situation(slot, place)
    assert found.state
    assert found.next
    assert found.why or found.state not in {"pending", "blind", "failed", "paused", "uncertain"}
    assert place.alive or found.state in OVER or "orchestrator start toy" in found.next


def with_job(sighting: Any, **fields: Any) -> Any:
    return a_slot().with_attempt(a_job(sighting=sighting), **fields)


CLAIMED = {"claimed_by": token()}
REFUSED = after_refusal("Invalid account", NOW, had_jobs=True)


@pytest.mark.parametrize(
    ("slot", "state", "kind", "why", "then"),
    [
        (with_job(pending("Priority")), "pending", "waits", "waits for its turn", "as soon as Slurm allows"),
        (with_job(pending("JobHeldUser")), "pending", "person", "scontrol release", "until you act"),
        (with_job(pending("PartitionTimeLimit")), "pending", "for ever", "slurm.time_limit", "it is cancelled"),
        (with_job(pending("PartitionTimeLimit", partition="a,b")), "pending", "waits", "one of its partitions", ""),
        (with_job(pending(raw_state="CONFIGURING", node="gpu07")), "pending", "waits", "its node gpu07 is being", ""),
        (with_job(in_state("SUSPENDED")), "suspended", None, "its program pauses", ""),
        (with_job(in_state("SUSPENDED"), **CLAIMED), "suspended", None, "its program pauses", ""),
        (a_slot(failures=3, not_before=NOW + 872, why=HOLDS), "waiting", None, HOLDS,
         f"tries again at {clock(NOW + 872, NOW)} (in 0:14:32)"),
        (a_slot(**REFUSED), "waiting", "for ever", "Invalid account", ""),
        (a_slot(**REFUSED | {"why": "Socket timed out", "not_before": NOW + 15}), "waiting", None, "Socket", ""),
        (a_slot(**REFUSED | {"why": HOLDS, "not_before": NOW + 15}), "waiting", None, HOLDS, ""),
        (a_slot(why="waits for room: 4 of 4"), "waiting", None, "for room", "when that is over"),
        (a_slot().with_attempt(an_intent()), "queued", None, "", "handed to the scheduler"),
        (a_slot(status=SlotStatus.FAILED).with_attempt(verdict=Verdict.CRASHED, start_step=3000), "failed", None, "",
         "orchestrator rollback 0 --to 2999 --run toy"),
        (a_slot(status=SlotStatus.PAUSED, why="cancelled by user 33"), "paused", None, "33", "orchestrator start toy"),
        (a_slot(status=SlotStatus.PAUSED, why="scancel").with_attempt(
            a_job(sighting=in_state("RUNNING")), **CLAIMED, asked_to_hand_over_at=NOW),
         "handing over", None, "scancel", "it saves and ends; no other job follows: scancel"),
        (with_job(in_state("RUNNING"), **CLAIMED).with_attempt(
            a_job(token(0, 1), job_id="124", sighting=pending("Dependency")), ahead=True),
         "running", None, "", "job 124, queued behind it, takes over"),
        (with_job(Blind(since=NOW - 30, error="it left", proven_at=NOW + 90)), "blind", None, "it left",
         f"decided by {clock(NOW + 123, NOW)} {SIGN_OF_LIFE}"),
        (with_job(Blind(since=NOW - 30, error="it left", proven_at=NOW - 500)), "blind", None, "it left",
         f"decided by {clock(NOW + 33, NOW)} {SIGN_OF_LIFE}"),
        (with_job(Blind(since=NOW - 30, error="it left")), "blind", None, "it left", "or its end is proven"),
        (a_slot().with_attempt(an_intent(state=SubmissionState.UNCERTAIN, note="timed out")), "uncertain", None,
         "timed out", "looks for it"),
    ],
)  # fmt: skip
def test_what_a_slot_waits_for_and_what_comes_next(slot: Any, state: str, kind: str, why: str, then: str) -> None:
    found = situation(slot.built, around(look_s=33.0))
    assert (found.state, found.kind) == (state, kind)
    assert why in found.why
    assert then in found.next


@given(
    st.integers(0, 10**9),
    st.floats(1e-3, 1e6),
    st.one_of(st.none(), st.floats(-1e6, 1e6)),
    st.floats(0, 1e6),
    st.lists(st.floats(0, 1e5), max_size=3),
)
def test_a_forecast_never_promises_less_than_the_steps_need(
    left: int, rate: float, left_s: float | None, job_s: float, waits: list[float]
) -> None:
    found = forecast(left, rate, left_s, job_s, waits)
    assert found is not None
    assert found.finish_in_s >= left / rate
    assert found.more_jobs == 0 or left_s is not None


@pytest.mark.parametrize(
    ("end", "waits"), [({}, [30.0, 50.0]), ({"asked": ASKED_TO}, [30.0]), ({"verdict": Verdict.CANCELLED}, [30.0])]
)
def test_waits_are_those_that_no_person_wished(end: dict[str, Any], waits: list[float]) -> None:
    attempts = [
        Attempt(number=0, started_at=0.0, ended_at=100.0),
        Attempt(number=1, started_at=130.0, ended_at=200.0, **end),
        Attempt(number=2, started_at=250.0),
        Attempt(number=3),
    ]
    assert waits_between(attempts) == waits
