"""`orchestrator logs`: a slot's output, across its jobs. A job has two files; each piece says where it is from."""

from __future__ import annotations

import codecs
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from orchestrator.decisions.models import parse_token
from orchestrator.disk import LOCAL_DISK
from orchestrator.errors import ConfigError
from orchestrator.run.rundir import RunDir
from orchestrator.screens.reading import run_view
from orchestrator.screens.runview import OVER

LOOK_S = 0.3
#: Less often than the output: the slot's state is in the whole ledger.
STATE_S = 2.0
#: Read at once: a log of hours must not be held in memory.
_CHUNK = 1 << 20
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def show_logs(
    run_dir: RunDir,
    slot: int,
    *,
    follow: bool,
    lines: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Print the newest job's output that there is; with `follow`, go on over all later jobs until the slot is over or
    Ctrl-C, which is no error. `lines`: begin with so many last lines of each file. Errors: ConfigError: no such slot.
    """
    if not run_dir.slot(slot).exists() and not _job_folders(run_dir, slot):
        raise ConfigError("slot.nothing-submitted", path=run_dir.path, slot=slot)
    printer = Printer()
    current: Path | None = None
    state, state_due_at = "waiting", float("-inf")
    with suppress(KeyboardInterrupt):
        while True:
            try:
                if clock() >= state_due_at:  # before the output: what is over has written all of it
                    state = next((view.state for view in run_view(run_dir).slots if view.slot == slot), "waiting")
                    state_due_at = clock() + STATE_S
                # The newest job that has written anything: one that is queued behind it has not.
                folder = next((one for one in reversed(_job_folders(run_dir, slot)) if _output_files(one)), None)
            except OSError:
                if current is None:
                    raise
                sleep(LOOK_S)  # a network folder that is away for a moment
                continue
            if current is not None and folder != current:
                printer.show(current, whole=True)
            if folder is not None:
                printer.show(folder, last=lines if current is None else None, whole=not follow or state in OVER)
                current = folder
            if not follow or state in OVER:
                break
            sleep(LOOK_S)
        if current is None:
            print(f"slot {slot} has no job output yet; it is {state} (see `orchestrator explain {slot}`).")
        elif printer.speaker is None:
            print(f"the newest job of slot {slot} has printed nothing so far ({current}); the slot is {state}.")


def _job_folders(run_dir: RunDir, slot: int) -> list[Path]:
    """Of the slot's jobs, by attempt and last change, oldest first."""
    found = []
    for folder in run_dir.jobs.iterdir() if run_dir.jobs.exists() else ():
        parsed = parse_token(folder.name)
        if parsed is not None and parsed[0] == slot:
            with suppress(FileNotFoundError):  # cleared away by the controller just now
                found.append((parsed[1], folder.stat().st_mtime, folder))
    return [folder for _, _, folder in sorted(found)]


def _output_files(folder: Path) -> list[Path]:
    """What a job printed, then what it complained of."""
    # Not by glob, which fails where the folder is cleared away in its midst.
    names = sorted(name for name in LOCAL_DISK.names(folder) if name.startswith("job-"))
    return [folder / name for end in (".out", ".err") for name in names if name.endswith(end)]


class Printer:
    """Copies growing files to standard output by whole lines. `speaker`: the last file that anything came from."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}
        self.speaker: Path | None = None
        self._in_line = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self, folder: Path, *, last: int | None = None, whole: bool) -> None:
        """Print what is new in a job's folder. `whole`: an unfinished last line too."""
        for path in _output_files(folder):
            with suppress(OSError):  # gone, or a network folder that is away: the next look is soon
                if path not in self._offsets:
                    self._offsets[path] = _start_of_last(path, last) if last is not None else 0
                self._copy(path, whole=whole)

    def _copy(self, path: Path, *, whole: bool) -> None:
        with open(path, "rb") as file:
            if self._offsets[path] > file.seek(0, 2):  # written anew
                self._offsets[path] = 0
            file.seek(self._offsets[path])
            while data := file.read(_CHUNK):
                is_end = len(data) < _CHUNK
                if is_end and not whole and not data.endswith(b"\n"):
                    data = data[: data.rfind(b"\n") + 1]
                if not data:
                    return
                if path != self.speaker:
                    sys.stdout.write("\n" * self._in_line + f"==> {path}\n")
                    sys.stdout.flush()
                    self.speaker = path
                self._write(data)
                self._in_line = not data.endswith(b"\n")
                self._offsets[path] += len(data)
                if is_end:  # what came meanwhile follows the half line that was left
                    return

    def _write(self, data: bytes) -> None:
        """As it is into a pipe; on a terminal without colours, and with each order to the terminal as text."""
        if sys.stdout.isatty():
            text = self._decoder.decode(data)
            sys.stdout.write(_COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()


def _start_of_last(path: Path, lines: int) -> int:
    """Where the last `lines` lines of a file begin."""
    starts: deque[int] = deque(maxlen=lines)
    at = 0
    with open(path, "rb") as file:
        for line in file:
            starts.append(at)
            at += len(line)
    return starts[0] if starts else at
