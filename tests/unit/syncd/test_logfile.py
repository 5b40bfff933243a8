from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from daemons import PATIENCE_S

from syncd.background import crashes
from syncd.background.crashes import is_log, shorten


def test_a_long_log_keeps_its_end_and_goes_on_from_the_start(tmp_path):
    path = tmp_path / "syncd.log"
    with open(path, "wb", buffering=0) as log:  # as a manager may open it: not for appending
        assert is_log(log.fileno())
        log.write(b"old\n" * 100)
        assert not shorten(log.fileno(), path, max_bytes=400)
        log.write(b"new\n")
        assert shorten(log.fileno(), path, max_bytes=400)
        log.write(b"after\n")
    assert path.read_bytes() == b"after\n"  # no hole of the old length in front
    assert (tmp_path / "syncd.log.1").read_bytes() == b"old\n" * 99 + b"new\n"


def test_a_full_disk_does_not_end_the_looking(tmp_path, monkeypatch):
    looks, again = [], threading.Event()

    def full(fd: int, path: Path) -> bool:
        looks.append(path)
        if len(looks) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        again.set()
        threading.Event().wait()  # looks no more
        return False

    monkeypatch.setattr(crashes, "shorten", full)
    monkeypatch.setattr(crashes, "LOOK_S", 0.0)
    (tmp_path / "syncd.log").touch()
    with open(tmp_path / "syncd.log", "rb") as log:  # what cannot be written to either
        crashes.keep_short(log.fileno(), tmp_path / "syncd.log")
        assert again.wait(PATIENCE_S)


def test_a_terminal_or_a_pipe_is_no_log():
    reader, writer = os.pipe()
    assert not is_log(writer)
    os.close(reader), os.close(writer)
