"""What a contributor with a restricted key can take of the owner's disk and machine, on a real sshd: so much.

She logs in as an ordinary account: what a folder's mode forbids, it may not do.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from refused import refused
from restricted import Friend

from syncd.access import gate
from syncd.commands.serve import MOST_MEMORY_BYTES, NICENESS
from syncd.errors import UnreachableError
from syncd.shared.inbox import MAX_SEGMENT_BYTES, InboxLimits
from syncd.transports import open_transport
from syncd.wire.session import Session

#: What an inbox holds at most, in segments of the largest size.
MOST = InboxLimits().waiting_bytes // MAX_SEGMENT_BYTES


def limits(pid: int) -> dict[str, int]:
    """Of a process, as proc(5) tells them, the hard ones that are numbers."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    words = {line[:26].strip(): line[26:].split() for line in lines}
    return {name: int(hard) for name, (_, hard, *_) in words.items() if hard.isdigit()}


def is_polite(friend: Friend, pid: int) -> bool:
    """Whether a process takes so much memory at most, and lets others go first."""
    assert friend.server.pid is not None
    usual = os.getpriority(os.PRIO_PROCESS, friend.server.pid)
    is_nice = os.getpriority(os.PRIO_PROCESS, pid) == min(19, usual + NICENESS)
    return is_nice and limits(pid).get("Max address space") == MOST_MEMORY_BYTES


@pytest.mark.long
def test_a_fifth_connection_is_told_to_come_again_and_the_first_stays(friend: Friend):
    opened: list[Session] = []

    def connect() -> Session:
        transport = open_transport(friend.remote(), client="alice")
        opened.append(transport)
        return transport

    try:
        first = connect()
        assert first.listing().offers
        for _ in range(gate.CONNECTIONS - 1):
            assert connect().listing().offers
        with refused("gate.full"):
            connect().listing()
        assert first.listing().offers
        gates = ("-m syncd gate alice",)  # not the shell that sshd starts it with
        wait_for(lambda: len(friend.server.processes(*gates)) == gate.CONNECTIONS, "the end of those turned away")
        assert all(is_polite(friend, pid) for pid in friend.server.processes(*gates))
        opened[1].close()

        def is_let_in() -> bool:
            try:
                return bool(connect().listing().offers)
            except UnreachableError:
                return False

        wait_for(is_let_in, "the place of the one that went", PATIENCE_S)
    finally:
        for transport in opened:
            transport.close()
