"""Folders among the machine's temporary files: removed at the end, or by the next process of their kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemons import PATIENCE_S

from anchorleg import temporary
from anchorleg.temporary import HeldFolder

KILLED = """
import os, signal, sys
from pathlib import Path
from anchorleg.temporary import HeldFolder

folder = HeldFolder("ours-", Path(sys.argv[1]))
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


def age(folder: Path, days: float = 2.0) -> None:
    long_ago = time.time() - days * 86_400
    os.utime(folder, (long_ago, long_ago))


def test_a_folder_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    folder = HeldFolder("ours-", tmp_path)
    (folder.path / "below").mkdir()
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_next_one_removes_what_a_killed_process_left_a_day_ago(tmp_path: Path) -> None:
    old, young = left_behind(tmp_path), left_behind(tmp_path)
    age(old)
    folder = HeldFolder("ours-", tmp_path)
    assert {*tmp_path.iterdir()} == {young, folder.path}


def test_what_somebody_uses_or_is_of_another_kind_or_leads_elsewhere_stays(tmp_path: Path) -> None:
    held, other, link = HeldFolder("ours-", tmp_path), tmp_path / "others-1", tmp_path / "ours-link"
    elsewhere = tmp_path / "elsewhere"
    for folder in (other, elsewhere):
        folder.mkdir()
    link.symlink_to(elsewhere)
    for folder in (held.path, other, elsewhere):
        age(folder)
    os.utime(link, (0, 0), follow_symlinks=False)
    HeldFolder("ours-", tmp_path).remove()
    assert {*tmp_path.iterdir()} == {held.path, other, link, elsewhere}


def test_where_there_are_no_locks_a_folder_is_made_and_nothing_of_others_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = left_behind(tmp_path)
    age(left)

    def none(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(temporary.fcntl, "flock", none)
    folder = HeldFolder("ours-", tmp_path)
    assert {*tmp_path.iterdir()} == {left, folder.path}
    folder.remove()
    assert not folder.path.exists()
