from __future__ import annotations

import os

from syncd.background.logfile import is_log, shorten


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


def test_a_terminal_or_a_pipe_is_no_log():
    reader, writer = os.pipe()
    assert not is_log(writer)
    os.close(reader), os.close(writer)
