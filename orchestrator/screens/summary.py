"""What a run came to, at its end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.text import Text

from anchorleg.words import counted, folded
from orchestrator.decisions.verdicts import ASKED_TO
from orchestrator.executors.base import View
from orchestrator.screens.cells import fits, number, table
from orchestrator.screens.runview import Event, RunView, SlotView


class SlotSummary(View):
    """`steps_lost`: done by a job and not in what its successor began with. `idle_s`: between one job's last act and
    the next one's first, summed over `gaps`.
    """

    slot: int
    jobs: int
    hand_overs: int
    steps: int
    steps_lost: int
    idle_s: float
    gaps: int
    evaluation: str = ""


def summarise(view: RunView) -> tuple[SlotSummary, ...]:
    """Of each slot. `view`: read with its events."""
    source = view.source
    if source is None or source.ledger is None:
        return ()
    found = []
    for slot, shown in zip(source.ledger.slots, view.slots, strict=True):
        events = source.events_of(slot.index)
        idle = _waits(events)
        found.append(
            SlotSummary(
                slot=slot.index,
                jobs=slot.jobs,
                hand_overs=slot.hand_overs,
                steps=slot.step,
                steps_lost=steps_lost(events),
                idle_s=sum(idle),
                gaps=len(idle),
                evaluation=_evaluation(shown),
            )
        )
    return tuple(found)


def steps_lost(events: Iterable[Event]) -> int:
    """Steps that the jobs of one slot made after their last saves."""
    return sum(lost_in(event) or 0 for event in _by_attempt(events, "ended").values())


def lost_in(ended: Event) -> int | None:
    """Steps that a job made after its last save, from the event of its end; None where it told none."""
    step, saved = ended.get("step"), ended.get("checkpoint_step")
    return max(0, step - saved) if isinstance(step, int) and isinstance(saved, int) else None


def _by_attempt(events: Iterable[Event], kind: str) -> dict[int, Event]:
    """A controller that was killed between an event and the ledger tells it again, and it counts once."""
    return {event.get("attempt", -1): event for event in events if event.get("kind") == kind}


def _waits(events: Iterable[Event]) -> list[float]:
    """Seconds between the end of each job and the claim of the next one, on their own clocks. After a `stop` nobody
    waits for the next job.
    """
    begun, ended = _by_attempt(events, "started"), _by_attempt(events, "ended")
    waits = []
    for before, after in pairwise(sorted(begun)):
        end, claimed_at = ended.get(before, {}), begun[after].get("claimed_at")
        if end.get("ended_at") is not None and claimed_at is not None and end.get("cause") != ASKED_TO:
            waits.append(max(0.0, claimed_at - end["ended_at"]))
    return waits


def _evaluation(slot: SlotView) -> str:
    """The newest evaluation that the trainer reported in its progress."""
    success, goals = slot.progress.get("success"), slot.progress.get("evaluation_goals")
    if not isinstance(success, int | float):
        return ""
    return f"{100 * success:.0f} % success" + (f" ({goals} goals a task)" if goals else "")


def summary_table(slots: Sequence[SlotSummary], width: int) -> RenderableType:
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
        for slot in slots
    ]
    title = Text("Summary", style="italic")
    if not fits(names, rows, width):
        return Group(title, *(Text(folded(line, width)) for line in summary_lines(slots)))
    evaluated = [slot for slot in slots if slot.evaluation]
    wide = [[*row, slot.evaluation] for row, slot in zip(rows, slots, strict=True)]
    if evaluated and fits([*names, "evaluation"], wide, width):
        return Group(title, table([*names, "evaluation"], wide))
    return Group(title, table(names, rows), *(Text(f"slot {s.slot}: evaluation {s.evaluation}") for s in evaluated))


def summary_lines(slots: Iterable[SlotSummary]) -> list[str]:
    """The same for a pipe."""
    return [
        f"slot {s.slot}: {counted(s.jobs, 'job')}, {counted(s.hand_overs, 'hand-over')}, "
        f"{counted(s.steps, 'step')} trained, {counted(s.steps_lost, 'step')} lost, "
        f"{s.idle_s:.1f} s idle in {counted(s.gaps, 'gap')}" + (f", evaluation {s.evaluation}" if s.evaluation else "")
        for s in slots
    ]
