"""The process that sends a slot's curves: `python -m trainer.wandb.program REQUEST`, started by `wandb/process.py`.

It reads the journals that the training writes anyway, so the training neither waits for it nor knows how it is. Its
standard output is for the learner, a `Word` a line; what it and wandb have to say besides goes to standard error, which
is `wandb.log` in the attempt's folder.

A connection that sends nothing any more is left by becoming this program anew (`exec`): wandb keeps threads and a
service process, and neither is sure to end while a server hangs. When its standard input closes it sends what is under
way and ends; on Linux the kernel ends it at once with its learner, even where somebody has stopped it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from anchorleg.signals import HAND_OVER_SIGNALS
from trainer.machine.expendable import be_expendable, end_with
from trainer.wandb.process import Word, end_children
from trainer.wandb.request import Patience, UploadRequest

#: It gives way to the training wherever both want a core.
_NICE = 5
#: Beyond `flush_s`, for wandb's own end.
_END_S = 2.0


def main(words: list[str]) -> int:
    """`words`: the request's file; for a further connection also how many failed before it, and whether the user was
    told. Returns the exit code: 0 where everything was sent, or is another attempt's to send.
    """
    for number in HAND_OVER_SIGNALS:  # scancel signals every process; the learner ends this one
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HAND_OVER_SIGNALS)
    request = UploadRequest.read(Path(words[0]))
    failures, lost = (int(words[1]), words[2] == "lost") if len(words) > 1 else (0, False)
    end_with(request.learner)
    if len(words) == 1:
        os.nice(_NICE)
    be_expendable()
    closing = threading.Event()
    threading.Thread(target=_hear, args=(closing, request.patience.flush_s + _END_S), daemon=True).start()
    if failures and closing.wait(pause_s(request.patience, failures)):
        note("not everything was sent: there was no connection at the end")
        return 1
    return _Program(request, words[0], failures, lost=lost).run(closing)


def pause_s(patience: Patience, failures: int) -> float:
    """How long to wait after so many connections that failed. Pure."""
    doublings = min(failures - 1, 100)  # a float holds a thousand, and an outage may last for days
    return min(patience.retry_s * 2.0**doublings, patience.longest_retry_s)


class _Program:
    """From one connection's beginning to its end."""

    def __init__(self, request: UploadRequest, path: str, failures: int, *, lost: bool) -> None:
        self.request = request
        self.path = path
        self.failures = failures
        self.lost = lost
        self.environ = dict(os.environ)

    def run(self, closing: threading.Event) -> int:
        """Returns the exit code."""
        from trainer.wandb.follow import Delivery, StuckError, follow  # noqa: PLC0415 - numpy
        from trainer.wandb.journals import Journals  # noqa: PLC0415 - numpy
        from trainer.wandb.session import HopelessError, LostError, UploadSession  # noqa: PLC0415 - wandb

        try:
            session = UploadSession(self.request)
        except HopelessError as error:
            tell(Word("over", f"no curves are sent: {error}"))
            return 1
        except LostError as error:
            self.say_lost(str(error))
            self.begin_again(self.failures + 1)
        if self.lost:
            self.say_back()
        elif self.failures == 0:
            tell(Word("live", f"curves go to {session.url}"))
        delivery = Delivery(self.request.patience, self.say_lost, self.say_back)
        job = self.request.job
        try:
            newer = follow(session, Journals(job), delivery, closing, job.superseded_by)
        except (LostError, StuckError) as error:
            if closing.is_set():
                note(f"not everything was sent: {error}")
                end_children(os.getpid())
                return 1
            note(f"another connection is needed: {error or 'nothing arrives'}")
            self.begin_again(1)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            end_children(os.getpid())
            tell(Word("over", f"no more curves are sent: the journals cannot be read ({error})"))
            return 1
        if newer is not None:
            end_children(os.getpid())  # not through wandb, which would call the successor's run finished
            tell(Word("over", f"no more curves are sent from here: attempt {newer} sends them"))
        return 0

    def say_lost(self, why: str) -> None:
        """Once in an outage."""
        note(why)
        if not self.lost:
            self.lost = True
            tell(Word("lost", f"no curves are sent for now ({why}); the training goes on, and they are sent later"))

    def say_back(self) -> None:
        """Once after one."""
        if self.lost:
            self.lost = False
            tell(Word("live", "curves are sent again"))

    def begin_again(self, failures: int) -> NoReturn:
        """Become this program anew."""
        end_children(os.getpid())
        state = "lost" if self.lost else "live"
        words = ["-P", "-m", "trainer.wandb.program", self.path, str(failures), state]
        # wandb has written the address of its service, which is gone, into the environment.
        os.execve(sys.executable, [sys.executable, *words], self.environ)  # noqa: S606 - there is no shell in it


def note(sentence: str) -> None:
    """A line of the log."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), sentence, file=sys.stderr, flush=True)


def tell(word: Word) -> None:
    """The learner, and the log. A learner that is gone is told by the end of standard input."""
    note(word.sentence)
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(word).encode() + b"\n")


def _hear(closing: threading.Event, longest_s: float) -> None:
    # Not through `sys.stdin`: a thread that waits in it would make the interpreter's own end a fatal error.
    os.read(0, 1)
    closing.set()
    time.sleep(longest_s)  # wandb hangs
    end_children(os.getpid())
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
