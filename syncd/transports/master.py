"""One ssh connection that many short rsyncs share (ControlMaster), so that each look costs no login."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from syncd.errors import RemoteError, SecondFactorError, SyncError, UnreachableError
from syncd.remote import Remote
from syncd.transports.openssh import EXIT_SSH, explain, ssh_words, typed_ssh

#: From the start to a login: ssh's own ConnectTimeout, and a slow login node.
CONNECT_TIMEOUT_S = 30.0
#: A master answers over a local socket, or hangs: then it is not asked for anything else. Far more than a busy laptop
#: needs to start an ssh that asks it.
CHECK_TIMEOUT_S = 10.0
#: A master whose owner was killed ends by itself after so long without an rsync: no login is left behind.
IDLE_S = 120
#: A folder is touched at each use.
ABANDONED_S = 86_400.0
PREFIX = "anchorleg-rsync-"
#: Unix sockets have 104 bytes for their path on macOS, whose $TMPDIR alone takes 49.
_SHORT = "/tmp"  # noqa: S108 - mkdtemp makes a folder of our own there


class Master:
    """An ssh that has logged in. `shell`: the words for rsync's -e. Its errors: those of a login."""

    def __init__(self, remote: Remote) -> None:
        _sweep()
        self._place = remote.host or ""
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_SHORT))
        words = [*ssh_words(remote), "-o", f"ControlPath={self.folder}/%C"]
        self._words, self._account, self._typed = words, remote.account, typed_ssh(remote)
        # rsync splits -e by rules of its own, openrsync by others; a file spares us both.
        script = self.folder / "ssh"
        script.write_text(f'exec {shlex.join(words)} "$@"\n', encoding="utf-8")
        self.shell = f"sh {script}"
        self._pid: int | None = None
        self._used_at = time.monotonic()
        try:
            self._log_in()
        except BaseException:
            self.close()
            raise

    def _log_in(self) -> None:
        """Ssh goes into the background by itself once it is in. Its words go to a file, which nobody waits for."""
        said = self.folder / "said"
        # -N in front: ssh takes the first word on what kind of session this is.
        ssh, *words = self._words
        command = [ssh, "-N", *words, "-o", f"ControlPersist={IDLE_S}", "-M", "--", self._account]
        try:
            with open(said, "wb") as file:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=CONNECT_TIMEOUT_S, check=False
                )
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"{self._place} did not let us in within {CONNECT_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise RemoteError(f"ssh cannot be started ({error.strerror}): install it") from error
        if done.returncode != 0:
            why = explain(self._place, EXIT_SSH, said.read_text(errors="replace"), typed=self._typed)
            if isinstance(why, SecondFactorError):
                raise SecondFactorError(
                    f"{self._place} lets nobody in by a key alone, and rsync has a login of its own: leave "
                    "--transport rsync and --checkpoints away"
                )
            raise why
        found = re.search(r"pid=(\d+)", self._ask("check"))
        if found is None:
            raise self.why()
        self._pid = int(found[1])

    def _ask(self, what: str) -> str:
        """What the master says; "" where it hangs or is gone."""
        command = [*self._words, "-O", what, "--", self._account]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
            )
        except (subprocess.TimeoutExpired, OSError):
            return ""
        return done.stdout + done.stderr if done.returncode == 0 else ""

    def check(self) -> None:
        """Before each use: with a stale socket ssh would hang, or log in anew. Errors: UnreachableError."""
        if not self._ask("check"):
            raise self.why()
        os.utime(self.folder)
        self._used_at = time.monotonic()

    def keep(self) -> None:
        """Called again and again: an owner who lives and has no rsync to run keeps it. Errors: UnreachableError."""
        if time.monotonic() - self._used_at >= IDLE_S / 2:
            self.check()  # a question puts ssh's end off, as an rsync does

    def why(self) -> SyncError:
        """What to say of a broken connection."""
        return UnreachableError(f"the connection to {self._place} broke")

    def is_alive(self) -> bool:
        """Whether ssh still runs; it ends by itself 15 s after the other side fell silent."""
        if self._pid is None:
            return False
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """End it. May be called twice; never raises."""
        if self._pid is not None:
            self._ask("exit")
            self._pid = None
        shutil.rmtree(self.folder, ignore_errors=True)


def _sweep() -> None:
    """Delete what killed processes of ours left behind."""
    for folder in Path(_SHORT).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid == os.getuid() and status.st_mtime < time.time() - ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)
