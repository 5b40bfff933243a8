"""Nodes that cannot start a job, and jobs that must make room for others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from relay import PATIENT, NewRelay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import assert_kept_once, ends, ever, on_slurm, rows_of, start_impatient

from orchestrator.decisions.verdicts import NEVER_BEGAN, NOT_SEEN_THERE

pytestmark = pytest.mark.slurm


def failing_prolog(folder: Path) -> dict[str, str]:
    """A Prolog that fails on n1, as one does that finds a GPU broken. Slurm then drains the node."""
    prolog = folder / "prolog.sh"
    prolog.write_text('#!/bin/sh\n[ "$SLURMD_NODENAME" != n1 ]\n')
    prolog.chmod(0o755)
    return {"Prolog": str(prolog)}


@pytest.mark.long
@pytest.mark.parametrize("accounting", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_node_that_cannot_start_a_job_is_not_a_person_who_cancels_it(
    private_slurm: PrivateSlurm, new_relay: NewRelay, tmp_path: Path, *, accounting: bool
) -> None:
    """slurmd cannot requeue a job with --no-requeue (`launch failed requeued held` is for the others): it kills it."""
    slurm = private_slurm(nodes=2, accounting=accounting, overrides=failing_prolog(tmp_path))
    relay = on_slurm(new_relay, slurm, total=60, relay={"retry_delays_seconds": [0]})

    done = relay.run("start")

    assert done.code == 0, done.words
    assert ends(slurm, relay) == ["CANCELLED", "COMPLETED"]
    assert [row.node for row in ever(slurm, relay)] == ["n1", "n2"]
    assert [n for _, n in relay.journal(0)] == list(range(1, 61))
    slot = relay.status()["slots"][0]
    assert (slot["state"], slot["failures"]) == ("finished", 0)


@pytest.mark.long
def test_a_job_that_slurm_holds_after_a_failed_launch_is_submitted_anew(
    private_slurm: PrivateSlurm, new_relay: NewRelay, tmp_path: Path
) -> None:
    """Only jobs that may be requeued are held; a site's submit plugin can make ours so, an update stands for it."""
    slurm = private_slurm(nodes=2, overrides=failing_prolog(tmp_path))
    relay = on_slurm(new_relay, slurm, total=60, slurm={"extra": ["--hold"]})
    controller = relay.spawn("start")
    slurm.wait_for(lambda: rows_of(slurm, relay), "the job")
    held = str(rows_of(slurm, relay)[0].job_id)
    slurm.ask("scontrol", "update", f"JobId={held}", "Requeue=1")
    slurm.ask("scontrol", "release", held)
    slurm.wait_for(lambda: [str(row.job_id) for row in rows_of(slurm, relay)] not in ([], [held]), "the next job")
    slurm.ask("scontrol", "release", str(ever(slurm, relay)[-1].job_id))

    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(60)
    assert ends(slurm, relay) == ["CANCELLED", "COMPLETED"]


@pytest.mark.long
def test_a_job_that_runs_and_never_begins_is_replaced(
    private_slurm: PrivateSlurm, new_relay: NewRelay, tmp_path: Path
) -> None:
    """What hangs before the shim, as a dead mount does: the first job on n1 comes no further than slurm.setup."""
    slurm = private_slurm(nodes=2)
    hangs = f"mkdir {tmp_path}/hung 2>/dev/null && sleep 600"
    limits = {**PATIENT, "stall_seconds": 4}
    relay = on_slurm(new_relay, slurm, total=60, slurm={"setup": [hangs, "true"]}, relay=limits)

    done = relay.run("start")

    assert done.code == 0, done.words
    assert ends(slurm, relay) == ["CANCELLED", "COMPLETED"]
    relay.assert_exactly_once(60)
    (ended, _) = relay.events("ended")
    assert (ended["verdict"], ended["cause"]) == ("node failed", NEVER_BEGAN)
    assert relay.status()["slots"][0]["failures"] == 0


@pytest.mark.long
def test_a_node_that_does_not_see_the_runs_folder_is_not_the_programs_fault(
    private_slurm: PrivateSlurm, new_relay: NewRelay, tmp_path: Path
) -> None:
    """Slurm cannot open the job's output and ends it within a second (0:53); here the folder is away meanwhile."""
    slurm = private_slurm(nodes=1)
    relay = on_slurm(new_relay, slurm, total=60, slurm={"extra": ["--hold"]})
    controller = start_impatient(relay, record=2)
    slurm.wait_for(lambda: rows_of(slurm, relay), "the job")
    (job,) = rows_of(slurm, relay)

    os.kill(controller.pid, signal.SIGSTOP)  # it would make the folder again
    away = Path(job.work_dir).rename(tmp_path / "away")
    slurm.ask("scontrol", "release", str(job.job_id))
    slurm.wait_for(lambda: job.job_id not in {row.job_id for row in rows_of(slurm, relay)}, "its end")
    away.rename(job.work_dir)
    os.kill(controller.pid, signal.SIGCONT)
    slurm.wait_for(lambda: {row.job_id for row in rows_of(slurm, relay)} - {job.job_id}, "the next job")
    (row,) = (row for row in rows_of(slurm, relay) if row.job_id != job.job_id)
    slurm.ask("scontrol", "release", str(row.job_id))

    assert relay.ended(controller) == 0, relay.output()
    assert ends(slurm, relay) == ["FAILED", "COMPLETED"]
    (ended, _) = relay.events("ended")
    assert (ended["verdict"], ended["cause"]) == ("node failed", f"{NOT_SEEN_THERE} (FAILED)")
    assert relay.status()["slots"][0]["failures"] == 0


def make_room(slurm: SlurmCluster, mode: str) -> None:
    """Jobs of the QOS `hi` push those of `normal` out."""
    user = slurm.ask("id", "-un").strip()
    slurm.ask("sacctmgr", "-i", "add", "qos", "hi", "Preempt=normal", f"PreemptMode={mode}", "Priority=100")
    slurm.ask("sacctmgr", "-i", "modify", "user", user, "set", "QOS=normal,hi", "DefaultQOS=normal")


@pytest.mark.long
@pytest.mark.parametrize(("mode", "deaf"), [("CANCEL", False), pytest.param("REQUEUE", True, marks=pytest.mark.long)])
def test_a_preempted_job_goes_on_and_counts_as_no_failure(
    private_slurm: PrivateSlurm, new_relay: NewRelay, mode: str, *, deaf: bool
) -> None:
    overrides = {"PreemptType": "preempt/qos", "PreemptMode": mode}
    slurm = private_slurm(nodes=1, accounting=True, overrides=overrides)
    make_room(slurm, mode)
    words = ["python3", "./count.py", "200", *(["deaf"] if deaf else [])]
    relay = on_slurm(new_relay, slurm, pace_s=0.01, held_at=120, command=words)
    controller = relay.spawn("start")
    relay.wait_for_step(120)

    slurm.submit("sleep 2", "--qos=hi", "--exclusive")
    slurm.wait_for(lambda: ever(slurm, relay)[0].state in {"PREEMPTED", "CANCELLED", "COMPLETED"}, "the preemption")
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    assert ever(slurm, relay)[0].state == "PREEMPTED"
    if deaf:
        assert assert_kept_once(relay, 200) == [0, 1]
        assert relay.read("parent.json", 1)["step"] >= 100
    else:
        relay.assert_exactly_once(200)
        assert relay.asked() == ["SIGTERM", None]
    verdicts = [event["verdict"] for event in relay.events("ended")]
    assert verdicts == ["preempted" if deaf else "handed over", "finished"]
    assert relay.events("ended")[0]["cause"] == "preempted by another job"
    assert relay.status()["slots"][0]["failures"] == 0
