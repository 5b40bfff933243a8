"""Hosts of the controller: in the foreground, in the background, once, and for the time of a `stop`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Self

from rich.console import Console
from rich.live import Live

from orchestrator.begin import begin, prepare_folder
from orchestrator.config import LOCAL_POLL_S, SLURM_POLL_S, warnings_of
from orchestrator.controller import HAND_OVER_MARGIN_S, Controller
from orchestrator.errors import Interrupted, LeaseHeld, RunFailed, SchedulerRefused
from orchestrator.executors.base import JobState
from orchestrator.executors.pick import make_executor
from orchestrator.lease import Lease, highest_epoch, living_owner, read_owner
from orchestrator.ledger import load_ledger, read_control, write_control
from orchestrator.models import Ledger, SlotStatus
from orchestrator.registry import register
from orchestrator.rundir import Run, RunDir, load_run
from orchestrator.starting import Asked
from orchestrator.status import run_view
from orchestrator.summary import summarise
from orchestrator.views import run_table, summary_lines, summary_table

#: A detached controller has its lease within a second or two, or it has said why not.
DETACH_TIMEOUT_S = 60.0
#: After its grace a stop cancels; Slurm's KillWait and one poll later the jobs are gone.
STOP_MARGIN_S = 60.0
REDRAW_S = 0.5
#: A person waits, and the stop is soon over.
STOP_POLL_S = 3.0
#: Slurm takes an ended job out of the queue within a second or two; an epilog may take longer.
QUEUE_TIMEOUT_S = 15.0
QUEUE_LOOK_S = 0.5


def poll_seconds(run: Run) -> float:
    """How long between two looks at the queue."""
    return run.config.poll_seconds or (SLURM_POLL_S if run.executor == "slurm" else LOCAL_POLL_S)


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """INT, TERM and HUP end the controller between two ticks, not in the middle of one."""
    caught: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        caught.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, remember) for number in numbers]
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class Display:
    """A live table on a terminal, lines as they come in a pipe."""

    def __init__(self, run_dir: RunDir, out: Console) -> None:
        self.run_dir = run_dir
        self.out = out
        self.live = Live(console=out, auto_refresh=False, transient=False) if out.is_terminal else None
        self._drawn_at = float("-inf")

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.draw()
            self.live.stop()

    def say(self, line: str) -> None:
        """One event: in a pipe only, the table shows it otherwise."""
        if self.live is None:
            with suppress(OSError):  # a full disk or a closed pipe must not end the controller
                print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)

    def draw(self) -> None:
        """Redraw the table now."""
        if self.live is not None:
            self.live.update(run_table(run_view(self.run_dir), time.time(), self.out.width), refresh=True)

    def shown(self) -> None:
        """Redraw if it is time to."""
        if time.monotonic() - self._drawn_at >= REDRAW_S:
            self._drawn_at = time.monotonic()
            self.draw()


def start(asked: Asked, out: Console) -> None:
    """Own the run and keep it going until it is done, stopped, or this process is told to end."""
    run_dir = asked.run_dir
    for warning in warnings_of(asked.config):
        print(f"note: {warning}", file=sys.stderr)
    prepare_folder(run_dir)
    lease = Lease.take(run_dir, "start", now=time.time())
    try:
        run = begin(asked.config, asked.path, run_dir, os.environ, time.time(), forked=asked.forked_from)
        register(run, run_dir, time.time())
        if read_control(run_dir).wish != "run":
            write_control(run_dir, "run", now=time.time(), by="start")
        with interruptions() as interrupted, Display(run_dir, out) as display:
            controller = make_controller(run, run_dir, lease, display.say)
            controller.reactivate()
            controller.loop(interrupted=interrupted, shown=display.shown)
    finally:
        lease.release()
    report_end(controller, run, run_dir, out)


def make_controller(
    run: Run, run_dir: RunDir, lease: Lease, say: Callable[[str], None], *, poll_s: float | None = None
) -> Controller:
    """The controller of a run, on its executor."""
    executor = make_executor(run, run_dir)
    return Controller(run, run_dir, lease, executor, poll_s=poll_s or poll_seconds(run), say=say)


def report_end(controller: Controller, run: Run, run_dir: RunDir, out: Console) -> None:
    """Say why the controller ended. Errors: Interrupted, SchedulerRefused, RunFailed."""
    name = run.config.run_name
    if not controller.over:
        raise Interrupted(
            f"the controller of {name} has ended; its jobs go on. Take it up again with `orchestrator start {name}`, "
            f"or end the jobs with `orchestrator stop {name}`."
        )
    summary = summarise(run, run_dir)
    if out.is_terminal:
        out.print(summary_table(summary))
    else:
        print("\n".join(summary_lines(summary)))
    if controller.control.wish == "run":
        report_failures(controller.ledger, name)


def report_failures(ledger: Ledger, name: str) -> None:
    """Slots that were given up, by their reason. Errors: SchedulerRefused where Slurm refused them, else RunFailed."""
    reasons: dict[str, list[str]] = {}
    refused = True
    for slot in ledger.slots:
        if slot.status is SlotStatus.FAILED:
            reasons.setdefault(slot.why, []).append(str(slot.index))
            refused = refused and (slot.current is None or slot.current.verdict is None)
    if reasons:
        words = "; ".join(f"slot {', '.join(slots)} stopped: {why}" for why, slots in reasons.items())
        raise (SchedulerRefused if refused else RunFailed)(f"{words}. Mend it, then `orchestrator start {name}`.")


def start_detached(asked: Asked, words: list[str], out: Console) -> None:
    """`start` in a session of its own, with its output in controller.log. `words`: the command line that asks for the
    same. Errors: as `start`.
    """
    run_dir, name = asked.run_dir, asked.config.run_name
    prepare_folder(run_dir)
    if owner := living_owner(run_dir):
        raise LeaseHeld(f"this run already has a controller: {owner}. See `orchestrator status {name}`.")
    before = highest_epoch(run_dir)
    with open(run_dir.log, "ab") as log:
        start_of_log = log.tell()
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    give_up_at = time.monotonic() + DETACH_TIMEOUT_S
    while time.monotonic() < give_up_at:
        epoch = highest_epoch(run_dir)
        if epoch > before and run_dir.ledger(epoch).exists() and read_owner(run_dir, epoch).process.pid == child.pid:
            out.print(
                f"{name} is under way: controller {child.pid}, log {run_dir.log}\n"
                f"  orchestrator status {name}\n  orchestrator stop {name}",
                soft_wrap=True,
            )
            return
        if child.poll() is not None:
            with open(run_dir.log, encoding="utf-8", errors="replace") as log_text:
                log_text.seek(start_of_log)
                sys.stderr.write(log_text.read())
            sys.exit(child.returncode)
        time.sleep(0.05)
    raise LeaseHeld(
        f"the controller (process {child.pid}) has not begun within {DETACH_TIMEOUT_S:.0f} s; see {run_dir.log}."
    )


def tick(run_dir: RunDir, out: Console) -> None:
    """One tick, for cron and for hands."""
    run = load_run(run_dir)
    lease = Lease.take(run_dir, "tick", now=time.time())
    try:
        make_controller(run, run_dir, lease, lambda line: out.print(line, soft_wrap=True)).tick()
    finally:
        lease.release()


def stop(run_dir: RunDir, *, at_once: bool, grace_s: float | None, out: Console) -> None:
    """Ask for the end and wait for it: by the living owner, else by ticking here."""
    run = load_run(run_dir)
    load_ledger(run_dir, run.run_id)
    grace = float(run.config.lead_seconds) + HAND_OVER_MARGIN_S if grace_s is None else grace_s
    wish = write_control(run_dir, "stop-now" if at_once else "stop", now=time.time(), by="stop", grace_s=grace)
    give_up_at = time.monotonic() + grace + STOP_MARGIN_S + 2 * poll_seconds(run)
    with interruptions() as interrupted, Display(run_dir, out) as display:
        while not interrupted():
            owner = living_owner(run_dir)
            if owner is None:
                _stop_here(run, run_dir, interrupted, display)
                break
            if time.monotonic() > give_up_at:
                raise LeaseHeld(
                    f"the wish is written (control/{wish.number}.json), but {owner} has not ended the jobs yet."
                )
            display.shown()
            time.sleep(0.1)
    _wait_for_the_queue(run, run_dir)
    report_stop(run, run_dir)


def _wait_for_the_queue(run: Run, run_dir: RunDir) -> None:
    """A job that has said its last word stays in the queue for a moment; whoever asks squeue next should not see it."""
    executor = make_executor(run, run_dir)
    give_up_at = time.monotonic() + QUEUE_TIMEOUT_S
    while time.monotonic() < give_up_at:
        poll = executor.poll()
        if poll.error is not None or all(row.state is JobState.ENDED for row in poll.rows):
            return
        time.sleep(QUEUE_LOOK_S)


def _stop_here(run: Run, run_dir: RunDir, interrupted: Callable[[], bool], display: Display) -> None:
    lease = Lease.take(run_dir, "stop", now=time.time())
    try:
        controller = make_controller(run, run_dir, lease, display.say, poll_s=min(poll_seconds(run), STOP_POLL_S))
        controller.loop(interrupted=interrupted, shown=display.shown)
    finally:
        lease.release()


def report_stop(run: Run, run_dir: RunDir) -> None:
    """Say where everything stands after a stop."""
    view = run_view(run_dir)
    left = [slot.job_id for slot in view.slots if slot.job_id is not None]
    if left:
        print(f"Still there: jobs {', '.join(left)}; the wish to stop stands, the next tick goes on with it.")
        return
    saved = ", ".join(
        f"slot {s.slot} at step {s.checkpoint_step:,}" for s in view.slots if s.checkpoint_step is not None
    )
    name = run.config.run_name
    print(f"{name} is stopped{': saved ' + saved if saved else ''}. Go on with `orchestrator start {name}`.")
