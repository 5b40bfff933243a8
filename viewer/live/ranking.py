"""Which agents are on screen. Pure.

The best are shown: by the success of the newest policy's evaluation, else by that of training episodes, else by the
step. Who looks wants to see one agent for a while, so there is patience: what is on screen stays until another one is
5 points better for 30 s, and changes at the end of an episode only. What the user pinned stays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from anchorleg.live.wanted import MOST_LANES
from viewer.model import AgentRow

#: In hundredths of success; of steps, where nothing else is known, in hundredths of the larger one.
BETTER_BY = 5.0
PATIENCE_S = 30.0


@dataclass(frozen=True)
class OnScreen:
    """Slots on screen, in their places. `better_since`: since when (monotonic s) others are better than the weakest."""

    shown: tuple[int, ...] = ()
    better_since: Mapping[int, float] = field(default_factory=dict)


def lead(one: AgentRow, other: AgentRow) -> float:
    """By how many points `one` is better than `other`; infinite where only one of them is at work or has a score."""
    if one.at_work != other.at_work:
        return math.inf if one.at_work else -math.inf
    mine, others = _score(one), _score(other)
    if (mine is None) != (others is None):
        return math.inf if others is None else -math.inf
    if mine is not None and others is not None:
        return 100.0 * (mine - others)
    a, b = one.step or 0, other.step or 0
    return 100.0 * (a - b) / max(a, b, 1)


def ranked(agents: Sequence[AgentRow]) -> list[AgentRow]:
    """The best first; of equals the one with the lower number."""
    return sorted(agents, key=_merit)


def next_on_screen(
    before: OnScreen,
    agents: Sequence[AgentRow],
    *,
    seats: int,
    pins: Sequence[int],
    now: float,
    may_leave: Collection[int],
) -> OnScreen:
    """What is on screen at `now` (monotonic s). `seats`: how many are wanted, 4 at most. `may_leave`: slots whose
    episode has just ended, or which show nothing.
    """
    known = {agent.slot: agent for agent in agents}
    pinned = [slot for slot in dict.fromkeys(pins) if slot in known][:MOST_LANES]
    free = max(min(seats, MOST_LANES) - len(pinned), 0)
    order = [agent.slot for agent in ranked(agents) if agent.slot not in pinned]
    kept = [slot for slot in order if slot in before.shown][:free]
    kept += [slot for slot in order if slot not in kept][: free - len(kept)]
    since: dict[int, float] = {}
    weakest = max(kept, key=order.index) if kept else None
    if weakest is not None:
        rivals = [s for s in order if s not in kept and lead(known[s], known[weakest]) >= BETTER_BY]
        since = {slot: before.better_since.get(slot, now) for slot in rivals}
        ready = [slot for slot in rivals if now - since[slot] >= PATIENCE_S]
        if ready and weakest in may_leave:
            return OnScreen(_placed(before.shown, [*pinned, *kept], {weakest: ready[0]}))
    return OnScreen(_placed(before.shown, [*pinned, *kept], {}), since)


def _placed(before: Sequence[int], chosen: Sequence[int], swaps: Mapping[int, int]) -> tuple[int, ...]:
    """`chosen`, each where it was before; newcomers at the end, or in the place of whom they follow."""
    stay = [slot for slot in before if slot in chosen]
    return tuple(swaps.get(slot, slot) for slot in (*stay, *(slot for slot in chosen if slot not in stay)))


def _score(agent: AgentRow) -> float | None:
    return agent.success if agent.success is not None else agent.training


def _merit(agent: AgentRow) -> tuple[bool, bool, float, int]:
    score = _score(agent)
    return (not agent.at_work, score is None, -(score if score is not None else agent.step or 0), agent.slot)
