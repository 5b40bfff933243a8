"""Login nodes and the controllers on them: real `Controller`s, with simulated clocks, crashes, freezes and hosts."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from memory_disk import MemoryDisk
from slurm_model import SimExecutor
from timeline import WallClock
from watch import OWNER_TTL_S, InvariantError

from orchestrator import controller as controller_module
from orchestrator.controller import Controller
from orchestrator.errors import LeaseHeld, LeaseLost, RunFolderError
from orchestrator.failover import HOLDER
from orchestrator.hosts.ticking import tick_as_job
from orchestrator.processes import ProcessId
from orchestrator.run import lease as lease_module
from orchestrator.run.lease import Lease
from orchestrator.run.ledger import read_control, write_control
from orchestrator.run.rundir import RunDir, load_run

if TYPE_CHECKING:
    from world import World

#: Between looks at a queue that does not answer, or that must say who ended a job.
BLIND_LOOK_S = 300.0
FIRST_LOOK_S = 15.0
#: An exit record or a wish is noticed at once; a full disk is tried again.
NOTICE_S = 0.5
STORAGE_AGAIN_S = 120.0
CHANGING = frozenset({"write", "create", "append", "make_folder", "touch"})


class Crash(BaseException):
    """The process is killed here: no handler of the program may see it."""


class Login:
    """A machine on which controllers run: a login node, or the node of a job that runs a failover tick."""

    def __init__(self, world: World, name: str, offset_s: float = 0.0) -> None:
        self.world = world
        self.name = name
        self.clock = WallClock(world.timeline, offset_s)
        self.disk = MemoryDisk(world.server, name)
        self.run_dir = RunDir(world.paths.path, self.disk)

    @property
    def full(self) -> bool:
        """Whether writes from here fail."""
        return self.world.is_full(self.name)


class Frozen_:  # noqa: N801 - `Frozen` is the models' base
    """A tick that stands still in the middle of a call, in a thread of its own; one thread runs at a time."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.standing = threading.Event()


class Process:
    """One controller process. `arm`: (calls to go, "crash" or "freeze", before the call or after its effect)."""

    def __init__(self, world: World, login: Login, command: str) -> None:
        self.world = world
        self.login = login
        self.command = command
        self.pid = world.new_pid()
        self.alive = True
        self.lost_to_another = False
        self.stopped = False
        self.frozen: Frozen_ | None = None
        self.arm: tuple[int, str, bool] | None = None
        self.controller: Controller | None = None
        self.lease: Lease | None = None
        self.disk = MemoryDisk(world.server, login.name)
        self.run_dir = RunDir(world.paths.path, self.disk)
        self.disk.gate = self._gate
        self.wake_serial = 0
        self.busy = False
        self.beat_at = world.timeline.now
        self.thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def raise_failure(self) -> None:
        """What went wrong in its thread, where the story can be told."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    @property
    def lasts(self) -> bool:
        """Whether it goes on after its first tick."""
        return self.command not in {"tick", HOLDER}

    @property
    def identity(self) -> ProcessId:
        """As the lease has it."""
        return ProcessId(host=self.login.name, boot_id=f"boot-{self.login.name}", pid=self.pid, started=str(self.pid))

    def _gate(self, kind: str, what: str, before: bool) -> None:
        if not self.alive:
            raise Crash
        if before and self.login.full and kind in CHANGING:
            raise OSError(errno.ENOSPC, "No space left on device", what)
        if not before and kind == "write" and "/ledger-" in what:
            self.beat_at = self.world.timeline.now
        if self.arm is not None:
            left, how, side = self.arm
            if side is before:
                if left > 0:
                    self.arm = (left - 1, how, side)
                    return
                self.arm = None
                self.world.timeline.tell(f"{how} of {self} {'before' if before else 'after'} {kind} {what[-40:]}")
                if how == "crash":
                    raise Crash
                self._stand_still()

    def _stand_still(self) -> None:
        frozen = self.frozen
        if frozen is None:  # not in a thread: a freeze that nobody prepared
            return
        frozen.go_on.clear()
        frozen.standing.set()
        frozen.go_on.wait()
        if not self.alive:
            raise Crash

    def __str__(self) -> str:
        return f"controller {self.pid} ({self.command}, {self.login.name})"

    def make(self) -> Controller:
        """Own the run and make the controller, as `orchestrator.hosts.host` does. Errors: LeaseHeld."""
        world, login = self.world, self.login
        self.lease = Lease.take(self.run_dir, self.command, now=login.clock(), sleep=lambda _seconds: None)
        if self.command == "start" and read_control(self.run_dir).wish != "run":
            write_control(self.run_dir, "run", now=login.clock(), by="start")
        self.controller = Controller(
            load_run(self.run_dir) if world.profile.experiments else world.run,
            self.run_dir,
            self.lease,
            SimExecutor(world, login, self._gate),
            poll_s=world.profile.poll_s,
            now=login.clock,
            on_event=partial(world.watch.news.told, self),
            monotonic=lambda: world.timeline.now,
            sleep=world.pass_time,
            random_hex=lambda: f"{world.rng.getrandbits(32):08x}",
            jitter=world.rng.random,
        )
        world.watch.remember(self.controller.ledger)  # the end of an attempt may stand in no other: its tick crashed
        return self.controller


@contextmanager
def simulated_processes(world: World) -> Iterator[None]:
    """`orchestrator.run.lease` sees simulated processes and the simulated clock."""
    living_owner = lease_module.living_owner

    def is_alive(process: ProcessId) -> bool | None:
        here = world.actor
        if here is None or process.boot_id != here.identity.boot_id:
            return None
        return any(p.alive and p.pid == process.pid for p in world.processes)

    def actor() -> Process:
        assert world.actor is not None
        return world.actor

    simulated: dict[str, Any] = {
        "TTL_S": OWNER_TTL_S,
        "is_alive": is_alive,
        "myself": lambda: actor().identity,
        "host_name": lambda: actor().login.name,
        "boot_id": lambda: actor().identity.boot_id,
        "living_owner": lambda run_dir, **_: living_owner(run_dir, monotonic=lambda: world.timeline.now),
    }
    # Looks between two polls cost the simulator more than they tell: they come at longer intervals here.
    waits = {"BLIND_LOOK_S": BLIND_LOOK_S, "FIRST_LOOK_S": FIRST_LOOK_S}
    changed = [(lease_module, name, value) for name, value in simulated.items()]
    changed += [(controller_module, name, value) for name, value in waits.items()]
    before = [(module, name, getattr(module, name)) for module, name, _ in changed]
    for module, name, value in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class Hosts:
    """Starts controllers, ticks them when their loop would, and buries them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ticks = 0
        self.arm_next: tuple[int, str, bool] | None = None

    def newest(self) -> Process | None:
        """The process that owns the highest epoch, if it lives and moves."""
        owners = [p for p in self.world.processes if p.alive and p.lease is not None]
        return max(owners, key=lambda p: p.lease.epoch if p.lease else -1, default=None)

    def start(self, login: Login, command: str = "start", limit_s: float | None = None) -> Process:
        """Someone types `orchestrator start`, a daemon is restarted, cron fires, or a job runs a failover tick, within
        `limit_s`.
        """
        process = Process(self.world, login, command)
        process.arm, self.arm_next = self.arm_next, None
        self.world.processes.append(process)
        if limit_s is not None:
            self.world.timeline.after(limit_s, lambda: self.kill(process))
        self._guarded(process, lambda: self._begin(process))
        return process

    def _begin(self, process: Process) -> None:
        controller = process.make()
        self.world.watch.took_over(process)
        if process.command == "start":
            controller.reactivate()
            self.world.watch.remember(controller.ledger)
        self._tick(process)

    def tick(self, process: Process) -> None:
        """One turn of its loop."""
        if process.busy:  # it waits for an answer
            self.plan_wake(process, 1.0)
        elif process.alive and not process.stopped:
            self._guarded(process, lambda: self._tick(process))

    def _tick(self, process: Process) -> None:
        controller = process.controller
        assert controller is not None
        self.ticks += 1
        began_at = process.login.clock()
        if process.command == HOLDER:
            tick_as_job(controller)
        else:
            controller.tick()
        self.world.watch.ticked(process)
        self.world.watch.failover.ticked(process, began_at)
        over = controller.over
        if not over and process.lasts:
            self.plan_wake(process)
            return
        self._release(process)
        process.alive = False
        if process.command == HOLDER and self.world.profile.host != "cron":
            self.world.watch.controller_gone(process)
        if over:
            self.world.watch.controller_gone(process)
            self.world.run_is_over(str(process))

    @staticmethod
    def _release(process: Process) -> None:
        if process.lease is not None:
            process.lease.release()

    def _guarded(self, process: Process, act: Callable[[], None]) -> None:
        """Run `act` as this process. What tears a process down ends here."""
        if process.arm is not None and process.arm[1] == "freeze":
            self._in_thread(process, act)
            return
        self._as(process, act)

    def _in_thread(self, process: Process, act: Callable[[], None]) -> None:
        process.frozen = Frozen_()

        def body() -> None:
            try:
                self._as(process, act)
            except BaseException as error:  # noqa: BLE001 - it is raised where the thread is waited for
                process.failure = error
            frozen = process.frozen
            process.frozen = None
            if frozen is not None:
                frozen.standing.set()

        frozen = process.frozen
        process.thread = threading.Thread(target=body, daemon=True)
        process.thread.start()
        frozen.standing.wait()
        process.raise_failure()
        if process.frozen is not None:
            process.stopped = True
            actor = self.world.actor
            self.world.actor = actor if actor is not process else None
            self.world.timeline.after(self.world.freeze_s(), lambda: self.thaw(process))
            self.world.watch.controller_gone(process)

    def thaw(self, process: Process) -> None:
        """It goes on exactly where it stood."""
        process.stopped = False
        self.world.timeline.tell(f"{process} wakes up")
        frozen = process.frozen
        if frozen is None:
            self.plan_wake(process)
            return
        frozen.standing.clear()
        before, self.world.actor = self.world.actor, process
        frozen.go_on.set()
        frozen.standing.wait()
        self.world.actor = before
        process.raise_failure()

    def bury_the_frozen(self) -> None:
        """End of the simulation: no thread stays behind."""
        for process in self.world.processes:
            if process.frozen is not None:
                process.alive = False
                process.frozen.go_on.set()
                process.thread.join()

    def _as(self, process: Process, act: Callable[[], None]) -> None:
        before, self.world.actor = self.world.actor, process
        process.busy = True
        try:
            act()
        except Crash:
            self._died(process, "crashed")
        except LeaseHeld:
            process.alive, process.lost_to_another = False, True
        except LeaseLost:
            self._died(process, "lost its lease")
        except OSError as error:
            if not process.lasts or process.controller is None:
                self._died(process, str(error))
            else:
                self.world.watch.tick_failed()
                self.plan_wake(process, STORAGE_AGAIN_S)
        except RunFolderError as error:
            raise InvariantError(6, f"{process} cannot go on: {error}") from error
        finally:
            process.busy = False
            self.world.actor = before

    def _died(self, process: Process, how: str) -> None:
        if not process.alive:
            return
        process.alive = False
        self.world.watch.controllers_lost += process.controller is not None
        self.world.timeline.tell(f"{process} {how}")
        self.world.watch.controller_gone(process)
        self.world.restart_soon(process)

    def kill(self, process: Process) -> None:
        """kill -9. One that waits for an answer gets no further; a frozen one when it wakes up."""
        self._died(process, "is killed")

    def plan_wake(self, process: Process, delay_s: float | None = None) -> None:
        """The loop's next turn."""
        controller, now = process.controller, self.world.timeline.now
        assert controller is not None
        if delay_s is None:
            due = controller._poll_due_at
            wall = process.login.clock()
            waits = [s.not_before - wall for s in controller.ledger.slots if s.not_before > wall]
            due = min([due, now + self.world.profile.poll_s, *(now + wait for wait in waits)])
            delay_s = max(0.01, due - now)
        process.wake_serial += 1
        serial = process.wake_serial
        self.world.timeline.after(
            delay_s, lambda: self.tick(process) if process.wake_serial == serial else None
        )  # fmt: skip

    def look_now(self) -> None:
        """slurmctld answers again, and somebody's next look happens to fall into that very moment."""
        for process in self.world.processes:
            if process.alive and process.controller is not None and not process.stopped and not process.busy:
                process.controller._poll_due_at = self.world.timeline.now
                self.plan_wake(process, self.world.rng.uniform(0.0, 5.0))

    def notice(self, lag_s: float) -> None:
        """An exit record or a wish shows on the login nodes: the loops look."""

        def look() -> None:
            for process in self.world.processes:
                if process.alive and not process.stopped and process.controller is not None:
                    self.plan_wake(process, NOTICE_S)

        self.world.timeline.after(lag_s, look)
