"""What a laptop's page shows of slots and jobs: `status`, the newest jobs and the newest events, in one small file.

It lies among the curves, which are mirrored anyway (`v1/runs/<run>/<slot>/metrics/board-000000.jsonl`, one row). No
path, no setting and no program's own report is in it: nothing that `status` does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from orchestrator.executors.base import Frozen
from orchestrator.screens.goodput import SlotFacts
from orchestrator.screens.status import RunView

#: Of the form; a reader shows no other.
VERSION = 1
FILE = "board-000000.jsonl"
MOST_BYTES = 64 * 1024
#: It is told again at least so often, whatever happens: a reader sees by its arrival that somebody looks after the run.
BEAT_S = 300.0
#: What of an event is told; the rest is for programs, or may name files.
_FACTS = (
    "at", "kind", "slot", "attempt", "job_id", "node", "verdict", "cause", "step", "start_step", "checkpoint_step",
    "ended_at",
)  # fmt: skip
#: Of each slot.
MOST_JOBS = 20
#: (jobs a slot, events, slots): the first that fits is told.
_SIZES = ((MOST_JOBS, 60, None), (8, 30, None), (3, 10, None), (0, 0, None), (0, 0, 100), (0, 0, 20), (0, 0, 0))


class Board(Frozen):
    """`at`: when the controller looked, by its clock. `times`: the newest jobs of each slot, `older`: how many more the
    slots have, by slot. `events`: the newest, oldest first.
    """

    version: int = VERSION
    at: float
    view: RunView
    times: tuple[SlotFacts, ...] = ()
    older: Mapping[int, int] = Field(default_factory=dict)
    events: tuple[dict[str, Any], ...] = ()


def board_of(
    view: RunView,
    facts: Sequence[SlotFacts],
    events: Sequence[Mapping[str, Any]],
    now: float,
    older: Mapping[int, int] | None = None,
) -> Board:
    """As much of it as fits into `MOST_BYTES`. `older`: by slot, how many jobs it has beside those in `facts`."""
    bare = view.model_copy(
        update={"run_dir": "", "slots": tuple(slot.model_copy(update={"progress": {}}) for slot in view.slots)}
    )
    counts = {one.slot: len(one.jobs) + (older or {}).get(one.slot, 0) for one in facts}
    for jobs, told, slots in _SIZES:
        board = Board(
            at=now,
            view=bare.model_copy(update={"slots": bare.slots[:slots]}),
            times=tuple(_newest(one, jobs) for one in facts[:slots] if jobs),
            older={one.slot: counts[one.slot] - jobs for one in facts[:slots] if jobs and counts[one.slot] > jobs},
            events=tuple(
                {name: event[name] for name in _FACTS if name in event} for event in events[len(events) - told :]
            ),
        )
        if len(line_of(board)) <= MOST_BYTES:
            break
    return board


def _newest(facts: SlotFacts, jobs: int) -> SlotFacts:
    kept = facts.jobs[-jobs:]
    begun_at = facts.begun_at if len(kept) == len(facts.jobs) else kept[0].submitted_at
    return SlotFacts(slot=facts.slot, jobs=kept, begun_at=begun_at, queued_at=facts.queued_at, over=facts.over)


def line_of(board: Board) -> bytes:
    """The row."""
    return board.model_dump_json().encode() + b"\n"
