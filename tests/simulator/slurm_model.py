"""The executor that the simulated controllers get: Slurm's commands, run on a login node, on the modelled cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster_model import MIN_JOB_AGE_S, Cluster, SimJob

from orchestrator.executors.base import (
    Accounting,
    JobRequest,
    Poll,
    SubmitOutcome,
    SubmitRefused,
    Submitted,
    Uncertain,
)
from orchestrator.executors.slurm import CLOCK_SLACK_S, COMMAND_TIMEOUT_S, SUBMIT_GRACE_S

if TYPE_CHECKING:
    from world import Login, World

#: A dead slurmctld is noticed after a few seconds of trying.
REFUSED_S = 4.0


class SimExecutor:
    """See `orchestrator.executors.base.Executor`. `gate`: before and behind every call, for crashes and freezes."""

    name = "slurm"
    queues_behind = True
    avoids_nodes = True
    submit_grace_s = SUBMIT_GRACE_S

    def __init__(self, world: World, login: Login, gate: Callable[[str, str, bool], None]) -> None:
        self.world = world
        self.login = login
        self.gate = gate

    @property
    def cluster(self) -> Cluster:
        """Where the jobs are."""
        return self.world.cluster

    def submit(self, request: JobRequest) -> SubmitOutcome:
        """sbatch, with every answer that it is known to give."""
        world, cluster, rng = self.world, self.cluster, self.world.rng
        token = request.job_dir.rpartition("/")[2]
        self.gate("sbatch", token, True)
        world.watch.asked(token, request.after, self)
        if cluster.controller_is == "down":
            world.pass_time(REFUSED_S)
            return SubmitRefused(kind="temporary", words="Unable to contact slurm controller (connect failure)")
        if cluster.controller_is == "hung":
            if rng.random() < 0.5:
                cluster.inbox.append((token, lambda: cluster.accept(request.job_dir, request.after, request.exclude)))
            world.pass_time(COMMAND_TIMEOUT_S)
            self.gate("sbatch", token, False)
            return Uncertain(why=f"sbatch did not answer within {COMMAND_TIMEOUT_S:g} s", silent=True)
        if rng.random() < world.profile.refused:
            return SubmitRefused(kind="temporary", words="Resource temporarily unavailable")
        lost = rng.random() < world.profile.lost_answer
        if lost and rng.random() < 0.5:
            world.pass_time(10.0)
            return Uncertain(why="Socket timed out on send/recv operation", silent=True)
        job = cluster.accept(request.job_dir, request.after, request.exclude)
        self.gate("sbatch", token, False)
        if job is None and not lost:
            return SubmitRefused(kind="quota", words="AssocMaxSubmitJobLimit")
        if job is not None and lost and rng.random() < 0.5:  # a site's wrapper that fails behind it, and at once
            return Uncertain(why=f"sbatch printed the id {job.job_id} and ended with 1")
        if lost or job is None:
            world.pass_time(10.0)
            return Uncertain(why="Socket timed out on send/recv operation", silent=True)
        return Submitted(job_id=job.job_id, place=rng.randrange(max(1, len(request.places))))

    def is_free(self, request: JobRequest, place: int) -> bool:
        """sbatch --test-only, whose word need not come true."""
        self.gate("sbatch --test-only", request.job_dir.rpartition("/")[2], True)
        self.world.pass_time(self.world.rng.uniform(0.1, 20.0))
        return self._no_answer() is None and place < len(request.places) and self.world.rng.random() < 0.5

    def _no_answer(self) -> str | None:
        if self.cluster.controller_is == "down":
            self.world.pass_time(REFUSED_S)
            return "Unable to contact slurm controller (connect failure)"
        if self.cluster.controller_is == "hung":
            self.world.pass_time(COMMAND_TIMEOUT_S)
            return f"squeue did not answer within {COMMAND_TIMEOUT_S:g} s"
        return None

    def poll(self) -> Poll:
        """squeue."""
        self.gate("squeue", "", True)
        asked_at = self.login.clock()
        error = self._no_answer()
        if error is None and self.world.rng.random() < self.world.profile.poll_fails:
            error = "slurm_load_jobs error: Socket timed out on send/recv operation"
        return Poll(at=asked_at, error=error) if error else self.cluster.queue(asked_at)

    def accounting(self, since: float) -> Accounting:
        """sacct. As the real one: what it asks for is an age."""
        self.gate("sacct", "", True)
        asked_at = self.login.clock()
        return self.cluster.history(asked_at, max(0, math.ceil(asked_at - since + CLOCK_SLACK_S)))

    def _jobs(self, job_ids: list[str]) -> list[SimJob]:
        found = (self.cluster.table.get(job_id) for job_id in job_ids)
        return [job for job in found if job is not None and not job.over]

    def wake(self, job_ids: list[str]) -> str | None:
        """scancel --signal=USR2."""
        self.gate("wake", ",".join(job_ids), True)
        if error := self._no_answer():
            return error
        for job in self._jobs(job_ids):
            if job.run is not None and job.run.alive:
                job.run.ask("SIGUSR2")
        return None

    def cancel(self, job_ids: list[str], *, waiting: bool = False) -> str | None:
        """scancel, also with --state=PENDING."""
        self.gate("scancel", ",".join(job_ids), True)
        if error := self._no_answer():
            return error
        for job in self._jobs(job_ids):
            if waiting and job.raw_state != "PENDING":
                continue
            self.world.timeline.tell(f"scancel {job.job_id} by the controller")
            self.world.watch.cancelled(job)
            self.cluster.end_by_force(job, job.run, "CANCELLED")
        self.gate("scancel", ",".join(job_ids), False)
        return None

    def forget_after_s(self) -> float:
        """MinJobAge."""
        return MIN_JOB_AGE_S
