"""Runs rsync over one shared ssh connection, and turns its ends into our errors."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorleg.printable import printable
from anchorleg.words import sized
from syncd.errors import RemoteError, StorageError, SyncError, TooMuchError, UnreachableError
from syncd.remote import Remote
from syncd.shared.space import is_nearly_full
from syncd.transports.child import run_bounded
from syncd.transports.master import Master
from syncd.wire.refusals import REFUSED_PREFIX

#: rsync's own: a transfer that stands still for so long is broken.
SILENCE_S = 20
#: Of one rsync that moves next to nothing. Bulk has its own.
SMALL_TIMEOUT_S = 120.0
#: A checkpoint of some gigabytes takes an hour on a slow line. A line that is dead ends after `SILENCE_S` all the same.
BULK_TIMEOUT_S = 6 * 3600.0
#: What arrived of a file before the line broke stays, and is gone on with.
PARTIAL_FOLDER = ".part"
PARTIAL_DIR = f"--partial-dir={PARTIAL_FOLDER}"
#: rsync(1), EXIT VALUES: 23 and 24 are partial transfers, 11 is a file that cannot be written or read, 3 a folder that
#: cannot be gone to.
PARTIAL_CODES = (23, 24)
FILE_ERROR_CODE = 11
NO_FOLDER_CODE = 3
#: What the other side could not take now may be taken when its learner has made room.
RETRY_S = 60.0

_NO_RSYNC = re.compile(r"rsync: (command )?not found|rsync: No such file or directory$", re.MULTILINE)
_STATS = re.compile(r"Total bytes (sent|received): ([0-9,.]+)")

Done = subprocess.CompletedProcess[str]


class EnoughError(Exception):
    """The time that an rsync was given is over. It does not mean that anything broke: what came stays."""


@dataclass(frozen=True)
class FolderBounds:
    """What may lie in `folder` while an rsync with `place` writes into it; None: as much as the disk has room for.

    `spare`: bytes that it leaves on the disk beside what everybody leaves there.
    """

    folder: Path
    place: str
    files: int | None = None
    bytes: int | None = None
    spare: int = 0

    def check(self) -> None:
        """Look. Errors: TooMuchError, StorageError (the disk is nearly full); OSError."""
        self.check_disk()
        if self.files is None or self.bytes is None:
            return
        files, size = usage(self.folder)
        if files > self.files:
            raise TooMuchError(f"{self.place} sends more than {self.files:,} files: no run of ours has so many")
        if size > self.bytes:
            raise TooMuchError(f"{self.place} sends more than {sized(self.bytes)} of small files")

    def check_disk(self) -> None:
        """Look at the disk alone. Errors: StorageError where it is nearly full; OSError."""
        if self.folder.exists() and is_nearly_full(self.folder, self.spare):
            raise StorageError(f"{self.folder}: the disk is nearly full, nothing more is fetched; make room there")


class Runner:
    """One connection to `remote`, and rsyncs over it. Its errors: no rsync here, and a login's.

    `bwlimit`: KiB a second, 0 for no limit. `tick` is called each second while an rsync runs.
    """

    def __init__(self, remote: Remote, bwlimit: int = 0) -> None:
        if shutil.which("rsync") is None:
            raise RemoteError("there is no rsync on this machine: install it, or leave --transport away")
        self.remote = remote
        self.place = remote.host or ""
        self._limit = [f"--bwlimit={bwlimit}"] if bwlimit else []
        self.bytes = {"sent": 0, "received": 0}
        self.tick: Callable[[], None] = lambda: None
        self._closed = False
        self._master = Master(remote)
        self.folder = self._master.folder

    def there(self, path: str) -> str:
        """A path over there, as rsync takes it; relative ones are below the remote's folder."""
        host = f"[{self.place}]" if ":" in self.place else self.place
        user = f"{self.remote.user}@" if self.remote.user else ""
        return f"{user}{host}:" + (path if path.startswith("/") else f"{self.remote.path.rstrip('/')}/{path}")

    def run(
        self,
        words: Sequence[str],
        *,
        timeout_s: float = SMALL_TIMEOUT_S,
        bounds: FolderBounds | None = None,
        until: float = math.inf,
    ) -> Done:
        """Run rsync with these words. Any exit code is returned. `until`: when, by the monotonic clock, it is told to
        end.

        Errors: UnreachableError, RemoteError; those of `bounds`, beyond which it is killed; EnoughError at `until`.
        """
        if self._closed:
            raise UnreachableError(f"the connection to {self.place} was closed")
        self._master.check()
        command = ["rsync", f"--timeout={SILENCE_S}", "--stats", *self._limit, "-e", self._master.shell, *words]
        environ = {**os.environ, "LC_ALL": "C"}
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace", env=environ,
            )  # fmt: skip
        except OSError as error:
            raise RemoteError(f"rsync cannot be started ({error.strerror})") from error

        def look() -> None:
            self.tick()
            if bounds is not None:
                bounds.check()
            if time.monotonic() >= until and child.poll() is None:
                raise EnoughError

        try:
            done = run_bounded(child, self.place, timeout_s, look)
        except SyncError as error:
            raise self.fail(error) from None
        for kind, number in _STATS.findall(done.stdout):
            self.bytes[kind] += int(re.sub(r"[,.]", "", number))
        return done

    def insist(self, done: Done, *codes: int) -> Done:
        """`done`, unless it ended with another code than 0 and `codes`. Errors: what that means."""
        if done.returncode and done.returncode not in codes:
            raise self.fail(self._why(done))
        return done

    def is_alive(self) -> bool:
        """Whether its login lasts."""
        return not self._closed and self._master.is_alive()

    def beat(self) -> None:
        """Whoever waits between two rsyncs keeps the connection. Errors: what ended it, if something did."""
        if not self._master.is_alive():
            raise self.fail(self._master.why())
        try:
            self._master.keep()
        except SyncError as error:
            raise self.fail(error) from None

    def fail(self, error: SyncError) -> SyncError:
        """`error`; the connection is closed where it is broken."""
        if isinstance(error, UnreachableError):
            self.close()
        return error

    def _why(self, done: Done) -> SyncError:
        if not self._master.is_alive():
            return self._master.why()
        if REFUSED_PREFIX in done.stderr:
            return RemoteError(f"{self.place} does not allow this: {complaint(done)}")
        if _NO_RSYNC.search(done.stderr):
            return RemoteError(f"{self.place} has no rsync: leave --transport away")
        if "No space left" in done.stderr or "Disk quota" in done.stderr:
            return StorageError("the disk is full: nothing was lost, it goes on when there is room")
        return UnreachableError(f"rsync with {self.place} broke: {complaint(done)}")

    def close(self) -> None:
        """End the connection, and clear its folder away. May be called twice; never raises."""
        self._closed = True
        self._master.close()


def complaint(done: Done) -> str:
    """The line of stderr that says most: the first of rsync's own, or of the gate over there."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    ours = (line for line in lines if line.startswith(("rsync: ", REFUSED_PREFIX)))
    return printable(next(ours, lines[-1] if lines else f"exit code {done.returncode}"), 300)


def usage(folder: Path) -> tuple[int, int]:
    """(number, bytes) of the files below `folder`, its folders counted among them. What vanishes meanwhile counts
    nothing.
    """
    files = size = 0
    for path, folders, names in os.walk(folder):
        files += len(folders)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(path, name)).st_size
                files += 1
    return files, size
