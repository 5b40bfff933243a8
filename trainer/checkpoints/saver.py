"""Publishing in the background: one checkpoint at a time, the training goes on meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from anchorleg.files import is_full
from anchorleg.job import Job
from trainer.buffers.experience import Experience
from trainer.buffers.replay import Block, Ring
from trainer.checkpoints.checkpoint import Contents, publish
from trainer.checkpoints.resume import Start
from trainer.checkpoints.retention import tidy
from trainer.checkpoints.rows import (
    CONTRIBUTED,
    OWN,
    PEERS,
    RowsFile,
    rings_of,
    rows_path,
    saved_until,
    still_needed,
    write_rows_file,
)
from trainer.config.training import Training
from trainer.errors import SaveError, SupersededError

#: Tells the steps of checkpoints of which at least the nets are kept. Errors: OSError, ValueError: it cannot tell.
Needed = Callable[[], frozenset[int]]
#: Files of rows by their kind.
Listed = dict[str, tuple[RowsFile, ...]]


@dataclass(frozen=True)
class Saved:
    """A publication that is done."""

    step: int
    seconds: float
    rows: Listed
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class Unsaved:
    """Rows of a ring that no file holds yet; of each lane it has room for `capacity`, and had `counts`."""

    block: Block
    counts: tuple[int, ...]
    capacity: int


class Saver:
    """Writes what the loop captured; the loop never waits for it but before the next capture and at a hand-over.

    `rows`: the files of the rings, as the newest checkpoint lists them; `restarts`: how often each ring had been built
    anew by then.
    """

    def __init__(
        self,
        job: Job,
        training: Training,
        rows: Mapping[str, tuple[RowsFile, ...]] | None = None,
        published_step: int | None = None,
        restarts: Mapping[str, int] | None = None,
    ) -> None:
        self.rows: Listed = {OWN: (), **(rows or {})}
        self.published_step = published_step
        self.save_s: float | None = None
        self._job = job
        self._training = training
        self._restarts = dict(restarts or {})
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._running: Future[Saved] | None = None

    @classmethod
    def after(cls, job: Job, training: Training, start: Start | None) -> Saver:
        """For an attempt that goes on from `start`."""
        if start is None:
            return cls(job, training)
        restarts = {kind: count for kind, (_, count) in rings_of(start.experience).items()}
        return cls(job, training, start.manifest.rows, start.ref.step, restarts)

    def start(self, contents: Contents, rows: Mapping[str, Unsaved], needed: Needed = frozenset) -> None:
        """Begin to publish `contents` and its `rows` that no file holds yet. Call `finish` first."""
        self._running = self._pool.submit(self._save, contents, rows, needed)

    def unsaved(self, experience: Experience | None) -> dict[str, Unsaved]:
        """The rows that no file holds yet, copied, by their kind. Call `finish` first."""
        return {kind: self._unsaved(kind, ring, restarts) for kind, (ring, restarts) in rings_of(experience).items()}

    def _unsaved(self, kind: str, ring: Ring, restarts: int) -> Unsaved:
        """All where the ring was built anew."""
        if restarts != self._restarts.get(kind, 0):
            self.rows[kind], self._restarts[kind] = (), restarts
        block = ring.block_since(saved_until(self.rows.get(kind, ()), ring.num_tasks))
        return Unsaved(block, tuple(ring.counts.tolist()), ring.capacity)

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
        try:
            saved = running.result()
        finally:
            del running  # what it raises refers to this frame: its rows would stay until garbage is looked for
        self.rows, self.published_step, self.save_s = {OWN: (), **saved.rows}, saved.step, saved.seconds
        for trouble in saved.troubles:
            say(trouble)

    def close(self) -> None:
        """Wait for the thread."""
        self._pool.shutdown(wait=True)

    def _save(self, contents: Contents, rows: Mapping[str, Unsaved], needed: Needed) -> Saved:
        began = time.monotonic()
        try:
            try:
                listed = self._published(contents, rows)
            except OSError as error:
                if not is_full(error):
                    raise
                # What a killed job left may be what fills it, or more checkpoints than are asked for by now.
                self._tidied(needed)
                listed = self._published(contents, rows)
        except OSError as error:
            raise unwritten(contents.step, self._job, error) from error
        return Saved(contents.step, time.monotonic() - began, listed, self._tidied(needed))

    def _published(self, contents: Contents, rows: Mapping[str, Unsaved]) -> Listed:
        """Write it all; the files that it lists. Errors: OSError (no part remains); SupersededError."""
        job = self._job
        try:
            self._look()
            listed = {kind: self._written(contents.step, kind, of_ring) for kind, of_ring in rows.items()}
            publish(job.attempt_dir, contents, listed, before_rename=self._look)
        except OSError:
            for kind in (OWN, CONTRIBUTED, PEERS):
                with contextlib.suppress(OSError):
                    rows_path(job.attempt_dir, contents.step, kind).unlink()
            raise
        return listed

    def _written(self, step: int, kind: str, rows: Unsaved) -> tuple[RowsFile, ...]:
        """Write rows; the files that hold what is in their ring."""
        file = write_rows_file(self._job.slot_dir, self._job.attempt_dir, step, rows.block, kind)
        return still_needed((*self.rows.get(kind, ()), *([file] if file else [])), rows.counts, rows.capacity)

    def _tidied(self, needed: Needed) -> tuple[str, ...]:
        """Clear old checkpoints away. Returns what could not be done: what is published is published."""
        try:
            return tuple(
                tidy(
                    self._job,
                    keep_exact=self._training.keep_checkpoints,
                    keep_milestones=self._training.keep_milestones,
                    needed=needed(),
                )
            )
        except OSError as error:
            return (f"old checkpoints in {self._job.slot_dir} could not be listed: {error.strerror}",)
        except ValueError as error:  # a decision that cannot be read: which ones it passes over is not known
            return (f"old checkpoints in {self._job.slot_dir} stay: {error}",)

    def _look(self) -> None:
        above = self._job.superseded_by()
        if above is not None:
            raise SupersededError(above)


def unwritten(step: int, job: Job, error: OSError) -> SaveError:
    """A checkpoint could not be written."""
    why = "the disk is full or the quota is used up" if is_full(error) else error.strerror or error
    return SaveError("checkpoint.unwritten", step=step, path=job.attempt_dir, why=why)
