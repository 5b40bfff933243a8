"""Episodes that slots of one run give each other, as files in the run folder, and their reader: judged, copied, and
kept ready for the loop. Nobody waits for a slot.

What an attempt gives lies in its own folder, where the other slots read it::

    slots/<k>/attempts/<a>/episodes-<group>/<number>-<sha256>   one in `every` finished episodes of it, as a segment

`<group>` is `trainer.config.training.group_identity`, `<number>` that of the episode among all that the slot finished.
A ghost of an older attempt writes where its successor prunes, and what it gives are true episodes all the same. Slots
of one owner are not held to a rate, and not simulated again (their seeds have other starts); every other check is that
of contributors.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from anchorleg.files import make_folder, read_regular, write_bytes
from anchorleg.job import Job, attempt_numbers
from trainer.buffers.contributed import remembered
from trainer.config.settings import EPISODES_KEPT
from trainer.config.training import Training, group_identity
from trainer.sharing.copies import Copies, names_in
from trainer.sharing.judge import RefusedSegment, SlotJudge
from trainer.sharing.reader import InflowSource, Ready, ReadySegments
from trainer.sharing.segment import MAX_SEGMENT_BYTES, Reason, name_of

#: So many attempts of a slot are read, the newest that gave anything: one that crashes at once again and again must not
#: hide what it gave.
LOOKED_AT = 3
#: Among so many of its newest: where none gives, no round lists hundreds of folders.
_MOST_LISTED = 30
_GIVEN = "episodes-"
_NAME = re.compile(r"([0-9]{9})-([0-9a-f]{64})")
#: How often the other slots' folders are listed: a listing costs a network folder some ms, and rows may be minutes old.
ROUND_S = 2.0
#: Rounds in which an unknown policy may still turn up, two minutes: a network folder shows the policies of another node
#: up to a minute after it shows the episodes.
PATIENCE_ROUNDS = 60
#: Good rows that wait for the loop: 20 MB. Beyond it episodes stay where they are.
MAX_READY_ROWS = 50_000
#: What happens between honest slots: one that resumed gives the same again, one that was away gives what is too old.
_EXPECTED = {Reason.DUPLICATE, Reason.VERSION_LAG}


@dataclass(frozen=True)
class GivenEpisode:
    """A file of slot `slot`, not opened yet. `sha256`: what its bytes must come to."""

    slot: int
    path: Path
    sha256: str


class Giving:
    """Writes the episodes of one attempt, and keeps the newest `kept` of its slot."""

    def __init__(self, job: Job, group: str, kept: int = EPISODES_KEPT) -> None:
        self._job = job
        self._folder = job.attempt_dir / f"{_GIVEN}{group}"
        self._kept = kept
        self._files: deque[Path] | None = None

    def give(self, number: int, data: bytes) -> None:
        """Write one durably, and clear the oldest away; nothing where a newer attempt has begun. Errors: OSError."""
        if self._job.superseded_by() is not None:
            return
        if self._files is None:
            make_folder(self._folder)
            self._files = deque(_given_before(self._job))
        path = self._folder / f"{number:09d}-{name_of(data)}"
        write_bytes(path, data)
        self._files.append(path)
        while len(self._files) > self._kept:
            oldest = self._files.popleft()
            with contextlib.suppress(FileNotFoundError):
                oldest.unlink()
            if oldest.parent != self._folder:
                with contextlib.suppress(OSError):  # others of it are still there
                    oldest.parent.rmdir()


def _given_before(job: Job) -> Iterator[Path]:
    """What attempts up to this one gave, oldest first."""
    for attempt in attempt_numbers(job.slot_dir):
        if attempt <= job.attempt:
            for folder in _folders(job.slot_dir / "attempts" / str(attempt), _GIVEN):
                yield from (folder / name for name in sorted(names_in(folder)) if _NAME.fullmatch(name))


def peers_of(job: Job) -> list[int]:
    """The numbers of the run's other slots that have begun. Errors: OSError."""
    names = os.listdir(job.run_dir / "slots")
    return sorted(int(name) for name in names if name.isdigit() and int(name) != job.slot)


def given_by(job: Job, slot: int, group: str) -> tuple[list[GivenEpisode], bool]:
    """(what `slot` gives, oldest first; whether its newest attempt that gives anything is of another group). Errors:
    OSError.
    """
    slot_dir = job.run_dir / "slots" / str(slot)
    newest = attempt_numbers(slot_dir)[: -_MOST_LISTED - 1 : -1]
    of_each = (_folders(slot_dir / "attempts" / str(attempt), _GIVEN) for attempt in newest)
    gave = list(islice(filter(None, of_each), LOOKED_AT))
    found: list[GivenEpisode] = []
    for folder in (folder for folders in reversed(gave) for folder in folders if folder.name == f"{_GIVEN}{group}"):
        matches = [match for name in sorted(names_in(folder)) if (match := _NAME.fullmatch(name))]
        found += [GivenEpisode(slot, folder / match[0], match[2]) for match in matches]
    return found, bool(gave) and all(folder.name != f"{_GIVEN}{group}" for folder in gave[0])


def read_given(one: GivenEpisode) -> bytes:
    """Its bytes; of a file that is too long, one more than a segment may have. Errors: OSError."""
    return read_regular(one.path, MAX_SEGMENT_BYTES + 1)


def _folders(folder: Path, prefix: str) -> list[Path]:
    return [folder / name for name in sorted(names_in(folder)) if name.startswith(prefix)]


class PeerReader(InflowSource):
    """Reads for one slot. `step` is for the loop to set; `ready` is the good, for the loop to take.

    `seen`: contents that were taken before.
    """

    where = "the episodes of other slots"

    def __init__(
        self,
        job: Job,
        training: Training,
        copies: Copies,
        *,
        step: int,
        seen: Iterable[str] = (),
        most_ready_rows: int = MAX_READY_ROWS,
    ) -> None:
        super().__init__()
        self.step = step
        self.ready = ReadySegments()
        self._job, self._training, self._copies = job, training, copies
        self._group = group_identity(training)
        self._seen = dict.fromkeys(seen)
        self._givers = 0
        self._most_ready_rows = most_ready_rows
        self._known: dict[int, set[Path]] = {}
        self._tries: dict[int, dict[Path, int]] = {}
        self._judges: dict[int, SlotJudge] = {}
        self._next_at = float("-inf")

    @property
    def has_something(self) -> bool:
        """Whether `ready` would give something. Cheap."""
        return bool(self.ready.rows)

    @property
    def is_idle(self) -> bool:
        return self.is_ending or time.monotonic() < self._next_at

    def know(self, slot: int, attempt: int, seq: int, step: int) -> None:
        """A policy of `slot` was published."""
        self._judge_of(slot).versions.know(attempt, seq, step)

    def look(self) -> None:
        self._next_at = time.monotonic() + ROUND_S
        slots = peers_of(self._job)
        self._givers = len(slots)
        for slot in slots:
            with self.at(f"what slot {slot} gives"):
                self._read_all_of(slot)

    def _read_all_of(self, slot: int) -> None:
        given, is_other = given_by(self._job, slot, self._group)
        if is_other:
            self.say_once(f"slot {slot} trains something else, so its episodes are ignored", slot, "group")
        there = {one.path for one in given}
        known = self._known[slot] = self._known.get(slot, set()) & there
        tries = self._tries[slot] = {
            path: count for path, count in self._tries.get(slot, {}).items() if path in there - known
        }
        judge = self._judge_of(slot)
        judge.versions.new_round()
        for one in given:
            if self.is_ending or self.ready.rows >= self._most_ready_rows:
                return
            if one.path not in known:
                tries[one.path] = tries.get(one.path, 0) + 1
                try:
                    is_final = self._look_at(one, judge, is_last_try=tries[one.path] >= PATIENCE_ROUNDS)
                except FileNotFoundError:
                    continue  # pruned meanwhile
                if is_final:
                    known.add(one.path)

    def _judge_of(self, slot: int) -> SlotJudge:
        if slot not in self._judges:
            self._judges[slot] = SlotJudge(self._job, slot, self._training)
        return self._judges[slot]

    def _look_at(self, one: GivenEpisode, judge: SlotJudge, *, is_last_try: bool) -> bool:
        """Whether it need not be looked at again."""
        try:
            data = read_given(one)
        except FileNotFoundError:
            raise
        except OSError as error:
            self.say_once(f"{one.path} cannot be read ({error.strerror}): it is left out", one.slot, "file")
            return True
        step = self.step
        verdict = judge.verdict(data, one.sha256, step, self._seen)
        if isinstance(verdict, RefusedSegment):
            if verdict.reason == Reason.VERSION_UNKNOWN and not is_last_try:
                return False
            if verdict.reason not in _EXPECTED:
                where = f"an episode of slot {one.slot} is ignored"
                self.say_once(f"{where} ({verdict.reason}): {verdict.sentence}; {one.path}", one.slot, verdict.reason)
            return True
        self._copies.keep(data)
        self._seen[verdict.content] = None
        while len(self._seen) > remembered(self._givers):
            del self._seen[next(iter(self._seen))]
        rows, policy_step = verdict.rows(), step - verdict.lag
        self.ready.add(Ready(str(one.slot), one.sha256, verdict.task, rows, verdict.content, policy_step))
        return True
