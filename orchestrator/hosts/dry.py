"""`start --dry-run`: what would be done now, from real looks, without a lease and without a write."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence

from anchorleg.words import counted
from orchestrator.config import check_start, training_identity
from orchestrator.controller import Controller
from orchestrator.decisions.models import Abort, Action, Cancel, HandOver, Slot, Submit
from orchestrator.decisions.turns import in_turn, turns_of
from orchestrator.hosts.host import finished_words, notes_of, waiting_for_start, wish_of
from orchestrator.notation import format_duration
from orchestrator.run.begin import UNDRAWN, check_identity, executor_for, has_begun, rendered
from orchestrator.run.lease import Lease, living_owner
from orchestrator.run.ledger import load_ledger, read_control
from orchestrator.run.rundir import load_run, make_executor
from orchestrator.run.starting import StartRequest, commands_of
from orchestrator.screens.cells import slots_words

#: So many submissions are written out; the slots of the others are named in one line.
SLOTS_SHOWN = 8


def dry_start(asked: StartRequest) -> list[str]:
    """What `start` would do, in lines. Errors: as `begin`."""
    config, run_dir = asked.config, asked.run_dir
    executor = executor_for(config, run_dir, os.environ)
    check_start(config, executor)
    commands = commands_of(config)
    others = f" (and {len(commands) - 1} more)" if len(commands) > 1 else ""
    what = f"{shlex.join(commands[0])}{others}" if commands else "the trainer" if config.trains else "actors"
    jobs = f"jobs of {format_duration(config.slurm.time_limit)} by {executor}"
    lines = notes_of(asked)
    lines += [f"run {config.run_name}: {counted(config.slots, 'slot')} of {what}, {jobs}", f"run folder {run_dir.path}"]
    actions: Sequence[Action] = ()
    if run_dir.run_file.exists():
        notes, actions = _going_on(asked, executor)
        lines += notes
    else:
        lines += ["", f"the job script of slot 0 ({UNDRAWN} stands for a random part):"]
        lines += [*rendered(config, asked.path, 0, os.environ).splitlines(), ""]
        places = 1 if config.queue.probe_first else config.places
        why = "slot 0 goes first" if config.queue.probe_first else f"slurm.max_jobs is {places}"
        order = [slot.index for slot in in_turn([Slot(index=slot) for slot in range(config.slots)], turns_of(config))]
        actions, left = [Submit(slot, 0, "") for slot in order[:places]], sorted(order[places:])
        lines += [f"{slots_words(left)} would wait, because {why}"] if left else []
    more = [action for action in actions if isinstance(action, Submit)][SLOTS_SHOWN:]
    acts = [_words(action) for action in actions if action not in more]
    if more:
        acts.append(f"would submit {counted(len(more), 'more job')}, for {slots_words([a.slot for a in more])}")
    return [*lines, *(acts or ["`orchestrator start` would do nothing now."]), "Nothing was changed."]


def _going_on(asked: StartRequest, executor: str) -> tuple[list[str], Sequence[Action]]:
    """What there is to know of a run that was begun, and what would be done."""
    config, run_dir = asked.config, asked.run_dir
    before, wish = load_run(run_dir), read_control(run_dir)
    if has_begun(run_dir):
        check_identity(before.identity, training_identity(config), config, run_dir)
    notes = [f"run {before.run_id} continues{'' if config == before.config else ', with its config changed'}"]
    if (owner := living_owner(run_dir)) is not None and not owner.passes:
        waiting = waiting_for_start(load_ledger(run_dir, before.run_id), before.config.slots)
        told = f"would ask {owner} to continue {slots_words(waiting)}"
        is_told = waiting and config == before.config and wish.wish == "run"
        return [*notes, told if is_told else f"would be refused: {owner} has this run"], ()
    run = before.model_copy(update={"config": config, "executor": executor})
    queue = make_executor(run, run_dir)
    controller = Controller(run, run_dir, Lease.of_nobody(run_dir), queue, poll_s=run.poll_s)
    controller.reactivate()
    actions = controller.preview(wish_of(asked, wish, time.time()) or wish)  # it takes up the wish
    notes += filter(None, [finished_words(controller)])
    if (error := queue.poll().error) is not None:
        notes.append(f"the queue does not answer ({error}): nothing would be submitted until it does")
    return notes, actions


def _words(action: Action) -> str:
    match action:
        case Submit(slot=slot, attempt=attempt, after=after, exclude=exclude):
            behind = f", queued behind job {after}" if after else ""
            without = f", not on {', '.join(exclude)}" if exclude else ""
            return f"would submit a job for slot {slot} (attempt {attempt}{behind}{without})"
        case HandOver(slot=slot, job_id=job_id):
            return f"would ask job {job_id or '(id unknown)'} of slot {slot} to save and exit"
        case Cancel(slot=slot, job_id=job_id, why=why):
            return f"would cancel job {job_id} of slot {slot}: {why}"
        case Abort(slot=slot, attempt=attempt, why=why):
            return f"would make attempt {attempt} of slot {slot} print its stacks and end: {why}"
