"""What is known of one contributor: counts that outlive the segments, when it was last heard of, whether it is held.

::

    inbox/<who>/counts/<run_id>.<slot>.json   written by that slot's learner alone, so that two never lose an update
    inbox/<who>/counts/drop.json              written by `syncd drop`
    inbox/<who>/seen.json                     written by the server when the contributor connects
    inbox/<who>/held.json                     nothing is taken for a while: less than dropped, without anybody's doing
    inbox/<who>/untrue/<run_id>/<slot>.json   rows of this contributor must leave that slot; and when they did

`held.json` stays when its time is over: one that is held again soon is held for twice as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from anchorleg.files import make_shared_folder, read_json, read_json_or_none
from syncd.shared.layout import put_json, read_hint

#: Rows are kept by day, of so many: a week's board and the day that is under way, and as many of a clock that is wrong.
KEPT_DAYS = 16
#: What the board calls lately: today and the six days before.
BOARD_DAYS = 7
_DAY_S = 86_400


class Counts(BaseModel):
    """Segments accepted and refused (by reason), rows accepted, and when the last of them was judged (0: never).

    `checked`: segments that were simulated again; `exact`: those of them that came out the same to the last bit.
    `episodes`: accepted segments that are whole episodes; `solved`: those in which the task was solved.
    `days`: of `rows`, those of the last days: the day's number since 1970 (UTC, the learner's clock) → rows.
    `taken_back`: of `rows`, those that left again, because their sender was found lying; `days_taken_back`: by day, as
    `days`, which has them no more. They were given all the same where a day's quota is asked for.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    accepted: int = 0
    refused: dict[str, int] = {}
    rows: int = 0
    checked: int = 0
    exact: int = 0
    episodes: int = 0
    solved: int = 0
    last_at: float = 0.0
    days: dict[str, int] = {}
    taken_back: int = 0
    days_taken_back: dict[str, int] = {}

    @property
    def credited(self) -> int:
        """Rows that were accepted, and believed to this day."""
        return self.rows - self.taken_back

    def given_today(self, now: float) -> int:
        """Rows of today, those that left again with them. `now`: unix seconds."""
        return self.rows_of(now) + self.days_taken_back.get(str(day_of(now)), 0)

    def rows_of(self, now: float, days: int = 1) -> int:
        """Rows of the last `days` days that are believed, today with them. `now`: unix seconds."""
        today = day_of(now)
        return sum(rows for day, rows in self.days.items() if today - days < _number(day) <= today)

    def plus(self, other: Counts) -> Counts:
        """Both together."""
        added = {
            name: dict(Counter(mine) + Counter(getattr(other, name)))
            if isinstance(mine, dict)
            else mine + getattr(other, name)
            for name, mine in self
        }
        return Counts(**added | {"last_at": max(self.last_at, other.last_at)})


def day_of(now: float) -> int:
    """The day's number since 1970, UTC."""
    return int(now // _DAY_S)


def day_ends_at(now: float) -> float:
    """Unix seconds at which the day is over, UTC."""
    return float((day_of(now) + 1) * _DAY_S)


def _number(day: str) -> int:
    return int(day) if day.isascii() and day.isdigit() and len(day) < 10 else -1


def _both(days: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(days) + Counter(more))


def _recent(days: Mapping[str, int], now: float) -> dict[str, int]:
    """The `KEPT_DAYS` that are nearest to `now`: by the clock of one round, which may be ahead or behind, so that it
    drops none of the others' days. All of them where `now` is 0.
    """
    known = sorted((day for day in days if _number(day) >= 0), key=lambda day: abs(_number(day) - day_of(now)))
    return {day: days[day] for day in (known[:KEPT_DAYS] if now else known)}


def note(inbox: Path, writer: str, more: Counts) -> None:
    """Add to the counts that `writer` keeps of the contributor whose folder `inbox` is. Errors: OSError, and then
    nothing was added.

    Totals and days are one file, replaced by one rename: after a kill both have `more`, or neither has.
    """
    _add(inbox, writer, more, are_believed=True)


def take_back(inbox: Path, writer: str, more: Counts) -> None:
    """As `note`, and all rows that `writer` counted so far left again: no credit, but given. Errors: as `note`."""
    _add(inbox, writer, more, are_believed=False)


def rows_today(inbox: Path, run_id: str, now: float) -> int:
    """Rows that one run accepted of a contributor since midnight, UTC, whatever came out of them. Errors: OSError."""
    return sum(_counts_in(path).given_today(now) for path in _files_of(inbox) if path.stem.rpartition(".")[0] == run_id)


def counts(inbox: Path) -> Counts:
    """All counts of a contributor together; none where there are none."""
    total = Counts()
    for path in _files_of(inbox):
        total = total.plus(_counts_in(path))
    return total


def by_slot(inbox: Path) -> dict[str, Counts]:
    """`RUN/SLOT` → what that slot's learner noted of a contributor."""
    found = {}
    for path in _files_of(inbox):
        run_id, dot, slot = path.stem.rpartition(".")
        if dot and slot.isdigit():  # else `drop.json`
            found[f"{run_id}/{slot}"] = _counts_in(path)
    return found


def given_to(inbox: Path, run_id: str, slot: int) -> Counts:
    """What one slot's learner noted of the contributor whose folder `inbox` is; zeros where it noted nothing."""
    return _counts_in(inbox / "counts" / f"{run_id}.{slot}.json")


def note_seen(inbox: Path, now: float) -> None:
    """The contributor has connected. Errors: OSError."""
    make_shared_folder(inbox)
    put_json(inbox / "seen.json", {"at": now})


def last_seen(inbox: Path) -> float | None:
    """Unix seconds of the last connection or verdict; None: never."""
    value = read_json_or_none(inbox / "seen.json")
    at = value.get("at") if isinstance(value, dict) else None
    latest = max(float(at) if isinstance(at, int | float) else 0.0, counts(inbox).last_at)
    return latest or None


def _files_of(inbox: Path) -> list[Path]:
    try:
        return sorted((inbox / "counts").glob("*.json"))
    except FileNotFoundError:
        return []


def _counts_in(path: Path) -> Counts:
    return _parsed(read_json_or_none(path) or {})


def _parsed(value: object) -> Counts:
    try:
        return Counts.model_validate(value)
    except ValidationError:
        return Counts()


def _add(inbox: Path, writer: str, more: Counts, *, are_believed: bool) -> None:
    path = inbox / "counts" / f"{writer}.json"
    make_shared_folder(path.parent)
    try:
        before = _parsed(read_json(path))
    except (FileNotFoundError, ValueError):  # any other trouble is not "none so far": the totals would begin anew
        before = Counts()
    total = before.plus(more)
    if not are_believed:
        lost = {"days_taken_back": _both(total.days, total.days_taken_back), "taken_back": total.rows}
        total = total.model_copy(update={"days": {}, **lost})
    kept = {name: _recent(getattr(total, name), more.last_at) for name in ("days", "days_taken_back")}
    put_json(path, total.model_copy(update=kept).model_dump())


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
