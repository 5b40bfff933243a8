"""slurmctld dead, hanging, or back without its memory, while a run goes on."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from daemons import started_at
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import (
    assert_kept_once,
    ever,
    hand_over,
    left_unsure,
    on_slurm,
    rows_of,
    saved_at,
    signal_at_sbatch,
    start_impatient,
    tokens_of,
    wait_until_saved,
)

pytestmark = pytest.mark.slurm

#: Slurm's commands give up on a dead or hanging slurmctld after about this time (10 s by default).
QUICK = {"MessageTimeout": "2"}
AWAY_S = 5.0


def submission_words(relay: Relay) -> list[str]:
    """What came of every sbatch that gave no job, in order."""
    return [event["outcome"] for event in relay.events("submission") if event["outcome"]]


def assert_one_job_an_attempt(slurm: SlurmCluster, relay: Relay, total: int, slots: int = 1) -> None:
    """Every step once, and Slurm knows of no job beyond one for each attempt."""
    tokens = set()
    for slot in range(slots):
        relay.assert_exactly_once(total, slot)
        tokens |= {relay.read("claim", attempt, slot)["token"] for attempt in relay.attempts(slot)}
    rows = ever(slurm, relay)
    assert sorted(Path(row.work_dir).name for row in rows) == sorted(tokens)
    # The end of a job that slurmctld did not hear of is told again every 15 s: until then it runs, for Slurm; and two
    # minutes after its own record of the end the controller takes it out.
    assert {row.state for row in rows} <= {"COMPLETED", "COMPLETING", "RUNNING", "CANCELLED"}


@pytest.mark.long
def test_slurmctld_dead_during_an_sbatch_and_ticks(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    """It is killed in the moment of an sbatch for slot 0, for many ticks, while the job of slot 1 runs on."""
    slurm = private_slurm(nodes=2, overrides=QUICK)
    relay = on_slurm(new_relay, slurm, total=60, slots=2, held_at=20)
    armed = signal_at_sbatch(slurm, relay, signal.SIGKILL)
    controller = start_impatient(relay, refused=1, submit=2)
    relay.wait_for_step(5, slot=0)
    relay.wait_for_step(5, slot=1)
    wait_until_saved(slurm, relay)
    before = relay.status()["slots"][1]
    armed.touch()
    killed_at = time.time()
    hand_over(relay, slot=0)
    relay.wait_for(lambda: submission_words(relay), "a submission that fails")
    back_at = time.monotonic() + AWAY_S

    relay.wait_for(lambda: relay.status()["slots"][1]["state"] == "blind", "the controller to be blind")
    view = relay.status()
    assert "connect failure" in view["blind_error"]
    assert killed_at - 2 < view["blind_since"] < time.time()
    assert "connect failure" in json.dumps(view["slots"][1])
    relay.wait_for(lambda: time.monotonic() > back_at, "the end of the outage")
    view_later = relay.status()
    assert view_later["blind_since"] == view["blind_since"]  # since when, not how often
    assert view_later["slots"][1]["job_id"] == before["job_id"]  # occupied, whatever is not seen
    assert relay.attempts(0) == relay.attempts(1) == [0]
    slurm.start_controller()
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    for words in submission_words(relay):
        sure = "connect failure" in words and words.startswith("not submitted")
        unsure = left_unsure(words) or "timed out" in words  # a slurmctld that has just started may be slow
        assert sure or (unsure and words.startswith("uncertain")), words
    assert relay.attempts(1) == [0]
    after = relay.status()
    assert after["blind_since"] is None
    assert [slot["failures"] for slot in after["slots"]] == [0, 0]
    assert_one_job_an_attempt(slurm, relay, 60, slots=2)


@pytest.mark.long
@pytest.mark.parametrize("who", ["sbatch", "we"])
def test_slurmctld_hangs_so_that_sbatch_fails_and_yet_submits(
    private_slurm: PrivateSlurm, new_relay: NewRelay, who: str
) -> None:
    """`who` gives up first: sbatch itself, or the controller, which kills it."""
    slurm = private_slurm(nodes=2, overrides={"MessageTimeout": "2" if who == "sbatch" else "60"})
    relay = on_slurm(new_relay, slurm, total=60, held_at=20)
    armed = signal_at_sbatch(slurm, relay, signal.SIGSTOP)
    controller = start_impatient(relay, command=10 if who == "sbatch" else 2, submit=2)
    relay.wait_for_step(5)
    armed.touch()
    hand_over(relay)
    relay.wait_for(lambda: submission_words(relay), "a submission without an answer")
    assert submission_words(relay)[0].startswith("uncertain")
    asked_at = time.monotonic()
    # Blind for longer than the time after which a submission without a trace counts as none.
    relay.wait_for(lambda: time.monotonic() > asked_at + 2.5, "the grace to pass")
    assert relay.status()["slots"][0]["state"] in {"blind", "uncertain"}

    slurm.resume_controller()
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    assert_one_job_an_attempt(slurm, relay, 60)
    for attempt in relay.attempts():
        assert len(tokens_of(relay, attempt)) == 1


def written_state(slurm: SlurmCluster) -> Path:
    """A copy of what slurmctld has written down, which is all that there is at this moment."""
    state, now = slurm.folder / "state", time.time()
    slurm.ask("scontrol", "update", f"jobid={slurm.squeue()[0].job_id}", "comment=a change, so that it writes")
    slurm.wait_for(lambda: saved_at(slurm) > now, "slurmctld to save its state")
    target = slurm.folder / "state.before"

    def copied() -> bool:
        """Whole: at any moment it may write a file anew, under another name at first; for a moment there is none."""
        shutil.rmtree(target, ignore_errors=True)
        try:
            shutil.copytree(state, target, ignore=shutil.ignore_patterns("*.new"))
        except shutil.Error:
            return False
        return (target / "job_state").exists()

    slurm.wait_for(copied, "a whole copy of its state")
    return target


def resume(slurm: SlurmCluster, node: str) -> None:
    slurm.ask("scontrol", "update", f"nodename={node}", "state=resume")


@pytest.mark.long
def test_slurmctld_runs_one_job_id_twice(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    """It is killed before it has written down that it started the job: a start by backfill is not written at once."""
    slurm = private_slurm(nodes=2, overrides=QUICK)
    slurm.ask("scontrol", "update", "nodename=n1,n2", "state=drain", "reason=test")
    relay = on_slurm(new_relay, slurm, pace_s=0.01, held_at=150, command=["python3", "./count.py", "300", "deaf"])
    controller = start_impatient(relay, silent=3)
    slurm.wait_for(lambda: rows_of(slurm, relay), "a job that waits for a node")
    before = written_state(slurm)
    resume(slurm, "n1")
    relay.wait_for_step(150)

    slurm.kill_controller()
    shutil.rmtree(slurm.folder / "state")
    before.rename(slurm.folder / "state")
    slurm.start_controller()
    first = relay.read("claim", 0)["pid"]
    relay.wait_for(lambda: started_at(first) is None, "Slurm to end a job of which it knows no start")
    resume(slurm, "n2")
    relay.wait_for(lambda: relay.duplicates(0), "the second run of the same job")
    slurm.wait_for(lambda: 1 in relay.attempts(), "the next attempt")
    relay.release()

    job_id = relay.read("claim", 0)["job_id"]
    assert [found["job_id"] for found in relay.duplicates(0)] == [job_id]
    if (relay.attempt_dir(0) / "exit.json").exists():  # the first shim saw its program killed, just before itself
        assert relay.read("exit.json", 0)["code"] == -signal.SIGKILL
    assert relay.ended(controller) == 0, relay.output()
    assert assert_kept_once(relay, 300) == [0, 1]
    assert relay.read("parent.json", 1)["step"] >= 100
    ended = [(event["attempt"], event["verdict"]) for event in relay.events("ended")]
    assert [attempt for attempt, _ in ended] == [0, 1]
    assert ended[1][1] == "finished"
    assert [row.job_id for row in ever(slurm, relay)] == [int(job_id), int(relay.read("claim", 1)["job_id"])]
