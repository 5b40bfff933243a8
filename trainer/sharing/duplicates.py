"""What a segment that was taken before is known by: its content, and the way that was gone in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from anchorleg.job import Job, attempt_numbers
from trainer.buffers.contributed import MAX_RECENT
from trainer.sharing.segment import MARK_BYTES, MARKS

#: In the folder of each attempt: `Segment.marks` of what it accepted, one behind the other.
FILE = "marks.bin"
#: Beyond so many the oldest are forgotten.
MOST_MARKS = MARKS * MAX_RECENT


class TakenBefore:
    """`contents` and `marks` in the order in which they came, for the judge. `contents`: those of the checkpoint and of
    what is taken again. The marks are read from the files of the attempts before.
    """

    def __init__(self, job: Job, contents: Iterable[str]) -> None:
        self.contents = dict.fromkeys(contents)
        self.marks = dict.fromkeys(_of_elders(job))
        self._file = job.attempt_dir / FILE

    def add(self, content: str, marks: Sequence[bytes]) -> None:
        """Another one was accepted."""
        self.contents[content] = None
        self.marks.update(dict.fromkeys(marks))
        _forget(self.contents, MAX_RECENT)
        _forget(self.marks, MOST_MARKS)
        # A hint alone: what is lost lets a near-duplicate in.
        with contextlib.suppress(OSError), open(self._file, "ab") as file:
            file.write(b"".join(marks))


def _forget(known: dict[Any, None], most: int) -> None:
    while len(known) > most:
        del known[next(iter(known))]


def _of_elders(job: Job) -> list[bytes]:
    """The newest `MOST_MARKS`, oldest first."""
    found: list[bytes] = []
    for attempt in reversed([number for number in attempt_numbers(job.slot_dir) if number < job.attempt]):
        found = [*_marks_in(job, attempt), *found]
        if len(found) >= MOST_MARKS:
            break
    return found[-MOST_MARKS:]


def _marks_in(job: Job, attempt: int) -> Iterator[bytes]:
    data = b""
    with contextlib.suppress(OSError):
        data = (job.slot_dir / "attempts" / str(attempt) / FILE).read_bytes()
    for at in range(0, len(data) - MARK_BYTES + 1, MARK_BYTES):
        yield data[at : at + MARK_BYTES]
