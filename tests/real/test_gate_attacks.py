"""What a contributor with a restricted key can take of the owner's disk and machine, on a real sshd: so much."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from policies import RUN
from restricted import Friend

from syncd.access import places
from syncd.errors import UnreachableError
from syncd.shared.inbox import STAGING_PREFIX, Inbox
from syncd.shared.removal import remove_tree
from syncd.transports.factory import open_transport
from syncd.wire.refusals import FOR_NOW
from syncd.wire.transport import Transport


def pushed(friend: Friend, *options: str) -> str:
    """What rsync said of a push of `<here>/out/` into the inbox."""
    done = friend.rsync("-rt", *options, f"{friend.here}/out/", f"cluster:{friend.inbox}/new/")
    return (done.stdout + done.stderr).decode(errors="replace")


def left(friend: Friend) -> list[str]:
    """What of a transfer lies in the folder of what arrives; the inbox's own places for parts are there, too."""
    return sorted(name for name in os.listdir(friend.inbox / "tmp") if name.startswith(STAGING_PREFIX))


@contextmanager
def a_deep_folder(top: Path, depth: int) -> Iterator[None]:
    """`top` has folders within one another; it goes at the end, since pytest could not clear it away."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
    try:
        yield
    finally:
        remove_tree(top)


def test_nothing_of_a_deep_folder_stays(friend: Friend):
    good = friend.segment()
    with a_deep_folder(friend.here / "out", 1_200):
        for _ in range(2):
            pushed(friend)
            wait_for(lambda: left(friend) == [], "the gate to clear away")
    segment = friend.segment(7)
    said: list[str] = []

    def is_let_in() -> bool:
        """The gate before may not have ended yet."""
        said.append(pushed(friend))
        return FOR_NOW not in said[-1]

    wait_for(is_let_in, "the end of the gate before")
    assert "syncd gate" not in said[-1]
    # A transfer that was over before the gate looked at its depth brought the segment beside the deep folder, too.
    waiting = {path.name for path in Inbox.of(friend.shared, "alice").waiting(RUN, 0, now=1.0)}
    assert segment.name in waiting <= {segment.name, good.name}


@pytest.mark.parametrize("which", ["openssh", "paramiko"])
def test_a_fifth_connection_is_told_to_come_again_and_the_first_stays(friend: Friend, which: str):
    opened: list[Transport] = []

    def connect() -> Transport:
        transport = open_transport(friend.remote(), which, client="alice")  # type: ignore[arg-type]
        opened.append(transport)
        return transport

    try:
        first = connect()
        assert first.listing().offers
        for _ in range(places.CONNECTIONS - 1):
            assert connect().listing().offers
        with pytest.raises(UnreachableError, match="alice has 4 connections to this machine already: try again"):
            connect().listing()
        done = friend.rsync("-r", f"cluster:{friend.shared.path}/v1/runs/", friend.here / "runs")
        assert b"alice has 4 connections" in done.stderr
        assert first.listing().offers
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
