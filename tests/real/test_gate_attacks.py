"""What a contributor with a restricted key can take of the owner's disk and machine, on a real sshd: so much.

She logs in as an ordinary account: what a folder's mode forbids, it may not do.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from policies import RUN
from raw_client import RawClient
from restricted import Friend

from syncd.access import places
from syncd.commands.gate import MOST_MEMORY_BYTES, NICENESS
from syncd.errors import UnreachableError
from syncd.shared.inbox import MAX_SEGMENT_BYTES, STAGING_PREFIX, Inbox, InboxLimits
from syncd.shared.removal import remove_tree
from syncd.transports.factory import open_transport
from syncd.wire.protocol import Data, Have, Ping, Pong, Put, SegmentRefused, SegmentStored
from syncd.wire.refusals import FOR_NOW
from syncd.wire.transport import Transport
from syncd.wire.uploads import MOST_AT_ONCE

#: What an inbox holds at most, in segments of the largest size.
MOST = InboxLimits().waiting_bytes // MAX_SEGMENT_BYTES
#: As slowly as rsync can be told to send, bytes per second; so a push lasts longer than anything that a test waits for.
SLOWEST, LASTS_S = 1024, 1.5 * PATIENCE_S


def pushed(friend: Friend, *options: str) -> str:
    """What rsync said of a push of `<here>/out/` into the inbox."""
    done = friend.rsync("-rt", *options, f"{friend.here}/out/", f"cluster:{friend.inbox}/new/")
    return (done.stdout + done.stderr).decode(errors="replace")


def left(friend: Friend) -> list[str]:
    """What of a transfer lies in the folder of what arrives; the inbox's own places for parts are there, too."""
    return sorted(name for name in os.listdir(friend.inbox / "tmp") if name.startswith(STAGING_PREFIX))


@contextmanager
def pushing(friend: Friend) -> Iterator[None]:
    """A push that takes longer than the block; it is broken off at the block's end."""
    friend.segment(9, top="large", size=int(LASTS_S * SLOWEST))
    words = ["rsync", "-rt", f"--bwlimit={SLOWEST // 1024}", "-e", f"ssh -F {friend.laptop.config}"]
    child = subprocess.Popen(
        [*words, f"{friend.here}/large/", f"cluster:{friend.inbox}/new/"], env=friend.laptop.env(), cwd=friend.here,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
    )  # fmt: skip
    try:
        yield
    finally:
        os.killpg(child.pid, 9)
        child.wait(PATIENCE_S)


def waiting(friend: Friend) -> set[str]:
    """The segments that wait for the learner."""
    return {path.name for path in Inbox.of(friend.shared, "alice").waiting(RUN, 0, now=1.0)}


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
    assert segment.name in waiting(friend) <= {segment.name, good.name}


@pytest.mark.parametrize("mode", ["0555", "0000"])
def test_nothing_of_a_folder_that_is_closed_to_its_owner_stays(friend: Friend, mode: str):
    friend.segment()
    for _ in range(2):
        pushed(friend, f"--chmod=D{mode}")
        wait_for(lambda: left(friend) == [], "the gate to clear away")
    segment = friend.segment(7)
    assert "syncd gate" not in pushed(friend)
    assert segment.name in waiting(friend)


def test_what_a_transfer_from_elsewhere_left_counts(friend: Friend):
    friend.segment()

    def leave() -> None:
        folder = friend.inbox / "tmp" / f"{STAGING_PREFIX}elsewhere-1-aa" / RUN
        folder.mkdir(parents=True)
        with open(folder / "file", "wb") as file:
            file.truncate(InboxLimits().waiting_bytes)

    friend.as_owner(leave)
    assert "more came than an inbox may hold" in pushed(friend, "--bwlimit=1")
    assert waiting(friend) == set()


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
    friend.segment()
    assert "syncd gate" in pushed(friend)
    assert waiting(friend) == set()


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


def test_one_transfer_at_a_time_writes_files_of_a_bounded_size_politely(friend: Friend):
    friend.segment()
    with pushing(friend):
        wait_for(lambda: friend.server.processes("--daemon"), "an rsync over there")
        assert FOR_NOW in pushed(friend)
        found = friend.server.processes("--daemon")
        assert found
        for pid in found:
            assert is_polite(friend, pid)
            assert limits(pid)["Max file size"] == MAX_SEGMENT_BYTES
    wait_for(lambda: left(friend) == [], "the gate to clear away")
    assert waiting(friend) == set()


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
        gates = ("-m syncd gate alice",)  # not the shell that sshd starts it with
        wait_for(lambda: len(friend.server.processes(*gates)) == places.CONNECTIONS, "the end of those turned away")
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
