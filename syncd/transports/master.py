"""One ssh connection that many short rsyncs share (ControlMaster), so that each look costs no login."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from syncd.errors import RemoteError, SyncError, UnreachableError
from syncd.settings import Remote
from syncd.transports.openssh import explain, ssh_words

#: From the start to a login: ssh's own ConnectTimeout, and a slow login node.
CONNECT_TIMEOUT_S = 30.0
#: A master answers over a local socket, or hangs: then it is not asked for anything else.
CHECK_TIMEOUT_S = 3.0
END_TIMEOUT_S = 3.0
_LOOK_S = 0.05
#: Unix sockets have 104 bytes for their path on macOS, whose $TMPDIR alone takes 49.
_SHORT = "/tmp"  # noqa: S108 - mkdtemp makes a folder of our own there


class Master:
    """An ssh that has logged in. `shell`: the words for rsync's -e. Its errors: those of a login."""

    def __init__(self, remote: Remote) -> None:
        self._place = remote.host or ""
        self.folder = Path(tempfile.mkdtemp(prefix="anchorleg-", dir=_SHORT))
        self._said = self.folder / "said"
        words = ssh_words(remote)
        self._socket = ["-o", f"ControlPath={self.folder}/%C"]
        self._check = [*words, *self._socket, "-O", "check", "--", remote.account]
        # rsync splits -e by rules of its own, openrsync by others; a file spares us both.
        script = self.folder / "ssh"
        script.write_text(
            f'exec {shlex.join([*words, *self._socket, "-o", "ControlMaster=no"])} "$@"\n', encoding="utf-8"
        )
        self.shell = f"sh {script}"
        try:
            with open(self._said, "wb") as said:
                self._child = subprocess.Popen(
                    [*words, *self._socket, "-o", "ControlPersist=no", "-M", "-N", "--", remote.account],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise RemoteError(f"ssh cannot be started ({error.strerror}): install it") from error
        try:
            self._await_login()
        except BaseException:
            self.close()
            raise

    def _await_login(self) -> None:
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while not self._answers():
            if self._child.poll() is not None:
                raise self.why()
            if time.monotonic() > deadline:
                raise UnreachableError(f"{self._place} did not let us in within {CONNECT_TIMEOUT_S:g} s")
            time.sleep(_LOOK_S)

    def _answers(self) -> bool:
        if not any(self.folder.glob("[0-9a-f]*")):
            return False
        try:
            done = subprocess.run(
                self._check, stdin=subprocess.DEVNULL, capture_output=True, timeout=CHECK_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def check(self) -> None:
        """Errors: what ended the connection, or UnreachableError where the master hangs."""
        if self._child.poll() is not None:
            raise self.why()
        if not self._answers():
            raise UnreachableError(f"the connection to {self._place} hangs")

    def why(self) -> SyncError:
        """The best explanation of a broken connection."""
        with contextlib.suppress(OSError):
            return explain(self._place, self._child.poll(), self._said.read_text(errors="replace"))
        return UnreachableError(f"the connection to {self._place} broke")

    def is_alive(self) -> bool:
        """Whether ssh still runs; it ends by itself 15 s after the other side fell silent."""
        return self._child.poll() is None

    def close(self) -> None:
        """End it. May be called twice; never raises."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
