"""Which slot the actors play for: pure choices over the newest manifests, and over what the slots say that they need.

What they say: `trainer.sharing.notice`. A slot can use 3 rows of others for each 7 of its own, or fewer where its
run's slots give each other rows; it says how many. Slots are compared by how much of that they had lately, in tenths;
among those that had least, each contributor has an order of its own, by hash. So a class spreads over slots that need
the same, a contributor that comes later goes where least comes in, and nobody has to talk to anybody.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeGuard

from anchorleg.words import counted
from syncd import store
from trainer.errors import ConfigError
from trainer.sharing.notice import USABLE

#: Where `syncd` mirrors to unless it was told otherwise.
DEFAULT_SHARED_DIR = Path("~/shared_weights")
#: A slot that published nothing for so long after another one did has ended, or waits in a queue. Slots of one run
#: publish every few seconds, so without this `latest` would jump between them all the time.
STALE_S = 600.0
#: Two evaluations of 200 episodes of equal policies differ by more success in 1 of 20 cases at most.
SUCCESS_NOISE = 0.1
#: Slots are told apart by tenths of what they can use: less is the chance of one segment more or less.
LEVELS = 10
#: So long may a slot's first word come after the last of the others.
FIRST_WORD_S = 12 * 3600.0
#: A manifest or a row may say any number: beyond these nothing can be computed with it.
_MOST, _LATEST_S = 2**53, 1e12

SlotKey = tuple[str, int]


@dataclass(frozen=True)
class Choice:
    """What `--policy` says: the slot published last, the best one, the one that needs experience most, or a named run
    and perhaps slot.
    """

    kind: Literal["latest", "best", "needed", "named"]
    run: str = ""
    slot: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `latest`, `best`, `needed`, `RUN` or `RUN/SLOT`. Errors: ConfigError."""
        match text:
            case "latest" | "best" | "needed":
                return cls(text)
        run, slash, slot = text.partition("/")
        if not run or (slash and not (slot.isascii() and slot.isdigit())):
            raise ConfigError("cli.policy-unknown", text=text)
        return cls("named", run, int(slot) if slash else None)

    def takes(self, place: store.SlotPlace) -> bool:
        """Whether `place` may be chosen. A run is named by its id, or by its id without the last 8 digits."""
        if self.kind != "named":
            return True
        return self.run in {place.run_id, place.run_id.rpartition("-")[0]} and self.slot in {None, place.slot}

    def __str__(self) -> str:
        return self.kind if self.kind != "named" else self.run + (f"/{self.slot}" if self.slot is not None else "")


def key_of(manifest: store.Manifest) -> SlotKey:
    """(run id, slot)."""
    return manifest.run_id, manifest.slot


def pick(newest: Sequence[store.Manifest], choice: Choice, current: SlotKey | None) -> store.Manifest | None:
    """Of each slot's newest manifest the one to play; None where there is none. It stays with `current` for long.

    `latest`: the slot that published last; left when it is stale. `best`: the highest mean success, or mean return
    where nobody tells of success; left when another one's is higher by more than chance. Slots without an evaluation
    yet count only where there is no other. Anything else is as `latest` (for `needed`: `pick_needed`).
    """
    if not newest:
        return None
    mine = next((manifest for manifest in newest if key_of(manifest) == current), None)
    if choice.kind == "best" and any(manifest.score for manifest in newest):
        best = max((m for m in newest if m.score), key=lambda m: (_score(m), m.created_at))
        return mine if mine and mine.score and not _is_better(best, mine) else best
    last = max(newest, key=lambda manifest: manifest.created_at)
    return mine if mine and last.created_at - mine.created_at < STALE_S else last


def _score(manifest: store.Manifest) -> tuple[bool, float]:
    """What is larger is better: a return says less than a success, of another environment."""
    score = manifest.score
    if score is None:
        return False, -math.inf
    return (True, score.mean_success) if score.mean_success is not None else (False, score.mean_return or 0.0)


def _is_better(one: store.Manifest, other: store.Manifest) -> bool:
    """Whether the score of `one` is higher than that of `other` by more than the evaluations' own noise."""
    (tells, mine), (other_tells, others) = _score(one), _score(other)
    if tells != other_tells:
        return tells
    errors = [it.score.return_error or 0.0 for it in (one, other) if it.score is not None]
    return mine - others > (SUCCESS_NOISE if tells else 2 * max(errors))


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


def pick_needed(
    newest: Sequence[store.Manifest], needs: Mapping[SlotKey, Need], current: SlotKey | None, who: str
) -> store.Manifest | None:
    """Of each slot's newest manifest the one for `who` to play for; None: no slot takes experience now.

    A full slot is chosen where there is no other. `who` stays with `current` while that takes anything; a full one is
    left for one that is not by those before whom the other comes in their own order: about half of them.
    """
    taking = [manifest for manifest in newest if (need := needs.get(key_of(manifest))) and _is_taking(need)]
    order = {key_of(one): (needs[key_of(one)].full, needs[key_of(one)].level, _place(who, one)) for one in taking}
    best = min(taking, key=lambda one: order[key_of(one)], default=None)
    mine = next((manifest for manifest in taking if key_of(manifest) == current), None)
    if mine is None or best is None:
        return best
    is_left = needs[key_of(mine)].full and not needs[key_of(best)].full and _place(who, best) < _place(who, mine)
    return best if is_left else mine


def why_not_needed(need: Need | None) -> str | None:
    """Why a slot that said this can use nothing of others now, in words; None: it can, or has not said anything."""
    if need is None:
        return None
    if need.over:
        return "not needed: the training is complete"
    if not need.takes:
        return "not needed: this training cannot learn from contributed experience"
    return "not needed now: the slot has as much as it can use" if need.full and need.heard_s < STALE_S else None


def is_over(needs: Mapping[SlotKey, Need]) -> bool:
    """Whether every slot has said that its training is complete. One that has never said anything waits for its first
    job; but for half a day only: perhaps it was dropped.
    """
    if not needs or not all(need.over for need in needs.values()):
        return False
    heard = Counter(run_id for run_id, _ in needs)
    waiting = any(heard[run_id] < need.slots for (run_id, _), need in needs.items())
    return not waiting or min(need.heard_s for need in needs.values()) > FIRST_WORD_S


def why_none_takes(needs: Mapping[SlotKey, Need]) -> str:
    """Why `pick_needed` found none, in words."""
    if is_over(needs):
        return "the training is complete"
    living = [need for need in needs.values() if not need.over]
    if needs and not living:
        return "waiting for the first job of a slot"
    if not living:
        return "waiting for a slot that accepts experience (its owner must set collaboration.enabled)"
    minutes = min(need.heard_s for need in living) / 60
    slots = counted(len(living), "unfinished slot")
    return f"waiting for a learner: none of {slots} has reported for {minutes:,.0f} min"


def _is_taking(need: Need) -> bool:
    return need.takes and not need.over and need.heard_s < STALE_S


def _place(who: str, manifest: store.Manifest) -> bytes:
    """Where a slot stands in the order that `who` has of all of them."""
    return hashlib.sha256(f"{who}\0{manifest.run_id}\0{manifest.slot}".encode()).digest()
