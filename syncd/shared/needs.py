"""What a slot says of its need for experience, as whoever takes in segments for it reads it.

The slot's learner writes one row of the curve `intake` (`trainer.sharing.takings`): whether it takes any, whether its
training is over, and whether it has all that it can use (`full`). An old word of that last kind says nothing: the
learner waits in a queue, and what comes may wait for it.
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
#: A training that is complete may be lengthened: what waits is kept for so long after its word, and offered this often.
LENGTHENED_S, OVER_RETRY_S = 86_400.0, 3_600.0


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
    at = row.get("at")
    age = abs(now - at) if isinstance(at, int | float) else float("inf")
    if row.get("over") is True:
        return NotNeeded("its training is complete", OVER_RETRY_S if age < LENGTHENED_S else None)
    if row.get("takes") is False:
        return NotNeeded("it cannot learn from experience of others", None)
    if row.get("full") is True and age < BELIEVED_S:
        return NotNeeded("it has all that it can use for now", NOT_NEEDED_RETRY_S)
    return None
