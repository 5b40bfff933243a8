"""What a laptop's page shows of slots and jobs: the run's view, newest jobs and events, in the controller's file.

It lies among the curves, which are mirrored anyway (`v1/runs/<run>/<slot>/metrics/board-000000.jsonl`, one row). Every
contributor may read it: no absolute path, setting, program's own report or job's output is in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from anchorleg.files import file_mode, write_bytes
from orchestrator.decisions.verdicts import told_to_others
from orchestrator.errors import AnchorlegError
from orchestrator.executors.base import Frozen
from orchestrator.run.rundir import Run, RunDir, shared_dir
from orchestrator.screens.reading import run_view
from orchestrator.screens.runview import RunView, SlotFacts, SlotView

#: Of the form; a reader shows no other.
VERSION = 2
FILE = "board-000000.jsonl"
MOST_BYTES = 64 * 1024
#: It is written again at least so often: a reader sees by its arrival that somebody looks after the run.
BEAT_S = 300.0
#: Between two writes, however fast ticks come; and so many times what the last one cost.
EVERY_S = 5.0
REST = 50.0
#: The rest of an event is for programs, or may name files.
_FACTS = (
    "at", "kind", "slot", "attempt", "job_id", "node", "verdict", "cause", "step", "start_step", "checkpoint_step",
    "ended_at", "what", "value",
)  # fmt: skip
#: What looks like a file's place, as the scheduler's words and commands have it.
_PATH = re.compile(r"""(?<!\w)(~\w*|\$\{?\w+\}?|\.{1,2})?/[^\s"'`<>()\[\]{},;:]+""")
#: Of each slot, and of all slots together: more do not fit, and each costs some small reads.
MOST_JOBS, MOST_JOBS_IN_ALL = 20, 200
#: (jobs a slot, events, slots): the first that fits is told.
_SIZES = ((MOST_JOBS, 60, None), (8, 30, None), (3, 10, None), (0, 0, None), (0, 0, 100), (0, 0, 20), (0, 0, 0))


class Board(Frozen):
    """`at`: when the controller looked, by its clock. `times`: each slot's newest jobs. `events`: the newest."""

    version: int = VERSION
    at: float
    view: RunView
    times: tuple[SlotFacts, ...] = ()
    events: tuple[dict[str, Any], ...] = ()


def line_of(board: Board) -> bytes:
    """The row of its file."""
    return board.model_dump_json().encode() + b"\n"


def board_of(view: RunView, now: float) -> Board:
    """As much as fits into `MOST_BYTES` of a view that was read with its events and its newest jobs."""
    source = view.source
    facts, events = (source.jobs, source.events.all) if source is not None else ((), ())
    bare = _bare(view, events)
    for jobs, told, slots in _SIZES:
        queue = bare.queue and bare.queue.model_copy(update={"best": bare.queue.best[:slots]})
        board = Board(
            at=now,
            view=bare.model_copy(update={"slots": bare.slots[:slots], "queue": queue}),
            times=tuple(_newest(one, jobs) for one in facts[:slots] if jobs),
            events=tuple(_fact(event, view.run_dir) for event in events[len(events) - told :]),
        )
        if len(line_of(board)) <= MOST_BYTES:
            break
    return board


def _bare(view: RunView, events: Sequence[Mapping[str, Any]]) -> RunView:
    """The part of `view` that every contributor may read."""
    causes: dict[int, dict[str, str]] = {slot.slot: {} for slot in view.slots}
    ends = [(event.get("slot"), event.get("verdict"), event.get("cause")) for event in events]
    ends += [(slot.slot, slot.last_verdict, slot.last_cause) for slot in view.slots]
    for slot, verdict, cause in ends:
        if slot in causes and cause and (told := told_to_others(str(verdict), str(cause))) != cause:
            causes[slot][str(cause)] = told
    slots = tuple(_bare_slot(slot, causes[slot.slot]) for slot in view.slots)
    value = view.model_copy(update={"run_dir": "", "slots": slots}).model_dump()
    return RunView.model_validate(without_paths(value, view.run_dir))


def _bare_slot(slot: SlotView, causes: Mapping[str, str]) -> SlotView:
    """`causes`: what is told instead of those that its jobs ended of. A sentence is one, or ends in one (`ends.py`)."""
    why, after = slot.why, slot.next
    for cause in sorted(causes, key=len, reverse=True):
        stands = re.compile(rf"(^|: ){re.escape(cause)}(?!\w)")
        why, after = (stands.sub(rf"\g<1>{causes[cause]}", text) for text in (why, after))
    last = causes.get(slot.last_cause, slot.last_cause)
    return slot.model_copy(update={"progress": {}, "why": why, "next": after, "last_cause": last})


def _fact(event: Mapping[str, Any], run_dir: str) -> dict[str, Any]:
    """The part of an event that every contributor may read."""
    told = {name: event[name] for name in _FACTS if name in event}
    if told.get("cause"):
        told["cause"] = told_to_others(str(told.get("verdict")), str(told["cause"]))
    return {name: without_paths(value, run_dir) for name, value in told.items()}


def without_paths(value: Any, run_dir: str) -> Any:
    """`run_dir`: known, so that a space in it is none."""
    if isinstance(value, str):
        return _PATH.sub("…", value.replace(run_dir, "/…") if run_dir else value)
    if isinstance(value, (list, tuple)):
        return [without_paths(one, run_dir) for one in value]
    if isinstance(value, dict):
        return {name: without_paths(one, run_dir) for name, one in value.items()}
    return value


def _newest(facts: SlotFacts, most: int) -> SlotFacts:
    jobs = facts.jobs[-most:]
    return replace(facts, jobs=jobs, begun_at=facts.begun_at if jobs == facts.jobs else jobs[0].submitted_at)


class BoardWriter:
    """Of one run. It writes only where a program publishes (its slot's folder of curves is there); it makes none."""

    def __init__(
        self,
        run: Run,
        run_dir: RunDir,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._run_dir, self._now, self._monotonic = run, run_dir, now, monotonic
        self._due_at = self._written_at = float("-inf")
        self._told: Board | None = None

    def write(self) -> None:
        """Write the board where it has changed. Nothing that goes wrong here concerns the run."""
        began = self._monotonic()
        if began < self._due_at:
            return
        with suppress(OSError, AnchorlegError, ValueError, KeyError, TypeError):
            self._write()
        done = self._monotonic()
        self._due_at = done + max(EVERY_S, REST * (done - began))

    def _write(self) -> None:
        # Beside the curves of the first slot that publishes.
        run = shared_dir(self._run.config, self._run.folder, self._run_dir) / "v1" / "runs" / self._run.run_id
        places = (run / str(slot) / "metrics" for slot in range(self._run.config.slots))
        place = next((folder for folder in places if folder.is_dir()), None)
        if place is None:
            return
        now = self._now()
        most = min(MOST_JOBS, MOST_JOBS_IN_ALL // self._run.config.slots)
        board = board_of(run_view(self._run_dir, now, events=True, jobs=most), now)
        # But for the moments at which somebody looked.
        told = board.model_copy(update={"at": 0.0, "view": board.view.model_copy(update={"written_at": None})})
        if told != self._told or now - self._written_at >= BEAT_S:
            write_bytes(place / FILE, line_of(board), mode=file_mode(place))
            self._told, self._written_at = told, now
