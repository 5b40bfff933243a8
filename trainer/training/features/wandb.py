"""A slot's curves on Weights & Biases while it trains: wandb's own library, told by a thread that nobody waits for.

The loop puts its rows into a bounded queue and goes on. The thread opens the slot's run, one over all its jobs, sends
what that lacks of the slot's journals, then what the loop says. While the server is away, wandb's service process tries
again and again. What does not arrive is sent by the next job, or by `trainer wandb`: the journals have it all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any

from anchorleg.job import Job
from anchorleg.output import Notices
from anchorleg.temporary import HeldFolder
from trainer.config.wandb import WANDB_MODES, wandb_mode
from trainer.errors import SupersededError
from trainer.history.read import read_evaluations, rows_of
from trainer.machine.processes import hand_over_blocked
from trainer.training.features.base import EndReason, Feature, RunningAttempt, silence
from trainer.wandb import Destination, Line, library, lines_of, of_evaluation, of_row, quiet, send

#: Rows that wait for the thread; it needs a millisecond for each, so more of them wait only where wandb hangs.
MOST_WAITING = 1000
#: A connection that takes longer is said. An interpreter's first import of wandb and its service take up to ten.
SLOW_S = 60.0
#: At the end of the job, for what is under way.
FLUSH_S = 5.0
#: Beyond it: wandb's threads end as soon as their service is killed.
_END_S = 2.0
#: wandb's service goes on trying for as long as the training does: its own limits would end it after minutes or hours.
_UNTIL_THE_END = {
    "init_timeout": 30 * 86_400.0,
    "x_graphql_retry_max": 1_000_000,
    "x_graphql_retry_wait_max_seconds": 60,
    "x_graphql_timeout_seconds": 20,
    "x_file_stream_retry_max": 1_000_000,
    "x_file_stream_retry_wait_max_seconds": 60,
    "x_file_stream_timeout_seconds": 20,
}
#: Ask its service from time to time; one that was killed is noticed by the next row.
_ITS_THREADS = ("NetStatThr", "IntMsgThr", "ChkStopThr")
#: Why wandb may ask its program to end.
_STOPPED = "its server refuses them, or somebody pressed Stop there"
#: Rows show on W&B this much later, and are fewer requests. wandb takes whole seconds: 0.5 is 0 to it.
TRANSMIT_S = 5


class WandbCurves(Feature):
    """Sends the curves of `job`'s slot to `there`. `training`: the resolved section, shown as the run's config.
    `end_at`: when the job is killed (unix seconds; None: nobody knows).
    """

    def __init__(self, job: Job, training: Mapping[str, Any], there: Destination, end_at: float | None = None) -> None:
        self._job, self._training, self._there, self._end_at = job, training, there, end_at
        self._queue: Queue[tuple[Callable[[Mapping[str, Any]], Line], dict[str, Any]] | None] = Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        self._notices = Notices()
        self._state = "new"  # then "connecting", "live", "over"; the thread writes it, too
        self._begun_at = 0.0
        self._is_ending = False

    def begin(self, run: RunningAttempt) -> None:
        self._state, self._begun_at = "connecting", time.monotonic()
        try:
            with hand_over_blocked():  # the thread's mask is its service's: `scancel` signals every process of a job
                self._thread.start()
        except RuntimeError as error:  # the system's limit of processes counts threads, too
            self._give_up(str(error))

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        with contextlib.suppress(Full):
            self._queue.put_nowait((of_row, {**row, "at": round(time.time(), 3)}))

    def on_evaluation(self, run: RunningAttempt, row: Mapping[str, Any]) -> None:
        with contextlib.suppress(Full):
            self._queue.put_nowait((of_evaluation, {**row, "at": round(time.time(), 3)}))

    def tell(self, say: Callable[[str], None]) -> None:
        if self._state == "connecting" and time.monotonic() - self._begun_at > SLOW_S:
            self._notices.trouble("W&B: no answer yet; the training continues, and curves are sent later")
        self._notices.tell(say)

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        self._is_ending = True
        while True:
            try:
                self._queue.put_nowait(None)
                break
            except Full:  # what is in it is in the journals
                with contextlib.suppress(Empty):
                    self._queue.get_nowait()
        flush_s = FLUSH_S if self._end_at is None else min(FLUSH_S, (self._end_at - time.time()) / 2)
        if self._thread.is_alive():
            self._thread.join(max(0.0, flush_s))
        if self._thread.is_alive():
            self._give_up("it takes too long")
            _end_service()
            self._thread.join(_END_S)

    def _give_up(self, why: str) -> None:
        if self._state == "over":
            return
        more, self._state = "more " * (self._state == "live"), "over"
        what = "not all curves were sent" if self._is_ending else f"no {more}curves are sent from this job: {why}"
        self._notices.note(f"W&B: {what}; the next job sends the rest, and so does `trainer wandb`")

    def _work(self) -> None:
        """In the thread."""
        try:
            with HeldFolder("anchorleg-wandb", self._job.scratch or Path(tempfile.gettempdir())) as folder:
                self._send(library(), folder)
        except Exception as error:  # noqa: BLE001 - wandb raises what it likes, and nothing of it ends a training
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self._give_up((lines[0] if lines else type(error).__name__)[:200].rstrip("."))

    def _send(self, wandb: Any, folder: Path) -> None:
        silence(*_ITS_THREADS)
        settings = quiet(
            wandb,
            finish_timeout=FLUSH_S,
            finish_timeout_raises=True,
            **_UNTIL_THE_END,
            x_file_stream_transmit_interval=TRANSMIT_S,
            x_skip_transaction_log=True,
            stop_on_fatal_error=True,  # or it keeps to itself that the server refuses
            stop_fn=lambda: self._give_up(_STOPPED),  # its own interrupts the training
        )
        try:
            wandb.setup(settings)  # without it a terminal is asked for a key
            run = wandb.init(
                mode="online",
                resume="allow",
                reinit="create_new",  # an environment of the user's may have a run of its own
                dir=str(folder),
                config=dict(self._training),
                settings=settings,
                **self._there.of_slot(self._job.run_id, self._job.slot),
            )
            self._state = "live"
            self._notices.note(f"W&B: curves go to {run.url}")
            for _ in send(run, self._lines()):
                if self._state == "over":
                    return
                if (newer := self._job.superseded_by()) is not None:  # the history on W&B is its successor's by now
                    _end_service()  # not through wandb, which would call the successor's run finished
                    raise SupersededError(newer)
            run.finish(exit_code=0)
            self._state = "over"
        finally:
            # Or the interpreter's end waits for the service, and so for the server.
            with contextlib.suppress(Exception, SystemExit):
                wandb.teardown()

    def _lines(self) -> Iterator[Line]:
        slot = self._job.slot_dir
        yield from lines_of(rows_of(slot), read_evaluations(slot))
        for make, row in iter(self._queue.get, None):
            yield make(row)


def curves_of(
    job: Job, training: Mapping[str, Any], environ: Mapping[str, str], say: Callable[[str], None]
) -> list[WandbCurves]:
    """The feature, where `environ` asks for it; whatever is in its way is one sentence. With `offline` it is only
    written down where the curves belong: `trainer wandb` makes the offline run, from the journals.
    """
    mode = wandb_mode(environ)
    if mode not in WANDB_MODES:
        say(f"W&B: WANDB_MODE is {mode!r}, which is not one of {', '.join(WANDB_MODES)}; no curves are sent")
    if mode not in {"online", "offline"}:
        return []
    try:
        there = Destination.of_job(job, environ)
    except (OSError, ValueError) as error:
        say(f"W&B: no curves are sent: {error}; the training continues")
        return []
    ends = [environ[name] for name in ("ANCHORLEG_END_TIME", "SLURM_JOB_END_TIME") if environ.get(name, "").isdigit()]
    return [WandbCurves(job, training, there, float(ends[0]) if ends else None)] if mode == "online" else []


def services() -> Iterator[int]:
    """The pids of wandb's service, on Linux; elsewhere none is known, and it ends with this process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if name == "wandb-core" and int(rest.split()[1]) == os.getpid():
                yield int(path.parent.name)


def _end_service() -> None:
    for pid in services():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
