"""One simulated run: the parts put together, and what chance decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median

from cluster_model import Cluster
from controllers import Hosts, Login, Process, simulated_processes
from job_model import RATE, Run
from memory_disk import MemoryPath, Server
from profiles import DAY_S, Profile
from queue_model import MOST_ADDED, settings
from timeline import Timeline, WallClock
from watch import InvariantError, Watch
from world_faults import Faults

from anchorleg.job import CheckpointRef
from orchestrator.config import parse_config
from orchestrator.decisions.models import parse_token
from orchestrator.notation import format_duration
from orchestrator.run.ledger import write_control
from orchestrator.run.rundir import Run as RunFile
from orchestrator.run.rundir import RunDir, save_run

#: When every simulation begins: Fri 10 Oct 2025, 08:53:20 UTC.
START = 1_760_086_400.0
CODE = "0" * 16
#: After the month everything is mended, and the run is stopped: so long may its end take.
CLEARING_S = 2 * DAY_S


class World:
    """Everything there is. `run_to_the_end` is all that a test calls."""

    def __init__(self, profile: Profile, *, remember: int = 30, no_claim_fence: bool = False) -> None:
        self.profile = profile
        self.rng = random.Random(profile.seed)
        self.timeline = Timeline(START, remember=remember)
        self.no_claim_fence = no_claim_fence
        self.lead_s = profile.lead_s
        self.settled = False
        self.server = Server(lambda: self.timeline.now, self._lag_s)
        self.slurm_clock = WallClock(self.timeline, self.rng.uniform(-2.0, 2.0))
        self.paths = RunDir(MemoryPath("/runs/simulated"))  # type: ignore[arg-type]
        self.run = self._run_file()
        self.added = 0
        self.most_slots = profile.slots + (MOST_ADDED if profile.experiments else 0)
        self.actor: Process | None = None
        self.processes: list[Process] = []
        self.full_nodes: set[str] = set()
        self.fates_off: set[int] = set()
        self.bad_checkpoints: set[tuple[int, int, int]] = set()
        self.watch = Watch(self)
        self.cluster = Cluster(self, profile.nodes)
        self.logins = [Login(self, "login1"), Login(self, "login2")]
        self.nodes = {name: Login(self, name, self.node_time(name) - START) for name in self.cluster.nodes}
        self.hosts = Hosts(self)
        save_run(self.logins[0].run_dir, self.run)
        self.faults = Faults(self)
        self._pid = 100
        self._totals = [int(RATE * DAY_S * self.rng.uniform(12.0, 60.0)) for _ in range(self.most_slots)]
        self._waits_long = False

    def _run_file(self) -> RunFile:
        profile = self.profile
        value = {
            "run_name": "simulated",
            "executor": "slurm",
            "command": ["count"],
            **({} if profile.experiments else {"slots": profile.slots}),
            **(settings(profile.slots, profile.order, profile.halving) if profile.experiments else {}),
            "lead_seconds": int(profile.lead_s),
            "relay": {
                "queue_ahead": profile.queue_ahead,
                "failover_tick": profile.failover,
                "escalate": {"mem": "4G", "time_limit": "8:00:00"},
            },
            "slurm": {"time_limit": format_duration(profile.walltime_s), "max_jobs": profile.max_jobs, "mem": "2G"},
        }
        value["slurm"] |= {"alternatives": [{"qos": "other"}, {"account": "third"}]} if profile.places else {}
        self.settled = True  # `start` made them a while ago: all see them
        for path in (
            *(self.paths.lease, self.paths.jobs, self.paths.control, self.paths.requests),
            *(self.paths.path / "slots", self.paths.code, self.paths.code / CODE),
        ):
            self.server.make_folder("server", str(path))
        self.settled = False
        return RunFile(
            run_id="simulated-0123abcd", revision=0, created_at=START, executor="slurm",
            config=parse_config(value, "the simulator"), config_path="/runs/c.json", folder="/runs", python="python3",
            controller_python="python3", code=CODE, identity=None, env={},
        )  # fmt: skip

    # --- what chance decides ---

    def _lag_s(self) -> float:
        lag_s = self.profile.lag_s
        return self.rng.uniform(0.0, lag_s) if lag_s > 0 and not self.settled else 0.0

    def hand_over_s(self) -> float:
        """How long a hand-over takes; one in a hundred takes longer than the lead."""
        if not self.settled and self.rng.random() < 0.01:
            return self.rng.uniform(90.0, 400.0)
        return self.rng.uniform(1.0, 90.0)

    def queue_wait_s(self) -> float:
        """How long a job waits for its turn: seconds mostly, hours when the cluster is full."""
        is_full = self._waits_long or (self.profile.places and self.rng.random() < 0.3)
        return min(self.rng.lognormvariate(6.5, 1.2), 43_200.0) if is_full else self.rng.uniform(1.0, 60.0)

    def busy(self, *, is_busy: bool) -> None:
        """The cluster fills up, or empties."""
        self._waits_long = is_busy

    def history_lag_s(self) -> float:
        """When the history knows of something: seconds mostly."""
        return self.rng.uniform(0.5, 10.0) if self.rng.random() < 0.97 else self.rng.uniform(60.0, 3600.0)

    def is_runaway(self) -> bool:
        """Whether the history never hears of this end."""
        return not self.settled and self.rng.random() < self.profile.runaway

    def fate(self, slot: int) -> tuple[str, float]:
        """How a program will end of itself, and when; "" at its hand-over."""
        draw = self.rng.random()
        if slot in self.fates_off or self.settled:
            return "", 0.0
        for name, share in self.profile.fates.items():
            if draw < share:
                return name, self.rng.choice((self.rng.uniform(1.0, 300.0), self.rng.uniform(300.0, 14_000.0)))
            draw -= share
        return "", 0.0

    def is_good(self, slot: int, ref: CheckpointRef) -> bool:
        """Whether a checkpoint can be read; decided once, by its name."""
        return (slot, ref.attempt, ref.step) not in self.bad_checkpoints

    def freeze_s(self) -> float:
        """How long a process stands still: sometimes for longer than its lease."""
        return self.rng.choice((self.rng.uniform(5.0, 600.0), self.rng.uniform(1000.0, 20_000.0)))

    # --- what the parts ask ---

    def total(self, slot: int) -> int:
        """The steps of a slot's program."""
        return self._totals[slot]

    def is_full(self, node: str) -> bool:
        """Whether writes from a node fail."""
        return node in self.full_nodes

    def node_time(self, node: str) -> float:
        """A node's wall clock: each is off by a little, the same all the time."""
        return self.timeline.now + (int(node[1:]) - 2) * 0.7

    def place(self, token: str) -> tuple[int, int]:
        """(slot, attempt)."""
        parsed = parse_token(token)
        assert parsed is not None
        return parsed

    def top_attempt(self, slot: int) -> int:
        """The highest attempt that was ever claimed in a slot; -1: none."""
        return self.watch.top_claims.get(slot, -1)

    def new_pid(self) -> int:
        """Process ids of the login nodes."""
        self._pid += 1
        return self._pid

    def pass_time(self, seconds: float) -> None:
        """Somebody waits for an answer; the world goes on meanwhile."""
        self.timeline.run_until(self.timeline.now + seconds)

    def live_runs(self, slot: int) -> list[Run]:
        """Processes of a slot that live, ghosts too."""
        return self.watch.live_runs(slot)

    # --- people ---

    def restart_soon(self, process: Process) -> None:
        """A dead controller is started again: at once by a service, hours later by a person, who trusts the jobs
        for days where they pass the failover. Cron needs nobody.
        """
        if process.lasts:
            delay_s = self.rng.choice((2.0, 60.0, self.rng.uniform(300.0, 3.0 * 3600.0)))
            if self.profile.host == "jobs":
                delay_s = self.rng.uniform(6.0, 60.0) * 3600.0
            if self.settled:
                delay_s = 60.0
            login = process.login if self.rng.random() < 0.8 else self.rng.choice(self.logins)
            self.timeline.after(delay_s, lambda: self.keep_going(login))

    def keep_going(self, login: Login) -> None:
        """Somebody looks after the run on this login node, unless it is stopped or looked after."""
        owner = self.hosts.newest()
        if self.profile.host == "cron" or (owner is not None and owner.lasts and not owner.stopped):
            return
        if self.watch.run_over_at is not None or self.watch.last_stop:  # a service does not undo a stop
            return
        self.processes = [p for p in self.processes if p.alive]
        process = self.hosts.start(login)
        if not process.alive and not process.lost_to_another:
            return  # it is over, or somebody starts it again already: two who do would be four the next time
        owner = self.hosts.newest()
        if owner is None or owner.stopped or not owner.lasts:  # the lease is held by somebody who may live
            self.timeline.after(300.0, lambda: self.keep_going(login))

    def _cron(self) -> None:
        """Cron fires; the line is taken out when the run is over."""
        if self.profile.host == "cron":
            self.processes = [p for p in self.processes if p.alive]
            self.hosts.start(self.logins[0], "tick")
        self.timeline.after(self.profile.poll_s, self._cron)

    def run_is_over(self, who: str) -> None:
        """The controller found nothing left to do, and left. People come back after a while."""
        if self.watch.run_over_at is None:
            self.timeline.tell(f"{who} finds nothing left to do")
            self.watch.run_over_at = self.timeline.now
            if not self.settled:
                self.timeline.after(self.rng.uniform(600.0, 12 * 3600.0), self.user_starts)

    def user_stops(self, wish: str) -> None:
        """`orchestrator stop`: the living controller does it."""
        if self.hosts.newest() is not None or self.profile.host == "cron":
            self.timeline.tell(f"the user: {wish}")
            run_dir = self.logins[0].run_dir
            write_control(run_dir, wish, now=self.logins[0].clock(), by="stop", grace_s=300.0)  # type: ignore[arg-type]
            self.hosts.notice(self.profile.lag_s + 1.0)
            self.timeline.after(self.rng.uniform(1800.0, 8 * 3600.0), self.user_starts)

    def user_starts(self) -> None:
        """`orchestrator start`: paused and failed slots too."""
        if self.settled:
            return
        self.timeline.tell("the user: start")
        self.watch.run_over_at = None
        login = self.logins[0]
        write_control(login.run_dir, "run", now=login.clock(), by="start")
        self.hosts.notice(self.profile.lag_s + 1.0)
        self.keep_going(login)

    # --- the whole of it ---

    def run_to_the_end(self) -> dict[str, float]:
        """A month, then peace, a stop, and the last checks. Returns what was measured. Errors: InvariantError."""
        with simulated_processes(self):
            try:
                self.faults.begin()
                self._cron()
                self.keep_going(self.logins[0])
                self.timeline.run_until(START + self.profile.days * DAY_S)
                measured = self.watch.measured()
                self._clear()
            finally:
                self.hosts.bury_the_frozen()
        return measured

    def _clear(self) -> None:
        self.faults.end()
        self.settled = True
        self.timeline.tell("the month is over: everything is mended, and the run is stopped")
        until = self.timeline.now + CLEARING_S
        self.timeline.after(3600.0, self._last_stop)
        while self.timeline.now < until and not self.watch.all_is_quiet():
            if self.hosts.newest() is None and self.profile.host != "cron":
                self.hosts.start(self.logins[0], "stop")
            self.timeline.run_until(self.timeline.now + 600.0)
        self.watch.finish()

    def _last_stop(self) -> None:
        write_control(self.logins[0].run_dir, "stop", now=self.logins[0].clock(), by="stop", grace_s=600.0)
        self.watch.last_stop, self.watch.run_over_at = True, None
        self.hosts.notice(1.0)


def story_of(world: World, violation: InvariantError) -> str:
    """What a person needs to see of a failure."""
    last = "\n  ".join(world.timeline.last_lines())
    return (
        f"{world.profile}\ninvariant {violation.number} broken: {violation.words}\n  {last}\n"
        f"again: python bench/simulator.py --seed {world.profile.seed} --story"
        f"{' --experiments' if world.profile.experiments else ''}"
    )


def simulate(profile: Profile, **more: bool) -> dict[str, float]:
    """One seed. Errors: AssertionError with the story."""
    world = World(profile, **more)  # type: ignore[arg-type]
    try:
        return world.run_to_the_end()
    except InvariantError as violation:
        raise AssertionError(story_of(world, violation)) from violation


def all_seeds(make: Callable[..., Profile], *, no_claim_fence: bool = False, **fixed: object) -> None:
    """Twenty seeds; `make`: `Profile.drawn` or another way to a profile. Errors: AssertionError."""
    for seed in range(20):
        simulate(make(seed, **fixed), no_claim_fence=no_claim_fence)


def medians(results: list[dict[str, float]]) -> dict[str, float]:
    """Of each measured value."""
    return {name: median(result[name] for result in results) for name in results[0]}
