"""The Slurm executor against a real Slurm: what it is told, and what it makes of silence."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from daemons import PATIENCE_S, processes_with, wait_for
from slurm_cluster import PrivateSlurm, SlurmCluster

from orchestrator.executors.base import JobRequest, JobRow, JobState, Poll, Submitted, Uncertain
from orchestrator.executors.slurm import SlurmExecutor

pytestmark = pytest.mark.slurm


def an_executor(cluster: SlurmCluster, jobs_dir: Path, **more: str) -> SlurmExecutor:
    return SlurmExecutor(jobs_dir, {**cluster.env(), **more}, command_timeout_s=PATIENCE_S)


def a_request(jobs_dir: Path, token: str, body: str = "sleep 600", *options: str) -> JobRequest:
    folder = jobs_dir / token
    folder.mkdir(parents=True)
    lines = "".join(f"#SBATCH {option}\n" for option in options)
    (folder / "job.sh").write_text(f"#!/bin/bash\n{lines}{body}\n")
    return JobRequest(job_dir=str(folder), script=str(folder / "job.sh"))


def output_of(request: JobRequest) -> str:
    return "".join(path.read_text() for path in Path(request.job_dir).glob("job-*.out"))


def submit(executor: SlurmExecutor, request: JobRequest) -> str:
    outcome = executor.submit(request)
    assert isinstance(outcome, Submitted), outcome
    return outcome.job_id


def row_of(poll: Poll, job_id: str) -> JobRow:
    assert poll.error is None
    return next(row for row in poll.rows if row.job_id == job_id)


def wait_for_row(executor: SlurmExecutor, job_id: str, state: JobState) -> JobRow:
    wait_for(lambda: row_of(executor.poll(), job_id).state is state, f"job {job_id} to be {state}")
    return row_of(executor.poll(), job_id)


def test_jobs_are_submitted_from_the_folder_of_the_start_and_also_where_that_is_gone(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    executor = an_executor(slurm, tmp_path / "jobs")
    requests = [a_request(tmp_path / "jobs", token, 'echo "$SLURM_SUBMIT_DIR"') for token in ("t1", "t2")]
    folder = tmp_path / "project"
    folder.mkdir()

    with contextlib.chdir(folder):
        first = submit(executor, requests[0])
        folder.rmdir()
        second = submit(executor, requests[1])
        assert executor.poll().error is None

    for job_id in (first, second):
        wait_for_row(executor, job_id, JobState.ENDED)
    assert [output_of(request).strip() for request in requests] == [str(folder), "/"]


def test_variables_that_speak_to_slurm_do_not_reach_it_or_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    speaking = {
        "SBATCH_PARTITION": "nope", "SLURM_JOB_ID": "7", "SQUEUE_STATES": "FAILED", "SQUEUE_FORMAT": "%i",
        "SCANCEL_INTERACTIVE": "1", "SLURM_TIME_FORMAT": "relative",
    }  # fmt: skip
    executor = an_executor(slurm, tmp_path / "jobs", **speaking, LC_ALL="C.UTF-8", MINE="kept")
    request = a_request(tmp_path / "jobs", "t1", "env; sleep 600")
    job_id = submit(executor, request)

    wait_for_row(executor, job_id, JobState.RUNNING)
    wait_for(lambda: "MINE=kept\n" in output_of(request), "the job's environment")
    assert executor.cancel([job_id]) is None
    slurm.wait_until_empty()

    printed = output_of(request)
    assert "LC_ALL=C.UTF-8\n" in printed
    assert "SLURM_TIME_FORMAT" not in printed
    assert f"SLURM_JOB_ID={job_id}\n" in printed


def test_waking_a_waiting_job_leaves_it_waiting(slurm: SlurmCluster, tmp_path: Path) -> None:
    executor = an_executor(slurm, tmp_path / "jobs")
    job_id = submit(executor, a_request(tmp_path / "jobs", "t1", "sleep 600", "--hold"))

    assert executor.wake([job_id, "9999999"]) is None

    row = row_of(executor.poll(), job_id)
    assert (row.state, row.reason) == (JobState.PENDING, "JobHeldUser")


def test_cancelling_takes_waiting_running_ended_and_unknown_jobs(slurm: SlurmCluster, tmp_path: Path) -> None:
    executor = an_executor(slurm, tmp_path / "jobs")
    running = submit(executor, a_request(tmp_path / "jobs", "t1"))
    waiting = submit(executor, a_request(tmp_path / "jobs", "t2", "sleep 600", "--hold"))
    ended = submit(executor, a_request(tmp_path / "jobs", "t3", "exit 0"))
    wait_for_row(executor, running, JobState.RUNNING)
    wait_for_row(executor, ended, JobState.ENDED)

    assert executor.cancel([running, waiting, ended, "9999999"]) is None

    slurm.wait_until_empty()
    assert row_of(executor.poll(), ended).raw_state == "COMPLETED"
    assert row_of(executor.poll(), waiting).raw_state == "CANCELLED"
    assert executor.cancel([]) is None


@pytest.mark.long
def test_what_a_hanging_controller_was_asked_may_have_happened(private_slurm: PrivateSlurm, tmp_path: Path) -> None:
    cluster = private_slurm(nodes=1, overrides={"MessageTimeout": "2"})
    executor = an_executor(cluster, tmp_path / "jobs")
    request = a_request(tmp_path / "jobs", "t1")
    cluster.suspend_controller()

    outcome = executor.submit(request)
    blind = executor.poll()

    assert isinstance(outcome, Uncertain)
    assert outcome.silent
    assert "timed out" in outcome.why
    assert blind.error is not None
    assert "timed out" in blind.error
    cluster.resume_controller()
    wait_for(lambda: [row.work_dir for row in executor.poll().rows] == [request.job_dir], "the job to show up")


@pytest.mark.long
def test_the_sites_memory_for_ended_jobs_is_asked_and_true(private_slurm: PrivateSlurm, tmp_path: Path) -> None:
    cluster = private_slurm(nodes=1, overrides={"MinJobAge": "2"})
    executor = an_executor(cluster, tmp_path / "jobs")
    job_id = submit(executor, a_request(tmp_path / "jobs", "t1", "exit 0"))
    wait_for_row(executor, job_id, JobState.ENDED)

    assert executor.forget_after_s() == 2

    wait_for(lambda: executor.poll().rows == (), "the purge")
    assert executor.poll().error is None


@pytest.mark.long
def test_the_history_knows_how_jobs_ended_until_its_daemon_dies(private_slurm: PrivateSlurm, tmp_path: Path) -> None:
    cluster = private_slurm(nodes=1, accounting=True)
    executor = an_executor(cluster, tmp_path / "jobs")
    since = time.time()
    failed = submit(executor, a_request(tmp_path / "jobs", "a|b", "exit 7"))
    cancelled = submit(executor, a_request(tmp_path / "jobs", "t2"))
    cluster.submit("exit 0")
    wait_for_row(executor, cancelled, JobState.RUNNING)
    executor.cancel([cancelled])

    def ends() -> dict[str, tuple[str, int | None, str]]:
        history = executor.accounting(since)
        assert history.status == "ok", history.error
        rows = [row for row in history.rows if row.state is JobState.ENDED]
        return {row.job_id: (row.raw_state.split()[0], row.exit_code, Path(row.work_dir).name) for row in rows}

    wait_for(lambda: len(ends()) == 2, "both ends in the history")

    assert ends()[failed] == ("FAILED", 7, "a|b")
    assert ends()[cancelled][0] == "CANCELLED"
    cluster.daemons.end("slurmdbd")
    blind = executor.accounting(since)
    assert (blind.status, blind.rows) == ("blind", ())
    assert "talking to the database" in (blind.error or "")


@pytest.mark.long
def test_what_a_sites_wrappers_print_beside_slurms_answers_hides_no_job(
    private_slurm: PrivateSlurm, tmp_path: Path
) -> None:
    cluster = private_slurm(nodes=1, accounting=True)
    path, wrappers = cluster.env()["PATH"], tmp_path / "bin"
    wrappers.mkdir()
    for name in ("sbatch", "squeue", "sacct", "sinfo"):
        real = shutil.which(name, path=path)
        (wrappers / name).write_text(
            f"#!/bin/sh\necho 'Loading slurm'; echo 4711\n{real} \"$@\"; code=$?\n"
            f"printf '\\n7|RUNNING|None\\nNote: /scratch is full\\n'; exit $code\n"
        )
        (wrappers / name).chmod(0o755)
    executor = an_executor(cluster, tmp_path / "jobs", PATH=f"{wrappers}:{path}")

    assert executor.poll().error is None
    outcome = executor.submit(a_request(tmp_path / "jobs", "t1", "exit 7"))

    assert isinstance(outcome, Uncertain)  # 4711, or the other one
    (row,) = executor.poll().rows
    assert (row.work_dir, row.job_id) == (str(tmp_path / "jobs" / "t1"), str(cluster.jobs()[0].job_id))
    wait_for(lambda: [row.exit_code for row in executor.accounting(time.time()).rows] == [7], "the history")
    assert {partition.name for partition in executor.partitions().rows} == {"gpu", "short"}


@pytest.mark.skipif(os.geteuid() != 0, reason="root and the cluster's owner see hidden partitions as they are")
def test_jobs_are_seen_in_a_partition_that_was_hidden_meanwhile(private_slurm: PrivateSlurm) -> None:
    cluster, nobody = private_slurm(nodes=1), 65534
    cluster.folder.chmod(0o755)
    with tempfile.TemporaryDirectory(prefix="al-") as top:
        as_nobody = Path(top, "bin")
        as_nobody.mkdir()
        path = cluster.env()["PATH"]
        for name in ("sbatch", "squeue", "sinfo"):
            wrapper, real = as_nobody / name, shutil.which(name, path=path)
            wrapper.write_text(
                f'#!/bin/sh\nexec setpriv --reuid {nobody} --regid {nobody} --clear-groups {real} "$@"\n'
            )
            wrapper.chmod(0o755)
        env = {**cluster.env(), "PATH": f"{as_nobody}:{path}"}
        executor = SlurmExecutor(Path(top, "jobs"), env, command_timeout_s=PATIENCE_S, user_id=nobody)
        request = a_request(Path(top, "jobs"), "t1", "sleep 600", "--partition=short", "--time=1", "--hold")
        for place in (Path(top), *Path(top).rglob("*")):
            os.chown(place, nobody, nobody)
        job_id = submit(executor, request)

        cluster.ask("scontrol", "update", "PartitionName=short", "Hidden=YES")

        assert row_of(executor.poll(), job_id).work_dir == request.job_dir
        assert "short" in {row.name for row in executor.partitions().rows}


#: A command is killed after so long, before it has said a word only where the machine is slow: then one waits longer.
LONGER_S = (1.0, 8.0, 64.0, PATIENCE_S)


def test_a_command_that_never_ends_is_killed_with_its_children(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "squeue"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\ntrap '' TERM\necho 'squeue: error: busy, retrying' >&2\nsleep 600 & sleep 601\n")
    fake.chmod(0o755)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "MARK": str(tmp_path)}
    for seconds in LONGER_S:
        poll = SlurmExecutor(tmp_path / "jobs", env, command_timeout_s=seconds).poll()
        if "busy" in poll.error:
            break

    assert poll.error == f"squeue did not answer within {seconds:g} s: busy, retrying"
    wait_for(lambda: not processes_with("MARK", str(tmp_path)), "the death of the command and its children")


def test_a_controller_that_does_not_answer_is_not_asked_again_for_each_two_hundred_jobs(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "scancel"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\nsleep 600\n")
    fake.chmod(0o755)
    for seconds in LONGER_S:
        executor = SlurmExecutor(tmp_path, {"PATH": f"{fake.parent}:{os.environ['PATH']}"}, command_timeout_s=seconds)
        complaint = executor.cancel([str(number) for number in range(1000)])
        if (tmp_path / "asked").exists():
            break

    assert complaint == f"scancel did not answer within {seconds:g} s"
    assert (tmp_path / "asked").read_text().split() == ["asked"]
