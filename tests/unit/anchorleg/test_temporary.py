"""Folders among the machine's temporary files: removed at the end, or by the next process of their kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S

from anchorleg import temporary
from anchorleg.temporary import HeldFolder

KILLED = """
import os, signal, sys
from pathlib import Path
from anchorleg.temporary import HeldFolder

folder = HeldFolder("ours", Path(sys.argv[1]))
(folder.path / "ring").write_bytes(b"x")
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_behind(where: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, where], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return Path(done.stdout.strip())


def test_the_next_one_removes_what_a_killed_process_left_and_nothing_of_one_that_lives(tmp_path: Path) -> None:
    held = HeldFolder("ours", tmp_path)
    assert left_behind(tmp_path).is_dir()
    folder = HeldFolder("ours", tmp_path)
    assert {*tmp_path.iterdir()} == {held.path, folder.path}


@pytest.mark.parametrize("whose", ["another kind", "another machine", "another user", "no locks"])
def test_what_may_be_in_use_or_is_not_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    left = left_behind(tmp_path)
    if whose == "another machine":
        left = left.rename(tmp_path / "ours-elsewhere-0123abcd")
    with monkeypatch.context() as patched:
        if whose == "another user":
            patched.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
        if whose == "no locks":
            patched.setattr(temporary.fcntl, "flock", no_locks)
        folder = HeldFolder("other" if whose == "another kind" else "ours", tmp_path)
    assert left.exists()
    folder.remove()
    assert not folder.path.exists()


def no_locks(*_: object) -> None:
    raise OSError("no locks available")
