"""kill -9 of a controller at each system call that makes something durable: every_write.py SCENARIO STRIDE

For k = 1, 1 + STRIDE, … : restore the run folder, fork a controller that SIGKILLs itself before its k-th such call,
let another controller finish the run, and check that every step was done exactly once. Prints one line of JSON: where
it was killed, in order. Runs in the folder of a `Relay`, in its environment, with the folder of relay.py on PYTHONPATH
too.

SCENARIO: `start` (the run is made, its first job submitted), `relay` (a job's end is seen, the next one submitted),
`requests` (the same of an experiment, and meanwhile the second one was dropped and a third one added).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemons import sweep, wait_for
from relay import Relay

from orchestrator.config import load_config
from orchestrator.controller import Controller
from orchestrator.executors.local import LocalExecutor
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.lease import Lease
from orchestrator.run.rundir import RunDir, ask, load_run

TOTAL = 12
CALLS = ("replace", "link", "fsync", "write", "rename", "mkdir")
#: The code is copied file by file into a temporary folder: a death at one of them stands for all.
ONE_OF_MANY = "orchestrator/decisions/plan.py"
#: No tick makes so many calls; a scenario that never survives its trap must not run for ever.
MOST_CALLS = 150

relay = Relay(Path.cwd(), dict(os.environ))
run_dir = RunDir(relay.run_dir)


def controller() -> Controller:
    """The next owner of the run. What `start` does before its loop."""
    prepare_folder(run_dir)
    lease = Lease.take(run_dir, "start", now=time.time())
    run = begin(load_config(relay.config), relay.config, run_dir, os.environ, time.time())
    executor = LocalExecutor(run_dir.jobs, run.env)
    executor.submit_grace_s = 1.0
    return Controller(run, run_dir, lease, executor, poll_s=0.2)


def trap(call: int, note: Path) -> None:
    """SIGKILL this process before its `call`-th durable call, and say in `note` which one that is."""
    calls = 0

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            nonlocal calls
            what = f"{args[1]}" if name in {"replace", "link", "rename"} else f"{args[0]}"
            if what.isdigit():
                what = os.readlink(f"/proc/self/fd/{what}")
            calls += "/code/." not in what or what.endswith(ONE_OF_MANY)
            if calls == call:
                note.write_bytes(f"{name} {what.removeprefix(str(run_dir.path))}".encode())
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **more)

        return wrapped

    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))
    LocalExecutor.submit = counted("submit", LocalExecutor.submit)  # type: ignore[method-assign]


def killed_at(call: int) -> str | None:
    """Let a controller make one tick with the trap set. Where it was killed; None: it came through."""
    note = relay.folder / "note"
    note.unlink(missing_ok=True)
    if (pid := os.fork()) == 0:
        trap(call, note)
        controller().tick()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return note.read_text()
    assert status == 0
    return None


def prepare(scenario: str) -> None:
    """The state in which the controllers will be killed."""
    if scenario == "start":
        return
    first = controller()
    first.tick()
    wait_for(lambda: relay.counted() >= 2, "the first steps")
    next(run_dir.jobs.glob("*")).joinpath("hand-over").touch()
    wait_for((relay.attempt_dir(0) / "exit.json").exists, "the hand-over")
    first.lease.release()
    Path("data/pace.txt").write_text("0.001")
    if scenario == "requests":
        ask(run_dir.disk, run_dir.requests, "drop", now=time.time(), slots=(1,))
        ask(run_dir.disk, run_dir.requests, "add", now=time.time(), experiments=({"name": "late"},))


def restore() -> None:
    """Put everything back as `prepare` left it."""
    for path, saved in ((relay.run_dir, "saved-run"), (Path("journal.txt"), "saved-journal")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if Path(saved).is_dir():
            shutil.copytree(saved, path)
        elif Path(saved).exists():
            shutil.copy(saved, path)


def main() -> None:
    """Enumerate."""
    prepare(sys.argv[1])
    if relay.run_dir.exists():
        wait_for(supervisor_is_done, "the supervisor's end")
        shutil.copytree(relay.run_dir, "saved-run")
        shutil.copy("journal.txt", "saved-journal")
    places: list[str] = []
    for call in range(1, MOST_CALLS, int(sys.argv[2])):
        restore()
        where = killed_at(call)
        second = controller()
        second.loop(interrupted=lambda: False, shown=lambda: None)
        second.lease.release()
        try:
            for slot in (0, 2) if sys.argv[1] == "requests" else (0,):
                relay.assert_exactly_once(TOTAL, slot)
            if sys.argv[1] == "requests":
                assert [slot.status for slot in second.ledger.slots] == ["finished", "dropped", "finished"]
                assert second.ledger.requests == 2
            assert load_run(run_dir).run_id == second.ledger.run_id
        except AssertionError as error:
            raise AssertionError(f"after a kill at call {call}, {where}: {error}") from error
        sweep("TMPDIR", relay.env["TMPDIR"])
        if where is None:
            print(json.dumps(places))
            return
        places.append(where)
    raise AssertionError(f"still killed at call {MOST_CALLS}: {places[-3:]}")


def supervisor_is_done() -> bool:
    """Whether the first job's supervisor has written its end."""
    return all(json.loads(path.read_text())["raw_state"] != "RUNNING" for path in run_dir.jobs.glob("*/local.json"))


if __name__ == "__main__":
    main()
