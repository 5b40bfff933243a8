"""How a controller is told to end, and what does not end it."""

from __future__ import annotations

import os
import signal

from orchestrator.hosts.display import interruptions


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
