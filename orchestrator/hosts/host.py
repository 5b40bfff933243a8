"""The controller in the foreground, and what every host needs: making it, and saying how it ended.

The other hosts: `detached` (in the background), `ticking` (once), `stopping`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console

from anchorleg.files import patiently
from anchorleg.output import Waiting, say
from orchestrator.config import RunConfig
from orchestrator.configwarnings import wandb_notes, warnings_of
from orchestrator.controller import Controller
from orchestrator.decisions.models import Ledger, SlotStatus
from orchestrator.decisions.requests import TIME_OVER, Control
from orchestrator.disk import read_json
from orchestrator.errors import (
    AnchorlegError,
    ConfigError,
    HandedOver,
    Interrupted,
    LeaseHeld,
    LeaseLost,
    RunFailed,
    RunFolderError,
    RunPaused,
    SchedulerRefused,
)
from orchestrator.executors.local import sharing, visible_gpus
from orchestrator.hosts.display import RunDisplay, interruptions
from orchestrator.hosts.hook import Hook
from orchestrator.hosts.notice import PREEMPTED, notices_heeded
from orchestrator.processes import is_alive
from orchestrator.run.begin import begin, executor_for, prepare_folder
from orchestrator.run.code import code_hash, fix_code
from orchestrator.run.lease import TTL_S, Lease, living_owner, silent_for, wait_for_word
from orchestrator.run.ledger import load_ledger, read_control, write_control
from orchestrator.run.rundir import Run, RunDir, load_run, make_executor, register
from orchestrator.run.starting import StartRequest
from orchestrator.screens.board import BoardWriter
from orchestrator.screens.cells import slots_words
from orchestrator.screens.goodput import goodput_lines, goodput_of, goodput_table
from orchestrator.screens.reading import run_view
from orchestrator.screens.timeline import clock

#: In the environment of a process that a `start` puts into the background: the newest wish when that was typed.
KNOWN = "ANCHORLEG_KNOWN_WISH"
#: What our trainer leaves of a complete training (`trainer.training.features.final`).
FINAL = "final.safetensors"


def start(asked: StartRequest, out: Console) -> None:
    """Own the run and keep it going until it is done, stopped, or this process is told to end.

    Where a living controller has the run and slots wait for a person, it is told to go on with them.
    """
    run_dir, told = asked.run_dir, os.environ.pop(KNOWN, None)
    known = int(told) if told is not None else patiently(lambda: read_control(run_dir)).number
    say(*notes_of(asked), file=sys.stderr)
    wait_for_owner_elsewhere(asked)
    if hand_to_living_owner(asked):
        return
    prepare_folder(run_dir)
    # Who leads a session of its own was put into the background, and no terminal has it: `status` says so.
    in_background = os.getsid(0) == os.getpid()
    lease = Lease.take_patiently(run_dir, "start --via daemon" if in_background else "start")
    try:
        with Waiting("copying Anchorleg into the run's folder"):
            run = begin_run(asked, known)
        with interruptions() as interrupted, RunDisplay(run_dir, out) as display:
            hook, board = Hook(run, run_dir, display.note), BoardWriter(run, run_dir)
            controller = make_controller(run, run_dir, lease, display.say, hook, board.write)
            controller.reactivate()
            if controller.control.wish == "run" and (words := finished_words(controller)):
                display.note(words)
            with notices_heeded(run, run_dir, display.note):
                while True:
                    try:
                        controller.loop(interrupted=interrupted, shown=display.shown)
                        hook.close()
                        if interrupted() or not controller.is_asked:
                            break
                        continue  # a request came while the end was told
                    except LeaseLost:
                        if (owner := lease.passed_by()) is None:
                            raise
                    display.note(f"this process was suspended, and {owner} took over the run: continuing")
                    lease = Lease.take_patiently(run_dir, lease.owner.command)
                    controller = make_controller(run, run_dir, lease, display.say, hook, board.write)
    finally:
        lease.release()
    report_end(controller, run, run_dir, out)


def wait_for_owner_elsewhere(asked: StartRequest) -> None:
    """Where controller and jobs are on another machine: wait until it is known whether it lives. A rented machine that
    was taken away says nothing, and the next one is to go on by itself. Errors: RunFolderError; OSError.
    """
    owner = patiently(lambda: living_owner(asked.run_dir))
    if owner is None or executor_of(asked) != "local" or is_alive(owner.process) is not None:
        return
    known_s = round(TTL_S - patiently(lambda: silent_for(asked.run_dir, owner.epoch, time.monotonic())))
    say(f"note: {owner} had this run; if it stays silent, this start takes over in {known_s} s.", file=sys.stderr)
    wait_for_word(asked.run_dir, owner)


def executor_of(asked: StartRequest) -> str:
    """The executor; empty where there is none, which `begin` refuses."""
    try:
        return patiently(lambda: executor_for(asked.config, asked.run_dir, os.environ))
    except (ConfigError, RunFolderError, OSError):
        return ""


def notes_of(asked: StartRequest) -> list[str]:
    """What the person who types `start` should know, a line each."""
    config = asked.config
    here = visible_gpus(os.environ) if executor_of(asked) == "local" else ()
    shared = sharing(here, config.places, config.slurm.gpus)
    notes = [*warnings_of(config), shared, *wandb_notes(config.wandb, os.environ), *asked.notes]
    return [f"note: {note}" for note in notes if note]


def begin_run(asked: StartRequest, known: int) -> Run:
    """Make or revise the run, remember it, and wish that it goes on. The caller holds the lease.

    `known`: the newest wish when the command began. What a person wished since then, while it waited, counts.
    """
    forked, renew, run_dir = asked.forked_from, asked.renew_code, asked.run_dir
    run = begin(asked.config, asked.path, run_dir, os.environ, time.time(), forked=forked, renew_code=renew)
    register(run, run_dir, time.time())
    before, now = read_control(run_dir), time.time()
    typed = _typed_between(run_dir, known, before.number)
    if typed is not None and typed.wish != "run":
        say(f"note: `orchestrator {typed.by}` was typed after this start and takes precedence.", file=sys.stderr)
    elif typed != before and (wish := wish_of(asked, before, now)) is not None:
        write_control(run_dir, "run", now=now, by="start", until=wish.until)
    return run


def wish_of(asked: StartRequest, before: Control, now: float) -> Control | None:
    """What `start` wishes at `now` where `before` counts, with an end if it has one; None: the same."""
    if before.wish == "run" and before.until is None and asked.for_s is None:
        return None
    return Control(number=before.number + 1, wish="run", at=now, by="start", until=asked.until(now))


def _typed_between(run_dir: RunDir, known: int, newest: int) -> Control | None:
    """The newest wish of a person above the number `known`. One that was damaged or taken away is none."""
    for number in range(newest, known, -1):
        with suppress(FileNotFoundError, ValueError):
            wish = Control.model_validate(read_json(run_dir.disk, run_dir.control / f"{number}.json"))
            if wish.by not in {PREEMPTED, TIME_OVER}:
                return wish
    return None


def hand_to_living_owner(asked: StartRequest) -> bool:
    """Where a living controller has the run, mend its code; and if slots of it wait for `start`, or its end is set or
    taken away, wish that. True: done. Errors: LeaseHeld where it is stopping the run, or the config was changed too.
    """
    run_dir, name = asked.run_dir, asked.config.run_name
    owner = patiently(lambda: living_owner(run_dir))
    if owner is None or owner.passes or not run_dir.run_file.exists():
        return False
    run = patiently(lambda: load_run(run_dir))
    if code_hash() == run.code:
        fix_code(run_dir.code)
    before = patiently(lambda: read_control(run_dir))
    if before.wish != "run":
        raise LeaseHeld("controller.is-stopping", owner=owner, by=before.by, name=name)
    if asked.config != run.config or asked.renew_code:
        raise LeaseHeld("controller.other-config", owner=owner, name=name)
    ledger = patiently(lambda: load_ledger(run_dir, run.run_id))
    waiting = waiting_for_start(ledger, run.config.slots)
    if not waiting and asked.for_s is None and before.until is None:
        return False
    now = time.time()
    write_control(run_dir, "run", now=now, by="start", until=asked.until(now))
    does = [f"{name} continues {slots_words(waiting)}"] if waiting else []
    if (until := asked.until(now)) is not None:
        does.append(f"{name} stops at {clock(until, now)}, with every job saved")
    elif before.until is not None:
        does.append(f"{name} no longer stops at {clock(before.until, now)}")
    say(f"{'; '.join(does)}: {owner} was notified. See `orchestrator status {name}`.")
    return True


def waiting_for_start(ledger: Ledger | None, slots: int) -> list[int]:
    """Those of the first `slots` slots that go on when `start` is typed."""
    found = ledger.slots[:slots] if ledger else ()
    waits = {SlotStatus.PAUSED, SlotStatus.FAILED}
    return [slot.index for slot in found if slot.status in waits and not slot.on_request]


def make_controller(
    run: Run,
    run_dir: RunDir,
    lease: Lease,
    say: Callable[[str], None],
    hook: Hook,
    on_tick: Callable[[], None] = lambda: None,
) -> Controller:
    """The controller of a run, on its executor. Errors: RunFolderError, OSError."""
    executor = make_executor(run, run_dir)
    return patiently(
        lambda: Controller(run, run_dir, lease, executor, poll_s=run.poll_s, say=say, on_event=hook, on_tick=on_tick)
    )


def report_end(controller: Controller, run: Run, run_dir: RunDir, out: Console) -> None:
    """Say why the controller ended. Errors: Interrupted, SchedulerRefused, RunFailed, RunPaused."""
    name = run.config.run_name
    if not controller.over:
        if not any(slot.occupied for slot in controller.ledger.slots):
            raise Interrupted("controller.ended", name=name)
        by_jobs = run.executor == "slurm" and run.config.relay.failover_tick
        raise Interrupted("controller.ended-jobs-relay" if by_jobs else "controller.ended-jobs-go-on", name=name)
    with suppress(AnchorlegError):  # a damaged file of a job is no reason to end in another way
        now = time.time()
        spent = goodput_of(run_view(run_dir, now, jobs=None), now)
        if out.is_terminal:
            out.print(goodput_table(spent, out.width))
        else:
            say(*goodput_lines(spent))
    say(f"Everything is in {run_dir.path}", "  checkpoints and metrics: slots/<slot>/attempts/<attempt>/")
    say("  job output: jobs/<job>/, or `orchestrator logs <slot>`")
    for slot in range(run.config.slots):
        for path in run_dir.slot(slot).glob(f"attempts/*/{FINAL}"):
            say(f"  slot {slot}'s policy, one file: {path.relative_to(run_dir.path)}")
    if controller.control.by == PREEMPTED:
        report_leaving(controller.ledger, controller.run.config)
    if controller.control.by == TIME_OVER:
        say(f"The time of `start --for` is over; continue with `orchestrator start {name}`.")
    if controller.control.wish == "run" or controller.control.by == TIME_OVER:
        _report_failures(controller.ledger, name)


def report_leaving(ledger: Ledger, config: RunConfig) -> None:
    """After a notice the same command goes on, here or on another machine that sees the folder: HandedOver (exit code
    75), unless nothing is left to do.
    """
    over = {SlotStatus.FINISHED, SlotStatus.DROPPED, SlotStatus.BEHIND}
    if any(slot.status not in over for slot in ledger.slots[: config.slots]):
        raise HandedOver("machine.taken", name=config.run_name)


def finished_words(controller: Controller) -> str:
    """What to say where `start` finds every slot finished, and nothing more to do for any; else empty."""
    config = controller.run.config
    if not controller.over or any(slot.status is SlotStatus.PAUSED for slot in controller.ledger.slots):
        return ""
    again = f"`orchestrator start {config.run_name} --set"
    how = f"To train further, add steps: {again} training.total_steps=…`."
    if config.command is not None:
        how = f"To continue a slot, give it other params or another command: {again} params.NAME=…`."
    return f"{config.run_name} is finished. {how}"


def _report_failures(ledger: Ledger, name: str) -> None:
    """Errors: SchedulerRefused where Slurm refused slots, else RunFailed; RunPaused where nothing failed."""
    failed = [slot for slot in ledger.slots if slot.status is SlotStatus.FAILED]
    paused = [slot for slot in ledger.slots if slot.status is SlotStatus.PAUSED]
    alike: dict[str, list[int]] = {}
    for slot in failed or paused:
        alike.setdefault(slot.why, []).append(slot.index)
    stands = "stopped" if failed else "paused"
    reasons = "; ".join(f"{slots_words(slots)} {stands}: {why}" for why, slots in alike.items())
    if failed and all(slot.current is None or slot.current.verdict is None for slot in failed):
        raise SchedulerRefused("slots.refused", reasons=reasons, name=name)
    if failed:
        raise RunFailed("slots.failed", reasons=reasons, name=name)
    if paused:
        on_request = all(slot.on_request for slot in paused)
        raise RunPaused("slots.paused-on-request" if on_request else "slots.paused", reasons=reasons, name=name)
