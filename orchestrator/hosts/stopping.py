"""The end of a run's jobs: by the run's owner, else here. Every wait has an end, and what is left is named."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from rich.console import Console

from anchorleg.files import patiently
from anchorleg.output import Waiting, say
from orchestrator.controller import HAND_OVER_MARGIN_S
from orchestrator.decisions.requests import Control
from orchestrator.errors import Interrupted, LeaseHeld, StopUnfinished
from orchestrator.executors.base import JobState
from orchestrator.hosts.display import RunDisplay, interruptions
from orchestrator.hosts.hook import Hook
from orchestrator.hosts.host import make_controller
from orchestrator.run.lease import TTL_S, Lease, living_owner, silent_for
from orchestrator.run.ledger import load_ledger, read_control, write_control
from orchestrator.run.rundir import Run, RunDir, load_run, make_executor
from orchestrator.screens.board import BoardWriter
from orchestrator.screens.reading import run_view

#: After its grace a stop cancels; Slurm's KillWait and one poll later the jobs are gone.
STOP_MARGIN_S = 60.0
#: An owner beats at least once a minute (controller.BEAT_S); one that is silent for longer is perhaps gone.
DOUBTFUL_S = 75.0
#: From here on the person who waits is told why.
SILENCE_TOLD_S = 10.0
#: Between two looks a living owner is silent, too. A wish wakes it within some seconds, and it beats.
WAKE_S = 5.0
LOOK_S = 0.1
#: Slurm takes an ended job out of the queue within a second or two; an epilog may take longer.
QUEUE_TIMEOUT_S = 15.0


def wish_to_stop(run_dir: RunDir, *, at_once: bool, grace_s: float) -> Control:
    """Wish what `stop` or `stop --now` asks for. Errors: OSError."""
    by = "stop --now" if at_once else "stop"
    return write_control(run_dir, "stop-now" if at_once else "stop", now=time.time(), by=by, grace_s=grace_s)


def stop(run_dir: RunDir, *, at_once: bool, grace_s: float | None, out: Console) -> None:
    """Ask for the end and wait for it: by the living owner, else by ticking here.

    Errors: LeaseHeld where the owner lives and does not do it, or was told to go on; StopUnfinished; Interrupted.
    """
    run = patiently(lambda: load_run(run_dir))
    patiently(lambda: load_ledger(run_dir, run.run_id))
    name = run.config.run_name
    grace_s = float(run.config.lead_seconds) + HAND_OVER_MARGIN_S if grace_s is None else grace_s
    wish = wish_to_stop(run_dir, at_once=at_once, grace_s=grace_s)
    patience_s = (0.0 if at_once else grace_s) + STOP_MARGIN_S + 2 * run.poll_s
    asked_at, told = time.monotonic(), False
    with interruptions() as interrupted, RunDisplay(run_dir, out) as display:
        while not interrupted():
            newer = patiently(lambda: read_control(run_dir))
            if newer.number > wish.number and newer.wish == "run":
                raise LeaseHeld("stop.started-again", name=name)
            owner = patiently(lambda: living_owner(run_dir))
            if owner is None:
                # The whole time again: what is left of it may have gone into waiting for the owner.
                if _stop_here(run, run_dir, interrupted, time.monotonic() + patience_s, display):
                    break
                time.sleep(LOOK_S)  # the last owner's ledger does not show here yet
                continue
            silent_s = patiently(partial(silent_for, run_dir, owner.epoch, time.monotonic()))
            waited_s = time.monotonic() - asked_at
            if silent_s > SILENCE_TOLD_S and waited_s > WAKE_S and not told and not owner.passes:
                told = True
                display.note(f"{owner} is silent; after {TTL_S:.0f} s the stop continues here")
            if waited_s > patience_s and silent_s < DOUBTFUL_S:
                raise LeaseHeld("stop.not-yet", number=wish.number, owner=owner, name=name)
            display.shown()
            time.sleep(LOOK_S)
    if not interrupted():
        with Waiting("waiting for Slurm's queue"):
            _wait_for_the_queue(run, run_dir)
    _report(run, run_dir, interrupted=interrupted())


def _stop_here(
    run: Run, run_dir: RunDir, interrupted: Callable[[], bool], give_up_at: float, display: RunDisplay
) -> bool:
    """Tick until nothing is left, or until `give_up_at` (monotonic). False: somebody else has just taken the run."""
    try:
        lease = Lease.take(run_dir, "stop", now=time.time())
    except LeaseHeld:
        return False
    try:
        hook, board = Hook(run, run_dir, display.note), BoardWriter(run, run_dir)
        controller = make_controller(run, run_dir, lease, display.say, hook, board.write)
        controller.loop(interrupted=lambda: interrupted() or time.monotonic() > give_up_at, shown=display.shown)
        hook.close()
    finally:
        lease.release()
    return True


def _wait_for_the_queue(run: Run, run_dir: RunDir) -> None:
    """A job that has ended stays in the queue for a moment; a person who asks squeue next should not see it."""
    executor = make_executor(run, run_dir)
    give_up_at = time.monotonic() + QUEUE_TIMEOUT_S
    while time.monotonic() < give_up_at:
        poll = executor.poll()
        if poll.error is not None or all(row.state is JobState.ENDED for row in poll.rows):
            return
        time.sleep(0.5)


def _report(run: Run, run_dir: RunDir, *, interrupted: bool) -> None:
    """Say where everything stands after a stop. Errors: StopUnfinished, Interrupted."""
    name = run.config.run_name
    ledger = load_ledger(run_dir, run.run_id)
    live = [one for slot in (ledger.slots if ledger else ()) for attempt in slot.attempts for one in attempt.live]
    if jobs := ", ".join(submission.job_id or submission.token for submission in live):
        if interrupted:
            raise Interrupted("stop.interrupted", jobs=jobs, name=name)
        if ledger is not None and ledger.blind_since is not None:
            raise StopUnfinished("stop.queue-unseen", jobs=jobs, name=name, why=ledger.blind_error)
        raise StopUnfinished("stop.jobs-left", jobs=jobs, name=name)
    view = run_view(run_dir)
    if view.state == "finished":
        say(f"{name} is finished; there is nothing to stop.")
        return
    done = sum(slot.state == "finished" for slot in view.slots)
    finished = f" with {done} of {len(view.slots)} slots finished" if done else ""
    say(f"{name} is stopped{finished}. Continue with `orchestrator start {name}`.")
