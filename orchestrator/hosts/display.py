"""What a controller shows while it runs, and how it is told to end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from anchorleg.output import say
from anchorleg.words import folded, lines_shown, on_one_line
from orchestrator.disk import private_opener
from orchestrator.errors import AnchorlegError
from orchestrator.run.rundir import RunDir
from orchestrator.screens.reading import run_view
from orchestrator.screens.status import run_table

#: Programs report every 3 s at most, and drawing is most of what a controller costs on a terminal.
REDRAW_S = 2.0


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """INT, TERM and HUP end the controller between two ticks, not in the middle of one."""
    caught: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        caught.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup orchestrator start` outlives its terminal
        numbers.append(signal.SIGHUP)
    before = [signal.signal(number, remember) for number in numbers]
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class RunDisplay:
    """A live table on a terminal, lines as they come in a pipe."""

    def __init__(self, run_dir: RunDir, out: Console) -> None:
        self.run_dir, self.out = run_dir, out
        self.live = Live(console=out, auto_refresh=False, transient=False) if out.is_terminal else None
        self._drawn_at = float("-inf")

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            try:
                self.draw(is_last=True)
            finally:
                self.live.stop()

    def say(self, line: str) -> None:
        """One event: in a pipe only, the table shows it otherwise."""
        if self.live is None:
            with suppress(OSError):  # a full disk or a closed pipe must not end the controller
                say(f"{time.strftime('%H:%M:%S')}  {line}")

    def note(self, line: str) -> None:
        """What no table shows: above it on a terminal."""
        if self.live is None:
            self.say(line)
        else:
            self.live.console.print(on_one_line(line))

    def draw(self, *, is_last: bool = False) -> None:
        """Redraw the table now. Where the run's files cannot be read, what was drawn last stays."""
        if self.live is None:
            return
        try:
            view, out = run_view(self.run_dir), self.out
        except (OSError, AnchorlegError):
            return
        after = "and submit the next ones" if view.failover_tick else "but no new ones start"
        leave = folded(f"Ctrl-C ends this controller; running jobs go on, {after}.", out.width)
        lines = [] if is_last else [Text(leave, style="dim")]
        self.live.update(Group(run_table(view, time.time(), out.width, height=out.height), *lines), refresh=True)

    def shown(self) -> None:
        """Redraw if it is time to."""
        if time.monotonic() - self._drawn_at >= REDRAW_S:
            self._drawn_at = time.monotonic()
            self.draw()


def log_line(run_dir: RunDir, line: str) -> None:
    """Write a dated line into `controller.log`. A full disk must not end a tick."""
    with suppress(OSError), open(run_dir.log, "a", encoding="utf-8", opener=private_opener) as log:
        log.write(lines_shown([f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}"]) + "\n")
