"""Tell those who mirror the run what `status` says, after a tick. See `orchestrator.screens.board`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from anchorleg.files import write_bytes
from anchorleg.modes import file_mode
from orchestrator.decisions.models import SlotStatus
from orchestrator.errors import AnchorlegError
from orchestrator.run.history import read_events
from orchestrator.run.rundir import Run, RunDir, shared_dir
from orchestrator.screens.board import BEAT_S, FILE, MOST_JOBS, Board, board_of, line_of
from orchestrator.screens.goodput import SlotFacts
from orchestrator.screens.newest import NewestJobs
from orchestrator.screens.status import picture

#: Not more often, however fast ticks follow each other; and so many times what the last telling cost.
EVERY_S = 5.0
REST = 50.0


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
        self._jobs = NewestJobs(run_dir, MOST_JOBS)
        self._due_at = float("-inf")
        self._told: Board | None = None

    def tell(self) -> None:
        """Write the board where it has changed. Nothing that goes wrong here concerns the run."""
        began = self._monotonic()
        if began < self._due_at:
            return
        with suppress(OSError, AnchorlegError, ValueError, KeyError, TypeError):
            self._tell()
        done = self._monotonic()
        self._due_at = done + max(EVERY_S, REST * (done - began))

    def _tell(self) -> None:
        place = self._place()
        if place is None:
            return
        now = self._now()
        view, ledger = picture(self._run_dir, now)
        events = read_events(self._run_dir)
        by_slot: dict[Any, list[dict[str, Any]]] = {}
        for event in events:
            by_slot.setdefault(event.get("slot"), []).append({"attempt": None, "token": "", **event})
        facts: list[SlotFacts] = []
        older: dict[int, int] = {}
        for slot in ledger.slots if ledger is not None else ():
            over = view.wish != "run" or slot.status is not SlotStatus.ACTIVE
            newest, older[slot.index] = self._jobs.look(slot, by_slot.get(slot.index, []), now, over=over)
            facts.append(newest)
        board = board_of(view, facts, events, now, older)
        if self._told is not None and now - self._told.at < BEAT_S and _same(board, self._told):
            return
        write_bytes(place / FILE, line_of(board), mode=file_mode(place))
        self._told = board

    def _place(self) -> Path | None:
        """Beside the curves of the first slot that publishes."""
        run = shared_dir(self._run.config, self._run.folder, self._run_dir) / "v1" / "runs" / self._run.run_id
        found = (run / str(slot) / "metrics" for slot in range(self._run.config.slots))
        return next((folder for folder in found if folder.is_dir()), None)


def _same(one: Board, other: Board) -> bool:
    """But for the moments at which somebody looked."""

    def bare(board: Board) -> Board:
        return board.model_copy(update={"at": 0.0, "view": board.view.model_copy(update={"written_at": None})})

    return bare(one) == bare(other)
