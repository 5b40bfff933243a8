"""What entered an attempt's training from outside, and at which step: `<attempt_dir>/contributions.jsonl`.

A line is on the disk before its rows are in the ring. So whatever a run learnt from others can be taken in again, at
the same steps, by an attempt that goes on from an older checkpoint. A journal says all that its attempt took after
the step that it started from: what it inherits is written first. One line an event::

    {"step": 120400, "who": "alice", "sha256": "…", "rows": 500, "content": "…", "policy_step": 118000}
    {"step": 130000, "drop": "mallory"}
    {"step": 130400, "peer": 2, "sha256": "…", "rows": 500, "content": "…", "policy_step": 131000}
    {"step": 200000, "adopt": 2, "attempt": 1, "of": 190000, "sha256": "…", "lead": 0.35}
    {"step": 210000, "mix": [{"slot": 2, "attempt": 1, "of": 200000, "sha256": "…", "counts": 0.8}], "share": 0.11}
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from anchorleg.files import append_lines, as_line, write_bytes
from anchorleg.job import Job, Stretch, attempt_numbers, checkpoints_of, lineage
from anchorleg.rollback import Rollback, rollbacks
from trainer.checkpoints.resume import Start
from trainer.history.read import lines

CONTRIBUTIONS = "contributions.jsonl"


@dataclass(frozen=True)
class Taken:
    """A segment of `who` whose rows entered after the vector step that ended at `step`.

    `sha256`: its file; `content`: what a duplicate is known by; `policy_step`: when its oldest policy was published.
    """

    step: int
    who: str
    sha256: str
    rows: int
    content: str
    policy_step: int


@dataclass(frozen=True)
class Removed:
    """All rows of `drop` left the ring after the vector step that ended at `step`."""

    step: int
    drop: str


@dataclass(frozen=True)
class TakenFromPeer:
    """An episode of slot `peer` whose rows entered after the vector step that ended at `step`; else as `Taken`."""

    step: int
    peer: int
    sha256: str
    rows: int
    content: str
    policy_step: int


@dataclass(frozen=True)
class Adopted:
    """The learner of slot `adopt`, as its `attempt` had saved it at step `of`, took the place of the own one after the
    vector step that ended at `step`. `sha256`: its file; `lead`: how much better it was.
    """

    step: int
    adopt: int
    attempt: int
    of: int
    sha256: str
    lead: float


@dataclass(frozen=True)
class MixedPeer:
    """The weights of `slot`, as its `attempt` had saved them at step `of`, in the file `sha256`; `counts`: how much,
    beside others'.
    """

    slot: int
    attempt: int
    of: int
    sha256: str
    counts: float


@dataclass(frozen=True)
class Mixed:
    """The own weights went the part `share` of the way to the mean of those of `mix`, after the vector step that ended
    at `step`.
    """

    step: int
    mix: tuple[MixedPeer, ...]
    share: float

    @property
    def whom(self) -> str:
        """The slots, in words."""
        *others, last = [str(peer.slot) for peer in self.mix]
        return f"slots {', '.join(others)} and {last}" if others else f"slot {last}"


#: Of other slots: their files are copied.
OfSlots = TakenFromPeer | Adopted | Mixed
Entry = Taken | Removed | OfSlots
#: What a line with such a word is; else it is what a contributor sent.
_KINDS: dict[str, TypeAdapter[Any]] = {
    "peer": TypeAdapter(TakenFromPeer),
    "adopt": TypeAdapter(Adopted),
    "mix": TypeAdapter(Mixed),
    "drop": TypeAdapter(Removed),
}
_TAKEN: TypeAdapter[Any] = TypeAdapter(Taken)


@dataclass(frozen=True)
class Inherited:
    """What entered before this attempt: `counted`, segments that two checkpoints have; `held`, what only the one that
    it starts from has, needed again where that turns out damaged and a resume walks back; `later`, what came after it,
    to enter again, but for learners of other slots where the slot went back on purpose; `unwanted`, (who, file) of what
    it went back to be without: it may lie in an inbox still.
    """

    counted: Sequence[Taken] = ()
    held: Sequence[Taken | OfSlots] = ()
    later: Sequence[Entry] = ()
    unwanted: Sequence[tuple[str, str]] = ()


def append(attempt_dir: Path, new: Sequence[Entry]) -> None:
    """Add `new` durably, all or none. Errors: OSError."""
    append_lines(attempt_dir / CONTRIBUTIONS, *(as_line(asdict(entry)) for entry in new))


def begin(attempt_dir: Path, inherited: Collection[Entry]) -> None:
    """Start the journal of an attempt with what it has still to take again. Errors: OSError."""
    if inherited:
        write_bytes(attempt_dir / CONTRIBUTIONS, b"".join(as_line(asdict(entry)) for entry in inherited))


def entries(attempt_dir: Path) -> list[Entry]:
    """The journal of one attempt, in order; a torn last line (its writer died, its rows never entered) is left out, and
    so is a damaged one.
    """
    found = []
    for line in lines(attempt_dir / CONTRIBUTIONS):
        with contextlib.suppress(ValidationError):
            found.append(_entry(line))
    return found


def of_line(slot_dir: Path) -> Iterator[Entry]:
    """What entered the slot's training in all the attempts that it is made of, each event once. Errors: OSError."""
    for stretch in lineage(slot_dir):
        yield from _of_stretch(slot_dir, stretch)


def _of_stretch(slot_dir: Path, stretch: Stretch) -> Iterator[Entry]:
    for entry in entries(slot_dir / "attempts" / str(stretch.attempt)):
        if entry.step > stretch.after and (stretch.until is None or entry.step <= stretch.until):
            yield entry


def inherited(job: Job, start: Start | None) -> Inherited:
    """What an attempt that goes on from `start` has to do with what entered before it. Errors: OSError, ValueError.

    What somebody sent to be rid of whom the slot went back does not enter again.
    """
    if start is None:
        return Inherited()
    at = start.ref
    backs = [back for back in rollbacks(job.slot_dir) if at.attempt <= back.attempt]
    without = {back.without for back in backs}
    older = [ref.step for ref in job.candidates() if ref.step < at.step]
    before, earlier = (*(older or [at.step]), -1, -1)[:2]
    line = [*_line_before(job, at.attempt, after=earlier, backs=backs)]
    own = entries(job.slot_dir / "attempts" / str(at.attempt))
    # Its parent's, too: an attempt may have died before it removed what its first checkpoint made superfluous.
    taken = dict.fromkeys(entry for entry in (*own, *line) if isinstance(entry, Taken))
    return Inherited(
        counted=[entry for entry in taken if entry.step <= before],
        held=[entry for entry in line if before < entry.step <= at.step and not isinstance(entry, Removed)],
        later=[entry for entry in line if entry.step > at.step and _whose(entry) not in without],
        unwanted=[(entry.who, entry.sha256) for back in rollbacks(job.slot_dir) for entry in _given_by(job, back)],
    )


def _line_before(job: Job, started: int, *, after: int, backs: Sequence[Rollback]) -> Iterator[Entry]:
    """What entered later than step `after` in the attempts up to the newest before this one that published anything: a
    damaged checkpoint is walked past, and what entered in between enters again, in whichever attempt that was. Attempt
    `started` alone where that newest one is none that came after `backs`, by which the slot went back on purpose.
    """
    went_back = max((back.attempt for back in backs), default=-1)
    saved = [at for at in attempt_numbers(job.slot_dir) if at < job.attempt and checkpoints_of(job.slot_dir, at)]
    newest = max(saved, default=started)
    stretches = lineage(job.slot_dir, newest) if newest > went_back else []
    if started not in [stretch.attempt for stretch in stretches]:
        stretches = [Stretch(started, -1, None)]
    for stretch in stretches:
        if stretch.until is None or stretch.until > after:
            for entry in _of_stretch(job.slot_dir, stretch):
                is_undone = any(back.hides(stretch.attempt, entry.step) for back in backs)
                if entry.step > after and not (is_undone and isinstance(entry, Adopted | Mixed)):
                    yield entry


def _given_by(job: Job, back: Rollback) -> Iterator[Taken]:
    """What the attempts that `back` is about took of whom it is to be without."""
    for attempt in attempt_numbers(job.slot_dir) if back.without else ():
        if attempt <= back.attempt:
            for entry in entries(job.slot_dir / "attempts" / str(attempt)):
                if isinstance(entry, Taken) and entry.who == back.without:
                    yield entry


def copies_of(entries: Iterable[Entry]) -> Iterator[str]:
    """The files that were copied for `entries`, by their sha256."""
    for entry in entries:
        if isinstance(entry, Mixed):
            yield from (peer.sha256 for peer in entry.mix)
        elif isinstance(entry, OfSlots):
            yield entry.sha256


def _whose(entry: Entry) -> str | None:
    """The contributor whom it is about; None: nobody."""
    if isinstance(entry, OfSlots):
        return None
    return entry.who if isinstance(entry, Taken) else entry.drop


def _entry(line: dict[str, Any]) -> Entry:
    """Errors: ValidationError."""
    kind = next((kind for word, kind in _KINDS.items() if word in line), _TAKEN)
    entry: Entry = kind.validate_python(line)
    return entry
