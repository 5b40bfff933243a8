"""`orchestrator goodput` as people see it: a table on a terminal, lines in a pipe."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.screens.goodput import RunGoodput, SlotGoodput, Times
from orchestrator.walltime import format_duration

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
#: Below this a duration is shown in seconds with a digit behind the point.
SHORT_S = 60.0
#: From here on hours say enough.
LONG_S = 100 * 3600.0
#: What the words mean, under the table.
LEGEND = "goodput = productive / (start-up + productive + lost + saving)"


def duration(seconds: float) -> str:
    """`12.3 s`, `H:MM:SS` or `1,234 h`: ten columns of them fit 80 characters."""
    if seconds < SHORT_S:
        return f"{seconds:.1f} s"
    return format_duration(seconds) if seconds < LONG_S else f"{seconds / 3600:,.0f} h"


def share(times: Times) -> str:
    """Goodput in percent; a dash where no job has run."""
    return "-" if times.goodput is None else f"{100 * times.goodput:.2f} %"


def goodput_table(view: RunGoodput) -> RenderableType:
    """One line a slot, and their sum where there are several."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("slot", no_wrap=True)
    for name in ("jobs", "goodput", *(name for name, _ in KINDS)):
        table.add_column(name, justify="right", no_wrap=True)
    for slot in view.slots:
        table.add_row(*_cells(str(slot.slot), len(slot.jobs), slot.times))
    if len(view.slots) > 1:
        table.add_row(*_cells("all", _jobs(view.slots), view.times), style="bold")
    return Group(table, Text(LEGEND, style="dim"))


def goodput_lines(view: RunGoodput) -> list[str]:
    """The same for a pipe."""
    lines = [_line(f"slot {slot.slot}", len(slot.jobs), slot.times) for slot in view.slots]
    return [_line(view.run_name, _jobs(view.slots), view.times), *lines]


def _jobs(slots: tuple[SlotGoodput, ...]) -> int:
    return sum(len(slot.jobs) for slot in slots)


def _cells(name: str, jobs: int, times: Times) -> list[str]:
    shown = ((getattr(times, field)) for _, field in KINDS)
    return [name, str(jobs), share(times), *("" if seconds <= 0 else duration(seconds) for seconds in shown)]


def _line(name: str, jobs: int, times: Times) -> str:
    parts = [f"{kind} {duration(getattr(times, field))}" for kind, field in KINDS if getattr(times, field) > 0]
    return ", ".join([f"{name}: goodput {share(times)}", "1 job" if jobs == 1 else f"{jobs} jobs", *parts])
