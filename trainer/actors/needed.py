"""Which slot needs experience most: a pure choice over what the slots say of themselves.

What they say: `trainer.sharing.notice`. A slot can use 3 rows of others for each 7 of its own, or fewer where its
run's slots give each other rows; it says how many. Slots are compared by how much of that they had lately, in tenths;
among those that had least, each contributor has an order of its own, by hash. So a class spreads over slots that need
the same, a contributor that comes later goes where least comes in, and nobody has to talk to anybody. An actor that has
chosen stays until the slot ends or takes nothing any more.

A slot that has all it can use is *full*: who plays for it gives nothing for a while of its own length (`Rest`), and
where the slot is still full then, so many of them as are too many go to another one.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from anchorleg.words import counted
from syncd import store
from trainer.sharing.notice import USABLE
from trainer.sharing.selection import STALE_S, SlotKey, key_of

#: Slots are told apart by tenths of that: less is the chance of one segment more or less.
LEVELS = 10
#: A rest is so long on average: half of it to one and a half. A slot looks back over ten minutes.
REST_S = 300.0
#: So long may a slot's first word come after the last of the others.
FIRST_WORD_S = 12 * 3600.0
#: A row may come from anybody's server: numbers beyond these are none, and nothing is computed with them.
_MOST = 2**53
_LATEST_S = 1e12


@dataclass(frozen=True)
class Need:
    """What a slot said last, `heard_s` ago. `rows` of others and own `steps` are those of the last ten minutes.
    `slots`: how many its run has. `full`: nothing more is needed for now. `usable`: rows of others for each own step.
    """

    takes: bool
    over: bool
    rows: int
    steps: int
    heard_s: float
    slots: int = 1
    full: bool = False
    usable: float = USABLE

    @property
    def level(self) -> int:
        """How much it had of what it can use: 0 (nothing) to `LEVELS` (all of it)."""
        most = self.usable * max(1, self.steps)
        return int(min(LEVELS, LEVELS * self.rows / most)) if most else LEVELS

    @property
    def excess(self) -> float:
        """Which part of what others give it is more than it can use, 0 to 1."""
        if not self.usable:
            return 1.0
        return max(0.0, 1 - self.usable * self.steps / self.rows) if self.rows else 0.0


class Rest:
    """How long a giver whose rows are not needed gives nothing. For one thread. `chance`: drawn evenly from [0, 1).

    Each draws a length of its own, and again when it is over and nothing is needed still. So those who were told the
    same at the same moment do not all come back at the same moment.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._until = float("-inf")
        self._why: str | None = None

    def look(self, why: str | None, now: float) -> str | None:
        """Why nothing is given now; None: it is. `why`: why nothing is needed; None: it is. `now`: monotonic."""
        if now >= self._until:
            self._why = why
            if why is not None:
                self._until = now + REST_S * (0.5 + self._chance())
        return self._why

    def end(self) -> None:
        """It plays for another slot from now on."""
        self._until, self._why = float("-inf"), None

    def is_over(self, now: float) -> bool:
        """Whether there was a rest, and its time is up: now is when one may go elsewhere."""
        return self._why is not None and now >= self._until

    def leaves(self, need: Need) -> bool:
        """Whether this one is among those that are too many for a slot that is full still."""
        return self._chance() < need.excess


def parse(row: Mapping[str, Any], heard_s: float) -> Need | None:
    """From a row of the curve `intake`; None where it is none."""
    takes, over, rows, steps = (row.get(name) for name in ("takes", "over", "rows", "steps"))
    if not (isinstance(takes, bool) and isinstance(over, bool) and _is_count(rows) and _is_count(steps)):
        return None
    slots = row.get("slots")
    of_run = slots if _is_count(slots) and slots > 0 else 1
    said = row.get("usable")
    usable = said if isinstance(said, int | float) and 0 <= said <= USABLE else USABLE
    return Need(takes, over, rows, steps, heard_s, of_run, row.get("full") is True, usable)


def said_at(row: Mapping[str, Any]) -> float | None:
    """When a row was written, unix seconds of its writer's clock; None where it says nothing that can be."""
    at = row.get("at")
    return float(at) if isinstance(at, int | float) and 0 <= at <= _LATEST_S else None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value <= _MOST


def choose_policy(
    newest: Sequence[store.Manifest], needs: Mapping[SlotKey, Need], current: SlotKey | None, who: str
) -> store.Manifest | None:
    """Of each slot's newest manifest the one for `who` to play for; None: no slot takes experience now.

    A full slot is chosen where there is no other.
    """
    taking = [manifest for manifest in newest if (need := needs.get(key_of(manifest))) and _is_taking(need)]
    mine = next((manifest for manifest in taking if key_of(manifest) == current), None)
    order = {key_of(one): (needs[key_of(one)].full, needs[key_of(one)].level, _place(who, one)) for one in taking}
    return mine or min(taking, key=lambda one: order[key_of(one)], default=None)


def why_not_needed(need: Need | None) -> str | None:
    """Why a slot that said this can use nothing of others now, in words; None: it can, or has not said anything."""
    if need is None:
        return None
    if need.over:
        return "not needed: the training is complete"
    if not need.takes:
        return "not needed: this training cannot learn from experience of others"
    return "not needed now: the slot has all that it can use" if need.full and need.heard_s < STALE_S else None


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
