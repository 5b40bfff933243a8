"""What a slot says of its need for experience, as whoever takes in segments for it reads it.

The slot's learner writes one row of the curve `intake` (`trainer.sharing.takings`): whether it takes any, whether its
training is over, and whether it has all that it can use (`full`). A word that is old says nothing: the learner waits
in a queue, and what comes may wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncd.shared.curves import read_metrics
from syncd.shared.layout import SlotPlace

#: The curve's name.
INTAKE = "intake"
#: A word is believed for so long: the learner says it twice a minute.
BELIEVED_S = 600.0
#: Who is not needed may ask again after so long; its own chance adds to it (`syncd.laptop.exchange`).
NOT_NEEDED_RETRY_S = 150.0


@dataclass(frozen=True)
class NotNeeded:
    """Nothing of others is needed: why, as the end of a sentence, and when to ask again (None: never)."""

    why: str
    retry_after_s: float | None


def not_needed(place: SlotPlace, now: float) -> NotNeeded | None:
    """Whether the slot has said that it can use nothing. `now`: unix seconds of this side's clock. Errors: OSError."""
    rows = read_metrics(place, INTAKE, parts=1)
    return judged(rows[-1], now) if rows else None


def judged(row: Mapping[str, Any], now: float) -> NotNeeded | None:
    """`not_needed`, of the row that the slot wrote last. Pure."""
    if row.get("over") is True:
        return NotNeeded("its training is complete", None)
    if row.get("takes") is False:
        return NotNeeded("it cannot learn from experience of others", None)
    at = row.get("at")
    is_lately = isinstance(at, int | float) and abs(now - at) < BELIEVED_S
    if row.get("full") is True and is_lately:
        return NotNeeded("it has all that it can use for now", NOT_NEEDED_RETRY_S)
    return None
