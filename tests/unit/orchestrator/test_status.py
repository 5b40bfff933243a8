"""What a slot is said to be doing: a sentence for every state, and numbers that promise no more than is known."""

from __future__ import annotations

from typing import Any

import pytest
from builders import NOW, a_job, a_slot, an_intent, blind, gone, token
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.models import Attempt, Blind, Seen, Slot, SlotStatus, SubmissionState, Verdict
from orchestrator.decisions.outcomes import after_refusal
from orchestrator.decisions.verdicts import ASKED_TO
from orchestrator.executors.base import JobState
from orchestrator.screens.forecast import forecast, waits_between
from orchestrator.screens.situation import Around, situation
from orchestrator.screens.timeline import clock

HOUR = 3600.0


def around(**more: Any) -> Around:
    return Around(**({"run_name": "toy", "wish": "run", "alive": True, "slots": 1, "now": NOW} | more))


def pending(reason: str) -> Seen:
    return Seen(state=JobState.PENDING, raw_state="PENDING", at=NOW, reason=reason)


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


class TestEveryState:
    @given(slots(), AROUNDS)
    def test_has_a_word_and_says_what_comes_next(self, slot: Slot, place: Around) -> None:
        found = situation(slot, place)
        assert found.state
        assert found.next

    @given(slots(), AROUNDS)
    def test_in_which_nothing_moves_says_why(self, slot: Slot, place: Around) -> None:
        found = situation(slot, place)
        if found.state in {"pending", "blind", "failed", "paused", "uncertain"}:
            assert found.why

    @given(slots())
    def test_without_a_controller_says_so(self, slot: Slot) -> None:
        found = situation(slot, around(alive=False))
        over = found.state in {"finished", "failed", "paused", "stopped", "dropped", "behind"}
        assert over or "orchestrator start toy" in found.next


class TestWords:
    @pytest.mark.parametrize(
        ("reason", "kind", "why", "then"),
        [
            ("Priority", "waits", "waits for its turn", "as soon as Slurm lets it"),
            ("JobHeldUser", "person", "scontrol release", "left alone"),
            ("PartitionTimeLimit", "for ever", "slurm.time_limit", "taken out of the queue"),
        ],
    )
    def test_a_waiting_job_says_what_it_waits_for_and_keeps_slurms_word(
        self, reason: str, kind: str, why: str, then: str
    ) -> None:
        found = situation(a_slot().with_attempt(a_job(sighting=pending(reason))).built, around())
        assert (found.state, found.reason, found.kind) == ("pending", reason, kind)
        assert why in found.why
        assert then in found.next

    def test_a_job_whose_node_is_being_started_is_not_new(self) -> None:
        booting = Seen(state=JobState.PENDING, raw_state="CONFIGURING", at=NOW, node="gpu07")
        found = situation(a_slot().with_attempt(a_job(sighting=booting)).built, around())
        assert (found.state, found.kind) == ("pending", "waits")
        assert found.why == "waits: its node gpu07 is being started"

    @pytest.mark.parametrize("claimed_by", [None, token()])
    def test_a_suspended_job_does_not_run(self, claimed_by: str | None) -> None:
        suspended = Seen(state=JobState.RUNNING, raw_state="SUSPENDED", at=NOW)
        slot = a_slot().with_attempt(a_job(sighting=suspended), claimed_by=claimed_by).built
        assert situation(slot, around()).state == "suspended"

    def test_a_job_that_one_of_its_partitions_does_not_take_is_waited_for(self) -> None:
        seen = pending("PartitionTimeLimit").model_copy(update={"partition": "long,short"})
        found = situation(a_slot().with_attempt(a_job(sighting=seen)).built, around())
        assert found.kind == "waits"
        assert "one of its partitions" in found.why

    def test_a_delay_counts_down(self) -> None:
        slot = a_slot(failures=3, not_before=NOW + 872, why="job 12 failed: out of memory").built
        found = situation(slot, around())
        assert (found.state, found.why) == ("waiting", "job 12 failed: out of memory")
        assert found.next == f"tries again at {clock(NOW + 872, NOW)} (in 0:14:32)"

    def test_a_slot_that_is_put_off_is_so_in_the_refusals_own_words_alone(self) -> None:
        refused = after_refusal("Invalid account", NOW, had_jobs=True)
        found = situation(a_slot(**refused).built, around())
        assert (found.state, found.kind) == ("waiting", "for ever")
        for why in ("Socket timed out on send/recv operation", "job 12 failed: out of memory (failure 1 of 6)"):
            slot = a_slot(**refused | {"why": why, "not_before": NOW + 15}).built
            assert situation(slot, around()).kind is None

    def test_a_paused_slot_says_who_goes_on(self) -> None:
        found = situation(a_slot(status=SlotStatus.PAUSED, why="its job was cancelled by user 33").built, around())
        assert found.state == "paused"
        assert "33" in found.why
        assert "orchestrator start toy" in found.next

    def test_nothing_follows_a_job_that_saves_in_a_slot_that_is_paused(self) -> None:
        slot = a_slot(status=SlotStatus.PAUSED, why="its job was cancelled (scancel)")
        running = Seen(state=JobState.RUNNING, raw_state="RUNNING", at=NOW)
        asked = slot.with_attempt(a_job(sighting=running), claimed_by=token(), asked_to_hand_over_at=NOW).built
        found = situation(asked, around())
        assert found.next == "it saves and ends; no other follows it: its job was cancelled (scancel)"

    def test_a_running_job_names_the_one_that_is_queued_behind_it(self) -> None:
        running = Seen(state=JobState.RUNNING, raw_state="RUNNING", at=NOW)
        slot = (
            a_slot()
            .with_attempt(a_job(sighting=running), claimed_by=token())
            .with_attempt(a_job(token(0, 1), job_id="124", sighting=pending("Dependency")), ahead=True)
            .built
        )
        found = situation(slot, around())
        assert found.state == "running"
        assert "job 124, queued behind it, takes over" in found.next

    @pytest.mark.parametrize(
        ("proven_at", "then"),
        [
            (NOW + 90, f"decided by {clock(NOW + 123, NOW)} at the latest, unless the job gives a sign of life"),
            (NOW - 500, f"decided by {clock(NOW + 33, NOW)} at the latest, unless the job gives a sign of life"),
            (None, "until it is seen again, or proven to be over"),
        ],
    )
    def test_a_blind_slot_says_when_it_is_decided_at_the_latest(self, proven_at: float | None, then: str) -> None:
        lost = Blind(since=NOW - 30, error="it left the queue", proven_at=proven_at)
        found = situation(a_slot().with_attempt(a_job(sighting=lost)).built, around(look_s=33.0))
        assert (found.state, found.why) == ("blind", "it left the queue")
        assert then in found.next

    def test_an_unclear_submission_is_looked_for_first(self) -> None:
        slot = a_slot().with_attempt(an_intent(state=SubmissionState.UNCERTAIN, note="timed out")).built
        found = situation(slot, around())
        assert (found.state, found.why) == ("uncertain", "timed out")
        assert "looked for" in found.next


class TestForecast:
    def test_what_fits_the_present_job_has_no_waits_in_it(self) -> None:
        found = forecast(3600, 1.0, left_in_job_s=2 * HOUR, job_s=4 * HOUR, waits_s=[])
        assert found is not None
        assert (found.finish_in_s, found.more_jobs, found.waits_included) == (HOUR, 0, True)

    def test_further_jobs_bring_their_known_waits(self) -> None:
        found = forecast(36_000, 1.0, left_in_job_s=2 * HOUR, job_s=4 * HOUR, waits_s=[60.0, 120.0])
        assert found is not None
        assert (found.finish_in_s, found.more_jobs, found.waits_included) == (10 * HOUR + 2 * 90, 2, True)

    def test_a_wait_that_nobody_knows_makes_it_a_lower_bound(self) -> None:
        found = forecast(36_000, 1.0, left_in_job_s=2 * HOUR, job_s=4 * HOUR, waits_s=[])
        assert found is not None
        assert (found.finish_in_s, found.waits_included) == (10 * HOUR, False)

    @pytest.mark.parametrize("rate", [0.0, -1.0])
    def test_no_rate_is_no_forecast(self, rate: float) -> None:
        assert forecast(10, rate, None, HOUR, []) is None

    @given(
        st.integers(0, 10**9),
        st.floats(1e-3, 1e6),
        st.one_of(st.none(), st.floats(-1e6, 1e6)),
        st.floats(0, 1e6),
        st.lists(st.floats(0, 1e5), max_size=3),
    )
    def test_never_promises_less_than_the_steps_need(
        self, left: int, rate: float, left_s: float | None, job_s: float, waits: list[float]
    ) -> None:
        found = forecast(left, rate, left_s, job_s, waits)
        assert found is not None
        assert found.finish_in_s >= left / rate
        assert found.more_jobs == 0 or left_s is not None

    def test_waits_are_those_between_an_end_and_the_next_beginning(self) -> None:
        attempts = [
            Attempt(number=0, started_at=0.0, ended_at=100.0),
            Attempt(number=1, started_at=130.0, ended_at=200.0),
            Attempt(number=2),
        ]
        assert waits_between(attempts) == [30.0]

    @pytest.mark.parametrize("end", [{"asked": ASKED_TO}, {"verdict": Verdict.CANCELLED}])
    def test_what_a_person_stopped_is_no_wait(self, end: dict[str, Any]) -> None:
        attempts = [
            Attempt(number=0, started_at=0.0, ended_at=100.0),
            Attempt(number=1, started_at=130.0, ended_at=200.0, **end),
            Attempt(number=2, started_at=90_000.0),
        ]
        assert waits_between(attempts) == [30.0]
