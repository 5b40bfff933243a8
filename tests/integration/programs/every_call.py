"""kill -9 of the controller at each call of a whole run that leaves a trace: every_call.py SHARE OF [SECOND]

A toy run of two slots, on the executor that its config names: it hands over by the clock, is stopped in the middle,
goes on, is stopped at once, and goes on to its end. The n-th call through the run's `Disk` that changes something, of
its executor, or that publishes the copy of our code kills the controller: before the call, and for the last two also
right after it. Another one goes on. Then every step must have been done once, every job be accounted for, and the
ledger load.

Numbers n ≡ SHARE (modulo OF) are tried, until the whole run needs fewer calls. SECOND: the controller after that is
killed too, at its SECOND-th call. `every_call.py at PLACE`: only at the first call that begins with these words. Prints
a line of JSON for each run: [n, [where it was killed]]. Runs in the folder of a `Relay`, in its environment, with the
folder of relay.py on PYTHONPATH too.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemons import PATIENCE_S, started_at, sweep, wait_for
from relay import Relay

from orchestrator.config import load_config
from orchestrator.controller import Controller
from orchestrator.decisions.models import SlotStatus, parse_token
from orchestrator.disk import Disk
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.slurm import SlurmExecutor
from orchestrator.run import code
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.lease import Lease, highest_epoch
from orchestrator.run.ledger import load_ledger, read_control, write_control
from orchestrator.run.rundir import RunDir, load_run, make_executor

TOTAL = 24
SLOTS = (0, 1)
#: The person types `stop` and `stop --now` when slot 0 has come so far.
STOP_AT, STOP_NOW_AT = 6, 14
#: An intent that nobody has heard of counts as never submitted after this; minutes in earnest.
GRACE_S = 1.0
#: The calls of a `Disk` that change something.
WRITES = ("write", "create", "append", "make_folder", "remove", "remove_tree", "touch")
#: What an executor may have of these.
ASKS = ("submit", "poll", "accounting", "wake", "cancel", "release")
#: No toy run makes so many calls; one that never survives its trap must not run for ever.
MOST_CALLS = 1000

relay = Relay(Path.cwd(), dict(os.environ))
run_dir = RunDir(relay.run_dir)


class Trap:
    """Counts the calls of all controllers of a run, across forks, and springs at the given ones."""

    def __init__(self) -> None:
        self._calls = mmap.mmap(-1, 8)
        self.fatal: set[int] = set()
        self.place: str | None = None
        self.armed = False

    @property
    def calls(self) -> int:
        """So many so far."""
        return int.from_bytes(self._calls[:8], "little")

    def reset(self, fatal: set[int]) -> None:
        """Begin to count; die at each `fatal` call."""
        self._calls[:8] = (0).to_bytes(8, "little")
        self.fatal = fatal

    def count(self, where: str) -> None:
        """One more call of a controller; what the person types is not counted."""
        if not self.armed:
            return
        self._calls[:8] = (self.calls + 1).to_bytes(8, "little")
        first = self.place is not None and where.startswith(self.place) and not places()
        if self.calls in self.fatal or first:
            with open(relay.folder / "note", "a") as note:
                note.write(f"{where}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Stand at every call."""
        for name in WRITES:
            setattr(Disk, name, self._watched(name, getattr(Disk, name), twice=False))
        code.publish_folder = self._watched("publish_folder", code.publish_folder, twice=True)
        for executor in (LocalExecutor, SlurmExecutor):
            for name in ASKS:
                if hasattr(executor, name):
                    setattr(executor, name, self._watched(name, getattr(executor, name), twice=True))

    def _watched(self, name: str, real: Callable[..., Any], *, twice: bool) -> Callable[..., Any]:
        def call(owner: Any, *args: Any, **more: Any) -> Any:  # of a function: its first argument
            what = args[0].relative_to(run_dir.path) if args and isinstance(args[0], Path) else ""
            self.count(f"{name} {what}".strip())
            result = real(owner, *args, **more)
            if twice:
                self.count(f"{name}, after it")
            return result

        return call


trap = Trap()


def controller() -> Controller:
    """The next owner of the run: what `start` does before its loop."""
    prepare_folder(run_dir)
    lease = Lease.take(run_dir, "start", now=time.time())
    run = begin(load_config(relay.config), relay.config, run_dir, os.environ, time.time())
    if read_control(run_dir).wish != "run":
        write_control(run_dir, "run", now=time.time(), by="start")
    executor = make_executor(run, run_dir)
    executor.submit_grace_s = GRACE_S
    owner = Controller(run, run_dir, lease, executor, poll_s=0.5)
    owner.reactivate()
    return owner


def in_the_background() -> int:
    """Fork `start`; its pid."""
    if (pid := os.fork()) == 0:
        code, trap.armed = 1, True
        try:
            owner = controller()
            owner.loop(interrupted=lambda: False, shown=lambda: None)
            owner.lease.release()
            code = 0
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> bool:
    """Whether the controller ended by itself; False: it was killed. Errors: AssertionError where it failed or hangs."""
    status: list[int] = []

    def over() -> bool:
        found, how = os.waitpid(pid, os.WNOHANG)
        status.append(how)
        return found == pid

    try:
        wait_for(over, "the controller's end", PATIENCE_S)
    except TimeoutError as error:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError(f"{error}; its ledger: {relay.ledger()}") from None
    assert os.WIFSIGNALED(status[-1]) or status[-1] == 0, status[-1]
    return not os.WIFSIGNALED(status[-1])


def came_to(step: int) -> bool:
    """Whether slot 0 is that far."""
    return relay.counted(0) >= step


def is_at_work(pid: int) -> bool:
    """Whether this controller has begun to tick: it writes the wish to run before, which would replace a later one."""
    epoch = highest_epoch(run_dir)
    owner = json.loads((run_dir.lease / str(epoch)).read_text())
    return bool(owner["process"]["pid"] == pid and run_dir.ledger(epoch).exists())


def until(step: int, wish: Any) -> None:
    """Keep a controller going until slot 0 has come to `step` (0: the end); then wish, and wait until that is done."""
    wished = step == 0
    relay.hold_at(step)  # so that the wish surely meets a running job
    while True:
        if wished:  # whoever comes after a killed stop goes on to the end
            relay.release()
        pid = in_the_background()
        if not wished:
            wait_for(
                lambda child=pid: (came_to(step) and is_at_work(child)) or started_at(child) is None, f"step {step}"
            )
            if came_to(step):
                wished = True
                write_control(run_dir, wish, now=time.time(), by="stop", grace_s=20.0)
        if ended(pid) and wished:
            return


def play() -> None:
    """The whole run."""
    until(STOP_AT, "stop")
    until(STOP_NOW_AT, "stop-now")
    until(0, "run")


def check() -> None:
    """What must hold at the end."""
    for slot in SLOTS:
        relay.assert_exactly_once(TOTAL, slot)
    ledger = load_ledger(run_dir, load_run(run_dir).run_id)
    assert ledger is not None
    assert [slot.status for slot in ledger.slots] == [SlotStatus.FINISHED] * len(SLOTS)
    assert not [a for slot in ledger.slots for a in slot.attempts if a.live]
    told = {(event["slot"], event["attempt"]) for kind in ("started", "ended") for event in relay.events(kind)}
    ran = {parse_token(path.parent.name) for path in run_dir.jobs.glob("*/job-*.out")} - {None}  # not a job for several
    assert ran <= told, ran - told  # every job that ran stands in the history
    assert not list(run_dir.path.glob("slots/*/attempts/*/duplicate-*.json"))  # the claim would hide a second job


def places() -> list[str]:
    """Where controllers of this run were killed."""
    note = relay.folder / "note"
    return note.read_text().splitlines() if note.exists() else []


def main() -> None:
    """Try each number of our share, or one place."""
    if sys.argv[1] == "at":
        trap.install()
        trap.place = sys.argv[2]
        try:
            play()
            check()
        finally:
            sweep("TMPDIR", relay.env["TMPDIR"])  # a controller that hangs would hold our output open
        print(json.dumps([trap.calls, places()]))
        return
    share, of = int(sys.argv[1]), int(sys.argv[2])
    second = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    trap.install()
    for n in range(share, MOST_CALLS, of):
        shutil.rmtree(relay.folder / "runs", ignore_errors=True)
        for name in ("journal.txt", "note"):
            (relay.folder / name).unlink(missing_ok=True)
        trap.reset({n, n + second} if second else {n})
        try:
            play()
            check()
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"after a kill at call {n}, {places()}: {error}") from error
        finally:
            sweep("TMPDIR", relay.env["TMPDIR"])
        print(json.dumps([n, places()]), flush=True)
        if not places():
            return
    raise AssertionError(f"still killed at call {MOST_CALLS}")


if __name__ == "__main__":
    main()
