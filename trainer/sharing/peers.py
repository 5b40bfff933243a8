"""The thread that reads what other slots of the group give: it judges it, copies it, and keeps it at hand for the loop.

It never touches the training, and nobody waits for it: a slot that is away gives nothing, and that is all. Slots of one
owner are not held to a rate, and not simulated again (their seeds have other starts); every other check is that of
contributors. Whatever lies there, the training goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from anchorleg.job import Job
from anchorleg.notices import Notices
from syncd import store
from trainer.buffers.contributed import remembered
from trainer.config.training import Training, group_identity
from trainer.envs.suite import bounds_of, suite_of
from trainer.sharing.athand import AtHand, Ready
from trainer.sharing.episodes import GivenEpisode, given_by, keep_taken, peers_of, read_given
from trainer.sharing.judge import Accepted, Expectation, Reason, RefusedSegment, judge
from trainer.sharing.versions import Versions

#: How often the other slots' folders are listed: a listing costs a network folder some ms, and rows may be minutes old.
ROUND_S = 2.0
#: Rounds in which an unknown policy may still turn up, two minutes: a network folder shows the policies of another node
#: up to a minute after it shows the episodes.
PATIENCE_ROUNDS = 60
#: Good rows that wait for the loop: 20 MB. Beyond it episodes stay where they are.
MAX_READY_ROWS = 50_000
#: What happens between honest slots: one that resumed gives the same again, one that was away gives what is too old.
_EXPECTED = {Reason.DUPLICATE, Reason.VERSION_LAG}


class PeerReader:
    """Reads for one slot. `step` is for the loop to set, the rest is as with `trainer.sharing.ingest.Ingester`.

    `seen`: contents that were taken before.
    """

    def __init__(
        self,
        job: Job,
        training: Training,
        *,
        step: int,
        seen: Iterable[str] = (),
        most_ready_rows: int = MAX_READY_ROWS,
    ) -> None:
        self.step = step
        self.at_hand = AtHand()
        self._job, self._training = job, training
        self._group = group_identity(training)
        self._suite = suite_of(training).open()
        self._seen = dict.fromkeys(seen)
        self._givers = 0
        self._most_ready_rows = most_ready_rows
        self._known: dict[int, set[Path]] = {}
        self._tries: dict[int, dict[Path, int]] = {}
        self._versions: dict[int, Versions] = {}
        self._told: set[tuple[int, str]] = set()
        self._notices = Notices()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)
        self._thread.start()

    def close(self, wait_s: float) -> None:
        """End it after what it is doing now; give up after `wait_s`."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(wait_s)

    @property
    def has_something(self) -> bool:
        """Whether `at_hand` would give something. Cheap."""
        return bool(self.at_hand.rows)

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say."""
        self._notices.tell(say)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._job.superseded_by() is not None:
                    return
                self.one_round()
            except OSError as error:
                why = error.strerror or str(error)
                self._notices.trouble(f"episodes of other slots cannot be read now ({why}); the training goes on")
            except Exception as error:  # noqa: BLE001 - whatever lies there, the training goes on
                self._notices.trouble(
                    f"episodes of other slots cannot be judged ({type(error).__name__}: {error}); trying again"
                )
            else:
                self._notices.over()
            self._stop.wait(ROUND_S)

    def one_round(self) -> None:
        """Look once. Errors: the first slot's that cannot be read, after all others; the next round goes on."""
        broken: Exception | None = None
        slots = peers_of(self._job)
        self._givers = len(slots)
        for slot in slots:
            try:
                self._read_all_of(slot)
            except Exception as error:  # noqa: BLE001 - whatever lies there, the others count
                broken = broken or error
        if broken is not None:
            raise broken

    def _read_all_of(self, slot: int) -> None:
        given, is_other = given_by(self._job, slot, self._group)
        if is_other:
            self._say_once(slot, "group", f"slot {slot} trains something else: nothing of it is learned from")
        there = {one.path for one in given}
        known = self._known[slot] = self._known.get(slot, set()) & there
        tries = self._tries[slot] = {
            path: count for path, count in self._tries.get(slot, {}).items() if path in there - known
        }
        versions = self._versions_of(slot)
        versions.new_round()
        for one in given:
            if self._stop.is_set() or self.at_hand.rows >= self._most_ready_rows:
                return
            if one.path not in known:
                tries[one.path] = tries.get(one.path, 0) + 1
                try:
                    is_final = self._look_at(one, versions, is_last_try=tries[one.path] >= PATIENCE_ROUNDS)
                except FileNotFoundError:
                    continue  # pruned meanwhile
                if is_final:
                    known.add(one.path)

    def _versions_of(self, slot: int) -> Versions:
        if slot not in self._versions:
            place = store.Shared(self._job.shared_dir).slot(self._job.run_id, slot)
            self._versions[slot] = Versions(place, self._training.contribution_max_lag)
        return self._versions[slot]

    def _look_at(self, one: GivenEpisode, versions: Versions, *, is_last_try: bool) -> bool:
        """Whether it need not be looked at again."""
        try:
            data = read_given(one)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._say_once(one.slot, "file", f"{one.path} cannot be read ({error.strerror}): it is left out")
            return True
        step = self.step
        verdict = self._judged(data, one, versions, step)
        if isinstance(verdict, RefusedSegment) and verdict.reason == Reason.VERSION_UNKNOWN and versions.found_more():
            verdict = self._judged(data, one, versions, step)
        if isinstance(verdict, RefusedSegment):
            if verdict.reason == Reason.VERSION_UNKNOWN and not is_last_try:
                return False
            if verdict.reason not in _EXPECTED:
                where = f"an episode of slot {one.slot} is not learned from"
                self._say_once(one.slot, verdict.reason, f"{where} ({verdict.reason}): {verdict.sentence}; {one.path}")
            return True
        keep_taken(self._job, one.sha256, data)
        self._seen[verdict.content] = None
        while len(self._seen) > remembered(self._givers):
            del self._seen[next(iter(self._seen))]
        rows, policy_step = verdict.rows(), step - verdict.lag
        self.at_hand.add(Ready(str(one.slot), one.sha256, verdict.task, rows, verdict.content, policy_step))
        return True

    def _judged(self, data: bytes, one: GivenEpisode, versions: Versions, step: int) -> Accepted | RefusedSegment:
        expect = Expectation(
            run_id=self._job.run_id,
            slot=one.slot,
            spaces=self._suite.spaces,
            bounds=bounds_of(self._suite),
            versions=versions.sorted(step),
            step=step,
            max_lag=self._training.contribution_max_lag,
            seen=self._seen,
        )
        return judge(data, one.sha256, expect)

    def _say_once(self, slot: int, what: str, sentence: str) -> None:
        """Of each kind of trouble with a slot, the first: a slot that diverges gives nothing else."""
        if (slot, what) not in self._told:
            self._told.add((slot, what))
            self._notices.note(sentence)
