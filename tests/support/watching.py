"""`syncd` as its own process on a laptop: started, watched, stopped, killed, and swept away with what it started."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from daemons import PATIENCE_S, processes_with, sweep, wait_for
from sshd import Laptop, Sshd

from syncd.laptop.status import ClientStatus, holder, read_status
from syncd.remote import Settings, store_settings
from syncd.store import Manifest, Shared, newest, read

MARK = "ANCHORLEG_TEST_WATCH"


@dataclass
class Watcher:
    """One `syncd watch` of the mirror `folder`. `words` come after the verb. `seconds`: it is `pull`, for ever."""

    folder: Path
    words: Sequence[str]
    env: Mapping[str, str]
    token: str
    log: Path
    seconds: str = ""
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is connecting then."""
        words = [*self.words, str(self.folder)]
        words = ["pull", *words, self.seconds] if self.seconds else ["watch", *words]
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(
                [sys.executable, "-P", "-m", "syncd", *words],
                env=dict(self.env), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the client."""
        assert self.child is not None
        return self.child.pid

    def word(self) -> ClientStatus | None:
        """What this very process says of itself."""
        word = read_status(self.folder)
        return word if word is not None and word.pid == self.pid else None

    def is_live(self) -> bool:
        """Whether it says so, and runs."""
        assert self.child is not None
        assert self.child.poll() is None, self.said()
        word = self.word()
        return word is not None and word.state == "live"

    def live(self) -> None:
        """Wait until it is live."""
        wait_for(self.is_live, "the client to be live")

    def said(self) -> str:
        """Its output."""
        return self.log.read_text(errors="replace")

    def servers(self) -> list[int]:
        """The `syncd serve` processes on this machine that it (or an earlier one of this test) started."""
        found = []
        for pid in processes_with(MARK, self.token):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words:
                found.append(pid)
        return found

    def end(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = PATIENCE_S) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        assert self.child is not None
        self.child.send_signal(number)
        return self.child.wait(timeout_s)


def client_env(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a laptop that has no settings yet."""
    names = ("XDG_CONFIG_HOME", "SYNC_CLUSTER_USER", "SYNC_CLUSTER_HOST", "SYNC_CLUSTER_PATH", "SSH_AUTH_SOCK")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), **(more or {})}


def settled(laptop: Laptop, sshd: Sshd, shared: Path | str, **changes: object) -> dict[str, str]:
    """What `syncd setup` leaves on the laptop, under its name; returns the environment of its programs."""
    env = client_env(laptop.home)
    store_settings(Settings(remote=sshd.remote(laptop, shared, **changes), name=laptop.name), env)
    return env


@contextmanager
def watching(folder: Path, *words: str, env: Mapping[str, str], seconds: str = "") -> Iterator[Watcher]:
    """A started watcher; it, and all that it started, end with the block."""
    token = secrets.token_hex(8)
    watcher = Watcher(
        folder, words, {**env, MARK: token}, token, folder.with_name(f"{folder.name}-{token}.log"), seconds
    )
    try:
        watcher.start()
        yield watcher
    finally:
        if watcher.child is not None and watcher.child.poll() is None:
            watcher.child.kill()
            watcher.child.wait(PATIENCE_S)
        sweep(MARK, token)


def syncd(*words: str, env: Mapping[str, str], **more: object) -> subprocess.CompletedProcess[str]:
    """One `syncd` command, to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "syncd", *words], env=dict(env), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, **more,  # type: ignore[call-overload]
    )  # fmt: skip


def seen(folder: Path, run: str, slot: int = 0) -> Manifest | None:
    """The newest policy that a reader of the mirror would use, read to its last number. Errors: DamagedPolicyError."""
    place = Shared(folder).slot(run, slot)
    manifest = newest(place)
    if manifest is not None:
        read(place, manifest)
    return manifest


def is_kept(folder: Path) -> bool:
    """Whether a client keeps this mirror."""
    return holder(folder) is not None
