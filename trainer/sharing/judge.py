"""The judge of experience: whether a training can learn from any, what a segment is worth, and who must be held. Pure.

`judge` looks at the bytes of one segment. It makes sure that rows are the suite's in form, range and order
(`Suite.bounds`), that they belong to this run, and that a policy of this slot made them which is not too old. Whether
they are true only the simulation can tell: `trainer.sharing.spotcheck`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.job import Job
from syncd import store
from trainer.config.training import Training
from trainer.envs.spaces import STATE, Discrete, Spaces
from trainer.envs.suite import Bounds, Suite, bounds_of, suite_of
from trainer.sharing.duplicates import Trace, Traces
from trainer.sharing.segment import (
    MAX_RAW_BYTES,
    MAX_SEGMENT_BYTES,
    BadSegmentError,
    Reason,
    Segment,
    can_hold_whole,
    can_record,
    decode,
    name_of,
    shown,
)

#: One published policy of the slot: attempt, seq, and the learner's step.
Published = tuple[int, int, int]

#: Numbers nearer to 0 become 0. Those below 1.2e-38 (denormals) are computed many times slower, and products of others
#: become such ones: rows full of them make updates slower. Honest observations hold a few, in sweep-into for one, so
#: they are no reason to refuse a segment.
SMALLEST = 1e-30
#: The last so many verdicts of one contributor are looked at, as soon as there are so many.
WINDOW, LEAST = 200, 50
#: More than this share of them refused, for what an honest sender does not do. A broken laptop is held as well.
MOST_REFUSED = 0.5
#: What happens to honest senders too: a late laptop, a policy that was cleared away, a run that was begun anew.
HARMLESS = frozenset(
    {
        Reason.OTHER_RUN, Reason.OTHER_TASK, Reason.VERSION_UNKNOWN, Reason.VERSION_LAG, Reason.DUPLICATE,
        Reason.DROPPED, Reason.UNTRUSTED, Reason.QUOTA, Reason.DEFECT,
    }
)  # fmt: skip


@dataclass(frozen=True)
class Expectation:
    """What the learner of one slot knows when it judges.

    `spaces`, `bounds`: of its suite. `versions`: the policies of this slot that are known to have been published,
    sorted (a list to which `bisect.insort` adds will do). `step`: where the learner is. `max_lag`: oldest policy that
    is still taken, in steps behind. `seen`: `Segment.content()` of what was accepted before; `traces`: what it is known
    by where it is sent with other digits.
    """

    run_id: str
    slot: int
    spaces: Spaces
    bounds: Bounds
    versions: Sequence[Published] = field(repr=False)
    step: int
    max_lag: int
    seen: Collection[str] = field(default=frozenset(), repr=False)
    traces: Traces | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Accepted:
    """A good segment. `task` is its index, `content` its `Segment.content()`, `lag` that of its oldest row in steps."""

    segment: Segment
    task: int
    content: str
    lag: int

    def rows(self) -> dict[str, npt.NDArray[Any]]:
        """Its T transitions as `buffers.rows.fields_of` names and types them, what is smaller than `SMALLEST` as 0."""
        segment = self.segment
        obs = _without_the_smallest(segment.obs)
        return {
            "obs.state": obs[:-1],
            "action": _without_the_smallest(segment.action),
            "reward": _without_the_smallest(segment.reward),
            "next_obs.state": obs[1:],
            "terminated": segment.terminated,
        }


@dataclass(frozen=True)
class RefusedSegment:
    """A segment that is not used. `sentence` says what is wrong with it, without control characters."""

    reason: Reason
    sentence: str


def why_none(training: Training, suite: Suite) -> str | None:
    """Why nothing of others can be learned from here; None: it can."""
    if not training.uses_experience:
        return f"{training.algorithm.name} is on-policy"
    if training.env.draws != "no":
        return "its policy sees pictures, and contributed segments have only rows of numbers"
    if suite.bounds is None:
        return f"the suite {training.env.name} has no bounds of honest experience"
    if not can_record(suite.spaces):
        return (
            f"segments need one row of real numbers as observation ({STATE!r}) and as action, and the suite "
            f"{training.env.name} has {_kinds(suite.spaces)}"
        )
    if not can_hold_whole(suite.spaces):
        return f"an episode of {suite.spaces.horizon:,} steps needs more than a segment's {MAX_RAW_BYTES // 1024} KiB"
    return None


def _kinds(spaces: Spaces) -> str:
    seen = ", ".join(f"{key!r} of {array.dtype} {list(array.shape)}" for key, array in sorted(spaces.obs.items()))
    done = f"one of {spaces.action.n} actions" if isinstance(spaces.action, Discrete) else "actions of real numbers"
    return f"observations {seen} and {done}"


class ContributorStanding:
    """Of the contributors of one slot, by their last verdicts: who brings mostly what honest senders do not is held."""

    def __init__(self) -> None:
        self._bad: dict[str, deque[bool]] = {}

    def note(self, who: str, reason: str | None) -> str:
        """One verdict (`reason` None: accepted). A sentence where `who` must be held now, else empty; then it begins
        anew.
        """
        window = self._bad.setdefault(who, deque(maxlen=WINDOW))
        window.append(reason is not None and reason not in HARMLESS)
        refused = sum(window)
        if len(window) < LEAST or refused <= MOST_REFUSED * len(window):
            return ""
        del self._bad[who]
        return f"{refused} of its last {len(window)} segments were refused, the last for {reason}"


def _without_the_smallest(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.where(np.abs(values) < SMALLEST, np.float32(0), values)


def judge(data: bytes, name: str, expect: Expectation) -> Accepted | RefusedSegment:
    """What a segment's bytes, found under the file name `name`, are worth. Pure; raises nothing, whatever they are."""
    try:
        return _judged(data, name, expect)
    except BadSegmentError as error:
        return RefusedSegment(error.reason, str(error))


def step_of(attempt: int, seq: int, versions: Sequence[Published]) -> int | None:
    """The learner's step at which policy `attempt`-`seq` was published, None where it never was as far as is known.

    The store thins old policies out: one that is missing between two known ones of the same attempt was there, and
    counts as the lower of them.
    """
    after = bisect_right(versions, (attempt, seq, float("inf")))
    if after == 0 or versions[after - 1][0] != attempt:
        return None
    exact = versions[after - 1][1] == seq
    between = after < len(versions) and versions[after][0] == attempt
    return versions[after - 1][2] if exact or between else None


def _judged(data: bytes, name: str, expect: Expectation) -> Accepted:
    if len(data) > MAX_SEGMENT_BYTES:  # before the hash: nobody makes us read a long file for nothing
        raise BadSegmentError("segment.too-large", Reason.SIZE, bytes=len(data), most=MAX_SEGMENT_BYTES)
    if name_of(data) != name:
        raise BadSegmentError("segment.other-name", Reason.NAME, name=shown(name))
    segment = decode(data, expect.spaces)
    task = _belongs(segment, expect)
    _values(segment, expect.bounds)
    _flags(segment, expect.bounds)
    if gap := expect.bounds.gap(_without_the_smallest(segment.obs), segment.task):
        raise BadSegmentError("segment.discontinuous", Reason.DISCONTINUOUS, why=gap)
    content = segment.content()
    if content in expect.seen:  # before its policies, which may be cleared away by now
        raise BadSegmentError("segment.duplicate", Reason.DUPLICATE)
    lag = _lag(segment, expect)
    if expect.traces is not None and expect.traces.has(Trace.of(segment)):
        raise BadSegmentError("segment.near-duplicate", Reason.DUPLICATE)
    return Accepted(segment, task, content, lag)


def _belongs(segment: Segment, expect: Expectation) -> int:
    """The index of its task."""
    if (segment.run_id, segment.slot) != (expect.run_id, expect.slot):
        raise BadSegmentError(
            "segment.other-run",
            Reason.OTHER_RUN,
            run=shown(segment.run_id),
            slot=segment.slot,
            here=expect.run_id,
            here_slot=expect.slot,
        )
    horizon, tasks = expect.spaces.horizon, expect.spaces.tasks
    if segment.horizon != horizon:
        raise BadSegmentError("segment.other-horizon", Reason.OTHER_RUN, horizon=segment.horizon, wanted=horizon)
    if segment.task not in tasks:
        raise BadSegmentError("segment.other-task", Reason.OTHER_TASK, task=shown(segment.task))
    return tasks.index(segment.task)


def _values(segment: Segment, bounds: Bounds) -> None:
    for name in ("obs", "action", "reward"):
        if not np.isfinite(getattr(segment, name)).all():
            raise BadSegmentError("segment.not-finite", Reason.NOT_FINITE, name=name)
    if (largest := float(np.abs(segment.action).max())) > 1:
        raise BadSegmentError("segment.action-range", Reason.ACTION_RANGE, largest=largest)
    if (largest := float(np.abs(segment.obs).max())) > bounds.obs:
        raise BadSegmentError("segment.observation-range", Reason.OBSERVATION_RANGE, largest=largest, bound=bounds.obs)
    low, high = float(segment.reward.min()), float(segment.reward.max())
    if low < bounds.reward[0] or high > bounds.reward[1]:
        least, most = bounds.reward
        raise BadSegmentError("segment.reward-range", Reason.REWARD_RANGE, low=low, high=high, least=least, most=most)


def _flags(segment: Segment, bounds: Bounds) -> None:
    for name, reason in (("success", Reason.SUCCESS), ("truncated", Reason.TRUNCATED)):
        if getattr(segment, name).max() > 1:
            raise BadSegmentError("segment.no-flag", reason, name=name)
    if not bounds.terminates and segment.terminated.any():
        raise BadSegmentError("segment.terminated", Reason.TERMINATED)
    if segment.terminated[:-1].any() or segment.terminated.max() > 1:
        raise BadSegmentError("segment.terminated-early", Reason.TERMINATED)
    end = segment.steps
    if end > segment.horizon:
        raise BadSegmentError("segment.beyond-horizon", Reason.TRUNCATED, end=end, horizon=segment.horizon)
    if segment.truncated[:-1].any():
        raise BadSegmentError("segment.truncated-early", Reason.TRUNCATED)
    if segment.truncated[-1] and segment.terminated[-1]:
        raise BadSegmentError("segment.terminated-and-truncated", Reason.TRUNCATED)
    # Before the horizon a suite may cut an episode itself: rows of that are those of a beginning, which all may send.
    if end == segment.horizon and not (segment.truncated[-1] or segment.terminated[-1]):
        raise BadSegmentError("segment.no-end", Reason.TRUNCATED)


def _lag(segment: Segment, expect: Expectation) -> int:
    """Steps between the oldest policy that acted and the learner, not below 0."""
    oldest = expect.step
    for attempt, seq in np.unique(segment.version, axis=0).tolist():
        step = step_of(attempt, seq, expect.versions)
        if step is None:
            raise BadSegmentError("segment.version-unknown", Reason.VERSION_UNKNOWN, attempt=attempt, seq=seq)
        oldest = min(oldest, step)
    lag = expect.step - oldest
    if lag > expect.max_lag:
        raise BadSegmentError("segment.version-lag", Reason.VERSION_LAG, lag=lag, most=expect.max_lag)
    return lag


class Versions:
    """The policies that the slot of `place` is known to have published. `know` is for any thread, the rest for the
    judge's.
    """

    def __init__(self, place: store.SlotPlace) -> None:
        self._place = place
        self._known: list[Published] = []
        self._damaged: set[tuple[int, int]] = set()
        self._news: deque[Published] = deque()
        self._has_looked = False

    def know(self, attempt: int, seq: int, step: int) -> None:
        """A policy of this slot is about to be seen."""
        self._news.append((attempt, seq, step))

    def sorted(self) -> Sequence[Published]:
        """(attempt, seq, step) of each, ascending."""
        while self._news:
            self._add(self._news.popleft())
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
            if (attempt, seq) in self._damaged or self._is_known(attempt, seq):
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
        at = bisect_left(self._known, (attempt, seq))
        return any(one[:2] == (attempt, seq) for one in self._known[at : at + 1])

    def _add(self, version: Published) -> None:
        if not self._is_known(*version[:2]):
            insort(self._known, version)


#: Of a file's bytes, its name, and what is expected.
Judge = Callable[[bytes, str, Expectation], Accepted | RefusedSegment]


class SlotJudge:
    """Judges segments of policies of `slot`, for the reader's thread. `versions`: what is known of these. Whatever a
    segment does to the judge refuses that segment and nothing else.
    """

    def __init__(self, job: Job, slot: int, training: Training, judge: Judge = judge) -> None:
        self._run_id, self._slot, self._judge = job.run_id, slot, judge
        self._max_lag = training.contribution_max_lag
        self.versions = Versions(store.Shared(job.shared_dir).slot(job.run_id, slot))
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
            versions=self.versions.sorted(),
            step=step,
            max_lag=self._max_lag,
            seen=seen,
            traces=traces,
        )
        try:
            return self._judge(data, name, expect)
        except Exception as error:  # noqa: BLE001 - a defect of ours; the segment pays, the training does not
            return RefusedSegment(Reason.DEFECT, f"checking it failed ({type(error).__name__}); please report it")
