"""Publishing in the background: one checkpoint at a time, the training goes on meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from anchorleg.files import is_full
from anchorleg.job import Job
from trainer.buffers.contributed import Contributed
from trainer.buffers.experience import Experience
from trainer.buffers.replay import Block, Ring
from trainer.checkpoints.checkpoint import Contents, publish
from trainer.checkpoints.resume import Start
from trainer.checkpoints.retention import tidy
from trainer.checkpoints.rows import (
    CONTRIBUTED,
    LATE,
    OWN,
    PEERS,
    RowsFile,
    rows_path,
    saved_until,
    still_needed,
    write_rows_file,
)
from trainer.config.training import Training
from trainer.errors import SaveError, SupersededError
from trainer.history.read import best_evaluation, best_left, read_evaluations


@dataclass(frozen=True)
class Saved:
    """A publication that is done."""

    step: int
    seconds: float
    segments: tuple[RowsFile, ...]
    foreign: dict[str, tuple[RowsFile, ...]]
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class UnsavedForeign:
    """Rows of a ring of others' that no file holds yet; of each lane it has room for `capacity`, and had `counts`."""

    block: Block
    counts: tuple[int, ...]
    capacity: int


@dataclass(frozen=True)
class Unsaved:
    """Rows of the run's own ring (None: there is none) and, by their kind, of others'."""

    own: Block | None
    foreign: dict[str, UnsavedForeign] = field(default_factory=dict)


#: The kinds of rows that others made → where an `Experience` has them.
FOREIGN = {CONTRIBUTED: "others", PEERS: "peers"}


def foreign_rings(experience: Experience | None) -> dict[str, Contributed]:
    """Those that there are, by their kind."""
    rings = {kind: getattr(experience, name) for kind, name in FOREIGN.items()} if experience is not None else {}
    return {kind: ring for kind, ring in rings.items() if ring is not None}


class Saver:
    """Writes what the loop captured; the loop never waits for it but before the next capture and at a hand-over."""

    def __init__(
        self,
        job: Job,
        training: Training,
        segments: tuple[RowsFile, ...],
        published_step: int | None,
        foreign: dict[str, tuple[RowsFile, ...]] | None = None,
        restarts: dict[str, int] | None = None,
    ) -> None:
        self.segments = segments
        self.foreign = foreign or {}
        self.published_step = published_step
        self.save_s: float | None = None
        self._job = job
        self._training = training
        self._restarts = restarts or {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._running: Future[Saved] | None = None
        self._is_behind = False

    @classmethod
    def after(cls, job: Job, training: Training, start: Start | None) -> Saver:
        """For an attempt that goes on from `start`."""
        if start is None:
            return cls(job, training, (), None)
        restarts = {kind: ring.restarts for kind, ring in foreign_rings(start.experience).items()}
        foreign = {CONTRIBUTED: start.manifest.contributed, PEERS: start.manifest.peers}
        return cls(job, training, start.manifest.segments, start.ref.step, foreign, restarts)

    def start(self, contents: Contents, rows: Unsaved, needed: Iterable[int] = ()) -> None:
        """Begin to publish `contents` and its `rows` that no file holds yet. Call `finish` first.

        Of the checkpoints of the `needed` steps at least the nets are kept, as of the best.
        """
        self._running = self._pool.submit(self._save, contents, rows, frozenset(needed))

    def unsaved(self, experience: Experience | None, meanwhile: Callable[[], None] = lambda: None) -> Unsaved:
        """The rows that no file holds yet, copied. Call `finish` first.

        Where the last try came to nothing, own rows from before the last interval are written first; `meanwhile` is
        called now and then while that lasts. Errors: OSError: that failed; SupersededError.
        """
        if experience is None:
            return Unsaved(None)
        own = experience.own
        was_behind, self._is_behind = self._is_behind, True  # until `finish` counts a publication in
        if was_behind:
            self._catch_up(own, meanwhile)
        foreign = {kind: self._of_foreign(kind, ring) for kind, ring in foreign_rings(experience).items()}
        return Unsaved(own.block_since(saved_until(self.segments, own.num_tasks)), foreign)

    def _catch_up(self, own: Ring, meanwhile: Callable[[], None]) -> None:
        """Write an interval's rows at a time: for a copy of more no memory was counted (`trainer.training.memory`)."""
        interval = self._training.checkpoint_interval
        while own.rows_since(since := saved_until(self.segments, own.num_tasks)) > interval:
            self._look()
            self._write_late(own.block_since(since, -(-interval // own.num_tasks)))
            meanwhile()

    def _write_late(self, block: Block) -> None:
        job, kind = self._job, f"{LATE}{sum(block.starts)}"
        segment = write_rows_file(job.slot_dir, job.attempt_dir, self.published_step or 0, block, kind)
        self.segments += (segment,) if segment else ()

    def _of_foreign(self, kind: str, others: Contributed) -> UnsavedForeign:
        """All where the ring was built anew."""
        if others.restarts != self._restarts.get(kind, 0):
            self.foreign[kind], self._restarts[kind] = (), others.restarts
        block = others.ring.block_since(saved_until(self.foreign.get(kind, ()), others.ring.num_tasks))
        return UnsavedForeign(block, tuple(others.ring.counts.tolist()), others.ring.capacity)

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
        self.segments, self.published_step, self.save_s = saved.segments, saved.step, saved.seconds
        self.foreign = saved.foreign
        self._is_behind = False
        for trouble in saved.troubles:
            say(trouble)

    def close(self) -> None:
        """Wait for the thread."""
        self._pool.shutdown(wait=True)

    def _save(self, contents: Contents, rows: Unsaved, needed: frozenset[int]) -> Saved:
        began = time.monotonic()
        try:
            try:
                listed, foreign = self._published(contents, rows)
            except OSError as error:
                if not is_full(error):
                    raise
                # What a killed job left may be what fills it, or more checkpoints than are asked for by now. No
                # checkpoint lists yet what was written late, and the next one needs it.
                own = (*self.segments, *(segment for ring in self.foreign.values() for segment in ring))
                self._tidied(needed, frozenset(segment.path for segment in own))
                listed, foreign = self._published(contents, rows)
        except OSError as error:
            raise SaveError(failure(contents.step, self._job, error)) from error
        return Saved(contents.step, time.monotonic() - began, listed, foreign, self._tidied(needed))

    def _published(
        self, contents: Contents, rows: Unsaved
    ) -> tuple[tuple[RowsFile, ...], dict[str, tuple[RowsFile, ...]]]:
        """Write it all; the segments that it lists, own ones and by their kind others'. Errors: OSError (no part
        remains); SupersededError.
        """
        job = self._job
        try:
            self._look()
            listed = self._with_own(contents, rows.own)
            foreign = {kind: self._with_foreign(contents, kind, ring) for kind, ring in rows.foreign.items()}
            contributed, peers = (foreign.get(kind, ()) for kind in FOREIGN)
            publish(job.attempt_dir, contents, self._training, listed, contributed, peers, before_rename=self._look)
        except OSError:
            for kind in (OWN, *FOREIGN):
                with contextlib.suppress(OSError):
                    rows_path(job.attempt_dir, contents.step, kind).unlink()
            raise
        return listed, foreign

    def _tidied(self, needed: frozenset[int], unlisted: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Clear old checkpoints away; `unlisted`: row files that stay though no checkpoint lists them. Returns what
        could not be done; whatever it is, what is published is published.
        """
        try:
            slot_dir = self._job.slot_dir
            rows = read_evaluations(slot_dir)
            bests = best_evaluation(rows), best_left(slot_dir, rows)
            return tuple(
                tidy(
                    self._job,
                    keep_exact=self._training.keep_checkpoints,
                    keep_milestones=self._training.keep_milestones,
                    needed=needed | {best["step"] for best in bests if best is not None},
                    unlisted=unlisted,
                )
            )
        except OSError as error:
            return (f"old checkpoints in {self._job.slot_dir} could not be looked through: {error.strerror}",)
        except ValueError as error:  # a decision that cannot be read: which ones it passes over is not known
            return (f"old checkpoints in {self._job.slot_dir} stay: {error}",)

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

    def _with_foreign(self, contents: Contents, kind: str, rows: UnsavedForeign) -> tuple[RowsFile, ...]:
        """Write rows that others made; the segments that hold what is in their ring."""
        segment = write_rows_file(self._job.slot_dir, self._job.attempt_dir, contents.step, rows.block, kind)
        listed = (*self.foreign.get(kind, ()), *([segment] if segment else []))
        return still_needed(listed, rows.counts, rows.capacity)

    def _look(self) -> None:
        above = self._job.superseded_by()
        if above is not None:
            raise SupersededError(above)


def failure(step: int, job: Job, error: OSError) -> str:
    """The user's sentence for a checkpoint that could not be written."""
    what = "the disk is full or the quota used up" if is_full(error) else (error.strerror or str(error))
    return f"the checkpoint of step {step} could not be written to {job.attempt_dir}: {what}; the one before it is good"
