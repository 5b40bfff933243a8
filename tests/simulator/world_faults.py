"""What goes wrong, when, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster_model import KILL_WAIT_S, LAUNCH_FAILED, NODE_TIMEOUT_S
from profiles import DAY_S
from queue_model import ask_something

if TYPE_CHECKING:
    from cluster_model import SimJob
    from world import World

#: A running controller's tick makes a few dozen calls; a crash is planned somewhere within the next tick or two.
CALLS = 120
CLOCK_STEPS_S = (-7200.0, -3600.0, -300.0, -20.0, 20.0, 300.0, 3600.0, 7200.0)


#: Real slurmctlds lose the ends of five seconds at most; so rarely would a simulated month see it.
UNSAVED_S = 90.0


class Faults:
    """Poisson processes, one for each kind. `end` mends everything."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.over = False
        self._mends: list[Callable[[], None]] = []
        self.kinds: dict[str, Callable[[], None]] = {
            "controller crash": self._kill_controller,
            "controller crash at a call": lambda: self._arm("crash"),
            "controller freeze": self._freeze,
            "slurmctld down": lambda: self._slurmctld("down"),
            "slurmctld hung": lambda: self._slurmctld("hung"),
            "slurmctld killed": self._slurmctld_killed,
            "slurmdbd down": self._slurmdbd,
            "node failure": lambda: self._node(processes_live=True),
            "node crash": lambda: self._node(processes_live=False),
            "preemption": self._preempt,
            "clock step": self._clock_step,
            "login disk full": self._login_full,
            "node disk full": self._node_full,
            "user holds a job": self._hold,
            "user cancels a job": self._user_cancels,
            "user stops the run": self._user_stops,
            "user starts elsewhere": self._elsewhere,
            "other jobs": self._others,
            "drain": self._drain,
            "bad node": self._bad_node,
            "queue waits": self._busy,
            "dependency taken off": self._without_dependency,
            "jobs folder removed": self._jobs_removed,
            "user asks": lambda: ask_something(self.world),
        }

    def begin(self) -> None:
        """Plan the first of each kind."""
        for name, rate in self.world.profile.rates.items():
            if rate > 0:
                self._next(name, rate)

    def _next(self, name: str, rate: float) -> None:
        def happen() -> None:
            if not self.over:
                self.world.timeline.tell(f"fault: {name}")
                self.kinds[name]()
                self._next(name, rate)

        self.world.timeline.after(self.world.rng.expovariate(rate / DAY_S), happen)

    def end(self) -> None:
        """No more faults; what is broken is mended."""
        self.over = True
        mends, self._mends = self._mends, []
        for mend in mends:
            mend()

    def _for(self, seconds: float, mend: Callable[[], None]) -> None:
        """Mend it then, or at the end of the month."""
        self._mends.append(mend)

        def due() -> None:
            if mend in self._mends:
                self._mends.remove(mend)
                mend()

        self.world.timeline.after(seconds, due)

    def _duration(self) -> float:
        """Minutes mostly, hours sometimes."""
        rng = self.world.rng
        return rng.uniform(10.0, 1200.0) if rng.random() < 0.8 else rng.uniform(1200.0, 6 * 3600.0)

    def _job(self, state: str) -> SimJob | None:
        found = [job for job in self.world.cluster.live() if job.raw_state == state]
        return self.world.rng.choice(found) if found else None

    # --- controllers ---

    def _kill_controller(self) -> None:
        if (owner := self.world.hosts.newest()) is not None:
            self.world.hosts.kill(owner)

    def _arm(self, how: str) -> None:
        owner = self.world.hosts.newest()
        arm = self.world.rng.randrange(CALLS), how, self.world.rng.random() < 0.5
        if owner is None:  # cron: the next one
            self.world.hosts.arm_next = arm
        elif owner.arm is None and owner.frozen is None:
            owner.arm = arm

    def _freeze(self) -> None:
        owner = self.world.hosts.newest()
        if owner is None or owner.stopped:
            return
        if self.world.rng.random() < 0.5:
            self._arm("freeze")
        else:
            owner.stopped = True
            self.world.watch.controller_gone(owner)
            self.world.timeline.after(self.world.freeze_s(), lambda: self.world.hosts.thaw(owner))
        # Somebody wonders, and starts another one; it must wait until this one is surely gone.
        other = self.world.rng.choice(self.world.logins)
        self.world.timeline.after(self.world.rng.uniform(60.0, 1500.0), lambda: self.world.keep_going(other))

    def _elsewhere(self) -> None:
        """A person types `start` on another login node although a controller lives."""
        if self.world.profile.host != "cron" and self.world.watch.run_over_at is None:
            self.world.hosts.start(self.world.rng.choice(self.world.logins))

    def _clock_step(self) -> None:
        login = self.world.rng.choice(self.world.logins)
        step_s = self.world.rng.choice(CLOCK_STEPS_S)
        login.clock.offset_s = step_s if login.clock.offset_s == 0 else 0.0
        self.world.timeline.tell(f"{login.name}'s clock is off by {login.clock.offset_s:.0f} s")

    def _login_full(self) -> None:
        login = self.world.rng.choice(self.world.logins)
        self.world.full_nodes.add(login.name)
        self._for(self._duration(), lambda: self.world.full_nodes.discard(login.name))

    # --- Slurm ---

    def _slurmctld(self, how: str) -> None:
        if self.world.cluster.controller_is == "up":
            self.world.cluster.controller_is = how
            self._for(self._duration(), self._slurmctld_back)

    def _slurmctld_back(self) -> None:
        if self.world.cluster.controller_is == "down":
            self.world.cluster.inbox.clear()
        self.world.cluster.come_up()

    def _slurmctld_killed(self) -> None:
        """SIGKILL: a start by backfill that was not saved is made again, under the same id, on another node."""
        cluster, rng = self.world.cluster, self.world.rng
        if cluster.controller_is != "up":
            return
        cluster.controller_is = "down"
        unsaved = [
            job for job in cluster.live()
            if job.raw_state == "RUNNING" and self.world.timeline.now - (job.started_at or 0.0) < 90.0
        ]  # fmt: skip
        for job in unsaved:
            run = job.run
            if run is not None and rng.random() < 0.7:
                # Its first run is killed when its node registers, soon or late, unless it ends by itself before.
                dies_after_s = rng.uniform(5.0, 60.0) if rng.random() < 0.5 else rng.uniform(600.0, 4000.0)
                self.world.timeline.tell(
                    f"job {job.job_id} will run twice, its first run for {dies_after_s:.0f} s more"
                )
                job.change("PENDING", "Priority")
                job.started_at, job.node = None, ""
                self.world.timeline.after(dies_after_s, run.die)
                again = rng.uniform(2.0, 90.0)
                cluster.when_up(lambda j=job, s=again: self.world.timeline.after(s, lambda: cluster.try_start(j)))
        for job in cluster.ended_since(self.world.timeline.now - UNSAVED_S):
            if rng.random() < 0.7:
                cluster.lose_end(job)
        self._for(rng.uniform(5.0, 120.0), self._slurmctld_back)

    def _slurmdbd(self) -> None:
        if self.world.cluster.database_is == "up":
            self.world.cluster.database_is = "down"

            def mend() -> None:
                self.world.cluster.database_is = "up"

            self._for(self._duration(), mend)

    def _others(self) -> None:
        limit = self.world.profile.max_submit or 4
        self.world.cluster.others = self.world.rng.choice((0, 0, 0, 1, 2, limit))
        self._for(self._duration(), self._others_end)

    def _others_end(self) -> None:
        self.world.cluster.others = 0

    # --- nodes ---

    def _node(self, *, processes_live: bool) -> None:
        """A node is lost. Its processes die with it, or live on as ghosts until it is back."""
        world, cluster = self.world, self.world.cluster
        up = [node for node in cluster.nodes.values() if node.up]
        if len(up) < 3:
            return
        node = world.rng.choice(up)
        node.up, node.dead = False, True
        jobs = [job for job in cluster.live() if job.node == node.name and job.raw_state == "RUNNING"]
        world.timeline.tell(f"{node.name} is lost with jobs {[job.job_id for job in jobs]}")
        runs = [job.run for job in jobs]
        for run in runs:
            if run is not None and not processes_live:
                run.die()

        def give_up() -> None:
            for job, run in zip(jobs, runs, strict=True):
                cluster.when_up(lambda j=job, r=run: cluster.end(j, r, "NODE_FAIL"))

        world.timeline.after(NODE_TIMEOUT_S, give_up)

        def back() -> None:
            node.up, node.dead = True, False
            give_up()
            for run in runs:
                if run is not None:
                    run.die()

        self._for(NODE_TIMEOUT_S + self._duration(), back)

    def _preempt(self) -> None:
        if (job := self._job("RUNNING")) is not None:
            for each in self.world.cluster.sharing(job):
                self.world.cluster.end_by_force(each, each.run, "PREEMPTED")

    def _node_full(self) -> None:
        name = self.world.rng.choice(list(self.world.cluster.nodes))
        self.world.full_nodes.add(name)
        self._for(self._duration(), lambda: self.world.full_nodes.discard(name))

    def _drain(self) -> None:
        node = self.world.rng.choice(list(self.world.cluster.nodes.values()))
        node.drained = True

        def mend() -> None:
            node.drained = False

        self._for(self._duration(), mend)

    def _bad_node(self) -> None:
        """Launches fail there."""
        node = self.world.rng.choice(list(self.world.cluster.nodes.values()))
        node.bad = True

        def mend() -> None:
            node.bad = False

        self._for(self._duration(), mend)

    def _busy(self) -> None:
        self.world.busy(is_busy=True)
        self._for(10 * self._duration(), lambda: self.world.busy(is_busy=False))

    # --- the user ---

    def _hold(self) -> None:
        job = self._job("PENDING")
        if job is None or job.reason == LAUNCH_FAILED:
            return
        job.change("PENDING", "JobHeldUser")

        def release() -> None:
            if job.reason == "JobHeldUser":
                job.change("PENDING", "Priority")
                self.world.cluster.try_start(job)

        self._for(self._duration(), release)

    def _jobs_removed(self) -> None:
        """`rm -rf jobs`, on a login node."""
        login, jobs = self.world.rng.choice(self.world.logins), str(self.world.paths.jobs)
        self.world.server.remove_tree(login.name, jobs)

    def _without_dependency(self) -> None:
        """An administrator: `scontrol update dependency=`."""
        job = self._job("PENDING")
        if job is not None and job.after is not None:
            job.after = None
            self.world.cluster.try_start(job)

    def _user_cancels(self) -> None:
        job = self._job("RUNNING") or self._job("PENDING")
        if job is not None and self.world.cluster.controller_is == "up":
            self.world.timeline.tell(f"the user: scancel {job.job_id}")
            for each in self.world.cluster.sharing(job):
                self.world.cluster.end_by_force(each, each.run, "CANCELLED by 1000")
            self.world.timeline.after(KILL_WAIT_S + self.world.rng.uniform(900.0, 8 * 3600.0), self.world.user_starts)

    def _user_stops(self) -> None:
        self.world.user_stops(self.world.rng.choice(("stop", "stop-now")))
