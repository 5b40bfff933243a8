"""All tables and lines that people see. Nothing here decides anything."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.models import Verdict
from orchestrator.registry import Entry
from orchestrator.status import RunView, SlotView
from orchestrator.summary import RunSummary
from orchestrator.walltime import format_duration

_COLOURS = {
    "running": "green",
    "finished": "bold green",
    "failed": "bold red",
    "blind": "yellow",
    "pending": "cyan",
    "handing over": "magenta",
    "starting": "cyan",
    "submitted": "cyan",
    "waiting": "yellow",
    "stopped": "dim",
}

#: Below this the bars and the rare columns go, so that 80 columns stay readable.
WIDE = 110


def run_table(view: RunView, now: float, width: int) -> RenderableType:
    """The live picture of one run."""
    table = Table(expand=False, pad_edge=False, box=None, header_style="bold")
    wide = width >= WIDE
    for name in ("slot", "job", "state"):
        table.add_column(name, no_wrap=True)
    if wide:
        table.add_column("progress", width=18)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("steps/s", justify="right", no_wrap=True)
    table.add_column("success", justify="right", no_wrap=True)
    with_gpu = any("gpu_percent" in slot.progress for slot in view.slots)
    if with_gpu:
        table.add_column("GPU", justify="right", no_wrap=True)
    table.add_column("job ends in", justify="right", no_wrap=True)
    table.add_column("jobs", justify="right", no_wrap=True)
    if wide:
        table.add_column("saved at", justify="right", no_wrap=True)
        table.add_column("note")
    for slot in view.slots:
        cells: list[RenderableType] = [
            str(slot.slot),
            slot.job_id or "",
            Text(slot.state, style=_COLOURS.get(slot.state, "")),
        ]
        if wide:
            cells.append(ProgressBar(total=slot.total or 1, completed=slot.step or 0, width=18, finished_style="green"))
        cells += [steps(slot), rate(slot), success(slot)]
        if with_gpu:
            use = slot.progress.get("gpu_percent")
            cells.append(f"{use:.0f} %" if isinstance(use, (int, float)) else "")
        cells += [ends_in(slot, now), str(slot.jobs)]
        if wide:
            cells += [number(slot.checkpoint_step), Text(note(slot), style="dim")]
        table.add_row(*cells)
    lines: list[RenderableType] = [Text(headline(view, now), style="bold"), table]
    if not wide:
        lines += [Text(f"  slot {slot.slot}: {note(slot)}", style="dim") for slot in view.slots if note(slot)]
    return Group(*lines)


def headline(view: RunView, now: float) -> str:
    """One line on the whole run."""
    words = f"{view.run_name} ({view.run_id}) on {view.executor}: {view.state}"
    if view.state == "no controller":
        seen = f", last looked {format_duration(now - view.written_at)} ago" if view.written_at is not None else ""
        words += f"{seen}; take it up again with `orchestrator start {view.run_name}`"
    if view.blind_since is not None:
        words += f"; blind for {format_duration(now - view.blind_since)}: {view.blind_error}"
    return words


def plain_lines(view: RunView, now: float) -> list[str]:
    """The same for a pipe: one line a slot, no colours, no columns to guess."""
    lines = [headline(view, now)]
    for slot in view.slots:
        parts = [f"slot {slot.slot}", slot.state]
        parts += [f"job {slot.job_id}"] if slot.job_id else []
        parts += [f"step {steps(slot)}"] if slot.step is not None else []
        parts += [f"saved at {number(slot.checkpoint_step)}"] if slot.checkpoint_step is not None else []
        parts += [f"{rate(slot)} steps/s"] if rate(slot) else []
        parts += [f"success {success(slot)}"] if success(slot) else []
        parts += [f"job ends in {ends_in(slot, now)}"] if ends_in(slot, now) else []
        parts += [f"{slot.jobs} jobs"]
        parts += [note(slot)] if note(slot) else []
        lines.append(", ".join(parts))
    return lines


def number(value: float | None) -> str:
    """Thousands with separators; empty for nothing."""
    return f"{value:,.0f}" if value is not None else ""


def steps(slot: SlotView) -> str:
    """`done/total`."""
    if slot.step is None:
        return ""
    return f"{slot.step:,}/{slot.total:,}" if slot.total is not None else f"{slot.step:,}"


def rate(slot: SlotView) -> str:
    """Steps per second while it runs."""
    value = slot.progress.get("steps_per_s")
    return number(value) if slot.job_id is not None and isinstance(value, (int, float)) else ""


def success(slot: SlotView) -> str:
    """The last evaluation's mean success."""
    value = slot.progress.get("success")
    return f"{100 * value:.0f} %" if isinstance(value, (int, float)) else ""


def ends_in(slot: SlotView, now: float) -> str:
    """Time to the walltime."""
    if slot.ends_at is None:
        return ""
    return format_duration(slot.ends_at - now) if slot.ends_at > now else "over"


def note(slot: SlotView) -> str:
    """Why it waits, or how its last job ended."""
    if slot.why:
        return slot.why
    if slot.last_verdict not in {None, Verdict.HANDED_OVER, Verdict.FINISHED}:
        return f"last job: {slot.last_verdict}" + (f" ({slot.last_cause})" if slot.last_cause else "")
    return ""


def summary_table(summary: RunSummary) -> RenderableType:
    """What a run came to, at its end."""
    table = Table(box=None, pad_edge=False, header_style="bold", title="Summary", title_justify="left")
    table.add_column("slot")
    names = ("jobs", "hand-overs", "steps trained", "steps lost", "idle between jobs", "evaluation")
    for name in names:
        table.add_column(name, justify="right")
    for slot in summary.slots:
        table.add_row(
            str(slot.slot),
            str(slot.jobs),
            str(slot.hand_overs),
            number(slot.steps),
            number(slot.steps_lost),
            f"{slot.idle_s:.1f} s in {slot.gaps} gaps" if slot.gaps else "none",
            slot.evaluation,
        )
    return Group(table, *(Text(line) for line in summary.lines))


def summary_lines(summary: RunSummary) -> list[str]:
    """The same for a pipe."""
    lines = [
        f"slot {s.slot}: {s.jobs} jobs, {s.hand_overs} hand-overs, {number(s.steps)} steps trained, "
        f"{number(s.steps_lost)} steps lost, {s.idle_s:.1f} s idle in {s.gaps} gaps"
        + (f", evaluation {s.evaluation}" if s.evaluation else "")
        for s in summary.slots
    ]
    return lines + list(summary.lines)


def runs_table(entries: list[Entry]) -> RenderableType:
    """The registered runs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "id", "folder", "started"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.registered_at))
        table.add_row(entry.run_name, entry.run_id, entry.run_dir, started)
    return table
