"""Which slot the actors follow: pure choices over the newest manifests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from syncd import store
from trainer.errors import ConfigError

#: Where `syncd` mirrors to unless it was told otherwise.
DEFAULT_SHARED_DIR = Path("~/shared_weights")
#: A slot that published nothing for so long after another one did has ended, or waits in a queue. Slots of one run
#: publish every few seconds, so without this `latest` would jump between them all the time.
STALE_S = 600.0
#: Better by two standard errors of the difference: evaluations of equal policies differ by more in 1 of 40 cases.
_ERRORS = 2.0
#: A manifest may say any number: beyond this one nothing can be computed with it.
_MOST_GOALS = 2**53

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
    yet count only where there is no other. Anything else is as `latest` (for `needed`: `trainer.actors.needed`).
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
    return mine - others > _ERRORS * math.sqrt(_variance(one) + _variance(other))


def _variance(manifest: store.Manifest) -> float:
    """Of the mean; one goal more of each kind keeps 0 of 5 from looking certain."""
    score = manifest.score
    if score is None:
        return 0.0
    if score.mean_success is None:
        error = score.return_error or 0.0
        return error * error  # infinite where it is too large, which ** refuses
    goals = min(score.goals_per_task, _MOST_GOALS) * len(manifest.tasks)
    if not goals:
        return 0.0
    rate = (score.mean_success * goals + 1) / (goals + 2)
    return rate * (1 - rate) / goals
