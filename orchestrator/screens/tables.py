"""Tables beside that of `status`: where the time went, what a run came to, which runs there are."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anchorleg.printable import on_one_line
from anchorleg.words import counted
from anchorleg.wrapping import INDENT, folded
from orchestrator.run.registry import Entry
from orchestrator.screens.cells import number
from orchestrator.screens.goodput import RunGoodput, SlotGoodput, Times
from orchestrator.screens.summary import RunSummary
from orchestrator.screens.views import stale_words
from orchestrator.walltime import format_duration

#: Between two columns.
_GAP = 2
#: Column and field, in the order in which a job lives.
KINDS = (
    ("queue", "queue_s"),
    ("waiting", "waiting_s"),
    ("blind", "blind_s"),
    ("start-up", "start_up_s"),
    ("productive", "productive_s"),
    ("lost", "lost_s"),
    ("saving", "saving_s"),
)
HOUR_S = 3600.0
#: Below this a duration is shown in seconds with a digit behind the point.
SHORT_S = 60.0
#: From here on hours say enough.
LONG_S = 100 * HOUR_S
#: On narrow terminals days say enough from here on.
DAYS_S = 1000 * HOUR_S
#: The row of the whole run.
_ALL = "all"
#: What the words mean, under the table.
LEGEND = "goodput = productive / (start-up + productive + lost + saving)"


def summary_table(summary: RunSummary, width: int) -> RenderableType:
    """What a run came to, at its end. Where it is narrow, the evaluations have lines of their own; where the rest is
    too wide, too, it is the lines for a pipe.
    """
    names = ["slot", "jobs", "hand-overs", "steps trained", "steps lost", "idle between jobs"]
    rows = [
        [
            str(slot.slot),
            str(slot.jobs),
            str(slot.hand_overs),
            number(slot.steps),
            number(slot.steps_lost),
            f"{slot.idle_s:.1f} s in {counted(slot.gaps, 'gap')}" if slot.gaps else "none",
        ]
        for slot in summary.slots
    ]
    if _table_width(names, rows) > width:
        return Group(*(Text(folded(line, width)) for line in ("Summary", *summary_lines(summary))))
    evaluated = [slot for slot in summary.slots if slot.evaluation]
    full = [[*row, slot.evaluation] for row, slot in zip(rows, summary.slots, strict=True)]
    below: list[str] = []
    if evaluated and _table_width([*names, "evaluation"], full) <= width:
        names, rows = [*names, "evaluation"], full
    else:
        below = [f"slot {slot.slot}: evaluation {slot.evaluation}" for slot in evaluated]
    table = Table(
        box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold", title="Summary", title_justify="left"
    )
    for name in names:
        table.add_column(name, justify="left" if name == "slot" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return Group(table, *(Text(folded(line, width)) for line in (*below, *summary.lines)))


def _table_width(names: list[str], rows: list[list[str]], gap: int = _GAP) -> int:
    """Of a table without a box: its widest cells, and the gaps between them."""
    widest = [max(len(cell) for cell in column) for column in zip(names, *rows, strict=True)]
    return sum(widest) + gap * (len(widest) - 1)


def summary_lines(summary: RunSummary) -> list[str]:
    """The same for a pipe."""
    lines = [
        f"slot {s.slot}: {counted(s.jobs, 'job')}, {counted(s.hand_overs, 'hand-over')}, "
        f"{counted(s.steps, 'step')} trained, {counted(s.steps_lost, 'step')} lost, "
        f"{s.idle_s:.1f} s idle in {counted(s.gaps, 'gap')}" + (f", evaluation {s.evaluation}" if s.evaluation else "")
        for s in summary.slots
    ]
    return lines + list(summary.lines)


def runs_table(entries: list[Entry], width: int) -> RenderableType:
    """The registered runs. Where it is narrow, a run's folder has a line of its own."""
    names = ["run", "id", "started", "folder"]
    rows = [[on_one_line(cell) for cell in (e.run_name, e.run_id, _started(e), e.run_dir)] for e in entries]
    below = _table_width(names, rows) > width
    cells = [row[: len(row) - below] for row in rows]
    widths = [max(map(len, column)) for column in zip(names[: len(names) - below], *cells, strict=True)]

    def line(row: list[str]) -> str:
        return (" " * _GAP).join(cell.ljust(room) for cell, room in zip(row, widths, strict=True)).rstrip()

    lines = [Text(line(names[: len(widths)]), style="bold")]
    for cut, row in zip(cells, rows, strict=True):
        lines += [Text(line(cut)), *([Text(f"{INDENT}{row[-1]}", style="dim")] if below else [])]
    return Group(*lines)


def _started(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.registered_at))


def duration(seconds: float) -> str:
    """`12.3 s`, `H:MM:SS` or `1,234 h`: ten columns of them fit 80 characters."""
    if seconds < SHORT_S:
        return f"{seconds:.1f} s"
    return format_duration(seconds) if seconds < LONG_S else f"{seconds / HOUR_S:,.0f} h"


def short(seconds: float) -> str:
    """`12 s`, `45 min`, `3.4 h`, `345 h` or `1,234 d`: for narrow terminals."""
    if seconds < SHORT_S:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / SHORT_S:.0f} min"
    if seconds < DAYS_S:
        return f"{seconds / HOUR_S:.1f} h" if seconds < LONG_S else f"{seconds / HOUR_S:.0f} h"
    return f"{seconds / (24 * HOUR_S):,.0f} d"


def share(times: Times) -> str:
    """Goodput in percent; a dash where no job has run."""
    return "-" if times.goodput is None else f"{100 * times.goodput:.2f} %"


def goodput_table(view: RunGoodput, width: int) -> RenderableType:
    """One line a slot, and their sum where there are several. Where it is narrow, the times are written short; where
    that is too wide, too, it is the lines for a pipe: no column and no digit is lost.
    """
    written = (_rows(view, duration), _rows(view, short))
    rows = next((rows for rows in written if _table_width(rows[0], rows[1:], 1) <= width), None)
    if rows is None:
        lines = [Text(folded(line, width)) for line in goodput_lines(view)]
        return Group(*lines, Text(folded(LEGEND, width), style="dim"))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("slot", no_wrap=True)
    for name in rows[0][1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row, style="bold" if row[0] == _ALL else None)
    old = [Text(folded(line, width), style="yellow") for line in _stale_lines(view)]
    return Group(*old, table, Text(LEGEND, style="dim"))


def _rows(view: RunGoodput, written: Callable[[float], str]) -> list[list[str]]:
    """The names of the columns, and the cells."""
    rows = [["slot", "jobs", "goodput", *(name for name, _ in KINDS)]]
    rows += [_cells(str(slot.slot), len(slot.jobs), slot.times, written) for slot in view.slots]
    if len(view.slots) > 1:
        rows.append(_cells(_ALL, _jobs(view.slots), view.times, written))
    return rows


def goodput_lines(view: RunGoodput) -> list[str]:
    """The same for a pipe."""
    lines = [_line(f"slot {slot.slot}", len(slot.jobs), slot.times) for slot in view.slots]
    return [*_stale_lines(view), _line(view.run_name, _jobs(view.slots), view.times), *lines]


def _stale_lines(view: RunGoodput) -> list[str]:
    return [] if view.stale is None else [stale_words(view.stale, view.at, view.run_dir)]


def _jobs(slots: tuple[SlotGoodput, ...]) -> int:
    return sum(len(slot.jobs) for slot in slots)


def _cells(name: str, jobs: int, times: Times, written: Callable[[float], str]) -> list[str]:
    shown = (getattr(times, field) for _, field in KINDS)
    return [name, f"{jobs:,}", share(times), *("" if seconds <= 0 else written(seconds) for seconds in shown)]


def _line(name: str, jobs: int, times: Times) -> str:
    parts = [f"{kind} {duration(getattr(times, field))}" for kind, field in KINDS if getattr(times, field) > 0]
    return ", ".join([f"{name}: goodput {share(times)}", counted(jobs, "job"), *parts])
