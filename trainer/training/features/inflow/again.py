"""What entered before an attempt began enters again, each entry of the journal at its step."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from anchorleg.job import Job
from anchorleg.output import Notices
from syncd import store
from trainer.envs.spaces import Spaces
from trainer.sharing.copies import read_taken
from trainer.sharing.journal import Adopted, Entry, Mixed, OfSlots, Removed, Taken, TakenFromPeer, copies_of
from trainer.sharing.judge import Accepted
from trainer.sharing.segment import BadSegmentError, decode, name_of
from trainer.training.features.inflow.adopting import put_in
from trainer.training.features.inflow.mixing import mix_in, named
from trainer.training.ranks import hand_out
from trainer.training.run import TrainingRun

#: While a folder does not answer, it is asked this often whether the job must hand over.
LOOK_S = 0.25
#: A read that takes longer than that hangs, if the job must hand over: a learner of 100 MB takes seconds on a slow
#: network.
HUNG_S = 10.0


class HungError(Exception):
    """A folder does not answer, and the job must hand over."""


class JournalReplay:
    """For the loop's thread. `ahead`: what is still to enter again, in order. `is_hung`: what is due cannot be read in
    the time that is left. `meanwhile`: called while a folder is waited for.
    """

    def __init__(self, job: Job, spaces: Spaces, schedule: Sequence[Entry], notices: Notices) -> None:
        self.ahead = deque(schedule)
        self.is_hung = False
        self.meanwhile: Callable[[], None] = lambda: None
        self._job, self._spaces, self._notices = job, spaces, notices
        self._gone: list[tuple[Taken | OfSlots, Exception]] = []

    def take_due(self, state: TrainingRun) -> tuple[list[Taken | OfSlots], list[Adopted]]:
        """At a barrier: what is due by now enters. Returns what entered, and the adoptions that are lost."""
        entered: list[Taken | OfSlots] = []
        before = len(self._gone)
        while self.ahead and self.ahead[0].step <= state.step:
            try:
                entered += self._enter_again(self.ahead[0], state)
            except HungError:
                self.is_hung = True
                self._notices.note(
                    f"what entered at step {self.ahead[0].step:,} before cannot be read in the time that is left: "
                    "the job hands over without another checkpoint, and the next one tries again"
                )
                break
            self.ahead.popleft()
        lost = [entry for entry, _ in self._gone[before:] if isinstance(entry, Adopted)]
        if not self.ahead:
            self.say_gone()
        return entered, lost

    def say_gone(self) -> None:
        """One sentence of all that could not be taken again."""
        if self._gone:
            (entry, error), more = self._gone[0], len(self._gone) - 1
            others = f", and {more:,} more up to step {self._gone[-1][0].step:,}" if more else ""
            self._notices.note(
                f"{_what(entry)} that entered at step {entry.step:,} is gone or damaged ({error}){others}: going on "
                f"without {'them' if more else 'it'}; this training is no longer bit for bit the one that was "
                "interrupted"
            )
            self._gone.clear()

    def _enter_again(self, entry: Entry, state: TrainingRun) -> list[Taken | OfSlots]:
        """`entry`, unless it is gone, or nothing that has a file. Errors: HungError."""
        if isinstance(entry, Removed):
            if state.experience is not None and state.experience.others is not None:
                state.experience.others.drop(entry.drop)
            return []
        try:
            data = [self._in_time(read) for read in self._reads(entry)]
            if isinstance(entry, Taken | TakenFromPeer):
                segment = decode(data[0], self._spaces)
                task = self._spaces.tasks.index(segment.task)
                enter_rows(state, entry, task, Accepted(segment, task, entry.content, 0).rows())
                return [entry]
        except (OSError, ValueError, BadSegmentError) as error:
            self._gone.append((entry, error))
            return []
        words = put_in(state, entry, *data) if isinstance(entry, Adopted) else mix_in(state, entry, data)
        hand_out(state)
        if words:
            self._notices.note(words)
        return [entry]

    def _reads(self, entry: Taken | OfSlots) -> list[Callable[[], bytes]]:
        if isinstance(entry, Taken):
            return [partial(_read_segment, self._job, entry)]
        return [partial(read_taken, self._job, sha256) for sha256 in copies_of([entry])]

    def _in_time(self, read: Callable[[], bytes]) -> bytes:
        """`read()` in a thread, so that a folder that hangs does not eat the job's lead.

        Errors: those of `read`; HungError where the job must hand over and there is no answer yet.
        """
        answer: Future[bytes] = Future()

        def work() -> None:
            try:
                answer.set_result(read())
            except Exception as error:  # noqa: BLE001 - raised again by `result`
                answer.set_exception(error)

        threading.Thread(target=work, name="replay", daemon=True).start()
        began = time.monotonic()
        wait([answer], timeout=LOOK_S)
        while not answer.done():
            if time.monotonic() - began >= HUNG_S and self._job.hand_over_reason() is not None:
                raise HungError
            self.meanwhile()
            wait([answer], timeout=LOOK_S)
        return answer.result()


def enter_rows(state: TrainingRun, entry: Taken | TakenFromPeer, task: int, rows: dict[str, Any]) -> None:
    """The rows of `entry`, which is journaled, enter the ring of their kind."""
    experience, paid = state.experience, None
    if experience is None:
        raise AssertionError("an algorithm that learns from no experience takes none")
    if isinstance(entry, TakenFromPeer):
        who, ring = str(entry.peer), experience.join()
        segments, transitions = experience.given.get(who, (0, 0))
        experience.given[who] = [segments + 1, transitions + entry.rows]
    else:
        who, ring, paid = entry.who, experience.welcome(), experience.pays(task, rows["reward"])
    ring.add(who, rows, task=task, content=entry.content, policy_step=entry.policy_step, step=entry.step, paid=paid)


def _read_segment(job: Job, entry: Taken) -> bytes:
    """Errors: OSError; ValueError where it is another file."""
    inbox = store.Inbox.of(store.Shared(job.shared_dir), entry.who)
    path = inbox.find(job.run_id, job.slot, entry.sha256)
    if path is None:
        raise FileNotFoundError(2, f"{entry.sha256[:12]}… is not in the inbox")
    data = inbox.read(path)
    if name_of(data) != entry.sha256:
        raise ValueError(f"{entry.sha256[:12]}… is not what was sent")
    return data


def _what(entry: Taken | OfSlots) -> str:
    if isinstance(entry, Adopted):
        return f"what slot {entry.adopt} had learned"
    if isinstance(entry, Mixed):
        return f"a mean with the weights of {named([peer.slot for peer in entry.mix])}"
    return f"a segment of {entry.who if isinstance(entry, Taken) else f'slot {entry.peer}'}"
