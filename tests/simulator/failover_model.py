"""A model of `orchestrator/failover.py`: a job that has said its end runs one tick itself, where nobody else is there.

The tick is the real controller's, in a process on the job's node. What the job has seen of the owner is worked out at
its end, from what its node could see: the real one looks with each heartbeat. `test_simulator_failover.py`
compares both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from orchestrator.decisions.models import SlotStatus
from orchestrator.failover import HOLDER, TICK_TIMEOUT_S, TURN_TIMEOUT_S
from orchestrator.hosts.ticking import waits_for_room

if TYPE_CHECKING:
    from controllers import Process
    from job_model import Run
    from memory_disk import Server
    from watch import Watch
    from world import World

    from orchestrator.run.rundir import RunDir

#: Simulated controllers look every 300 s and not every 60: all waits for their silence are five times as long.
SILENT_S = 1500.0
#: The real one looks each second for its turn.
TURN_LOOK_S = 5.0


def newest_epoch(server: Server, client: str, run_dir: RunDir) -> int:
    """The newest lease's number, as a machine sees it; -1 where there is none."""
    return max((int(name) for name in server.names(client, str(run_dir.lease)) if name.isdigit()), default=-1)


def holder(server: Server, client: str, run_dir: RunDir) -> str:
    """What the newest owner was started as, as a machine sees it."""
    record = server.json_or_none(client, f"{run_dir.lease}/{newest_epoch(server, client, run_dir)}")
    return str(record["command"]) if record is not None else ""


def seen_since(server: Server, client: str, run_dir: RunDir) -> float:
    """Since when a machine sees the newest owner's files as they are; 0 where there are none."""
    epoch = newest_epoch(server, client, run_dir)
    lease = server.entry(client, str(run_dir.lease), str(epoch))
    ledger = server.entry(client, str(run_dir.path), f"ledger-{epoch}.json")
    return max((one.visible_at for one in (lease, ledger) if one is not None), default=0.0)


class FailoverTick:
    """The end of one job. `then`: what comes after it; it is called once, unless the job is killed before."""

    def __init__(self, run: Run, then: Callable[[], None]) -> None:
        self.run = run
        self.world: World = run.world
        self.then = then
        self.process: Process | None = None
        self.dead = False
        self.give_up_at = 0.0

    def begin(self) -> None:
        """Pass it on, if nobody else is there to look."""
        world, node, run_dir = self.world, self.run.node, self.world.paths
        if holder(world.server, node, run_dir) != HOLDER:
            since = max(self.run.claimed_at, seen_since(world.server, node, run_dir))
            if world.timeline.now - since < SILENT_S or world.is_full(node):
                self.then()
                return
            self._testify(since)
        self.give_up_at = world.timeline.now + TURN_TIMEOUT_S
        self._take_turn()

    def _testify(self, since: float) -> None:
        server, node, run_dir = self.world.server, self.run.node, self.world.paths
        epoch = newest_epoch(server, node, run_dir)
        beat = (server.json_or_none(node, str(run_dir.ledger(epoch))) or {}).get("beat", -1)
        seen = {"epoch": epoch, "beat": beat, "at": since}
        server.write(node, f"{run_dir.lease}/seen-{node}-boot-{node}.json", json.dumps(seen).encode())

    def _take_turn(self) -> None:
        world, node = self.world, self.run.node
        if self.dead:
            return
        self.process = process = world.hosts.start(world.nodes[node], HOLDER, TICK_TIMEOUT_S)
        if self.dead:
            return
        is_a_jobs_turn = process.lost_to_another and holder(world.server, node, world.paths) == HOLDER
        if is_a_jobs_turn and world.timeline.now < self.give_up_at:
            world.timeline.after(TURN_LOOK_S, self._take_turn)
        else:
            self.then()

    def die(self) -> None:
        """The job is killed, and its tick with it."""
        self.dead = True
        if self.process is not None:
            self.world.hosts.kill(self.process)


class FailoverWatch:
    """What must hold of the ticks of jobs. Numbers of invariants go on from `QueueWatch`."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.ticks = 0

    def ticked(self, process: Process, began_at: float) -> None:
        """A job's tick has been done, begun at `began_at` by its machine's clock: nothing was left to others for later,
        of whom there may be none.
        """
        controller = process.controller
        if process.command != HOLDER or controller is None:
            return
        self.ticks += 1
        ledger, wall = controller.ledger, process.login.clock()
        if controller.control.wish != "run" or ledger.blind_since is not None:
            return
        for slot in ledger.slots:
            if slot.status is not SlotStatus.ACTIVE or slot.not_before <= wall or slot.current is None:
                continue
            if waits_for_room(slot) and slot.current.submissions[-1].intent_at < began_at:
                self.watch._fail(18, f"{process} left slot {slot.index} to wait for room, and nobody may come")
