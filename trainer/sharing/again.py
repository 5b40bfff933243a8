"""What entered before, read again for a resume: from the inbox, or from the copies of what other slots gave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

from anchorleg.job import Job
from syncd import store
from trainer.sharing.episodes import read_taken
from trainer.sharing.journal import Taken, TakenFromPeer
from trainer.sharing.segment import name_of

#: While a folder does not answer, it is asked this often whether the job must hand over.
LOOK_S = 0.25


class HungError(Exception):
    """A folder does not answer, and the job must hand over."""


def in_time(read: Callable[[], bytes], job: Job) -> bytes:
    """`read()` in a thread, so that a folder that hangs does not eat the job's lead.

    Errors: those of `read`; HungError where the job must hand over and there is no answer yet.
    """
    answer: Future[bytes] = Future()

    def work() -> None:
        try:
            answer.set_result(read())
        except Exception as error:  # noqa: BLE001 - raised again by `result`
            answer.set_exception(error)

    threading.Thread(target=work, name="intake", daemon=True).start()
    while not answer.done():
        wait([answer], timeout=LOOK_S)
        if not answer.done() and job.hand_over_reason() is not None:
            raise HungError
    return answer.result()


def read_segment(job: Job, entry: Taken | TakenFromPeer) -> bytes:
    """The segment of `entry`. Errors: OSError; ValueError where it is another file."""
    if isinstance(entry, TakenFromPeer):
        return read_taken(job, entry.sha256)
    inbox = store.Inbox.of(store.Shared(job.shared_dir), entry.who)
    path: Path | None = inbox.find(job.run_id, job.slot, entry.sha256)
    if path is None:
        raise FileNotFoundError(2, f"{entry.sha256[:12]}… is not in the inbox")
    data = inbox.read(path)
    if name_of(data) != entry.sha256:
        raise ValueError(f"{entry.sha256[:12]}… is not what was sent")
    return data
