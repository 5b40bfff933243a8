"""What must always hold, checked after each event by someone who sees everything."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from failover_model import FailoverWatch
from job_model import RATE, Run, seen_by
from news_watch import NewsWatch
from queue_model import QueueWatch

from anchorleg.job import HANDED_OVER, lineage
from orchestrator.decisions.adoption import LEFT_S
from orchestrator.decisions.models import Attempt, Blind, Ledger, Raised, SlotStatus, SubmissionState, Verdict
from orchestrator.decisions.plan import MOVED

if TYPE_CHECKING:
    from cluster_model import SimJob
    from controllers import Process
    from slurm_model import SimExecutor
    from world import World

#: Beyond one poll: a tick's own time, and the wait after a full disk.
TICK_SLACK_S = 240.0
#: Three polls without a beat, as `orchestrator.run.lease` has it for polls of a minute: then an owner counts as gone.
OWNER_TTL_S = 900.0
#: An unfinished slot without a job although nothing stands in its way: two polls, the grace of an unclear submission,
#: what an absent job needs to be forgotten (MinJobAge), and the wait after a clock step.
IDLE_LIMIT_S = 45 * 60.0
#: How long an ended job may stay in the queue: what the controller waits, and some polls.
LEFT_LIMIT_S = LEFT_S + 1000.0
#: A run makes at least this share of the steps that the time would allow, with all stops, cancels and failures of a
#: bad month on a bad cluster; the worst of the first seeds made 0.66.
LEAST_SHARE = 0.2


class InvariantError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(f"invariant {number}: {words}")
        self.number = number
        self.words = words


class Watch:
    """The observer. Its methods are called by the world's parts as things happen."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.claims: dict[tuple[int, int], Run] = {}
        self.top_claims: dict[int, int] = {}
        self.bases: dict[tuple[int, int], tuple[int, float]] = {}
        self.decided_at: dict[tuple[int, int], float] = {}
        self.checkpoints: dict[tuple[int, int], list[tuple[int, float]]] = {}
        self.jobs: dict[str, SimJob] = {}
        self.states: dict[str, SubmissionState] = {}
        self.top_epoch = -1
        self.left_s: dict[str, float] = {}
        self.idle_s = [0.0] * world.most_slots
        self.no_reason_since: dict[int, float] = {}
        self.ticked_at: float | None = None
        self.all_idle_s = 0.0
        self.excused_s = [0.0] * world.most_slots
        self.worked_s = 0.0
        self.allocated_s = 0.0
        self.run_over_at: float | None = None
        self.last_stop = False
        self.ledger: Ledger | None = None
        self.runs: dict[int, list[Run]] = {slot: [] for slot in range(world.most_slots)}
        self.queue = QueueWatch(self) if world.profile.experiments else None
        self.failover = FailoverWatch(self)
        self.news = NewsWatch(self)
        self.controllers_lost = 0
        self.said_well: set[str] = set()
        self.raised: dict[int, Raised] = {}

    def _fail(self, number: int, words: str) -> None:
        raise InvariantError(number, words)

    # --- jobs ---

    def accepted(self, job: SimJob) -> None:
        """The cluster took a job."""
        self.jobs[job.token] = job
        if self.queue is not None:  # a place went to somebody: the others wait for their turn
            self.idle_s = [0.0] * len(self.idle_s)
        self.world.timeline.tell(f"job {job.job_id} is {job.token}{' behind ' + job.after if job.after else ''}")

    def live_runs(self, slot: int) -> list[Run]:
        """Processes of a slot that live."""
        self.runs[slot] = [run for run in self.runs[slot] if run.alive]
        return self.runs[slot]

    def claimed(self, run: Run) -> None:
        """A job won its attempt."""
        place = run.job.slot, run.job.attempt
        self.world.timeline.tell(f"job {run.job.job_id} claims attempt {place[1]} of slot {place[0]} on {run.node}")
        if place in self.claims and self.claims[place] is not run:
            both = f"jobs {self.claims[place].job.job_id} and {run.job.job_id}"
            self._fail(8, f"attempt {place[1]} of slot {place[0]} has two claimants: {both}")
        self.claims[place] = run
        for older in self.live_runs(place[0]):
            if run.job.ahead and older.job.attempt == run.job.behind:
                self._fail(8, f"job {run.job.job_id} begins beside job {older.job.job_id}, which it is to follow")
            if older.job.attempt < place[1]:
                older.look_soon(self.world.profile.lag_s)
        self.runs[place[0]].append(run)
        self.top_claims[place[0]] = max(self.top_claims.get(place[0], -1), place[1])

    def decided(self, run: Run) -> None:
        """It wrote what it starts from."""
        slot = run.job.slot
        self.decided_at[slot, run.job.attempt] = self.world.timeline.now
        if run.parent is None:
            return
        published = dict(self.checkpoints.get((slot, run.parent.attempt), []))
        if run.parent.step not in published:
            self._fail(1, f"attempt {run.job.attempt} of slot {slot} starts from {run.parent}, which nobody published")

    def working(self, run: Run) -> None:
        """Its program does its first step: from here on its rows count."""
        slot, attempt, now = run.job.slot, run.job.attempt, self.world.timeline.now
        twins = [r for r in self.live_runs(slot) if r is not run and r.job.attempt == attempt and r.working_since]
        if twins:
            self._fail(
                1, f"attempt {attempt} of slot {slot} is written by jobs {twins[0].job.job_id} and {run.job.job_id}"
            )
        before = [a for (s, a) in self.bases if s == slot and a < attempt]
        if before:
            last = max(before)
            if run.base_step < self.bases[slot, last][0]:
                began = self.bases[slot, last][0]
                self._fail(4, f"slot {slot}: attempt {last} began at {began}, attempt {attempt} at {run.base_step}")
            surely = [
                step for step, at in self.checkpoints.get((slot, last), [])
                if at < self.decided_at[slot, attempt] - self.world.profile.lag_s - 1.0
                and (slot, last, step) not in self.world.bad_checkpoints
            ]  # fmt: skip
            between = any((slot, a) in self.decided_at for a in range(last + 1, attempt))
            if surely and not between and run.base_step < surely[-1]:
                self._fail(4, f"slot {slot}: attempt {attempt} begins at {run.base_step}, although attempt {last} had "
                              f"published step {surely[-1]}")  # fmt: skip
        self.bases[slot, attempt] = run.base_step, now

    def published(self, run: Run, step: int) -> None:
        """A checkpoint."""
        place = run.job.slot, run.job.attempt
        if self.world.rng.random() < self.world.profile.bad_checkpoint:
            self.world.bad_checkpoints.add((*place, step))
        self.checkpoints.setdefault(place, []).append((step, self.world.timeline.now))

    def ended(self, run: Run, code: int) -> None:
        """Its exit record is written."""
        if code in {0, HANDED_OVER}:
            self.said_well.add(run.job.token)
        self.world.timeline.tell(
            f"job {run.job.job_id} says {code} ({run.asked or 'by itself'}), step {run.saved_step}"
        )
        self.world.hosts.notice(self.world.profile.lag_s)

    def over(self, job: SimJob) -> None:
        """slurmctld knows that it has ended."""
        self.world.timeline.tell(f"job {job.job_id} is {job.raw_state}")
        if job.started_at is not None and job.ended_at is not None:
            self.allocated_s += job.ended_at - job.started_at

    def lost_end(self, job: SimJob) -> None:
        """slurmctld no longer knows that it has ended."""
        self.world.timeline.tell(f"job {job.job_id} has ended, and runs for Slurm")
        if job.started_at is not None and job.ended_at is not None:
            self.allocated_s -= job.ended_at - job.started_at

    # --- controllers ---

    def asked(self, token: str, after: str | None, executor: SimExecutor) -> None:
        """A controller is about to submit."""
        world, process = self.world, self.world.actor
        slot, attempt = world.place(token)
        newest = world.server.names(None, str(world.paths.lease))
        epoch = max((int(name) for name in newest if name.isdigit()), default=-1)
        if process is None or process.lease is None or process.lease.epoch != epoch:
            return  # one that woke up behind its check of the lease: the claim is the fence for that
        if self.queue is not None:
            self.queue.asked(process, slot, after)
        if (slot, attempt) in self.claims and after is None:
            self._fail(3, f"{token} is submitted although attempt {attempt} was claimed")
        for job in world.cluster.live():
            if job.slot != slot or job.token == token or job.job_id == after:
                continue
            useless = (slot, job.attempt) in self.claims and self.claims[slot, job.attempt] is not job.run
            dead = job.run is not None and not job.run.alive
            if not useless and not dead:
                self._fail(3, f"{token} is submitted while job {job.job_id} ({job.token}) is {job.raw_state}")
        for run in self.live_runs(slot):
            # Of a node that is lost, Slurm's word is believed: its ghosts end at their first look at the folder.
            if run.job.attempt < attempt and run.job.job_id != after and not world.cluster.nodes[run.node].dead:
                self._fail(11, f"{token} is submitted while job {run.job.job_id} works on {run.node}")
        for waiting, _ in world.cluster.inbox:
            if world.place(waiting)[0] == slot and waiting != token:
                self._fail(3, f"{token} is submitted while {waiting} may still be accepted")

    def took_over(self, process: Process) -> None:
        """A controller owns a new epoch: the owner before it must be gone, or silent for long."""
        world = self.world
        epoch = process.lease.epoch if process.lease is not None else -1
        self.top_epoch = max(self.top_epoch, epoch)
        world.timeline.tell(f"{process} owns epoch {epoch}")
        released = world.server.entry(None, str(world.paths.lease), f"{epoch - 1}.released") is not None
        for other in world.processes:
            lives = other.alive and other is not process and other.lease is not None
            if lives and other.lease is not None and other.lease.epoch == epoch - 1 and not released:
                silent_s = world.timeline.now - other.beat_at
                if silent_s < OWNER_TTL_S - world.profile.lag_s - 1.0:
                    self._fail(
                        10, f"{process} took the run over from {other}, which was silent for {silent_s:.0f} s only"
                    )

    def cancelled(self, job: SimJob) -> None:
        """A controller ends a job: it must be the one that it means, which it notes before."""
        process = self.world.actor
        if process is None or process.controller is None:
            return
        meant = [
            s for slot in process.controller.ledger.slots for a in slot.attempts for s in a.submissions
            if s.token == job.token
        ]  # fmt: skip
        if not meant or meant[0].cancelled_at is None:
            self._fail(9, f"job {job.job_id} ({job.token}) is cancelled in the place of another one with its id")
        elif meant[0].cancelled_for == MOVED and job.run is not None:
            self._fail(23, f"job {job.job_id} ({job.token}) has begun, and is ended to begin in another place")

    def controller_gone(self, process: Process) -> None:
        """Nobody looks: no time counts against a slot until the next tick."""
        del process
        self.ticked_at = None
        self.no_reason_since.clear()

    def remember(self, ledger: Ledger) -> None:
        """What it says of each submission; also of those that it is about to forget."""
        self.ledger = ledger
        self.news.remember(ledger)
        for slot in ledger.slots:
            for attempt in slot.attempts:
                for s in attempt.submissions:
                    self.states[s.token] = s.state
                if attempt.verdict in {Verdict.CRASHED, Verdict.NODE_FAILED}:
                    self._ended_well(attempt)

        raised = {slot.index: slot.raised for slot in ledger.slots if slot.raised is not None}
        if raised != self.raised:
            self._raised(raised)

    def _raised(self, raised: dict[int, Raised]) -> None:
        """A slot asks for more only after the cluster ended one of its jobs for that."""
        ends = {(job.slot, job.raw_state) for job in self.jobs.values() if job.slot in raised}
        for slot, more in raised.items():
            if (more.mem_mb and (slot, "OUT_OF_MEMORY") not in ends) or (
                more.time_limit and (slot, "TIMEOUT") not in ends
            ):
                self._fail(22, f"slot {slot} asks for {more}, and no job of it ran out of that")
        self.raised = raised

    def _ended_well(self, attempt: Attempt) -> None:
        """No job that has said that it ended well, and whose end Slurm calls clean, is called failed."""
        for token in self.said_well.intersection(s.token for s in attempt.submissions):
            if self.jobs[token].raw_state == "COMPLETED":
                self._fail(21, f"{token} ended well, and the ledger says: {attempt.verdict} ({attempt.cause})")

    def tick_failed(self) -> None:
        """It could not write: what passes until a tick succeeds does not count against a slot."""
        self.ticked_at = None

    def ticked(self, process: Process) -> None:
        """A controller has finished a tick."""
        world, now = self.world, self.world.timeline.now
        controller = process.controller
        if controller is None or process.lease is None or world.hosts.newest() is not process:
            return
        if (
            process.lease.epoch < self.top_epoch
        ):  # it was frozen, and whoever took over is gone already, as failover ticks are
            return
        passed_s = 0.0 if self.ticked_at is None else now - self.ticked_at
        self.ticked_at = now
        ledger, wall = controller.ledger, process.login.clock()
        live = {job.slot for job in world.cluster.live() if not job.lost_end} | {
            s for s, runs in self.runs.items() if any(r.alive for r in runs)
        }
        outage = world.cluster.controller_is != "up" or process.login.full or ledger.blind_since is not None
        outage = outage or (world.cluster.database_is != "up" and world.profile.accounting == "up")
        self.remember(ledger)
        if self.queue is not None:
            self.queue.ticked(ledger)
        self._leftovers_go(ledger, 0.0 if outage else passed_s)
        for slot in ledger.slots:
            if slot.status is not SlotStatus.ACTIVE or controller.control.wish != "run":
                self.no_reason_since.pop(slot.index, None)
                self.idle_s[slot.index] = 0.0
                continue
            if ledger.blind_since is None:
                self._has_a_reason(slot, wall, now)
            if slot.index in live or (self.queue is not None and self.queue.waits_its_turn(slot, ledger, live)):
                self.idle_s[slot.index] = 0.0
                continue
            self.all_idle_s += passed_s
            excused = outage or slot.not_before > wall or not world.cluster.room()
            if excused:
                self.excused_s[slot.index] += passed_s
                continue
            self.idle_s[slot.index] += passed_s
            if self.idle_s[slot.index] > IDLE_LIMIT_S:
                idle = f"slot {slot.index} has no job for {self.idle_s[slot.index] / 60:.0f} min"
                self._fail(2, f"{idle} and nothing is in its way: {self._words(slot)}")

    def _leftovers_go(self, ledger: Ledger, passed_s: float) -> None:
        """What slurmctld takes for running, and the ledger knows to be over, is taken out of the queue."""
        known = {s.token for slot in ledger.slots for attempt in slot.attempts for s in attempt.submissions}
        for job in self.world.cluster.live():
            if job.lost_end and job.token in known and self.states.get(job.token) is SubmissionState.ENDED:
                self.left_s[job.token] = self.left_s.get(job.token, 0.0) + passed_s
                if self.left_s[job.token] > LEFT_LIMIT_S:
                    self._fail(12, f"job {job.job_id} ended long ago, is {job.raw_state}, and is not cancelled")

    def _has_a_reason(self, slot: Any, wall: float, now: float) -> None:
        occupied = any(attempt.live for attempt in slot.attempts)
        if occupied or slot.why or slot.not_before > wall:
            self.no_reason_since.pop(slot.index, None)
            return
        since = self.no_reason_since.setdefault(slot.index, now)
        if now - since > self.world.profile.poll_s + TICK_SLACK_S:
            self._fail(2, f"slot {slot.index} is unfinished, has no job, and no reason is given")

    @staticmethod
    def _words(slot: Any) -> str:
        live = [(s.token, str(s.state), s.sighting) for a in slot.attempts for s in a.live]
        blind = [s.error for _, _, s in live if isinstance(s, Blind)]
        return f"why {slot.why!r}, live {[(token, state) for token, state, _ in live]} {blind}"

    # --- the end ---

    def all_is_quiet(self) -> bool:
        """Whether the last stop has been carried out."""
        return self.last_stop and self.run_over_at is not None and not self.world.cluster.live()

    def measured(self) -> dict[str, float]:
        """By-products: shares of the time."""
        profile, slots = self.world.profile, range(self.world.most_slots)
        places = min(profile.slots, 4) if self.queue is not None else profile.slots
        total_s = places * profile.days * 86_400.0
        steps = sum(self._kept(slot) for slot in slots)
        wanted = sum(self.world.total(slot) for slot in slots)
        kept_s = steps / RATE
        running = sum(self.world.timeline.now - j.started_at for j in self.world.cluster.live() if j.started_at)
        allocated_s = self.allocated_s + running
        if self.queue is not None and self.ledger is not None:
            self.queue.finish(self.ledger)
        elif profile.days >= 1.0 and kept_s < LEAST_SHARE * min(total_s, wanted / RATE):
            self._fail(
                7, f"{kept_s / 86_400:.1f} days of training came of {self.world.profile.slots} slots in the month"
            )
        return {
            "seed": self.world.profile.seed,
            "jobs": len(self.jobs),
            "ticks": self.world.hosts.ticks,
            "goodput": kept_s / allocated_s if allocated_s else 0.0,
            "progress": kept_s / min(total_s, wanted / RATE),
            "idle": self.all_idle_s / total_s,
            "failover_ticks": self.failover.ticks,
            "told": len(self.news.told_of),
        }

    def _kept(self, slot: int) -> int:
        return max((step for (s, _), saved in self.checkpoints.items() if s == slot for step, _ in saved), default=0)

    def finish(self) -> None:
        """After the last stop: everything is accounted for."""
        if self.ledger is not None:
            self.news.finish(self.ledger)
        left = [job.job_id for job in self.world.cluster.live()]
        if left or self.run_over_at is None:
            self._fail(5, f"after the end jobs {left} are left in the queue; the controller left at {self.run_over_at}")
        over = {SubmissionState.ENDED, SubmissionState.NOT_SUBMITTED}
        for token, job in self.jobs.items():
            state = self.states.get(token)
            if state is None:
                self._fail(5, f"job {job.job_id} ({token}) was accepted, and no ledger ever knew it")
            if state not in over:
                self._fail(5, f"job {job.job_id} ({token}) is over, and the ledger last said: {state}")
            if state is SubmissionState.NOT_SUBMITTED and job.started_at is not None and token in self._claimants():
                self._fail(5, f"job {job.job_id} ({token}) ran, and the ledger says that it was never submitted")
        with seen_by(self.world.server, None):
            for slot in range(self.world.most_slots):
                self._check_lineage(slot)

    def _claimants(self) -> set[str]:
        return {run.job.token for run in self.claims.values()}

    def _check_lineage(self, slot: int) -> None:
        stretches = lineage(self.world.paths.slot(slot))
        for one, other in pairwise(stretches):
            if one.until != other.after or one.attempt >= other.attempt or one.until < one.after:
                self._fail(1, f"slot {slot}: the lineage has {one} before {other}")
            if one.until not in dict(self.checkpoints.get((slot, one.attempt), [])):
                self._fail(
                    1, f"slot {slot}: attempt {other.attempt} stands on step {one.until}, which nobody published"
                )
