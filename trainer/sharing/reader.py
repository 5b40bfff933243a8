"""The one thread that reads what may enter a training from outside. It never touches the training, which never waits.

Each kind of thing is an `InflowSource` with a judge of its own: segments of contributors, episodes of other slots,
learners to take over, weights to mix. What is good waits in memory until the loop takes it at a barrier. A source that
fails is said and looked at again in the next round; the others go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from anchorleg.job import Job
from anchorleg.output import Notices
from syncd import store
from trainer.sharing.segment import Reason

#: How often the sources are looked at. What enters is older than that by the time it is here.
ROUND_S = 1.0
#: The reason in a word, and in a sentence.
Why = tuple[Reason, str]
#: Of what else somebody sent who lied.
WITH_A_LIE: Why = (Reason.NOT_REPRODUCED, "another segment of its sender could not be reproduced")


class InflowSource:
    """What one kind comes from. `look` is for the reader's thread. `where`: what is out of order where `look` fails.

    `is_ending`: the attempt ends; nothing new is to be looked for. `is_broken`: something in this round failed.
    """

    where = ""

    def __init__(self) -> None:
        self.is_ending = self.is_broken = False
        self.notices = Notices()
        self._told: set[object] = set()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look for now. Cheap."""
        return False

    def look(self) -> None:
        """One round; the last one is made while it `is_ending`. Whatever it raises is said, and it is tried again."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what it holds: the thread ends."""

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Whatever is raised in here is said of `where`, and keeps nothing else out: it `is_broken`."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever lies there, the training goes on
            self.is_broken = True
            why = f"{type(error).__name__}: {error}"
            why = (error.strerror or str(error)) if isinstance(error, OSError) else why
            sentence = f"{where} cannot be used now ({why}); trying again"
            self.notices.trouble(sentence, cause=f"{where} {type(error).__name__}")

    def say_once(self, sentence: str, *cause: object) -> None:
        """Leave `sentence`, unless one of the same `cause` was left before."""
        if cause not in self._told:
            self._told.add(cause)
            self.notices.note(sentence)


class Reader:
    """Looks at `sources` in turn, round by round. Methods are for the loop's thread."""

    def __init__(self, job: Job, sources: Sequence[InflowSource]) -> None:
        self._job, self._sources = job, sources
        self._is_ending = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def close(self, wait_s: float) -> None:
        """End it after a last round; give up after `wait_s`. What was not judged is left to the next attempt."""
        for source in self._sources:
            source.is_ending = True
        self._is_ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(wait_s)

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say."""
        for source in self._sources:
            source.notices.tell(say)

    def look(self) -> None:
        """One round, unless a newer attempt has begun."""
        waiting = [source for source in self._sources if not source.is_idle]
        if waiting and not self._is_superseded(waiting[0]):
            for source in waiting:
                source.is_broken = False
                with source.at(source.where):
                    source.look()
                if not source.is_broken:
                    source.notices.over()

    def _is_superseded(self, asks: InflowSource) -> bool:
        """Also where nobody can tell now."""
        with asks.at("the run folder"):
            return self._job.superseded_by() is not None
        return True

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = self._is_ending  # the last round clears away what the last checkpoint has
                self.look()
                if not is_last:
                    self._wake.wait(ROUND_S)
        finally:
            for source in self._sources:
                source.close()


@dataclass(frozen=True)
class Ready:
    """A good segment of a contributor, or of the slot of that number, whose rows wait for the loop."""

    who: str
    sha256: str
    task: int
    rows: dict[str, Any]
    content: str
    policy_step: int

    @property
    def count(self) -> int:
        """Its rows."""
        return int(self.rows["reward"].shape[0])


class ReadySegments:
    """The waiting segments: each sender's in order, the senders in turns. For any thread."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Ready]] = {}
        self._rows = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """Rows of all that wait."""
        return self._rows

    def add(self, one: Ready) -> None:
        """`one` is good: it comes after the others of its sender."""
        with self._lock:
            self._lines.setdefault(one.who, deque()).append(one)
            self._rows += one.count

    def take(self, max_rows: int) -> list[Ready]:
        """Segments with at most `max_rows` rows, but at least one segment."""
        taken: list[Ready] = []
        rows = 0
        with self._lock:
            while self._lines:
                who = next(iter(self._lines))
                line = self._lines.pop(who)
                if taken and rows + line[0].count > max_rows:
                    self._lines = {who: line, **self._lines}
                    break
                taken.append(line.popleft())
                rows += taken[-1].count
                if line:
                    self._lines[who] = line  # to the end of the row of senders
            self._rows -= rows
        return taken

    def put_back(self, taken: Sequence[Ready]) -> None:
        """These could not be used now; they come first the next time."""
        with self._lock:
            for one in reversed(taken):
                self._lines.setdefault(one.who, deque()).appendleft(one)
                self._rows += one.count

    def remove(self, who: str) -> list[Ready]:
        """All of `who` that waits; it waits no more."""
        with self._lock:
            lost = self._lines.pop(who, deque())
            self._rows -= sum(one.count for one in lost)
        return list(lost)


class Removals:
    """Contributors whose rows must leave the ring of one slot: the reader's thread finds them, and the loop takes their
    rows out at a barrier. `take_out` and `put_back` are for the loop; the rest is for the reader's thread, and raises
    OSError.

    That something was not true is written down (`syncd.shared.counts`) before anything is done about it, and then what
    checkpoint is the first without the rows: a job may end, or be killed, before its loop comes to it, and a later one
    may go on from an older checkpoint. `start`: (attempt, step) of the checkpoint that was gone on from. `why`: of whom
    rows had to leave.
    """

    def __init__(self, job: Job, ready: ReadySegments, start: tuple[int, int] | None) -> None:
        self._job, self._ready, self._start = job, ready, start
        self._lock = threading.Lock()
        self._leaving: dict[str, object] = {}  # with what tells one time from another
        self._given_back: deque[Ready] = deque()
        self._done: deque[tuple[str, int]] = deque()
        self._asked: set[str] = set()
        self.why: dict[str, Why] = {}

    def __bool__(self) -> bool:
        return bool(self._leaving)

    def take_out(self, remove: Callable[[str], bool], step: int) -> None:
        """At the barrier of `step`: `remove` the rows of each who must leave; whose rows it cannot now, waits."""
        with self._lock:
            leaving = list(self._leaving.items())
        for who, begun in leaving:
            if remove(who):
                with self._lock:
                    self._done.append((who, step))
                    if self._leaving[who] is begun:
                        del self._leaving[who]

    def put_back(self, taken: Sequence[Ready]) -> None:
        """These could not be used now: they wait again, but for those of whom rows must leave."""
        with self._lock:
            self._ready.put_back([one for one in taken if one.who not in self._leaving])
            self._given_back.extend(one for one in taken if one.who in self._leaving)

    def begin(self, who: str, why: Why) -> list[Ready]:
        """The rows of `who` must leave. Returns what was ready of them."""
        with self._lock:
            self._leaving[who], self.why[who] = object(), why
            return self._ready.remove(who)

    def write_down(self, inbox: store.Inbox) -> None:
        """What came by `inbox` was not true. On a full disk only this attempt knows."""
        with suppress(OSError):
            store.mark_untrue(inbox.path, self._job.run_id, self._job.slot)

    def is_left(self, inbox: store.Inbox) -> bool:
        """Whether an attempt before found so, and the rows may still be there. True at the first call alone."""
        if inbox.who in self._asked:
            return False
        is_left = store.found_untrue(inbox.path, self._job.run_id, self._job.slot, start=self._start)
        self._asked.add(inbox.who)
        return is_left

    def look(self, inbox: store.Inbox) -> list[Ready]:
        """Write down what is done. Returns what the loop gave back after it had to leave."""
        who = inbox.who
        for step in [step for whose, step in list(self._done) if whose == who]:
            if who not in self._leaving:  # else there is something newer that is not done
                store.note_removed(inbox.path, self._job.run_id, self._job.slot, attempt=self._job.attempt, step=step)
            self._done.remove((who, step))
        back = [one for one in list(self._given_back) if one.who == who]
        for one in back:
            self._given_back.remove(one)
        return back
