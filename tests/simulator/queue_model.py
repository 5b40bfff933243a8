"""Experiments in the simulator: a person who changes his mind about them, and what must hold of their queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.decisions.models import Ledger, Slot, SlotStatus
from orchestrator.decisions.turns import is_at_rung, may_pass, turns_of
from orchestrator.run.rundir import ask
from orchestrator.sections import QueueSection

if TYPE_CHECKING:
    from controllers import Process
    from watch import Watch
    from world import World

#: Experiments that come later.
MOST_ADDED = 3
#: Steps to the first rung: two jobs' worth.
FIRST_RUNG_STEPS = 2 * 4 * 3600 * 100
KINDS = ("pause", "resume", "resume", "drop", "priority", "add")


def settings(slots: int, order: str, halving: int) -> dict[str, Any]:
    """The config's part."""
    queue: dict[str, Any] = {"order": order, "metric": "score"}
    if halving:
        queue["halving"] = {"first_steps": FIRST_RUNG_STEPS, "factor": halving}
    return {"experiments": [{"name": f"e{k}", "priority": k % 3} for k in range(slots)], "queue": queue}


def score(slot: int) -> float:
    """What the program of a slot reports: no two alike, in no order."""
    return (slot * 7919 % 101) / 101.0


def ask_something(world: World) -> None:
    """A command on the first login node. An `add` beyond the most is a `resume`."""
    rng, run_dir, now = world.rng, world.logins[0].run_dir, world.logins[0].clock()
    kind = rng.choice(KINDS)
    if kind == "add" and world.added >= MOST_ADDED:
        kind = "resume"
    if kind == "add":
        row = {"name": f"later{world.added}"}
        world.added += 1
        ask(run_dir.disk, run_dir.requests, "add", now=now, experiments=(row,))
    else:
        chosen = tuple(rng.sample(range(world.profile.slots), rng.choice((1, 1, 2))))
        more = {"priority": rng.randrange(9)} if kind == "priority" else {}
        ask(run_dir.disk, run_dir.requests, kind, now=now, slots=chosen, **more)  # type: ignore[arg-type]
    world.timeline.tell(f"the user: {kind}")
    world.hosts.notice(world.profile.lag_s + 1.0)


class QueueWatch:
    """Who sees everything of the queue. Numbers of invariants go on from `Watch`."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.world = watch.world
        self.rungs: dict[int, tuple[float, ...]] = {}
        self.levels: dict[int, int] = {}
        self.requests = 0
        self.looked_at: Ledger | None = None
        self.passing: set[int] = set()

    def asked(self, process: Process, slot: int, after: str | None) -> None:
        """A controller that owns the run submits a job for `slot`."""
        if process.controller is None or after is not None:
            return
        ledger = process.controller.ledger
        mine = ledger.slots[slot]
        if mine.put_aside:
            self.watch._fail(13, f"slot {slot} is {mine.status} ({mine.why}), and gets a job")
        limit = self.world.profile.max_jobs
        live = [job for job in self.world.cluster.live() if job.run is None or job.run.alive]
        if limit is not None and len(live) >= limit:
            self.watch._fail(14, f"a job is submitted for slot {slot} beside {len(live)}, and {limit} may be there")

    def ticked(self, ledger: Ledger) -> None:
        """The owner has finished a tick: what was decided stays, and what was asked is taken up once."""
        if ledger.requests < self.requests:
            self.watch._fail(15, f"request {self.requests} was taken up, and the ledger is at {ledger.requests} again")
        self.requests = ledger.requests
        for slot in ledger.slots:
            before = self.rungs.get(slot.index, ())
            if slot.rungs[: len(before)] != before or slot.level < self.levels.get(slot.index, 0):
                self.watch._fail(16, f"slot {slot.index} was at {before}, and is at {slot.rungs}, level {slot.level}")
            self.rungs[slot.index], self.levels[slot.index] = slot.rungs, slot.level

    def waits_its_turn(self, slot: Slot, ledger: Ledger, live: set[int]) -> bool:
        """Whether nothing but the others keeps it from a job: all places are taken, or it stands at a rung."""
        limit = self.world.profile.max_jobs
        if limit is not None and len(live) + self.world.cluster.others >= limit:
            return True
        queue = turns_of(self.world.run.config).queue
        return is_at_rung(slot, queue) and slot.index not in self._passing(ledger, queue)

    def _passing(self, ledger: Ledger, queue: QueueSection) -> set[int]:
        """Who may pass a rung. Asked for each slot of a ledger, and worked out once."""
        if ledger is not self.looked_at:
            self.looked_at, self.passing = ledger, {slot.index for slot in may_pass(ledger.slots, queue)}
        return self.passing

    def finish(self, ledger: Ledger) -> None:
        """At the end of the month: with a fair order nobody was forgotten."""
        if self.world.profile.order != "fair" or self.world.profile.halving:
            return
        active = [slot for slot in ledger.slots[: self.world.profile.slots] if slot.status is SlotStatus.ACTIVE]
        forgotten = [slot.index for slot in active if slot.jobs == 0]
        if forgotten and max((slot.jobs for slot in active), default=0) > 3:
            self.watch._fail(17, f"slots {forgotten} never had a job, and others had several")
