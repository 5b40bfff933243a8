"""The controller once a minute, by the user's crontab: for login nodes that end resident processes.

Nothing is kept between two ticks but the ledger. While another controller lives, cron's ticks say nothing and change
nothing; the tick that finds the run over takes its line out of the crontab.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from rich.console import Console

from orchestrator.errors import (
    AnchorlegError,
    ConfigError,
    LeaseHeld,
    LeaseLost,
    RunFolderError,
    StorageError,
    UnknownRun,
)
from orchestrator.hosts import cron
from orchestrator.hosts.board import BoardWriter
from orchestrator.hosts.display import Log
from orchestrator.hosts.hook import Hook
from orchestrator.hosts.host import (
    already_finished,
    begin_run,
    begun_words,
    hand_to_living_owner,
    make_controller,
    report_failures,
    take_for_start,
    tell_notes,
)
from orchestrator.hosts.stopping import after_stop
from orchestrator.processes import host_name
from orchestrator.run.cronrecord import host_of
from orchestrator.run.lease import Lease, read_owner
from orchestrator.run.ledger import EPOCHS_KEPT, read_control
from orchestrator.run.rundir import Run, RunDir, load_run
from orchestrator.run.starting import StartRequest
from orchestrator.screens.status import run_view

#: What the owner of a lease says of itself that cron has started.
TICK = "tick --cron"


def start_with_cron(asked: StartRequest, out: Console) -> None:
    """Write the run's line and look for the first time. Twice is no error: the line is renewed.

    Errors: as `host.start`; ConfigError where this machine has no crontab for us.
    """
    run_dir, name = asked.run_dir, asked.config.run_name
    if asked.config.relay.preemption_notice != "none":
        raise ConfigError("relay.preemption_notice: it needs a controller that stays: start without --via cron.")
    cron.read_table()  # before anything is begun
    known = read_control(run_dir).number
    tell_notes(asked)
    if hand_to_living_owner(asked):
        return
    lease = take_for_start(asked)
    try:
        run = begin_run(asked, known)
        cron.register(run, run_dir, time.time())
        log = Log(run_dir)
        hook = Hook(run, run_dir, log.say)
        controller = make_controller(run, run_dir, lease, log.say, hook=hook)
        controller.reactivate()
        was_over = controller.over
        controller.tick()
    finally:
        lease.release()
    BoardWriter(run, run_dir).tell()
    hook.close()
    if controller.over and not controller.is_asked:
        cron.unregister(run.run_id, run_dir)
        if controller.control.wish != "run":
            out.print(after_stop(run_view(run_dir)), soft_wrap=True)
            return
        report_failures(controller.ledger, name)
        nothing = f"{name} is finished: there is nothing to look after."
        out.print(already_finished(run.config) if was_over else nothing, soft_wrap=True)
        return
    going = "cron on this machine looks after it once a minute"
    out.print(begun_words(run_dir, name, going=going, stopping=f"{going} until its jobs have ended"), soft_wrap=True)


def tick_for_cron(run_dir: RunDir, run_id: str) -> int:
    """One tick of the line of `run_id`. Returns the exit code.

    Says nothing but in controller.log; a new trouble is said once on standard error too, which cron mails.
    """
    log = Log(run_dir)
    try:
        run = load_run(run_dir)
    except UnknownRun as error:
        return _orphan(run_dir, run_id, error)
    except AnchorlegError as error:
        return _trouble(log, error)
    except OSError as error:
        return _trouble(log, _of_a_file(error))
    if run.run_id != run_id:
        return _orphan(run_dir, run_id, UnknownRun(f"{run_dir.path} now holds {run.run_id}."))
    try:
        lease = Lease.take(run_dir, TICK, now=time.time())
    except LeaseHeld:
        return 0
    except AnchorlegError as error:
        return _trouble(log, error)
    except OSError as error:
        return _trouble(log, _of_a_file(error))
    return _tick_with(lease, run, run_dir, log)


def _tick_with(lease: Lease, run: Run, run_dir: RunDir, log: Log) -> int:
    """One tick, unless the run's line is on another machine now. Takes the line out where it is of no more use."""
    hook = Hook(run, run_dir, log.say)
    try:
        place = host_of(run_dir)  # with the lease: nobody moves the line now
        if place is not None and not place.is_here and _has_ticked_since(run_dir, lease.epoch, place.host):
            cron.take_out(run.run_id)
            log.say(f"cron on {place.host} looks after this run: the line of {host_name()} is out of its crontab")
            return 0
        controller = make_controller(run, run_dir, lease, log.say, hook=hook)
        controller.tick()
    except LeaseLost:
        return 0  # we were away for long, and somebody went on
    except AnchorlegError as error:
        return _trouble(log, error)
    except OSError as error:
        return _trouble(log, _of_a_file(error))
    finally:
        with suppress(OSError):
            lease.release()
    BoardWriter(run, run_dir).tell()
    hook.close()
    if controller.over and not controller.is_asked:
        try:
            cron.take_out(run.run_id)
            cron.unregister(run.run_id, run_dir)
        except ConfigError as error:
            return _trouble(log, error)
        log.say("nothing is left to do: cron no longer looks after this run")
    return 0


def _has_ticked_since(run_dir: RunDir, epoch: int, host: str) -> bool:
    """Whether cron on `host` has looked after the run between this machine's last tick and this one, of `epoch`.

    Its name in the record is no proof: a machine is renamed, and of a crontab that several share one runs the lines.
    """
    seen: set[str] = set()
    for number in range(epoch - 1, max(-1, epoch - EPOCHS_KEPT), -1):
        try:
            owner = read_owner(run_dir, number)
        except (RunFolderError, OSError):
            return False
        if owner.command == TICK and owner.process.host == host_name():
            return host in seen
        seen |= {owner.process.host} if owner.command == TICK else set()
    return False


def _orphan(run_dir: RunDir, run_id: str, error: UnknownRun) -> int:
    """The run is gone. So is its line, unless only its disk is: then the folder is missing, or an empty mount point."""
    if not run_dir.disk.names(run_dir.path.parent):
        return error.exit_code
    with suppress(ConfigError, OSError):
        cron.take_out(run_id)
        print(f"orchestrator: {error} Its line is out of the crontab.", file=sys.stderr)
    return error.exit_code


def _of_a_file(error: OSError) -> StorageError:
    return StorageError(f"{error.filename or 'a file'}: {error.strerror or error}.")


def _trouble(log: Log, error: AnchorlegError) -> int:
    if log.say_once(f"trouble: {error}"):
        print(f"orchestrator: {error}", file=sys.stderr)
    return error.exit_code
