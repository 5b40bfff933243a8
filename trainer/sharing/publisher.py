"""Policies for other machines: the actor as it is now, published in the background while the training goes on.

What it does changes no number of the run: it copies the policy at a barrier, draws nothing, and
whatever goes wrong is said once and never stops the training. The newest wins: a policy that comes while another is
being written replaces the one that waits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from anchorleg.files import is_full
from anchorleg.job import Job
from anchorleg.output import Notices
from syncd import store
from trainer.config.settings import GroupSettings
from trainer.config.training import Training, identity
from trainer.envs.spaces import F32
from trainer.errors import SupersededError
from trainer.history.read import EVALUATIONS, METRICS, GrowingRows, of_average, read_evaluations
from trainer.nets.average import MovingAverage
from trainer.nets.policy import FROZEN, PolicyNet, PolicySpec
from trainer.sharing.policies import Policy, floats_of, golden_of, score_of, suite_fields

#: Largest difference of a golden action on another machine. Other BLAS libraries, instruction sets and GPUs differ by
#: less than 1e-5 in single precision; a policy that is read wrongly (another order of tasks or of layers) by tenths.
GOLDEN_TOLERANCE = 1e-3
#: One publication in so many has the moving average beside it, and each that a checkpoint belongs to: with a weight of
#: 0.999 it is ten times as slow as what is averaged, and it costs as many bytes.
AVERAGED_EVERY = 10
#: Old policies are cleared away this often; at one publication each 3 s that is 20 files a time.
COLLECT_EVERY_S = 60.0
#: At the end of the job the last policy is waited for this long. A folder that hangs must not eat the job's lead.
CLOSE_WAIT_S = 10.0

_NOT_CLEARED = "old policies cannot be removed"

OnVersion = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Snapshot:
    """The actor at a barrier, copied. `frozen`: what of it learns nothing, as it is. `averaged`: `tensors` with the
    moving average of what is learned in its place; empty where there is none. `checkpoint_step`: the published
    checkpoint that it belongs to.
    """

    step: int
    updates: int
    policy: PolicySpec
    tensors: Mapping[str, F32]
    frozen: Mapping[str, Tensor] = field(default_factory=dict)
    averaged: Mapping[str, F32] = field(default_factory=dict)
    checkpoint_step: int | None = None


def snapshot(step: int, updates: int, policy: PolicyNet, average: MovingAverage | None = None) -> Snapshot:
    """Copy what a publication needs: some 100 µs for an actor of 256 x 256."""
    tensors = policy.state_dict()
    frozen = {name: tensor for name, tensor in tensors.items() if name.startswith(FROZEN)}
    learns = {name: tensor for name, tensor in tensors.items() if name not in frozen}
    averaged = {} if average is None else floats_of({**learns, **average.tensors})
    return Snapshot(step, updates, policy.spec, floats_of(learns), frozen, averaged)


class Publisher:
    """Publishes the policies of one attempt. All methods are for the loop's thread and return at once, but `close`.

    `evaluation`: the slot's newest so far; `evaluation_averaged`: the newest in which the moving average was played.
    `on_version(attempt, seq, step)` hears of each version just before it can be seen, in the publisher's thread.
    """

    def __init__(
        self,
        job: Job,
        training: Training,
        *,
        evaluation: Mapping[str, Any] | None = None,
        evaluation_averaged: Mapping[str, Any] | None = None,
        on_version: OnVersion = lambda _attempt, _seq, _step: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        publish: Callable[..., object] = store.publish,
    ) -> None:
        self._job = job
        self._training = training
        self._suite = suite_fields(training.env, training.seed)
        self._place = store.Shared(job.shared_dir).slot(job.run_id, job.slot)
        self._evaluation = evaluation
        self._evaluation_averaged = None if evaluation_averaged is None else of_average(evaluation_averaged)
        self._on_version = on_version
        self._clock, self._monotonic = clock, monotonic
        self._publish_policy = publish
        self._curves = PublishedCurves(job.slot_dir, self._place)
        self._seq = 0
        self._before: store.Version | None = None
        self._collect_at = float("-inf")
        self._notices = Notices()
        self._held: Snapshot | None = None
        #: What learns nothing, as it is published: made once. None: it is too large.
        self._encoder: tuple[store.Packed, Mapping[str, F32]] | None = None
        self._offered_step = -1
        self._waiting: Snapshot | None = None
        self._curves_due = False
        self._closing = self._is_over = False
        self._is_superseded = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def offer(self, taken: Snapshot) -> None:
        """Publish `taken` as soon as the one before is written; it replaces another that waits."""
        self._offered_step = taken.step
        with self._changed:
            self._waiting = taken
            self._wake()

    def hold(self, taken: Snapshot) -> None:
        """Keep the policy of a checkpoint that is being saved until `release`."""
        self._held = taken

    def release(self, checkpoint_step: int) -> None:
        """The checkpoint of that step is published: so is its policy, unless a newer one went out; and the curves."""
        held, self._held = self._held, None
        with self._changed:
            self._curves_due = True
            self._wake()
        if held is not None and held.step == checkpoint_step and held.step >= self._offered_step:
            self.offer(replace(held, checkpoint_step=checkpoint_step))

    def evaluated(self, evaluation: Mapping[str, Any]) -> None:
        """The newest evaluation: the score of the policies that come. The curves are written with it."""
        self._evaluation = evaluation
        self._evaluation_averaged = of_average(evaluation) or self._evaluation_averaged
        with self._changed:
            self._curves_due = True
            self._wake()

    def complete(self) -> None:
        """The training is over: behind the last publication only the newest policies stay. `close` comes next."""
        with self._changed:
            self._is_over = True
            self._wake()

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say."""
        self._notices.tell(say)

    def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """Finish what waits; give up after `wait_s`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(wait_s)

    def _wake(self) -> None:
        if self._thread is None and not self._is_superseded:
            self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._curves_due or self._closing):
                    if not self._changed.wait(COLLECT_EVERY_S):
                        break  # nothing is published for long, as where no checkpoint has room: clear away all the same
                taken, self._waiting = self._waiting, None
                curves, self._curves_due = self._curves_due, False
                is_last = self._closing and taken is None and not curves
            if is_last:
                self._clear_over()
                return
            if not self._try(taken, curves=curves):
                return

    def _try(self, taken: Snapshot | None, *, curves: bool) -> bool:
        """A publication, the curves and clearing away, each whatever becomes of the others: where no policy has room,
        old ones go all the more. False: superseded, publish no more.
        """
        works: list[tuple[Callable[[], None], str]] = []
        if taken is not None:
            works.append((partial(self._publish, taken), "no policy can be published"))
        if curves:
            works.append((self._curves.write, "the curves cannot be written"))
        works.append((self._collect, _NOT_CLEARED))
        try:
            done = [self._is_done(work, words) for work, words in works]
        except SupersededError:  # the saver says so, and ends the attempt
            self._is_superseded = True
            return False
        if taken is not None and all(done):
            self._notices.over("policies are published again")
        return True

    def _is_done(self, work: Callable[[], None], words: str) -> bool:
        """Whether it could be done; else that is said, in these `words`. Errors: SupersededError."""
        try:
            self._look()
            work()
        except SupersededError:
            raise
        except OSError as error:
            what = "the disk is full or the quota is used up" if is_full(error) else error.strerror or str(error)
            self._notices.trouble(f"{words} in {self._place.path} ({what}); the training continues")
        except Exception as error:  # noqa: BLE001 - whatever a publication dies of, the training does not
            self._notices.trouble(f"{words} ({type(error).__name__}: {error}); the training continues")
        else:
            return True
        return False

    def _publish(self, taken: Snapshot) -> None:
        if not all(np.isfinite(tensor).all() for tensor in taken.tensors.values()):
            return  # the training has diverged; the loop notices with its next step, ends it and says more
        weights = store.rounded(taken.tensors)
        encoder = self._packed_once(taken.frozen) if taken.frozen else None
        still = encoder[1] if encoder else {}
        draft = self._draft(taken, Policy(taken.policy, {**weights, **still}), self._evaluation)
        self._seq += 1  # also where it fails half-way: a version is never used twice

        def last_word() -> None:
            self._look()
            self._on_version(draft.attempt, draft.seq, draft.step)

        packed = {} if encoder is None else {"encoder": encoder[0]}
        self._publish_policy(self._place, draft, weights, before_manifest=last_word, **packed)
        if taken.averaged and (draft.seq % AVERAGED_EVERY == 0 or taken.checkpoint_step is not None):
            # Of the same version: who plays with it is as far behind as with the other.
            averaged = store.rounded(taken.averaged)
            beside = self._draft(
                taken, Policy(taken.policy, {**averaged, **still}), self._evaluation_averaged, seq=draft.seq
            )
            self._publish_policy(self._place.averaged, beside, averaged, before_manifest=self._look, **packed)
        self._before = draft.version

    def _packed_once(self, frozen: Mapping[str, Tensor]) -> tuple[store.Packed, Mapping[str, F32]]:
        """The frozen weights as a blob, and as its readers get them. Errors: ValueError where they are too many."""
        if self._encoder is None:
            size = sum(tensor.numel() for tensor in frozen.values())
            if store.BYTES_A_NUMBER * size > store.MAX_RAW_BYTES:
                most = store.MAX_RAW_BYTES // store.BYTES_A_NUMBER
                raise ValueError(f"its encoder has {size:,} numbers, more than {most:,}: play it from the run folder")
            weights = store.rounded(floats_of(frozen))
            self._encoder = store.packed(weights), weights
        return self._encoder

    def _draft(
        self, taken: Snapshot, policy: Policy, past: Mapping[str, Any] | None, seq: int | None = None
    ) -> store.Draft:
        """`policy`: what readers will get; `past`: its evaluation; `seq`: the next where it is left out."""
        job, seq = self._job, self._seq if seq is None else seq
        if self._seq == 0 and self._before is None:
            self._before = self._ancestor()
        checkpoint = taken.checkpoint_step
        return store.Draft(
            run_id=job.run_id,
            run_name=job.run_name,
            slot=job.slot,
            attempt=job.attempt,
            seq=seq,
            step=taken.step,
            updates=taken.updates,
            created_at=self._clock(),
            policy=store.PolicyFields.model_validate(taken.policy.as_json()),
            suite=self._suite,
            lineage=store.Lineage(
                identity=identity(self._training),
                parent=str(self._before) if self._before is not None else None,
                checkpoint=None if checkpoint is None else store.Origin(attempt=job.attempt, step=checkpoint),
            ),
            golden=golden_of(policy, seq, GOLDEN_TOLERANCE),
            score=None if past is None else score_of(past),
        )

    def _ancestor(self) -> store.Version | None:
        """The newest version that was published before this attempt."""
        older = [found for found in store.versions(self._place) if found.attempt < self._job.attempt]
        return older[-1] if older else None

    def _collect(self) -> None:
        if self._monotonic() >= self._collect_at:
            self._collect_at = self._monotonic() + COLLECT_EVERY_S
            for sentence in _collected(self._place, self._clock()):
                self._notices.trouble(sentence)

    def _clear_over(self) -> None:
        if self._is_over:
            with contextlib.suppress(SupersededError):
                self._is_done(lambda: clear_over(self._job, self._training.group, self._clock), _NOT_CLEARED)

    def _look(self) -> None:
        above = self._job.superseded_by()
        if above is not None:
            raise SupersededError(above)


def clear_over(job: Job, group: GroupSettings, clock: Callable[[], float] = time.time) -> None:
    """The training is complete, and no experience of older policies is judged any more: the newest alone stay. Nothing
    goes where a newer attempt has begun, nor where slots give each other rows: another one that is behind may still
    judge what this one gave. Errors: OSError.
    """
    if not (group.rows and job.slots > 1) and job.superseded_by() is None:
        place = store.Shared(job.shared_dir).slot(job.run_id, job.slot)
        _collected(place, clock(), store.LEARNERS.last(), store.AVERAGES.last())


def _collected(
    place: store.SlotPlace, now: float, keep: store.Keep = store.LEARNERS, averages: store.Keep = store.AVERAGES
) -> list[str]:
    return store.collect(place, now=now, keep=keep) + store.collect(place.averaged, now=now, keep=averages)


class PublishedCurves:
    """A slot's curves in the shared folder: its rows of metrics and its evaluations, over all its attempts.

    Rows of metrics are many (100,000 of 6 kB in the longest preset): those that were written once are neither read nor
    written again, as long as history and curve are what they were.
    """

    def __init__(self, slot_dir: Path, place: store.SlotPlace) -> None:
        self._slot_dir, self._place = slot_dir, place
        self._rows = GrowingRows(slot_dir)
        self._metrics = store.GrowingCurve(place, METRICS.removesuffix(".jsonl"))

    def write(self) -> None:
        """All that is in the journals. Errors: OSError; ValueError, KeyError, TypeError for what no training wrote."""
        anew = not (self._metrics.is_as_left() and self._rows.goes_on())
        self._metrics.write(self._rows.rows(anew=anew), anew=anew)
        store.write_metrics(self._place, EVALUATIONS.removesuffix(".jsonl"), read_evaluations(self._slot_dir))
