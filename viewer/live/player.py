"""Agents that play on this machine for the page: children of the viewer, each with a private folder.

`python -m trainer live SHARED RUN SLOT --ring FOLDER --lane LANE` writes `FOLDER/<lane>.ring` and the scenes beside it,
and ends when its standard input closes: also where the viewer is killed. Never on a machine that others share.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from anchorleg.children import python_path
from anchorleg.printable import printable
from anchorleg.temporary import HeldFolder

#: At a time: each takes a core and some hundred MB.
MOST_PLAYERS = 2
#: Without these nobody plays.
_NEEDED = ("torch", "numpy", "trainer")
#: For each step of ending a child: its input is closed, it is asked, it is killed.
END_WITHIN_S = 3.0
#: After a child that ended by itself.
AGAIN_AFTER_S = 30.0
_MOST_WORDS = 300


def can_play(find: Callable[[str], object] = importlib.util.find_spec) -> bool:
    """Whether what it takes is installed; nothing of it is imported."""
    return all(find(name) is not None for name in _NEEDED)


def command_for(shared: Path, run_id: str, slot: int, folder: Path, lane: str) -> list[str]:
    """What plays a slot's newest policy."""
    words = ["live", str(shared), run_id, str(slot), "--ring", str(folder), "--lane", lane]
    return [sys.executable, "-P", "-m", "trainer", *words]


class PlayerHere:
    """One child. `ring`: what it writes. Errors of the constructor: OSError."""

    def __init__(self, command: Callable[[Path], Sequence[str]], lane: str) -> None:
        self._folder = HeldFolder("anchorleg-played", Path(tempfile.gettempdir()))
        folder = self._folder.path
        self.ring = folder / f"{lane}.ring"
        self._words = folder / "said.txt"
        try:
            with self._words.open("wb") as said:
                self._child = subprocess.Popen(
                    command(folder), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said,
                    env={**os.environ, **python_path(), "OMP_NUM_THREADS": "1"},
                )  # fmt: skip
        except BaseException:
            self._folder.remove()
            raise

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._child.pid

    def ended(self) -> str | None:
        """None while it plays; else why it ended, in its own last words."""
        if self._child.poll() is None:
            return None
        return self.last_words() or f"it ended with {self._child.returncode}"

    def last_words(self) -> str:
        """What it said last; "": nothing yet."""
        try:
            with self._words.open("rb") as said:
                said.seek(max(0, self._words.stat().st_size - 4096))
                lines = said.read().decode(errors="replace").split("\n")
        except OSError:
            lines = []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return printable(last, most=_MOST_WORDS)

    def end(self) -> None:
        """Have it end, within seconds, and clear its folder away."""
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        for number in (0, signal.SIGTERM, signal.SIGKILL):  # 0: nothing yet
            self._child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(END_WITHIN_S)
                break
        self._folder.remove()
