"""What a contributor with a restricted key can take of the owner's disk and machine, on a real sshd: so much.

She logs in as an ordinary account: what a folder's mode forbids, it may not do.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from policies import RUN
from raw_client import RawClient
from refused import refused
from restricted import Friend

from syncd.access import gate
from syncd.commands.serve import MOST_MEMORY_BYTES, NICENESS
from syncd.errors import UnreachableError
from syncd.shared.inbox import MAX_SEGMENT_BYTES, InboxLimits
from syncd.transports.factory import open_transport
from syncd.wire.protocol import Data, Have, Ping, Pong, Put, SegmentRefused, SegmentStored
from syncd.wire.session import Session
from syncd.wire.uploads import MOST_AT_ONCE

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


def test_parts_that_were_announced_count_before_they_are_filled(friend: Friend):
    def announce_earlier() -> None:
        folder = friend.inbox / "tmp" / RUN / "0"
        folder.mkdir(parents=True)
        for number in range(MOST - MOST_AT_ONCE - 10):
            (folder / f"{number:064x}").touch(mode=0o640)

    friend.as_owner(announce_earlier)
    answers = []
    for connection in (1, 2):
        with RawClient(friend.laptop) as client:
            for number in range(MOST_AT_ONCE):
                client.say(Put(sha256=f"{connection}{number:063x}", run_id=RUN, slot=0, bytes=MAX_SEGMENT_BYTES))
                answers.append(client.answer(Have, SegmentRefused))
    refused = [one for one in answers if isinstance(one, SegmentRefused)]
    assert len(answers) - len(refused) == MOST_AT_ONCE + 10
    assert {one.reason for one in refused} == {"quota"}
    assert len(os.listdir(friend.inbox / "tmp" / RUN / "0")) == MOST


def test_a_part_that_two_connections_have_open_changes_nothing_that_was_verified(friend: Friend):
    segment = friend.segment()
    data, half = segment.read_bytes(), 2_000
    put = Put(sha256=segment.name, run_id=RUN, slot=0, bytes=len(data))
    with RawClient(friend.laptop) as first, RawClient(friend.laptop) as second:
        first.say(put)
        assert first.answer(Have) == Have(sha256=segment.name, offset=0)
        first.say(Data(key=segment.name, offset=0), data[:half])
        first.say(Ping(n=7))
        while first.answer(Pong) != Pong(n=7):
            pass
        second.say(put)
        assert second.answer(Have) == Have(sha256=segment.name, offset=half)
        second.say(Data(key=segment.name, offset=half), data[half:])
        second.answer(SegmentStored)
        first.say(Data(key=segment.name, offset=half), bytes(len(data) - half))
        first.answer(SegmentRefused)
    stored = friend.inbox / "new" / RUN / "0" / segment.name
    assert hashlib.sha256(stored.read_bytes()).hexdigest() == segment.name


@pytest.mark.long
@pytest.mark.parametrize("which", ["openssh", "paramiko"])
def test_a_fifth_connection_is_told_to_come_again_and_the_first_stays(friend: Friend, which: str):
    opened: list[Session] = []

    def connect() -> Session:
        transport = open_transport(friend.remote(), which, client="alice")  # type: ignore[arg-type]
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
