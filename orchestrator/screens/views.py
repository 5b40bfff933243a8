"""All tables and lines that people see. Nothing here decides anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from anchorleg.words import counted
from anchorleg.wrapping import folded
from orchestrator.decisions.models import Verdict
from orchestrator.decisions.verdicts import PREEMPTED
from orchestrator.failover import SILENT_S as FAILOVER_S
from orchestrator.screens.cells import (
    OVER,
    ago,
    bar,
    done_in,
    ends_in,
    given_words,
    gpu,
    metric,
    next_job,
    number,
    rate,
    short_steps,
    shortened,
    slots_words,
    span,
    steps,
    success,
)
from orchestrator.screens.forecast import STATES
from orchestrator.screens.status import RunView, SlotView, StaleLedger
from orchestrator.screens.timeline import at_and_in, clock, end_words
from orchestrator.walltime import format_duration

_COLOURS = {
    "running": "green",
    "finished": "bold green",
    "failed": "bold red",
    "paused": "bold yellow",
    "stalled": "bold yellow",
    "suspended": "yellow",
    "blind": "yellow",
    "uncertain": "yellow",
    "pending": "cyan",
    "handing over": "magenta",
    "starting": "cyan",
    "submitted": "cyan",
    "waiting": "yellow",
    "stopped": "dim",
}

#: Where these do not fit, steps are written short.
_WANTED = {"steps/s", "success", "GPU", "job ends in", "done in", "next job"}
#: Between two columns.
_GAP = 2
#: A trainer reports every few seconds, and is silent for longer while it saves or evaluates.
SILENT_S = 120.0
#: Beside the rows of slots a screen has its lines above, the notes below and the prompt.
AROUND_ROWS = 10
#: However low the terminal is.
LEAST_ROWS = 5
#: Of the best experiments, in one line.
BEST_SHOWN = 3
#: In these a slot has nothing to do, and the next step is a person's.
_ENDS = frozenset({"failed", "paused", "blind", "uncertain"})


@dataclass(frozen=True)
class _Column:
    """`rank`: the lowest are kept where the terminal is narrow. A column without any cell is left out."""

    name: str
    rank: int
    cell: Callable[[SlotView, float], str]
    right: bool = True


_COLUMNS = (
    _Column("slot", 0, lambda slot, _: str(slot.slot), right=False),
    _Column("experiment", 3, lambda slot, _: shortened(slot.name), right=False),
    _Column("job", 1, lambda slot, _: slot.job_id or "", right=False),
    _Column("state", 0, lambda slot, _: slot.state, right=False),
    _Column("progress", 9, lambda slot, _: bar(slot), right=False),
    _Column("step", 2, lambda slot, _: steps(slot)),
    _Column("saved at", 10, lambda slot, _: number(slot.checkpoint_step)),
    _Column("steps/s", 4, lambda slot, _: rate(slot)),
    _Column("best", 3, lambda slot, _: metric(slot.best)),
    _Column("success", 7, lambda slot, _: success(slot)),
    _Column("GPU", 6, lambda slot, _: gpu(slot)),
    _Column("job ends in", 3, ends_in),
    _Column("done in", 5, lambda slot, _: done_in(slot)),
    _Column("next job", 5, lambda slot, _: next_job(slot)),
    _Column("jobs", 8, lambda slot, _: str(slot.jobs)),
)


def run_table(
    view: RunView, now: float, width: int, *, height: int | None = None, page: int = 1, again: bool = False
) -> RenderableType:
    """The picture of one run, as wide as the terminal allows: the rarer columns go first, and notes have lines.

    `height`: of the terminal, None: all slots are shown; else those of `page`. `again`: it is redrawn, nobody turns it.
    """
    whole, room = view, len(view.slots) if height is None else max(LEAST_ROWS, height - AROUND_ROWS)
    shown_slots, pages = page_of([slot.state for slot in view.slots], room, page)
    view = view.model_copy(update={"slots": tuple(view.slots[place] for place in shown_slots)})
    cells = {column.name: [column.cell(slot, now) for slot in view.slots] for column in _COLUMNS}
    shown = _fitting(cells, width)
    wanted = {name for name in _WANTED if any(cells[name])}
    if wanted - {column.name for column in shown}:
        cells["step"] = [short_steps(slot) for slot in view.slots]
        shown = _fitting(cells, width)
    lines: list[RenderableType] = [Text(folded(headline(view), width), style="bold")]
    lines += [Text(folded(line, width), style="yellow" if urgent else "dim") for line, urgent in about(whole, now)]
    if view.slots:
        lines.append(_rows(view, cells, shown))
    if pages > 1:
        lines.append(Text(f"page {min(page, pages)} of {pages}" + ("" if again else _more(page, pages)), style="dim"))
    return Group(*lines, *(Text(folded(line, width), style="dim") for line in note_lines(view, now)))


def page_of(states: Sequence[str], room: int, page: int) -> tuple[list[int], int]:
    """Which of the slots (their places in `states`) are shown on `page` (from 1), and how many pages there are. Where
    all fit they stand in their own order, else those that do something come first.
    """
    if len(states) <= room:
        return list(range(len(states))), 1
    rank = {state: place for place, state in enumerate(STATES)}
    order = sorted(range(len(states)), key=lambda place: (rank.get(states[place], len(STATES)), place))
    pages = math.ceil(len(order) / room)
    first = (min(page, pages) - 1) * room
    return order[first : first + room], pages


def _more(page: int, pages: int) -> str:
    return f"; `--page {page + 1}` shows more, `--all` all" if page < pages else "; `--all` shows all"


def _rows(view: RunView, cells: dict[str, list[str]], shown: list[_Column]) -> Text:
    """The table as one text: rich's own takes a second for a thousand slots."""
    widths = {column.name: _width(column.name, cells) for column in shown}
    text = Text(no_wrap=True)
    text.append((" " * _GAP).join(_aligned(column, column.name, widths) for column in shown).rstrip(), style="bold")
    for row, slot in enumerate(view.slots):
        text.append("\n")
        for column in shown:
            cell = cells[column.name][row]
            style = {"state": _COLOURS.get(slot.state, ""), "progress": "green"}.get(column.name, "")
            text.append(_aligned(column, cell, widths), style=style)
            text.append(" " * _GAP)
        text.rstrip()
    return text


def _aligned(column: _Column, cell: str, widths: dict[str, int]) -> str:
    width = widths[column.name]
    return cell.rjust(width) if column.right else cell.ljust(width)


def _width(name: str, cells: dict[str, list[str]]) -> int:
    return max(len(name), *(len(cell) for cell in cells[name]))


def _fitting(cells: dict[str, list[str]], width: int) -> list[_Column]:
    filled = [column for column in _COLUMNS if any(cells[column.name])]
    room, kept = width, set()
    for column in sorted(filled, key=lambda column: column.rank):
        room -= _width(column.name, cells) + _GAP
        if room < -_GAP:
            break
        kept.add(column.name)
    return [column for column in filled if column.name in kept]


def headline(view: RunView) -> str:
    """Which run, and how it is."""
    return f"{view.run_name} ({view.run_id}) on {view.executor}: {view.state}"


def about(view: RunView, now: float) -> list[tuple[str, bool]]:
    """What is to be said of the whole run: (line, whether it needs attention)."""
    lines = []
    looked_s = now - view.written_at if view.written_at is not None else None
    looked = f", last look {ago(looked_s)}" if looked_s is not None else ""
    if view.controller is not None:
        lines.append((f"controller: {view.controller}{looked}", view.stale is not None))
    elif view.state in {"no controller", "stopping"}:
        go_on = f"take it up again with `orchestrator start {view.run_name}`"
        lines.append((f"no controller{looked}; {go_on}", True))
        if (
            view.failover_tick
            and view.written_at is not None
            and any(slot.job_id and not slot.why for slot in view.slots)
        ):
            lines.append(
                (
                    f"a job that ends after {clock(view.written_at + FAILOVER_S, now)} looks after the run itself",
                    False,
                )
            )
    if view.stale is not None:
        lines.append((stale_words(view.stale, now, view.run_dir), True))
    if view.until is not None and view.state in {"running", "no controller"}:
        left = format_duration(view.until - now)
        lines.append((f"until {clock(view.until, now)} (in {left}): then every job saves and ends", False))
    if view.blind_since is not None:
        since = f"{clock(view.blind_since, now)} ({ago(now - view.blind_since)})"
        lines.append((f"blind since {since}: {view.blind_error}; nothing is submitted meanwhile", True))
    lines += [(line, False) for line in queue_lines(view)]
    for node in view.excluded_nodes:
        deaths = f"{counted(node.deaths, 'job')} died early on it"
        lines.append((f"avoids node {node.node} until {clock(node.until, now)}: {deaths}", False))
    return lines


def queue_lines(view: RunView) -> list[str]:
    """How many experiments are how, when all will be done, and the best of them."""
    queue = view.queue
    if queue is None:
        return []
    counts = ", ".join(f"{count} {state}" for state, count in queue.counts.items())
    done = f"; all done in about {span(queue.finish_in_s)}" if queue.finish_in_s else ""
    lines = [f"{counted(sum(queue.counts.values()), 'experiment')}: {counts}{done}"]
    if queue.best:
        best = [f"{score.name} {metric(score.value)}" for score in queue.best[:BEST_SHOWN]]
        lines.append(f"best {queue.metric}: {', '.join(best)}")
    return lines


def stale_words(stale: StaleLedger, now: float, folder: str) -> str:
    """That what is shown is old, since when and why. `folder`: the run's."""
    since = clock(stale.since, now)
    if stale.free_bytes is None:
        why = f"since {since} the controller has written nothing: it hangs, or it may not write (a quota?)"
        return f"{why}. The states of jobs are of that time"
    free = "no inode" if stale.out_of_inodes else counted(stale.free_bytes, "byte")
    why = f"the disk is full ({free} free in {folder}): since {since} nobody could write what happened"
    remedy = "Remove some files" if stale.out_of_inodes else "Free some space"
    return f"{why}, and the states of jobs are of that time. {remedy}"


def plain_lines(view: RunView, now: float) -> list[str]:
    """The same for a pipe: one line a slot, no colours, no columns to guess."""
    return [headline(view), *(line for line, _ in about(view, now)), *(plain_line(slot, now) for slot in view.slots)]


def plain_line(slot: SlotView, now: float) -> str:
    """One slot in one line."""
    parts = [f"slot {slot.slot}", *([slot.name] if slot.name else []), slot.state]
    parts += [f"job {slot.job_id}"] if slot.job_id else []
    parts += [f"step {steps(slot)}"] if slot.step is not None else []
    parts += [f"saved at {number(slot.checkpoint_step)}"] if slot.checkpoint_step is not None else []
    parts += [f"{rate(slot)} steps/s"] if rate(slot) else []
    parts += [f"best {metric(slot.best)}"] if slot.best is not None else []
    parts += [f"success {success(slot)}"] if success(slot) else []
    parts += [f"GPU {gpu(slot)}"] if gpu(slot) else []
    if left := ends_in(slot, now):
        parts.append("job past its walltime" if left == OVER else f"job ends in {left}")
    parts += [f"done in {done_in(slot)}"] if done_in(slot) else []
    parts += [counted(slot.jobs, "job")]
    parts += [f"next job {next_job(slot)}"] if next_job(slot) else []
    parts += notes(slot, now)
    return ", ".join(parts)


def note_lines(view: RunView, now: float) -> list[str]:
    """Under the table: what each slot waits for. Slots of one mind share a line."""
    by_words: dict[str, list[int]] = {}
    for slot in view.slots:
        if slot.state == "blind" and slot.why == view.blind_error:
            continue  # it stands on top, for the whole run
        for words in notes(slot, now):
            by_words.setdefault(words, []).append(slot.slot)
    return [f"{slots_words(slots)}: {words}" for words, slots in by_words.items()]


def notes(slot: SlotView, now: float, *, with_next: bool = True) -> list[str]:
    """Why it waits, what to mind, or how its last job ended. `with_next`: and what comes."""
    found = []
    why = slot.why
    told = "`orchestrator " in why
    if with_next and not told and (slot.retry_at is not None or (why and slot.state in _ENDS)):
        why = f"{why}; {slot.next}" if why else slot.next
    if slot.expected_start_at is not None:
        why += f"; Slurm expects to start it {at_and_in(slot.expected_start_at, now)}"
    if why:
        found.append(why)
    elif with_next and slot.state == "waiting" and slot.last_verdict is None:
        found.append(slot.next)
    if slot.successor is not None and slot.successor.why:
        found.append(f"the next job, {next_job(slot)}, {slot.successor.why}")
    if slot.silent_s is not None and slot.silent_s > SILENT_S:
        found.append(f"no report from its program for {format_duration(slot.silent_s)}")
    if slot.warning:
        found.append(slot.warning)
    bad = slot.last_verdict not in {None, Verdict.HANDED_OVER, Verdict.FINISHED, Verdict.NOT_NEEDED}
    if (bad or slot.last_cause == PREEMPTED) and not slot.why:
        found.append(f"last job: {end_words(str(slot.last_verdict), slot.last_cause)}")
    if words := given_words(slot.progress, now):
        found.append(words)
    return found
