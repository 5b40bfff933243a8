"""The policies that a slot is known to have published, and the judge of segments that were played with them."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import groupby

from anchorleg.job import Job
from syncd import store
from trainer.config.training import Training
from trainer.envs.suite import bounds_of, suite_of
from trainer.sharing.duplicates import Traces
from trainer.sharing.judge import Accepted, Expectation, RefusedSegment, judge, step_of
from trainer.sharing.segment import Reason

Version = tuple[int, int, int]
#: Of a file's bytes, its name, and what is expected.
Judge = Callable[[bytes, str, Expectation], Accepted | RefusedSegment]
#: So many may be known before the old ones are thinned out: a hundred kilobytes.
MANY = 1_000


class Versions:
    """Of the slot whose policies lie in `place`. `know` may be called from any thread, the rest from the judge's.

    `max_lag`: experience of policies that are further behind is not taken, so of these only the first and the last of
    each attempt are remembered: what lies between counts as the first (`trainer.sharing.judge.step_of`).
    """

    def __init__(self, place: store.SlotPlace, max_lag: int) -> None:
        self._place = place
        self._max_lag = max_lag
        self._known: list[Version] = []
        self._damaged: set[tuple[int, int]] = set()
        self._news: deque[Version] = deque()
        self._has_looked = False
        self._many = MANY
        self._step = 0

    def know(self, attempt: int, seq: int, step: int) -> None:
        """A policy of this slot is about to be seen."""
        self._news.append((attempt, seq, step))

    def sorted(self, step: int) -> Sequence[Version]:
        """(attempt, seq, step) of each, ascending; `step`: the learner's, from which it is told what is too old."""
        self._step = step
        while self._news:
            self._add(self._news.popleft())
        if len(self._known) > self._many:
            self._known = thinned(self._known, self._max_lag, step)
            self._many = max(MANY, 2 * len(self._known))
        return self._known

    def new_round(self) -> None:
        """`found_more` may read again."""
        self._has_looked = False

    def found_more(self) -> bool:
        """Read manifests that are not known yet, once a round at most; whether there was any. Errors: OSError."""
        if self._has_looked:
            return False
        self._has_looked = True
        found = False
        there = store.versions(self._place)
        self._damaged.intersection_update(there)
        for version in there:
            attempt, seq = version
            if (attempt, seq) in self._damaged or self._is_known(attempt, seq) or self._is_old(attempt, seq):
                continue
            try:
                manifest = store.read_manifest(self._place, version)
            except FileNotFoundError:
                continue  # cleared away meanwhile, or another node's that cannot be opened here yet
            except store.DamagedPolicyError:
                self._damaged.add((attempt, seq))  # of no use to anybody
                continue
            self._add((attempt, seq, manifest.step))
            found = True
        return found

    def _is_known(self, attempt: int, seq: int) -> bool:
        at = bisect.bisect_left(self._known, (attempt, seq))
        return any(one[:2] == (attempt, seq) for one in self._known[at : at + 1])

    def _is_old(self, attempt: int, seq: int) -> bool:
        """Whether it was thinned out, or might have been."""
        step = step_of(attempt, seq, self._known)
        return step is not None and step < _oldest(self._known, self._max_lag, self._step)

    def _add(self, version: Version) -> None:
        if not self._is_known(*version[:2]):
            bisect.insort(self._known, version)


class SlotJudge:
    """Judges segments of policies of `slot`, for the reader's thread. `versions`: what is known of these. Whatever a
    segment does to the judge refuses that segment and nothing else.
    """

    def __init__(self, job: Job, slot: int, training: Training, judge: Judge = judge) -> None:
        self._run_id, self._slot, self._judge = job.run_id, slot, judge
        self._max_lag = training.contribution_max_lag
        self.versions = Versions(store.Shared(job.shared_dir).slot(job.run_id, slot), self._max_lag)
        self._suite = suite_of(training).open()

    def verdict(
        self, data: bytes, name: str, step: int, seen: Collection[str], traces: Traces | None = None
    ) -> Accepted | RefusedSegment:
        """As `judge`; `step`: the learner's. An unknown policy is looked for, once a round. Errors: OSError."""
        found = self._judged(data, name, step, seen, traces)
        if isinstance(found, RefusedSegment) and found.reason == Reason.VERSION_UNKNOWN and self.versions.found_more():
            return self._judged(data, name, step, seen, traces)
        return found

    def _judged(
        self, data: bytes, name: str, step: int, seen: Collection[str], traces: Traces | None
    ) -> Accepted | RefusedSegment:
        expect = Expectation(
            run_id=self._run_id,
            slot=self._slot,
            spaces=self._suite.spaces,
            bounds=bounds_of(self._suite),
            versions=self.versions.sorted(step),
            step=step,
            max_lag=self._max_lag,
            seen=seen,
            traces=traces,
        )
        try:
            return self._judge(data, name, expect)
        except Exception as error:  # noqa: BLE001 - a defect of ours; the segment pays, the training does not
            return RefusedSegment(Reason.DEFECT, f"judging it failed ({type(error).__name__}); please report it")


def thinned(versions: Sequence[Version], max_lag: int, step: int) -> list[Version]:
    """Without those, but the first and last of each attempt, that lie twice `max_lag` behind the newest and behind the
    learner, who is at `step`. Pure.
    """
    oldest = _oldest(versions, max_lag, step)
    kept: list[Version] = []
    for _, group in groupby(versions, key=lambda one: (one[0], one[2] >= oldest)):
        first, *others = group
        kept += [first, *(others if first[2] >= oldest else others[-1:])]
    return kept


def _oldest(versions: Sequence[Version], max_lag: int, step: int) -> int:
    """The step from which on all are remembered. The learner may be behind the newest: one of another slot, or one that
    went back.
    """
    return min(versions[-1][2], step) - 2 * max_lag
