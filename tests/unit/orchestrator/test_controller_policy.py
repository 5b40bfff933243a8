from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import NOW
from one_run import POLL_S, World

from anchorleg.files import write_json
from orchestrator.decisions.models import BadNode, SlotStatus
from orchestrator.executors.base import JobState, SubmitRefused
from orchestrator.run.ledger import write_control


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def ahead(tmp_path: Path) -> World:
    """A run that queues ahead, with its first job running and the second queued behind it."""
    world = World(tmp_path, relay={"queue_ahead": True})
    world.tick()
    world.job_claims()
    world.job_shows(JobState.RUNNING)
    world.tick(after=POLL_S)
    return world


class TestCancelsByAPerson:
    def test_our_own_cancel_is_on_the_disk_before_it_is_sent(self, world: World) -> None:
        world.tick()
        sent: list[float | None] = []
        cancel = world.cluster.cancel
        world.cluster.cancel = lambda ids, **_: (  # type: ignore[method-assign]
            sent.append(world.slot.attempts[0].submissions[0].cancelled_at), cancel(ids))[1]  # fmt: skip
        write_control(world.run_dir, "stop-now", now=world.time, by="stop")
        world.tick(after=1)
        assert sent == [NOW + 1]


class TestQueueingAhead:
    @pytest.mark.parametrize(
        ("raw", "status"), [("CANCELLED", SlotStatus.PAUSED), ("OUT_OF_MEMORY", SlotStatus.FAILED)]
    )
    def test_one_that_began_before_the_end_of_its_predecessor_was_seen_saves_where_that_ends_the_slot(
        self, ahead: World, raw: str, status: SlotStatus
    ) -> None:
        failures = ahead.run.config.relay.failure_budget - 1
        slots = (ahead.controller.ledger.slots[0].model_copy(update={"failures": failures}),)
        ahead.controller.ledger = ahead.controller.ledger.model_copy(update={"slots": slots})
        ahead.job_shows(JobState.ENDED, raw=raw)
        ahead.job_claims(1)
        ahead.job_shows(JobState.RUNNING, 1)
        ahead.tick(after=POLL_S)
        assert (ahead.slot.status, ahead.cluster.signalled) == (status, [("wake", ["102"])])
        assert (ahead.run_dir.job(ahead.cluster.submitted[1]) / "hand-over").exists()
        ahead.tick(after=POLL_S)
        ahead.job_claims(1, exit_code=75, asked="asked to")
        ahead.job_shows(JobState.ENDED, 1)
        ahead.tick(after=POLL_S)
        assert (ahead.slot.status, len(ahead.cluster.submitted), ahead.controller.over) == (status, 2, True)
        assert len(ahead.cluster.signalled) == 1

    @pytest.mark.parametrize("after", [1.0, POLL_S])
    def test_a_cancel_that_the_queue_tells_after_the_successors_claim_is_still_the_persons(
        self, ahead: World, after: float
    ) -> None:
        poll = ahead.cluster.poll
        ahead.cluster.poll = lambda: (ahead.sleep(0.05), poll())[1]  # type: ignore[method-assign]
        ahead.job_claims(1)
        ahead.tick(after)  # the queue was last asked before the cancel, maybe in the same tick
        assert (ahead.slot.current.number, ahead.cluster.signalled) == (1, [])
        ahead.job_shows(JobState.ENDED, raw="CANCELLED")
        ahead.job_shows(JobState.RUNNING, 1)
        ahead.tick(after=POLL_S)
        assert (ahead.slot.status, ahead.cluster.signalled) == (SlotStatus.PAUSED, [("wake", ["102"])])

    def test_a_stop_holds_it_by_a_file_before_anything_else(self, ahead: World) -> None:
        hold = ahead.run_dir.slot(0) / "hold"
        assert not hold.exists()
        seen: list[bool] = []
        cancel = ahead.cluster.cancel
        ahead.cluster.cancel = lambda ids, **_: (seen.append(hold.exists()), cancel(ids))[1]  # type: ignore[method-assign]
        write_control(ahead.run_dir, "stop", now=ahead.time, by="stop", grace_s=60)
        ahead.tick(after=1)
        assert seen == [True]
        assert ahead.cluster.signalled == [("cancel", ["102"]), ("wake", ["101"])]
        write_control(ahead.run_dir, "run", now=ahead.time, by="start")
        ahead.tick(after=1)
        assert not hold.exists()

    def test_a_controller_without_a_memory_cancels_neither_job(self, ahead: World) -> None:
        for path in ahead.run_dir.path.glob("ledger-*.json"):
            path.unlink()
        ahead.controller = ahead.new_controller()
        ahead.tick(after=POLL_S)
        assert ahead.cluster.signalled == []
        assert [attempt.ahead for attempt in ahead.slot.attempts] == [False, True]
        assert len(ahead.cluster.submitted) == 2


class TestHelpingJobs:
    @pytest.mark.parametrize("handing_over", [False, True])
    def test_a_stalled_program_is_asked_for_its_stacks_unless_it_hands_over(
        self, tmp_path: Path, *, handing_over: bool
    ) -> None:
        world = World(tmp_path, relay={"stall_seconds": 120})
        world.tick()
        world.job_claims()
        world.job_shows(JobState.RUNNING)
        folder = world.run_dir.attempt(0, 0)
        write_json(folder / "progress.json", {"step": 5, "total": 9, "checkpoint_step": 0, "at": NOW})
        job_dir = world.run_dir.job(world.cluster.submitted[0])
        abort = job_dir / "abort"
        if handing_over:
            (job_dir / "hand-over").touch()  # as the shim does when the clock asks
        for beat in range(5):
            write_json(folder / "heartbeat.json", {"beat": beat})
            assert not abort.exists()
            world.tick(after=POLL_S)
        assert abort.exists() is not handing_over
        assert world.slot.attempts[0].aborted_at == (None if handing_over else world.time)

    def test_bad_nodes_are_left_out_beside_the_configs_own(self, tmp_path: Path) -> None:
        world = World(tmp_path, slurm={"exclude": "old[1-3]", "extra": ["--exclude=hot1", "-x hot2", "--exclusive"]})
        bad = (BadNode(node="n1", excluded_until=NOW + 60),)
        world.controller.ledger = world.controller.ledger.model_copy(update={"nodes": bad})
        world.tick()
        assert world.cluster.requests[0].exclude == ("old[1-3]", "hot1", "hot2", "n1")

    def test_a_request_that_our_exclusions_made_impossible_is_repeated_without_them(self, world: World) -> None:
        bad = (BadNode(node="n1", excluded_until=NOW + 3600),)
        world.controller.ledger = world.controller.ledger.model_copy(update={"nodes": bad})
        world.cluster.answers = [SubmitRefused(kind="permanent", words="Requested node configuration is not available")]
        world.tick()
        assert world.slot.status is SlotStatus.ACTIVE
        world.tick(after=60)
        assert world.cluster.requests[1].exclude == ()


def test_what_a_full_disk_kept_from_being_saved_is_told_when_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "ledger-0.json")

    world.tick()
    world.job_claims(exit_code=0)
    with monkeypatch.context() as at_first:
        at_first.setattr("orchestrator.controller.save_ledger", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                world.tick(after=1)
        assert world.told == []
    world.tick(after=1)
    world.tick(after=1)
    assert [kind for kind, _ in world.told] == ["finished", "run finished"]


def test_where_one_folder_cannot_be_made_no_other_is_left(tmp_path: Path) -> None:
    world = World(tmp_path, slots=2)
    world.run_dir.slot(1).parent.mkdir(parents=True, exist_ok=True)
    world.run_dir.slot(1).write_text("in the way")
    for _ in range(2):
        with pytest.raises(OSError, match="slots/1"):
            world.tick(after=2)
    assert list(world.run_dir.jobs.iterdir()) == []


def test_a_job_whose_folder_somebody_removed_does_not_keep_the_others_from_a_stop(tmp_path: Path) -> None:
    world = World(tmp_path, slots=2)
    world.tick()
    world.job_shows(JobState.RUNNING, 0)
    world.job_shows(JobState.RUNNING, 1)
    world.tick(after=POLL_S)
    shutil.rmtree(world.run_dir.job(world.cluster.submitted[0]))
    write_control(world.run_dir, "stop", now=world.time, by="stop")
    world.tick(after=1)
    assert (world.run_dir.job(world.cluster.submitted[1]) / "hand-over").exists()
    assert world.cluster.signalled == [("wake", ["101", "102"])]
