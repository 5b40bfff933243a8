"""What entered before, read again for a resume: from the inbox, or from the copies of what other slots gave."""

from __future__ import annotations

import threading
import time
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
#: A read that takes longer than that hangs, if the job must hand over: a learner of 100 MB takes seconds on a slow
#: network.
HUNG_S = 10.0


class HungError(Exception):
    """A folder does not answer, and the job must hand over."""


def in_time(read: Callable[[], bytes], job: Job, meanwhile: Callable[[], None]) -> bytes:
    """`read()` in a thread, so that a folder that hangs does not eat the job's lead; `meanwhile` is called until then.

    Errors: those of `read`; HungError where the job must hand over and there is no answer yet.
    """
    answer: Future[bytes] = Future()

    def work() -> None:
        try:
            answer.set_result(read())
        except Exception as error:  # noqa: BLE001 - raised again by `result`
            answer.set_exception(error)

    threading.Thread(target=work, name="intake", daemon=True).start()
    began = time.monotonic()
    wait([answer], timeout=LOOK_S)
    while not answer.done():
        if time.monotonic() - began >= HUNG_S and job.hand_over_reason() is not None:
            raise HungError
        meanwhile()
        wait([answer], timeout=LOOK_S)
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
