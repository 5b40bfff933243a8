"""What steps cost: those that were measured a second, at a price that the user names. No price is known here. Pure."""

from __future__ import annotations

from anchorleg.words import counted
from orchestrator.executors.base import Frozen
from orchestrator.screens.cells import number, span
from orchestrator.screens.runview import RunView, SlotView

HOUR_S = 3600.0
#: The unit in which trainings are compared.
MANY_STEPS = 1_000_000
#: In these no slot has anything more to do, unless somebody says so.
_OVER = frozenset({"finished", "failed", "dropped", "behind"})


class Cost(Frozen):
    """At `per_hour` for all that runs now, in any currency: of a million steps, and of what is left. `left_s`:
    until the last running slot is done, at its present rate; None where some slot's length is not known. `others`:
    slots that have more to do and are not measured, so they are in none of this.
    """

    per_hour: float
    steps_per_s: float
    per_million_steps: float
    left_steps: int
    left_s: float | None
    left: float | None
    others: int


def cost_of(view: RunView, per_hour: float) -> Cost | None:
    """None where no slot that runs has been measured."""
    measured = [(slot, slot.rate) for slot in view.slots if slot.rate]
    if not measured:
        return None
    steps_per_s = sum(rate for _, rate in measured)
    left = [(max(0, slot.total - (slot.step or 0)), rate) for slot, rate in measured if slot.total is not None]
    left_s = max(steps / rate for steps, rate in left) if len(left) == len(measured) else None
    return Cost(
        per_hour=per_hour,
        steps_per_s=steps_per_s,
        per_million_steps=MANY_STEPS / steps_per_s / HOUR_S * per_hour,
        left_steps=sum(steps for steps, _ in left),
        left_s=left_s,
        left=left_s / HOUR_S * per_hour if left_s is not None else None,
        others=sum(not slot.rate and not _is_done(slot) for slot in view.slots),
    )


def _is_done(slot: SlotView) -> bool:
    return slot.state in _OVER or (slot.total is not None and (slot.step or 0) >= slot.total)


def cost_words(cost: Cost | None, per_hour: float) -> str:
    """One line for people."""
    price = f"at {per_hour:g} an hour"
    if cost is None:
        return f"{price}: no running slot has told how fast it is yet"
    words = f"{price} and {cost.steps_per_s:,.1f} steps/s: {number(MANY_STEPS)} steps ≈ {cost.per_million_steps:,.2f}"
    if cost.left_s is not None and cost.left is not None:
        words += f"; the {number(cost.left_steps)} that are left ≈ {cost.left:,.2f} (in {span(cost.left_s)})"
    if cost.others:
        words += f"; not in it: {counted(cost.others, 'slot')} with more to do and no measured rate now"
    return f"{words}; restarts and idle time come on top"
