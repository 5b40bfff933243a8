"""What a person asks of single slots: requests to the run's controller, and an older checkpoint to go on from."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from anchorleg.job import CheckpointRef, attempt_numbers, candidates_before
from anchorleg.rollback import Rollback, can_go_on, roll_back
from anchorleg.words import did_you_mean
from orchestrator.config import RunConfig
from orchestrator.decisions.models import Ledger, SlotStatus
from orchestrator.decisions.requests import Kind, with_request, with_slots
from orchestrator.errors import ConfigError, FieldError, RunFolderError
from orchestrator.experiments import SLOTS, Row, expanded, read_lines, same_settings
from orchestrator.notation import typed_fields
from orchestrator.run.ledger import load_ledger
from orchestrator.run.rundir import Run, RunDir, ask, load_run, requests_after
from orchestrator.screens.reading import keeper
from trainer.config.read import located, sentences

#: Slots beyond these are counted, and not named.
NAMED = 6
_DONE = {
    "drop": "dropped: a running job saves and ends, and no other follows",
    "pause": "paused: a running job saves and ends; continue with `orchestrator resume`",
    "resume": "to continue",
    "priority": "given another priority",
}
#: In these states a slot has no use for such a request.
_WITHOUT_USE: dict[Kind, set[SlotStatus]] = {
    "drop": {SlotStatus.FINISHED, SlotStatus.DROPPED},
    "pause": {SlotStatus.FINISHED, SlotStatus.DROPPED},
    "resume": {SlotStatus.FINISHED, SlotStatus.ACTIVE},
}


def ask_slots(run_dir: RunDir, kind: Kind, words: Sequence[str], priority: int | None = None) -> str:
    """Ask it of the slots that `words` name; what was done, in a sentence. Errors: ConfigError, UnknownRun, OSError."""
    run = load_run(run_dir)
    slots = slots_named(run.config, words)
    asked = _as_asked_so_far(run, run_dir)
    states = {slot.index: slot.status for slot in asked.slots}
    wanted = tuple(slot for slot in slots if states[slot] not in _WITHOUT_USE.get(kind, ()))
    if not wanted:
        is_so = f"it is {states[slots[0]]}" if len(slots) == 1 else "each is over or already so"
        raise ConfigError("slot.without-use", slots=_named(run.config, slots), kind=kind, why=is_so)
    ask(run_dir.disk, run_dir.requests, kind, now=time.time(), after=asked.requests, slots=wanted, priority=priority)
    verb = "is" if len(wanted) == 1 else "are"
    told = f"{_named(run.config, wanted)} {verb} {_DONE[kind]}. {_who_does_it(run, run_dir)}"
    if kind == "priority" and (order := run.config.queue.order) != "priority":
        told += f' It has an effect only if queue.order is "priority"; here it is "{order}".'
    return told


def _as_asked_so_far(run: Run, run_dir: RunDir) -> Ledger:
    """The ledger with the requests that no tick has taken up yet."""
    ledger = load_ledger(run_dir, run.run_id) or Ledger(run_id=run.run_id, epoch=0)
    ledger = with_slots(ledger, run.config.slots)
    for request in requests_after(run_dir.disk, run_dir.requests, ledger.requests):
        ledger = with_request(ledger, request)
    return ledger


def _who_does_it(run: Run, run_dir: RunDir) -> str:
    if keeper(run_dir, time.time()) is None:
        return f"{run.config.run_name} has no controller now: `orchestrator start {run.config.run_name}`."
    return "Its controller was notified."


def slots_named(config: RunConfig, words: Sequence[str]) -> tuple[int, ...]:
    """The slots that numbers, ranges and names with * stand for, each once. Errors: ConfigError."""
    names = [config.name_of(slot) for slot in range(config.slots)]
    found: dict[int, None] = {}
    for word in words:
        if span := SLOTS.match(word):
            first, last = int(span[1]), int(span[2] or span[1])
            if last >= config.slots or first > last:
                raise ConfigError("slot.unknown", name=config.run_name, slot=word, last=config.slots - 1)
            found.update(dict.fromkeys(range(first, last + 1)))
            continue
        matching = [slot for slot, name in enumerate(names) if name and fnmatch.fnmatchcase(name, word)]
        if not matching:
            hint = did_you_mean(word, filter(None, names), "`orchestrator status` shows them.")
            raise ConfigError("slot.no-name", name=config.run_name, word=word, near=hint)
        found.update(dict.fromkeys(matching))
    return tuple(found)


def _named(config: RunConfig, slots: Sequence[int]) -> str:
    words = [config.name_of(slot) or str(slot) for slot in slots[:NAMED]]
    more = f" and {len(slots) - NAMED} more" if len(slots) > NAMED else ""
    return f"{'slot' if len(slots) == 1 else 'slots'} {', '.join(words)}{more}"


def experiments_of(fields: Sequence[str], file: Path | None, name: str | None, priority: int | None) -> list[Row]:
    """The experiments that `add` was typed with, checked; some have a name. Errors: ConfigError."""
    if bool(fields) == (file is not None):
        raise ConfigError("add.fields-or-file")
    if file is not None and name is not None:
        raise ConfigError("add.name-and-file")
    rows = read_lines(file) if file is not None else [typed_fields(fields)]
    own = {"name": name, "priority": priority}
    rows = [{**{key: value for key, value in own.items() if value is not None}, **row} for row in rows]
    _with_names(rows)
    return rows


def _with_names(rows: list[Row]) -> list[Row]:
    try:
        return expanded(rows)
    except FieldError as error:
        raise ConfigError.at("add", "", error) from None


def add_experiments(run_dir: RunDir, rows: list[Row]) -> str:
    """Add them to the run; what was done, in a sentence. Errors: ConfigError, UnknownRun, RunFolderError, OSError."""
    run = load_run(run_dir)
    name = run.config.run_name
    if run.config.experiments is None:
        raise ConfigError("add.no-experiments", name=name)
    for row in rows:
        if "name" not in row and (twin := same_settings(run.config.experiments, row)) is not None:
            raise ConfigError("add.same-settings", name=name, twin=twin["name"])
    rows = _with_names(rows)
    known = {row["name"] for row in run.config.experiments}
    for row in rows:
        if row["name"] in known:
            raise ConfigError("add.same-name", name=name, experiment=row["name"])
    try:
        run.config.with_experiments(rows)
    except ValidationError as error:
        raise located(ConfigError, sentences(error, RunConfig), "add") from None
    after = _as_asked_so_far(run, run_dir).requests
    ask(run_dir.disk, run_dir.requests, "add", now=time.time(), after=after, experiments=tuple(rows))
    names = ", ".join(row["name"] for row in rows[:NAMED])
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    verb = "is" if len(rows) == 1 else "are"
    return f"{names}{more} {verb} in the queue of {name}. {_who_does_it(run, run_dir)}"


def roll_back_slots(run_dir: RunDir, words: Sequence[str], step: int, *, why: str, without: str) -> str:
    """Have the slots that `words` name go on from their newest checkpoint at or before `step`; a sentence for each.

    Errors: ConfigError where a slot has no such checkpoint, or no next job (nothing is changed then); UnknownRun;
    OSError; RunFolderError where what the attempts decided cannot be read.
    """
    run = load_run(run_dir)
    ledger = load_ledger(run_dir, run.run_id)
    name, slots = run.config.run_name, slots_named(run.config, words)
    known = [slot for slot in (ledger.slots if ledger is not None else ()) if slot.index in slots]
    for one in known:
        if one.status is SlotStatus.FINISHED:
            what = "training.total_steps" if run.config.command is None else "params.NAME"
            more = f"to continue it, first type `orchestrator start {name} --set {what}=…`"
            raise ConfigError("rollback.finished", slot=one.index, more=more)
    told, now_s = [], time.time()
    try:
        found = [(slot, *_newest(run_dir, slot, step)) for slot in slots]
        made = [roll_back(run_dir.slot(k), Rollback(newest, ref.step, now_s, why, without)) for k, newest, ref in found]
    except ValueError as error:
        raise RunFolderError("run.attempts-unreadable", path=run_dir.path, why=error) from None
    for (slot, newest, ref), decision in zip(found, made, strict=True):
        told.append(
            f"slot {slot}: the next job continues from step {ref.step:,} of attempt {ref.attempt}. Newer "
            f"checkpoints stay until it begins: to undo this, remove {decision}."
        )
        if (begun := attempt_numbers(run_dir.slot(slot))[-1]) > newest:
            told.append(
                f"slot {slot}: attempt {begun} has started meanwhile. If it continued from a later step, the job after "
                "it skips its checkpoints, too."
            )
    if any(one.occupied for one in known):
        some = f"{' '.join(map(str, slots))} --run {name}"
        now = f"To end it now, type `orchestrator pause {some}`, and `orchestrator resume {some}` once it has ended."
        told.append(f"The running job's steps no longer count. {now}")
    return "\n".join(told)


def _newest(run_dir: RunDir, slot: int, step: int) -> tuple[int, CheckpointRef]:
    """(the slot's newest attempt, its newest checkpoint at or before `step`)."""
    folder = run_dir.slot(slot)
    numbers = attempt_numbers(folder)
    line = candidates_before(folder, numbers[-1] + 1) if numbers else ()
    there = [ref for ref in line if can_go_on(ref.path)]
    for ref in there:
        if ref.step <= step:
            return numbers[-1], ref
    steps = ", ".join(f"{ref.step:,}" for ref in there[-8:])
    raise ConfigError("rollback.no-checkpoint", step=step, slot=slot, steps=steps or "none")
