"""Contributors of whom nothing is taken for a while: less than dropped, and without anybody's doing.

`inbox/<who>/held.json` stays when its time is over: one that is held again soon is held for twice as long.
`inbox/<who>/untrue/<run_id>/<slot>.json` says that rows of this contributor must leave that slot, and when they did.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from anchorleg.files import make_shared_folder, read_json_or_none
from syncd.shared.layout import put_json, read_hint

#: The first time; twice as long each time, a day at most. Who stays out of trouble for a week begins anew.
FIRST_S, LONGEST_S = 3_600.0, 86_400.0
FORGIVEN_S = 7 * 86_400.0


class Hold(BaseModel):
    """`at`, `until`: unix seconds of this side's clock. `why`: one sentence. `times`: how often in a row."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    at: float
    until: float
    why: str = ""
    times: int = 1


def held(inbox: Path, now: float) -> Hold | None:
    """Why the contributor whose folder `inbox` is may bring nothing now; None where it may."""
    last = _last(inbox)
    return last if last is not None and last.at <= now < last.until else None


def in_doubt(inbox: Path, now: float) -> bool:
    """Whether this contributor was held within the last week, as far as is remembered."""
    last = _last(inbox)
    return last is not None and now < last.until + FORGIVEN_S


def hold(inbox: Path, why: str, *, now: float) -> Hold:
    """Take nothing of this contributor for a while. Errors: OSError."""
    last = _last(inbox)
    times = last.times + 1 if last is not None and in_doubt(inbox, now) else 1
    made = Hold(at=now, until=now + min(LONGEST_S, FIRST_S * 2.0 ** min(times - 1, 10)), why=why, times=times)
    make_shared_folder(inbox)
    put_json(inbox / "held.json", made.model_dump())
    return made


def release(inbox: Path) -> bool:
    """Forget that it was ever held; whether it was. Errors: OSError."""
    was_there = (inbox / "held.json").exists()
    (inbox / "held.json").unlink(missing_ok=True)
    return was_there


def mark_untrue(inbox: Path, run_id: str, slot: int) -> None:
    """What this contributor gave this slot was not true: its rows must leave, also after a kill. Errors: OSError."""
    place = _untrue(inbox, run_id, slot)
    make_shared_folder(place.parent)
    put_json(place, {})


def note_removed(inbox: Path, run_id: str, slot: int, *, attempt: int, step: int) -> None:
    """They left at the barrier of `step` of `attempt`: checkpoints after that are without them. Errors: OSError."""
    place = _untrue(inbox, run_id, slot)
    if place.exists():
        put_json(place, {"attempt": attempt, "step": step})


def found_untrue(inbox: Path, run_id: str, slot: int, *, start: tuple[int, int] | None) -> bool:
    """Whether rows of this contributor must leave a training that goes on from checkpoint `start` (attempt, step)."""
    place = _untrue(inbox, run_id, slot)
    if start is None or not place.exists():
        return False
    told = read_json_or_none(place) or {}
    return "step" not in told or start <= (told["attempt"], told["step"])


def _untrue(inbox: Path, run_id: str, slot: int) -> Path:
    return inbox / "untrue" / run_id / f"{slot}.json"


def _last(inbox: Path) -> Hold | None:
    return read_hint(Hold, inbox / "held.json")
