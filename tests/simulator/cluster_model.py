"""A model of Slurm as a user sees it: a queue with waits, limits and holds, nodes that fail, daemons that hang.

Faults are switched on and off from outside (`world_faults`); what each then does was measured on real Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from job_model import Run

from orchestrator.executors.base import Accounting, JobRow, JobState, Poll
from orchestrator.executors.packed import LEFT

if TYPE_CHECKING:
    from world import World

#: Slurm's defaults: ended jobs stay in the queue's answer for MinJobAge; SIGKILL follows SIGTERM after KillWait.
MIN_JOB_AGE_S = 300.0
KILL_WAIT_S = 30.0
#: How long Slurm waits for a silent node before it gives up its jobs (SlurmdTimeout).
NODE_TIMEOUT_S = 300.0
#: A job that ended while slurmctld was away is reported again by its node every so often.
REPORT_AGAIN_S = 20.0
#: A slurmctld that hung works off what waits in its sockets within a few seconds.
SOCKETS_S = 10.0

_STATES = {"PENDING": JobState.PENDING, "RUNNING": JobState.RUNNING, "COMPLETING": JobState.ENDING}
LAUNCH_FAILED = "launch failed requeued held"


class SimJob:
    """One job of the run, as slurmctld has it. `ends_at` and all other times: true seconds. `pack`: where slots share
    jobs, those that live and die with it.
    """

    def __init__(self, job_id: str, job_dir: str, token: str, place: tuple[int, int], at: float) -> None:
        self.job_id = job_id
        self.job_dir = job_dir
        self.token = token
        self.slot, self.attempt = place
        self.raw_state = "PENDING"
        self.reason = "Priority"
        self.node = ""
        self.after: str | None = None
        self.exclude: tuple[str, ...] = ()
        self.ahead = False
        self.behind = -1
        self.submitted_at = at
        self.eligible_at = at
        self.started_at: float | None = None
        self.ends_at = 0.0
        self.ended_at: float | None = None
        self.end_visible_at = float("inf")
        self.accept_visible_at = at
        self.runs: list[Run] = []
        self.lost_end = False
        self.shown: JobRow | None = None
        self.followers: list[SimJob] = []
        self.pack = [self]

    @property
    def run(self) -> Run | None:
        """Its newest start."""
        return self.runs[-1] if self.runs else None

    @property
    def over(self) -> bool:
        """Whether slurmctld says that it has ended."""
        return self.ended_at is not None

    def change(self, raw_state: str, reason: str = "") -> None:
        """Another state; what squeue prints is made anew."""
        self.raw_state, self.reason, self.shown = raw_state, reason, None


class SimNode:
    """A node. `up`: slurmctld may use it. `dead`: its slurmd is gone; processes may live on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.dead = False
        self.drained = False
        self.bad = False


class Cluster:
    """slurmctld, slurmdbd and the nodes."""

    def __init__(self, world: World, nodes: int) -> None:
        self.world = world
        self.nodes = {f"n{number}": SimNode(f"n{number}") for number in range(nodes)}
        self.table: dict[str, SimJob] = {}
        self.records: list[SimJob] = []
        self.accepted: list[SimJob] = []
        self.controller_is = "up"
        self.database_is = "up"
        self.others = 0
        self.next_id = 100
        self.inbox: list[tuple[str, Callable[[], object]]] = []
        self._when_up: list[Callable[[], None]] = []
        self._pids = 1000
        self._cached: tuple[float, Poll] | None = None

    # --- requests, as slurmctld works them off ---

    def live(self) -> list[SimJob]:
        """Jobs of the run that are not over."""
        return [job for job in self.table.values() if not job.over]

    def room(self) -> bool:
        """Whether the user may submit one more."""
        limit = self.world.profile.max_submit
        return limit is None or len(self.live()) + self.others < limit

    def accept(self, job_dir: str, after: str | None, exclude: tuple[str, ...]) -> SimJob | None:
        """sbatch. None: the limit is reached."""
        if not self.room():
            return None
        world, now = self.world, self.world.timeline.now
        token = job_dir.rpartition("/")[2]
        job = SimJob(self._new_id(), job_dir, token, world.place(token), now)
        spec = world.server.json_or_none(None, f"{job_dir}/job.json") or {}
        job.ahead, job.after, job.exclude = bool(spec.get("ahead")), after, exclude
        job.behind = spec.get("behind", job.attempt - 1)
        job.accept_visible_at = now + world.history_lag_s()
        job.eligible_at = now + world.queue_wait_s()
        if (mate := self._with_room()) is not None:
            job.pack, job.eligible_at = mate.pack, max(now, mate.eligible_at)
            job.pack.append(job)
        self.table[job.job_id] = job
        self.records.append(job)
        self.accepted.append(job)
        world.watch.accepted(job)
        if after is not None and (before := self.table.get(after)) is not None and not before.over:
            job.reason = "Dependency"
        world.timeline.at(job.eligible_at, lambda: self.try_start(job))
        return job

    def _with_room(self) -> SimJob | None:
        """A job of several slots that one more may share."""
        profile, now = self.world.profile, self.world.timeline.now
        for job in self.live() if profile.packs > 1 else ():
            left_s = job.ends_at - now if job.raw_state == "RUNNING" else profile.walltime_s
            is_there = job.raw_state == "PENDING" or (job.raw_state == "RUNNING" and self._lives(job.node))
            if is_there and left_s >= LEFT * profile.walltime_s and len(self.sharing(job)) < profile.packs:
                return job
        return None

    def _lives(self, node: str) -> bool:
        return self.nodes[node].up and not self.nodes[node].dead

    def sharing(self, job: SimJob) -> list[SimJob]:
        """What lives of its pack, it included."""
        return [one for one in job.pack if not one.over]

    def _new_id(self) -> str:
        while True:
            self.next_id += self.world.rng.choice((1, 1, 1, 2, 5))
            if self.next_id >= self.world.profile.first_id_again:
                self.next_id = 100
            if str(self.next_id) not in self.table:
                return str(self.next_id)

    def try_start(self, job: SimJob) -> None:
        """Start a waiting job, if nothing is in its way; else look again."""
        world = self.world
        if job.raw_state != "PENDING" or job.job_id not in self.table:
            return
        if job.reason in {"JobHeldUser", "JobHeldAdmin", LAUNCH_FAILED}:
            return
        again_s = 30.0
        before = self.table.get(job.after) if job.after else None
        if self.controller_is != "up":
            self._when_up.append(lambda: self.try_start(job))
            return
        if before is not None and not before.over:
            job.change("PENDING", "Dependency")
            before.followers.append(job)
            return
        if job.reason == "Dependency":
            job.change("PENDING", "Priority")
        if world.timeline.now < job.eligible_at:
            world.timeline.at(job.eligible_at, lambda: self.try_start(job))
            return
        free = [n for n in self.nodes.values() if n.up and not n.drained and n.name not in job.exclude]
        if not free:
            job.change("PENDING", "Resources")
            world.timeline.after(again_s, lambda: self.try_start(job))
            return
        node = world.rng.choice(free)
        if node.bad and world.rng.random() < 0.5:
            job.node = node.name
            job.change("PENDING", LAUNCH_FAILED)
            world.timeline.tell(f"job {job.job_id}: {LAUNCH_FAILED} ({node.name})")
            return
        self.start(job, node)

    def start(self, job: SimJob, node: SimNode) -> None:
        """Its script begins on a node."""
        now = self.world.timeline.now
        if first := [run for run in job.runs if run.alive and run.node == node.name]:
            self._refuse(job, node, first[0])
            return
        mate = next((one for one in self.sharing(job) if one.raw_state == "RUNNING" and self._lives(one.node)), None)
        node = node if mate is None else self.nodes[mate.node]
        job.node, job.started_at = node.name, now
        job.ends_at = now + self.world.profile.walltime_s if mate is None else mate.ends_at
        job.change("RUNNING")
        self._pids += 1
        run = Run(self.world, job, node.name, self._pids)
        job.runs.append(run)
        kill_at = job.ends_at + self.world.rng.uniform(0.0, 30.0)
        self.world.timeline.at(kill_at, lambda: self.end_by_force(job, run, "TIMEOUT"))

    def _refuse(self, job: SimJob, node: SimNode, first: Run) -> None:
        """slurmd has the job already: the second launch fails, and Slurm ends the first run with it."""
        now = self.world.timeline.now
        job.node, job.started_at, job.ends_at = node.name, now, now
        first.ask("SIGTERM")
        self.world.timeline.after(KILL_WAIT_S, first.die)
        self.end(job, job.run, "CANCELLED")

    def script_ended(self, job: SimJob, run: Run, code: int) -> None:
        """A job's script ended by itself."""
        if job.run is run and not job.over:
            raw = "COMPLETED" if code == 0 else "FAILED"
            self.when_up(lambda: self._complete(job, run, raw))

    def _complete(self, job: SimJob, run: Run, raw: str) -> None:
        if job.run is run and not job.over:
            job.change("COMPLETING")
            self.world.timeline.after(self.world.rng.uniform(0.5, 3.0), lambda: self.end(job, run, raw))

    def end(self, job: SimJob, run: Run | None, raw: str) -> None:
        """slurmctld takes note of an end."""
        if job.over or job.run is not run:
            return
        now = self.world.timeline.now
        job.ended_at = now
        job.end_visible_at = float("inf") if self.world.is_runaway() else now + self.world.history_lag_s()
        job.change(raw)
        followers, job.followers = job.followers, []
        for follower in followers:
            self.world.timeline.after(self.world.rng.uniform(0.0, 2.0), lambda f=follower: self.try_start(f))
        self.world.watch.over(job)

    def ended_since(self, at: float) -> list[SimJob]:
        """The jobs that said their end themselves, and of which slurmctld has heard since then."""
        ended = [job for job in self.table.values() if job.ended_at is not None and job.ended_at >= at]
        return [job for job in ended if job.run is not None and job.run.said_its_end]

    def lose_end(self, job: SimJob) -> None:
        """A slurmctld that was killed before it saved an end takes the job for running until its node registers."""
        self.world.watch.lost_end(job)
        job.ended_at, job.end_visible_at, job.lost_end = None, float("inf"), True
        job.change("RUNNING")
        registers_after_s = self.world.rng.uniform(1800.0, 4000.0)
        self.world.timeline.after(registers_after_s, lambda: self.when_up(lambda: self.end(job, job.run, "NODE_FAIL")))

    def end_by_force(self, job: SimJob, run: Run | None, raw: str) -> None:
        """SIGTERM, SIGKILL after KillWait; a waiting job just leaves."""
        if job.over or job.run is not run:
            return
        if run is None:
            self.end(job, None, raw)
            return
        if not run.alive:
            if job.lost_end:
                self.end(job, run, raw)
            return
        run.ask("SIGTERM")

        def kill() -> None:
            run.die()
            self.when_up(lambda: self.end(job, run, raw))

        def look() -> None:
            if run.alive:
                kill()
            elif not job.over:
                self.end(job, run, raw)

        job.reason = raw
        self.world.timeline.after(KILL_WAIT_S, look)

    def out_of_memory(self, job: SimJob, run: Run) -> None:
        """The kernel kills all of it; nobody says a word."""
        if run.alive:
            run.die()
            self.when_up(lambda: self.end(job, run, "OUT_OF_MEMORY"))

    def when_up(self, action: Callable[[], None]) -> None:
        """Do it now, or a little after slurmctld answers again."""
        if self.controller_is == "up":
            action()
        else:
            self._when_up.append(action)

    def come_up(self) -> None:
        """slurmctld answers again: first what waits in its sockets, then what nodes have to report."""
        self.controller_is = "up"
        self.world.hosts.look_now()
        inbox, self.inbox = self.inbox, []
        for _, request in inbox:  # its answers to squeue come first [measured]
            self.world.timeline.after(self.world.rng.uniform(0.0, SOCKETS_S), request)  # type: ignore[arg-type]
        waiting, self._when_up = self._when_up, []
        for action in waiting:
            self.world.timeline.after(self.world.rng.uniform(0.0, REPORT_AGAIN_S), lambda act=action: self.when_up(act))

    # --- what squeue and sacct print ---

    def row(self, job: SimJob) -> JobRow:
        """A job's line."""
        if job.shown is None:
            job.shown = self._line(job, job.raw_state)
        return job.shown

    def _line(self, job: SimJob, raw: str) -> JobRow:
        slurm_s = self.world.slurm_clock.offset_s
        started = job.started_at
        return JobRow(
            job_id=job.job_id,
            state=_STATES.get(raw, JobState.ENDED) if raw != "STAGE_OUT_X" else JobState.UNKNOWN,
            raw_state=raw,
            work_dir=job.job_dir,
            reason=job.reason if raw == "PENDING" else "",
            node=job.node if raw != "PENDING" else "",
            submitted_at=float(int(job.submitted_at + slurm_s)),
            started_at=float(int(started + slurm_s)) if started is not None else None,
            ends_at=float(int(job.ends_at + slurm_s)) if started is not None else None,
        )

    def queue(self, at: float) -> Poll:
        """squeue's complete answer; `at`: by the clock of who asks. Some sites put a cache before squeue."""
        now = self.world.timeline.now
        if self._cached is not None and now - self._cached[0] < self.world.profile.squeue_cache_s:
            return self._cached[1].model_copy(update={"at": at})
        for job_id in [i for i, job in self.table.items() if job.over and now - job.ended_at > MIN_JOB_AGE_S]:
            del self.table[job_id]
        rows = [self.row(job) for job in self.table.values()]
        if rows and self.world.rng.random() < self.world.profile.unknown_state:
            number = self.world.rng.randrange(len(rows))
            if rows[number].state is JobState.RUNNING:
                rows[number] = rows[number].model_copy(
                    update={"state": JobState.UNKNOWN, "raw_state": "SPECIAL_NEW_STATE"}
                )
        poll = Poll(at=at, rows=tuple(rows), others=self.others)
        if self.world.profile.squeue_cache_s:
            self._cached = now, poll
        return poll

    def history(self, at: float, age_s: float) -> Accounting:
        """sacct's answer for jobs that were there within the last `age_s` seconds."""
        now = self.world.timeline.now
        if self.world.profile.accounting == "disabled":
            return Accounting(at=at, status="disabled")
        if self.database_is != "up":
            return Accounting(at=at, status="blind", error="Problem talking to the database: Connection refused")
        horizon = now - 2 * 86_400  # nobody asks for older ones: they would only cost the simulator time
        if self.records and len(self.records) > 200:
            self.records = [job for job in self.records if (job.ended_at or now) > horizon]
        rows = []
        for job in self.records:
            if now < job.accept_visible_at or (job.ended_at or now) < now - age_s:
                continue
            if job.over and now >= job.end_visible_at:
                rows.append(self.row(job))
            else:
                rows.append(self._line(job, "PENDING" if job.started_at is None else "RUNNING"))
        return Accounting(at=at, status="ok", rows=tuple(rows))
