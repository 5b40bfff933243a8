"""Episodes that other slots of the group give: judged, copied, and kept ready for the loop. Nobody waits for a slot.

Slots of one owner are not held to a rate, and not simulated again (their seeds have other starts); every other check is
that of contributors.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from anchorleg.job import Job
from trainer.buffers.contributed import remembered
from trainer.config.training import Training, group_identity
from trainer.sharing.copies import Copies
from trainer.sharing.episodes import GivenEpisode, given_by, peers_of, read_given
from trainer.sharing.judge import RefusedSegment
from trainer.sharing.reader import InflowSource, Ready, ReadySegments
from trainer.sharing.segment import Reason
from trainer.sharing.versions import SlotJudge

#: How often the other slots' folders are listed: a listing costs a network folder some ms, and rows may be minutes old.
ROUND_S = 2.0
#: Rounds in which an unknown policy may still turn up, two minutes: a network folder shows the policies of another node
#: up to a minute after it shows the episodes.
PATIENCE_ROUNDS = 60
#: Good rows that wait for the loop: 20 MB. Beyond it episodes stay where they are.
MAX_READY_ROWS = 50_000
#: What happens between honest slots: one that resumed gives the same again, one that was away gives what is too old.
_EXPECTED = {Reason.DUPLICATE, Reason.VERSION_LAG}


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
            self.say_once(f"slot {slot} trains something else: nothing of it is learned from", slot, "group")
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
                where = f"an episode of slot {one.slot} is not learned from"
                self.say_once(f"{where} ({verdict.reason}): {verdict.sentence}; {one.path}", one.slot, verdict.reason)
            return True
        self._copies.keep(data)
        self._seen[verdict.content] = None
        while len(self._seen) > remembered(self._givers):
            del self._seen[next(iter(self._seen))]
        rows, policy_step = verdict.rows(), step - verdict.lag
        self.ready.add(Ready(str(one.slot), one.sha256, verdict.task, rows, verdict.content, policy_step))
        return True
