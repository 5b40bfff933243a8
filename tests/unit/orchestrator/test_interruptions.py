"""How a controller is told to end, and what does not end it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.hosts.display import RunDisplay, interruptions
from orchestrator.run.rundir import RunDir


@pytest.mark.parametrize("words", ["{", None])
def test_a_run_file_that_cannot_be_read_now_ends_no_display(tmp_path: Path, words: str | None) -> None:
    run_dir = RunDir(tmp_path)
    if words is None:
        run_dir.run_file.mkdir()  # an OSError for root, too
    else:
        run_dir.run_file.write_text(words)
    with RunDisplay(run_dir, Console(force_terminal=True)) as display:
        display.shown()
    assert display.live is not None
    assert not display.live.is_started


def test_a_terminal_that_closes_ends_the_controller_unless_nohup_said_otherwise() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with interruptions() as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupted()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with interruptions() as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupted()
    finally:
        signal.signal(signal.SIGHUP, before)
