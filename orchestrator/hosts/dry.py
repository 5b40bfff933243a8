"""`--dry-run` of start, tick and stop: what would be done now, from real looks, without a lease and without a write."""

from __future__ import annotations

import json
import os
import shlex
import time
from dataclasses import asdict, dataclass

from anchorleg.words import counted
from orchestrator.config import RunConfig, check_start, training_identity
from orchestrator.controller import Controller
from orchestrator.decisions.models import Abort, Action, Cancel, HandOver, Slot, Submit
from orchestrator.decisions.requests import Control
from orchestrator.decisions.turns import in_turn, turns_of
from orchestrator.hosts.host import already_finished, is_paused, notes_of, waiting_for_start, wish_of
from orchestrator.hosts.notice import grace_of
from orchestrator.notation import format_duration
from orchestrator.run.begin import UNDRAWN, check_identity, executor_for, has_begun, rendered
from orchestrator.run.lease import Lease, living_owner
from orchestrator.run.ledger import load_ledger, read_control
from orchestrator.run.rundir import Run, RunDir, load_run, make_executor
from orchestrator.run.starting import StartRequest, commands_of
from orchestrator.screens.cells import slots_words

#: Of a thousand submissions so many are written out; the slots of the others are named in one line.
SLOTS_SHOWN = 8


@dataclass(frozen=True)
class Rehearsal:
    """What a command would do: `actions`, and before them what else there is to know, a sentence each."""

    command: str
    run_name: str
    run_dir: str
    actions: tuple[Action, ...]
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people."""
        more = [action for action in self.actions if isinstance(action, Submit)][SLOTS_SHOWN:]
        acts = [_words(action) for action in self.actions if action not in more]
        if more:
            acts.append(f"would submit {counted(len(more), 'more job')}, for {slots_words([a.slot for a in more])}")
        acts = acts or [f"`orchestrator {self.command}` would do nothing now."]
        return [*self.notes, *acts, "Nothing was done."]

    def as_json(self) -> str:
        """For machines: each action with its `kind`."""
        acts = [{"kind": type(action).__name__, **asdict(action)} for action in self.actions]
        value = {"command": self.command, "run_name": self.run_name, "run_dir": self.run_dir}
        return json.dumps({**value, "actions": acts, "notes": self.notes}, indent=2)


def _words(action: Action) -> str:
    match action:
        case Submit(slot=slot, attempt=attempt, after=after, exclude=exclude):
            behind = f", queued behind job {after}" if after else ""
            without = f", not on {', '.join(exclude)}" if exclude else ""
            return f"would submit a job for slot {slot} (attempt {attempt}{behind}{without})"
        case HandOver(slot=slot, job_id=job_id):
            return f"would ask job {job_id or '(id not known)'} of slot {slot} to save and exit"
        case Cancel(slot=slot, job_id=job_id, why=why):
            return f"would cancel job {job_id} of slot {slot}: {why}"
        case Abort(slot=slot, attempt=attempt, why=why):
            return f"would make attempt {attempt} of slot {slot} print its stacks and end: {why}"


def dry_start(asked: StartRequest) -> Rehearsal:
    """What `start` would do. Errors: as `begin`."""
    config, run_dir, name = asked.config, asked.run_dir, asked.config.run_name
    executor = executor_for(config, run_dir, os.environ)
    check_start(config, executor)
    notes = [*(f"note: {note}" for note in notes_of(asked)), *_summary(config, run_dir, executor)]
    if not run_dir.run_file.exists():
        notes += ["", f"the job script of slot 0 ({UNDRAWN} stands for what is drawn by chance when it is submitted):"]
        notes += [rendered(config, asked.path, 0, os.environ).rstrip("\n"), ""]
        places = config.places
        order = [slot.index for slot in in_turn([Slot(index=slot) for slot in range(config.slots)], turns_of(config))]
        actions = tuple(Submit(slot, 0, "") for slot in order[:places])
        left = sorted(order[places:])
        notes += [f"{slots_words(left)} would wait for room: slurm.max_jobs is {places}"] if left else []
        return Rehearsal("start", name, str(run_dir.path), actions, tuple(notes))
    before = load_run(run_dir)
    if has_begun(run_dir):
        check_identity(before.identity, training_identity(config), config, run_dir)
    revised = before.model_copy(update={"config": config, "executor": executor})
    notes.append(f"run {before.run_id} goes on{'' if config == before.config else ', with its config changed'}")
    wish = read_control(run_dir)
    if (owner := living_owner(run_dir)) is not None and not owner.passes:
        ledger = load_ledger(run_dir, before.run_id)
        waiting = waiting_for_start(ledger, before.config.slots)
        told = f"would tell {owner} to go on with {slots_words(waiting)}"
        is_told = waiting and config == before.config and wish.wish == "run"
        notes.append(told if is_told else f"would be refused: {owner} has this run")
        return Rehearsal("start", name, str(run_dir.path), (), tuple(notes))
    return _rehearsed("start", revised, run_dir, wish_of(asked, wish, time.time()) or wish, notes, again=True)


def dry_tick(run_dir: RunDir) -> Rehearsal:
    """What one tick would do."""
    return _rehearsed("tick", load_run(run_dir), run_dir, read_control(run_dir), [])


def dry_stop(run_dir: RunDir, *, at_once: bool, grace_s: float | None) -> Rehearsal:
    """What the first tick after a `stop` would do; what does not hand over is cancelled later."""
    run = load_run(run_dir)
    grace, newest = grace_of(run, grace_s), read_control(run_dir).number
    wish = Control(number=newest + 1, wish="stop-now" if at_once else "stop", by="stop", grace_s=grace)
    owner = living_owner(run_dir)
    notes = [f"{owner} would do it"] if owner is not None and not owner.passes else []
    if not at_once:
        notes.append(f"a job that has not handed over within {grace:.0f} s would then be cancelled")
    return _rehearsed("stop", run, run_dir, wish, notes)


def _rehearsed(
    command: str, run: Run, run_dir: RunDir, wish: Control, notes: list[str], *, again: bool = False
) -> Rehearsal:
    executor = make_executor(run, run_dir)
    controller = Controller(run, run_dir, Lease.of_nobody(run_dir), executor, poll_s=run.poll_s)
    if again:
        controller.reactivate()
        if controller.over and not is_paused(controller.ledger):
            notes.append(already_finished(run.config))
    actions = tuple(controller.preview(wish))
    if (error := executor.poll().error) is not None:
        notes.append(f"the queue cannot be seen ({error}): nothing would be submitted until it can")
    return Rehearsal(command, run.config.run_name, str(run_dir.path), actions, tuple(notes))


def _summary(config: RunConfig, run_dir: RunDir, executor: str) -> list[str]:
    slots = counted(config.slots, "slot")
    ours = "the trainer" if config.trains else "actors"
    commands = commands_of(config)
    more = f" (and {len(commands) - 1} more)" if len(commands) > 1 else ""
    what = f"{shlex.join(commands[0])}{more}" if commands else ours
    return [
        f"run {config.run_name}: {slots} of {what}, jobs of {format_duration(config.slurm.time_limit)} by {executor}",
        f"run folder {run_dir.path}",
    ]
