"""Which slot needs experience most: a pure choice over what the slots say of themselves.

What they say: `trainer.sharing.takings`. A slot can use 3 rows of others for each 7 of its own. Slots are
compared by how much of that they had lately, in tenths; among those that had least, each contributor has an order of
its own, by hash. So a class spreads over slots that need the same, a contributor that comes later goes where least
comes in, and nobody has to talk to anybody. Whoever has chosen stays until the slot ends or takes nothing any more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from anchorleg.words import counted
from syncd import store
from trainer.buffers.contributed import MAX_SHARE
from trainer.sharing.selection import STALE_S, SlotKey, key_of

#: Rows of others that a slot can use for each of its own.
USABLE = MAX_SHARE / (1 - MAX_SHARE)
#: Slots are told apart by tenths of that: less is the chance of one segment more or less.
LEVELS = 10
#: So long may a slot's first word come after the last of the others.
FIRST_WORD_S = 12 * 3600.0
#: A row may come from anybody's server: numbers beyond these are none, and nothing is computed with them.
_MOST = 2**53
_LATEST_S = 1e12


@dataclass(frozen=True)
class Need:
    """What a slot said last, `heard_s` ago. `rows` of others and own `steps` are those of the last ten minutes.
    `slots`: how many its run has.
    """

    takes: bool
    over: bool
    rows: int
    steps: int
    heard_s: float
    slots: int = 1

    @property
    def level(self) -> int:
        """How much it had of what it can use: 0 (nothing) to `LEVELS` (all of it)."""
        return min(LEVELS, int(LEVELS * self.rows / (USABLE * max(1, self.steps))))


def parse(row: Mapping[str, Any], heard_s: float) -> Need | None:
    """From a row of the curve `intake`; None where it is none."""
    takes, over, rows, steps = (row.get(name) for name in ("takes", "over", "rows", "steps"))
    if not (isinstance(takes, bool) and isinstance(over, bool) and _is_count(rows) and _is_count(steps)):
        return None
    slots = row.get("slots")
    return Need(takes, over, rows, steps, heard_s, slots if _is_count(slots) and slots > 0 else 1)


def said_at(row: Mapping[str, Any]) -> float | None:
    """When a row was written, unix seconds of its writer's clock; None where it says nothing that can be."""
    at = row.get("at")
    return float(at) if isinstance(at, int | float) and 0 <= at <= _LATEST_S else None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value <= _MOST


def choose_policy(
    newest: Sequence[store.Manifest], needs: Mapping[SlotKey, Need], current: SlotKey | None, who: str
) -> store.Manifest | None:
    """Of each slot's newest manifest the one for `who` to play for; None: no slot takes experience now."""
    taking = [manifest for manifest in newest if (need := needs.get(key_of(manifest))) and _is_taking(need)]
    mine = next((manifest for manifest in taking if key_of(manifest) == current), None)
    return mine or min(taking, key=lambda one: (needs[key_of(one)].level, _place(who, one)), default=None)


def is_over(needs: Mapping[SlotKey, Need]) -> bool:
    """Whether every slot has said that its training is complete. One that has never said anything waits for its first
    job; but for half a day only: perhaps it was dropped.
    """
    if not needs or not all(need.over for need in needs.values()):
        return False
    heard = Counter(run_id for run_id, _ in needs)
    waiting = any(heard[run_id] < need.slots for (run_id, _), need in needs.items())
    return not waiting or min(need.heard_s for need in needs.values()) > FIRST_WORD_S


def why_not(needs: Mapping[SlotKey, Need]) -> str:
    """Why `choose_policy` found none, in words."""
    if is_over(needs):
        return "the training is complete"
    living = [need for need in needs.values() if not need.over]
    if needs and not living:
        return "waiting for a slot that has had no job yet"
    if not living:
        return "waiting for a slot that says that it takes experience (its owner's collaboration.enabled)"
    minutes = min(need.heard_s for need in living) / 60
    slots = counted(len(living), "unfinished slot")
    return f"waiting for a learner: none of {slots} was heard of for {minutes:,.0f} min"


def _is_taking(need: Need) -> bool:
    return need.takes and not need.over and need.heard_s < STALE_S


def _place(who: str, manifest: store.Manifest) -> bytes:
    """Where a slot stands in the order that `who` has of all of them."""
    return hashlib.sha256(f"{who}\0{manifest.run_id}\0{manifest.slot}".encode()).digest()
