"""Publishing in the background: one checkpoint at a time, the training goes on meanwhile."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from anchorleg.job import Job
from trainer.buffers.contributed import Contributed, capacity_of
from trainer.buffers.experience import Experience
from trainer.buffers.replay import Block
from trainer.checkpoints.checkpoint import Contents, publish
from trainer.checkpoints.resume import Start
from trainer.checkpoints.retention import tidy
from trainer.checkpoints.rows import CONTRIBUTED, OWN, RowsFile, rows_path, saved_until, still_needed, write_rows_file
from trainer.config.training import Training
from trainer.errors import SaveError, SupersededError
from trainer.history.read import best_evaluation, read_evaluations

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Saved:
    """A publication that is done."""

    step: int
    seconds: float
    segments: tuple[RowsFile, ...]
    contributed: tuple[RowsFile, ...]
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class Unsaved:
    """Rows of the run's own ring and of others': None where there is no such ring."""

    own: Block | None
    others: Block | None


class Saver:
    """Writes what the loop captured; the loop never waits for it but before the next capture and at a hand-over."""

    def __init__(
        self,
        job: Job,
        training: Training,
        segments: tuple[RowsFile, ...],
        published_step: int | None,
        contributed: tuple[RowsFile, ...] = (),
        restarts: int = 0,
    ) -> None:
        self.segments = segments
        self.contributed = contributed
        self.published_step = published_step
        self.save_s: float | None = None
        self._job = job
        self._training = training
        self._restarts = restarts
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._running: Future[Saved] | None = None

    @classmethod
    def after(cls, job: Job, training: Training, start: Start | None) -> Saver:
        """For an attempt that goes on from `start`."""
        if start is None:
            return cls(job, training, (), None)
        others = start.experience.others if start.experience is not None else None
        restarts = others.restarts if others is not None else 0
        return cls(job, training, start.manifest.segments, start.ref.step, start.manifest.contributed, restarts)

    def start(self, contents: Contents, rows: Unsaved, needed: Iterable[int] = ()) -> None:
        """Begin to publish `contents` and its `rows` that no file holds yet. Call `finish` first.

        Of the checkpoints of the `needed` steps at least the nets are kept, as of the best.
        """
        self._running = self._pool.submit(self._save, contents, rows, frozenset(needed))

    def unsaved(self, experience: Experience | None) -> Unsaved:
        """The rows that no file holds yet, copied. Call `finish` first."""
        if experience is None:
            return Unsaved(None, None)
        own = experience.own
        return Unsaved(own.block_since(saved_until(self.segments, own.num_tasks)), self._of_others(experience.others))

    def _of_others(self, others: Contributed | None) -> Block | None:
        """All where the ring was built anew."""
        if others is None:
            return None
        if others.restarts != self._restarts:
            self.contributed, self._restarts = (), others.restarts
        return others.ring.block_since(saved_until(self.contributed, others.ring.num_tasks))

    @property
    def is_done(self) -> bool:
        """Whether a publication waits for `finish`, which will not block."""
        return self._running is not None and self._running.done()

    def finish(self, say: Callable[[str], None]) -> None:
        """Wait for the publication under way, if any, and count it in.

        Errors: SaveError: it failed and left no part; the one before is still good. SupersededError.
        """
        running, self._running = self._running, None
        if running is None:
            return
        saved = running.result()
        self.segments, self.published_step, self.save_s = saved.segments, saved.step, saved.seconds
        self.contributed = saved.contributed
        for trouble in saved.troubles:
            say(trouble)

    def close(self) -> None:
        """Wait for the thread."""
        self._pool.shutdown(wait=True)

    def _save(self, contents: Contents, rows: Unsaved, needed: frozenset[int]) -> Saved:
        began = time.monotonic()
        job, training = self._job, self._training
        try:
            self._look()
            listed = self._with_own(contents, rows.own)
            others = self._with_others(contents, rows.others)
            publish(job.attempt_dir, contents, training, listed, others, before_rename=self._look)
        except OSError as error:
            for kind in (OWN, CONTRIBUTED):
                with contextlib.suppress(OSError):
                    rows_path(job.attempt_dir, contents.step, kind).unlink()
            raise SaveError(failure(contents.step, job, error)) from error
        return Saved(contents.step, time.monotonic() - began, listed, others, self._tidied(needed))

    def _tidied(self, needed: frozenset[int]) -> tuple[str, ...]:
        """Clear old checkpoints away. Returns what could not be done; whatever it is, the new one is published."""
        try:
            best = best_evaluation(read_evaluations(self._job.slot_dir))
            return tuple(
                tidy(
                    self._job,
                    keep_exact=self._training.keep_checkpoints,
                    keep_milestones=self._training.keep_milestones,
                    needed=needed | ({best["step"]} if best is not None else frozenset()),
                )
            )
        except OSError as error:
            return (f"old checkpoints in {self._job.slot_dir} could not be looked through: {error.strerror}",)

    def _with_own(self, contents: Contents, block: Block | None) -> tuple[RowsFile, ...]:
        """Write the run's own rows; the segments that hold what is in their ring."""
        if block is None:
            return ()
        segment = write_rows_file(self._job.slot_dir, self._job.attempt_dir, contents.step, block)
        return still_needed(
            (*self.segments, *([segment] if segment else [])),
            tuple(contents.parts["experience"].numbers["counts"]),
            self._training.off_policy.buffer_size // len(self._training.env.tasks),
        )

    def _with_others(self, contents: Contents, block: Block | None) -> tuple[RowsFile, ...]:
        """Write the contributed rows; the segments that hold what is in their ring."""
        if block is None:
            return ()
        segment = write_rows_file(self._job.slot_dir, self._job.attempt_dir, contents.step, block, CONTRIBUTED)
        return still_needed(
            (*self.contributed, *([segment] if segment else [])),
            tuple(contents.parts["experience"].numbers["others"]["counts"]),
            capacity_of(self._training),
        )

    def _look(self) -> None:
        above = self._job.superseded_by()
        if above is not None:
            raise SupersededError(above)


def failure(step: int, job: Job, error: OSError) -> str:
    """The user's sentence for a checkpoint that could not be written."""
    what = "the disk is full or the quota used up" if error.errno in _NO_SPACE else (error.strerror or str(error))
    return f"the checkpoint of step {step} could not be written to {job.attempt_dir}: {what}; the one before it is good"
