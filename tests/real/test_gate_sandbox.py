"""What is left of an rsync that was ended: nothing that could go on writing."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import PATIENCE_S

from syncd.access import sandbox
from syncd.access.gate import Rsync
from syncd.errors import RemoteError

#: What rsync starts in ssh's place: it ties the client to the descriptors that it is given.
RSH = "#!/bin/sh\ncat </dev/fd/$FROM_SERVER &\nexec cat >/dev/fd/$TO_SERVER\n"


@contextmanager
def a_client(sends: Path, home: Path) -> Iterator[tuple[int, int]]:
    """A real rsync that pushes `sends` slowly: the descriptors (its words, our words) that `run_rsync` takes."""
    rsh = home / "rsh"
    rsh.write_text(RSH)
    rsh.chmod(0o700)
    heard, says = os.pipe()
    hears, said = os.pipe()
    client = subprocess.Popen(
        ["rsync", "-rt", "--bwlimit=1", "-e", rsh, f"{sends}/", "cluster:v1/inbox/alice/new/"],
        pass_fds=(hears, says),
        env={**os.environ, "FROM_SERVER": str(hears), "TO_SERVER": str(says)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    for end in (hears, says):
        os.close(end)
    try:
        yield heard, said
    finally:
        os.killpg(client.pid, signal.SIGKILL)
        client.wait()
        for thread in threading.enumerate():
            if thread.name == "to rsync":
                thread.join(PATIENCE_S)
        for end in (heard, said):
            os.close(end)


def at_work_in(folder: Path) -> list[str]:
    """Processes other than ours that have `folder` or one below it as theirs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            at = os.readlink(process / "cwd")
        except OSError:
            continue
        if at.startswith(str(folder)) and process.name != str(os.getpid()):
            found.append(process.name)
    return found


def test_nothing_goes_on_writing_when_rsync_was_ended(tmp_path: Path):
    """Its two processes both write; one went on while the folder was being removed, which then could not be."""
    staging, sends = tmp_path / "staging", tmp_path / "sends"
    staging.mkdir()
    sends.mkdir()
    (sends / "file").write_bytes(os.urandom(1_000_000))
    seen: list[list[str]] = []

    def is_overfull() -> bool:
        """Once a part of the file lies there: then both processes of rsync run."""
        if not any(staging.iterdir()):
            return False
        seen.append(at_work_in(staging))
        return True

    wanted = Rsync(reads=False, folder=("v1", "inbox", "alice", "new"), name="", options=("-rt",))
    with a_client(sends, tmp_path) as client, pytest.raises(RemoteError, match="was ended"):
        sandbox.run_rsync(
            wanted, staging, longest_bytes=2_000_000, is_overfull=is_overfull, client=client, look_every_s=0.01
        )
    assert len(seen[0]) == 2
    assert at_work_in(staging) == []
