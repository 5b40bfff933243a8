"""`status --watch`: the picture again and again, until Ctrl-C. On a terminal it is redrawn; in a pipe a line is printed
when something changed, numbers that only count on aside.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live

from anchorleg.words import lines_shown
from orchestrator.run.rundir import RunDir
from orchestrator.screens.reading import run_view
from orchestrator.screens.runview import RunView, SlotView
from orchestrator.screens.status import about, headline, plain_line, run_table

#: As often as a person reads; a look is a few small files.
WATCH_S = 2.0


def watch(run_dir: RunDir, out: Console, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show the run until interrupted, which is no error. Errors: as `run_view`; a file that cannot be read for the
    moment is tried again.
    """
    try:
        if out.is_terminal and not as_json:
            _on_terminal(run_dir, out, sleep)
        else:
            _in_pipe(run_dir, as_json=as_json, sleep=sleep)
    except KeyboardInterrupt:
        return


def _on_terminal(run_dir: RunDir, out: Console, sleep: Callable[[float], None]) -> None:
    view = run_view(run_dir)
    try:
        with Live(console=out, screen=True, auto_refresh=False) as live:
            while True:
                now = time.time()
                live.update(run_table(view, now, out.width, height=out.height, again=True), refresh=True)
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
                print(lines_shown([f"{time.strftime('%H:%M:%S', time.localtime(now))}  {line}"]), flush=True)
        sleep(WATCH_S)
        view = _look(run_dir, view)


def _look(run_dir: RunDir, before: RunView) -> RunView:
    try:
        return run_view(run_dir)
    except OSError:  # a network folder that is away for a moment; the next look is soon
        return before


def marks(view: RunView) -> dict[str, Any]:
    """What a change is: by part of the run, everything that does not merely count on."""
    run = {"state": view.state, "controller": view.controller, "blind": view.blind_since, "nodes": view.excluded_nodes}
    run["stale"] = view.stale is not None and view.stale.since
    return {"run": json.dumps(run, default=str)} | {f"slot {slot.slot}": _mark(slot) for slot in view.slots}


def _mark(slot: SlotView) -> tuple[Any, ...]:
    successor = slot.successor.job_id if slot.successor else None
    saved = slot.checkpoint_step
    return slot.state, slot.why, slot.job_id, slot.attempt, slot.jobs, saved, slot.last_verdict, successor, slot.warning


def changes(view: RunView, before: dict[str, Any], after: dict[str, Any], now: float) -> list[str]:
    """The lines that are new since `before` (as `marks` made it)."""
    lines = []
    if after["run"] != before.get("run"):
        lines += [headline(view), *(line for line, _ in about(view, now))]
    changed = {name for name, mark in after.items() if before.get(name) != mark}
    return lines + [plain_line(slot, now) for slot in view.slots if f"slot {slot.slot}" in changed]
