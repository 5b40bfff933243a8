"""`status`: a `RunView` as a table as wide as the terminal allows, or as lines for a pipe. Nothing here decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from anchorleg.output import say
from anchorleg.words import counted, folded
from orchestrator.decisions.models import Verdict
from orchestrator.decisions.verdicts import NODE_TAKEN
from orchestrator.failover import SILENT_S as FAILOVER_S
from orchestrator.notation import format_duration
from orchestrator.run.rundir import RunDir
from orchestrator.screens.cells import GAP, ago, number, slots_words, span, stale_words, table
from orchestrator.screens.reading import run_view
from orchestrator.screens.runview import STATES, RunView, SlotView
from orchestrator.screens.timeline import at_and_in, clock, end_words

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
#: A trainer reports every few seconds, and is silent for longer while it saves or evaluates.
SILENT_S = 120.0
#: Beside the rows of slots a screen has its lines above, the notes below and the prompt; it shows `LEAST_ROWS` always.
AROUND_ROWS = 10
LEAST_ROWS = 5
WATCH_S = 2.0
BEST_SHOWN = 3
#: In place of the time that a job has left.
OVER = "over"
NAME_WIDTH = 32
#: Givers of experience; `syncd contributors` shows all.
NAMED = 5
#: Field of a progress report, and who gave the experience that it counts.
_WHO = {"contributors": "others", "group": "its group"}


def run_table(view: RunView, now: float, width: int, *, height: int | None = None) -> RenderableType:
    """The picture of one run, as wide as the terminal allows: the rarer columns go first. `height`: of a terminal that
    is redrawn; of more slots than it holds those are shown that do something.
    """
    slots, whole = view.slots, view
    if height is not None and len(slots) > (room := max(LEAST_ROWS, height - AROUND_ROWS)):
        rank = {state: place for place, state in enumerate(STATES)}
        slots = tuple(sorted(slots, key=lambda slot: rank.get(slot.state, len(STATES)))[:room])
        view = view.model_copy(update={"slots": slots})
    lines: list[RenderableType] = [Text(folded(_headline(view), width), style="bold")]
    lines += [Text(folded(line, width), style="yellow" if urgent else "dim") for line, urgent in about(whole, now)]
    if slots:
        lines.append(_slots_table(slots, now, width))
    if len(slots) < len(whole.slots):
        lines.append(Text(f"{len(slots)} of {len(whole.slots)} slots; `orchestrator status` shows all", style="dim"))
    return Group(*lines, *(Text(folded(line, width)) for line in note_lines(view, now)))


def _slots_table(slots: Sequence[SlotView], now: float, width: int) -> Text:
    cells = {column.name: [column.cell(slot, now) for slot in slots] for column in _COLUMNS}
    cells = {name: column for name, column in cells.items() if any(column)}
    room, kept = width, set()
    for column in sorted(_COLUMNS, key=lambda column: column.rank):
        if column.name in cells:
            room -= max(map(len, (column.name, *cells[column.name]))) + GAP
            if room < -GAP:
                break
            kept.add(column.name)
    shown = [name for name in cells if name in kept]
    rows = list(zip(*(cells[name] for name in shown), strict=True))
    left = ("slot", "experiment", "job", "state")
    return table(shown, rows, left=left, style=lambda name, cell: _COLOURS.get(cell, "") if name == "state" else "")


def _headline(view: RunView) -> str:
    return f"{view.run_name} ({view.run_id}) on {view.executor}: {view.state}"


def about(view: RunView, now: float) -> list[tuple[str, bool]]:
    """What is to be said of the whole run: (line, whether it needs attention)."""
    lines = []
    looked = f", last check {ago(now - view.written_at)}" if view.written_at is not None else ""
    if view.controller is not None:
        lines.append((f"controller: {view.controller}{looked}", view.stale is not None))
    elif view.state in {"no controller", "stopping"}:
        go_on = f"continue with `orchestrator start {view.run_name}`"
        lines.append((f"no controller{looked}; {go_on}", True))
        is_at_work = any(slot.job_id and not slot.why for slot in view.slots)
        if view.failover_tick and view.written_at is not None and is_at_work:
            after = clock(view.written_at + FAILOVER_S, now)
            lines.append((f"a job that ends after {after} submits the next jobs itself", False))
    if view.stale is not None:
        lines.append((stale_words(view.stale, now, view.run_dir), True))
    if view.until is not None and view.state in {"running", "no controller"}:
        left = format_duration(view.until - now)
        lines.append((f"until {clock(view.until, now)} (in {left}): then every job saves and ends", False))
    if view.blind_since is not None:
        since = f"the queue has not answered since {clock(view.blind_since, now)} ({ago(now - view.blind_since)})"
        lines.append((f"{since}: {view.blind_error}; nothing is submitted until it does", True))
    calm = _queue_lines(view)
    for node in view.excluded_nodes:
        deaths = f"{counted(node.deaths, 'job')} died early on it"
        calm.append(f"avoids node {node.node} until {clock(node.until, now)}: {deaths}")
    return lines + [(line, False) for line in calm]


def _queue_lines(view: RunView) -> list[str]:
    if (queue := view.queue) is None:
        return []
    counts = ", ".join(f"{count} {state}" for state, count in queue.counts.items())
    best = ", ".join(f"{score.name} {_metric(score.value)}" for score in queue.best[:BEST_SHOWN])
    lines = [f"{counted(sum(queue.counts.values()), 'experiment')}: {counts}"]
    return [*lines, f"best {queue.metric}: {best}"] if best else lines


def plain_lines(view: RunView, now: float) -> list[str]:
    """The same for a pipe: one line a slot, no colours, no columns to guess."""
    return [_headline(view), *(line for line, _ in about(view, now)), *(plain_line(slot, now) for slot in view.slots)]


def plain_line(slot: SlotView, now: float) -> str:
    """One slot in one line."""
    left = _ends_in(slot, now)
    parts = (
        (slot.name, "{}"),
        (slot.state, "{}"),
        (slot.job_id, "job {}"),
        (_steps(slot, number), "step {}"),
        (number(slot.checkpoint_step), "saved at {}"),
        (_rate(slot), "{} steps/s"),
        (_metric(slot.best), "best {}"),
        (_success(slot), "success {}"),
        (_gpu(slot), "GPU {}"),
        (left, "job past its walltime" if left == OVER else "job ends in {}"),
        (_done_in(slot), "done in {}"),
        (counted(slot.jobs, "job"), "{}"),
        (_next_job(slot), "next job {}"),
    )
    told = [words.format(value) for value, words in parts if value]
    return ", ".join([f"slot {slot.slot}", *told, *notes(slot, now)])


def note_lines(view: RunView, now: float) -> list[str]:
    """Under the table: what each slot waits for. Slots of one mind share a line."""
    by_words: dict[str, list[int]] = {}
    for slot in view.slots:
        stands_on_top = slot.state == "blind" and slot.why == view.blind_error
        for words in [] if stands_on_top else notes(slot, now):
            by_words.setdefault(words, []).append(slot.slot)
    return [f"{slots_words(slots)}: {words}" for words, slots in by_words.items()]


def notes(slot: SlotView, now: float, *, with_next: bool = True) -> list[str]:
    """Why it waits, what to mind, or how its last job ended. `with_next`: and what comes."""
    found, why = [], slot.why
    is_a_persons = slot.state in {"failed", "paused", "blind", "uncertain"}
    if with_next and (slot.retry_at is not None or (why and is_a_persons)):
        why = f"{why}; {slot.next}" if why else slot.next
    if slot.expected_start_at is not None:
        why += f"; Slurm expects to start it {at_and_in(slot.expected_start_at, now)}"
    if why:
        found.append(why)
    elif with_next and slot.state == "waiting" and slot.last_verdict is None:
        found.append(slot.next)
    if slot.successor is not None and slot.successor.why:
        found.append(f"the next job {slot.successor.why}")
    if slot.silent_s is not None and slot.silent_s > SILENT_S:
        found.append(f"no report from its program for {format_duration(slot.silent_s)}")
    found += [words for words in (slot.warning, slot.raised, slot.shortened) if words]
    bad = slot.last_verdict not in {None, Verdict.HANDED_OVER, Verdict.FINISHED, Verdict.NOT_NEEDED}
    if (bad or slot.last_cause in NODE_TAKEN) and (not slot.why or slot.job_id):
        failed = f"its last job failed: {slot.last_cause}" if slot.last_verdict is Verdict.CRASHED else ""
        found.append(failed or f"last job: {end_words(str(slot.last_verdict), slot.last_cause)}")
    given = [_given_by(who, slot.progress.get(name), now) for name, who in _WHO.items()]
    return [*found, *(["; ".join(filter(None, given))] if any(given) else [])]


def _steps(slot: SlotView, written: Callable[[int], str]) -> str:
    parts = [written(value) for value in (slot.step, slot.total) if value is not None]
    return "/".join(parts) if slot.step is not None else ""


def short(value: int) -> str:
    """Three digits of a large number, cut off, not rounded up: what is not done is not shown as done."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= 10 * size or (value >= size > 10**3):
            digits = max(0, 3 - len(str(value // size)))
            whole, part = divmod(value * 10**digits // size, 10**digits)
            fraction = f".{part:0{digits}d}".rstrip("0") if part else ""
            return f"{whole}{fraction}{unit}"
    return f"{value:,}"


def _rate(slot: SlotView) -> str:
    if slot.rate is None:
        return ""
    return number(slot.rate) if slot.rate >= 10 or slot.rate == 0 else f"{slot.rate:.1f}"


def _metric(value: float | None) -> str:
    return f"{value:.4g}" if value is not None else ""


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH // 2]}…{name[1 - NAME_WIDTH // 2 :]}"


def _success(slot: SlotView) -> str:
    value = slot.progress.get("success")
    return f"{100 * value:.0f} %" if isinstance(value, int | float) else ""


def _gpu(slot: SlotView) -> str:
    value = slot.progress.get("gpu_percent")
    return f"{value:.0f} %" if isinstance(value, int | float) and slot.rate is not None else ""


def _ends_in(slot: SlotView, now: float) -> str:
    if slot.ends_at is None:
        return ""
    return span(slot.ends_at - now) if slot.ends_at > now else OVER


def _done_in(slot: SlotView) -> str:
    """`>`: waits for further jobs come on top that nobody knows yet."""
    if slot.forecast is None:
        return ""
    return ("" if slot.forecast.waits_included else ">") + span(slot.forecast.finish_in_s)


def _next_job(slot: SlotView) -> str:
    return (slot.successor.job_id or "(new)") if slot.successor is not None else ""


def _given_by(who: str, told: Any, now: float) -> str:
    """`others gave: ann 12 segments (6,000 transitions, last 40 s ago)`; empty where nobody gave anything."""
    parts = []
    for name, one in told.items() if isinstance(told, Mapping) else ():
        if isinstance(one, Mapping):
            numbers = (one.get(key) for key in ("segments", "transitions", "last_at"))
            segments, rows, last_at = (value if isinstance(value, int | float) else 0 for value in numbers)
            last = f", last {ago(now - last_at)}" if last_at else ""
            parts.append(f"{name} {counted(round(segments), 'segment')} ({rows:,.0f} transitions{last})")
    more = [f"and {len(parts) - NAMED} more"] if len(parts) > NAMED else []
    return f"{who} gave: " + ", ".join([*parts[:NAMED], *more]) if parts else ""


class _Column(NamedTuple):
    """`rank`: the lowest are kept where the terminal is narrow. A column without any cell is left out."""

    name: str
    rank: int
    cell: Callable[[SlotView, float], str]


_COLUMNS = (
    _Column("slot", 0, lambda slot, _: str(slot.slot)),
    _Column("experiment", 3, lambda slot, _: _shortened(slot.name)),
    _Column("job", 1, lambda slot, _: slot.job_id or ""),
    _Column("state", 0, lambda slot, _: slot.state),
    _Column("step", 2, lambda slot, _: _steps(slot, short)),
    _Column("saved at", 10, lambda slot, _: short(slot.checkpoint_step) if slot.checkpoint_step is not None else ""),
    _Column("steps/s", 4, lambda slot, _: _rate(slot)),
    _Column("best", 3, lambda slot, _: _metric(slot.best)),
    _Column("success", 7, lambda slot, _: _success(slot)),
    _Column("GPU", 6, lambda slot, _: _gpu(slot)),
    _Column("job ends in", 3, _ends_in),
    _Column("done in", 5, lambda slot, _: _done_in(slot)),
    _Column("next job", 5, lambda slot, _: _next_job(slot)),
    _Column("jobs", 8, lambda slot, _: str(slot.jobs)),
)


# --- again and again --------------------------------------------------------------------------------------------------


def watch(run_dir: RunDir, out: Console, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show the run until interrupted, which is no error. Errors: as `run_view` at the first look."""
    with suppress(KeyboardInterrupt):
        if out.is_terminal and not as_json:
            _on_terminal(run_dir, out, sleep)
        else:
            _in_pipe(run_dir, as_json=as_json, sleep=sleep)


def _on_terminal(run_dir: RunDir, out: Console, sleep: Callable[[float], None]) -> None:
    view = run_view(run_dir)
    try:
        with Live(console=out, screen=True, auto_refresh=False) as live:
            while True:
                now = time.time()
                shown = run_table(view, now, out.width, height=out.height)
                live.update(Group(shown, Text("Ctrl-C closes this screen; jobs go on.", style="dim")), refresh=True)
                sleep(WATCH_S)
                view = _look(run_dir, view)
    finally:
        out.print(run_table(view, time.time(), out.width, height=out.height))


def _in_pipe(run_dir: RunDir, *, as_json: bool, sleep: Callable[[float], None]) -> None:
    view, told = run_view(run_dir), dict[str, Any]()
    while True:
        now = time.time()
        before, told = told, marks(view)
        if as_json and told != before:
            print(view.model_dump_json(), flush=True)
        elif told != before:
            for line in changes(view, before, told, now):
                say(f"{time.strftime('%H:%M:%S', time.localtime(now))}  {line}")
        sleep(WATCH_S)
        view = _look(run_dir, view)


def _look(run_dir: RunDir, before: RunView) -> RunView:
    try:
        return run_view(run_dir)
    except OSError:  # a network folder that is away for a moment; the next look is soon
        return before


def marks(view: RunView) -> dict[str, Any]:
    """What a change is: by part of the run, everything that does not merely count on."""
    stale_since = view.stale.since if view.stale is not None else None
    run = (view.state, view.controller, view.blind_since, view.excluded_nodes, stale_since)
    return {"run": run} | {f"slot {slot.slot}": _mark(slot) for slot in view.slots}


def _mark(slot: SlotView) -> tuple[Any, ...]:
    job = (slot.state, slot.why, slot.job_id, slot.attempt, slot.jobs, slot.successor and slot.successor.job_id)
    return *job, slot.checkpoint_step, slot.last_verdict, slot.warning


def changes(view: RunView, before: dict[str, Any], after: dict[str, Any], now: float) -> list[str]:
    """The lines that are new since `before` (as `marks` made it)."""
    lines = []
    if after["run"] != before.get("run"):
        lines += [_headline(view), *(line for line, _ in about(view, now))]
    changed = {name for name, mark in after.items() if before.get(name) != mark}
    return lines + [plain_line(slot, now) for slot in view.slots if f"slot {slot.slot}" in changed]
