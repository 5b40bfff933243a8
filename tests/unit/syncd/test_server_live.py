"""Agents at play over a server's loop: behind policies, pings and answers; and nothing unless somebody looks."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import wait_for
from live_rings import SCENE, SCENE_SUM, pose, slot_of, write_ring
from policies import RUN, publish_one
from served import HELLO, Connection

from anchorleg.live.wanted import FILE, read
from syncd import store
from syncd.wire import livemessages, protocol
from syncd.wire.fields import Message
from syncd.wire.livemessages import WireWish, grown
from syncd.wire.protocol import Frame

#: The least that Linux gives a pipe.
SMALL_PIPE = 4096


@pytest.fixture
def shared(tmp_path: Path) -> store.Shared:
    shared = store.Shared(tmp_path)
    publish_one(shared, 1, 1)
    return shared


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Connection]]:
    opened: list[Connection] = []

    def open_it(contributor: str | None = None) -> Connection:
        client = Connection(tmp_path, contributor)
        opened.append(client)
        client.send(HELLO, protocol.Listing())
        client.receive(protocol.Listed)
        return client

    yield open_it
    for connection in opened:
        connection.close()


def watch(client: Connection, *slots: int) -> None:
    wishes = tuple(WireWish(run_id=RUN, slot=slot, lane="any", fps=30) for slot in slots)
    client.send(livemessages.WatchLive(wishes=wishes))


def order(client: Connection, last: type[Message]) -> list[Frame]:
    """The frames until the first of this kind, without pings and without whose agents may be watched."""
    found = []
    while True:
        frame = client.receive(Message)
        if not isinstance(frame.message, protocol.Ping | livemessages.ShownLive):
            found.append(frame)
        if isinstance(frame.message, last):
            return found


def test_a_policy_goes_before_the_agents_that_wait(connect, shared):
    """Two agents are watched, the line is stuck in the first one's batch; a policy comes, then the line moves."""
    client = connect()
    now = time.monotonic()
    client.clock = lambda: now + client.ahead_s
    fcntl.fcntl(client.inn, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
    large = [pose(slot, bodies=1_500) for slot in (0, 1)]
    for slot in (0, 1):
        write_ring(shared.path, RUN, large[slot], slot=slot)
    watch(client, 0, 1)
    beginning = os.read(client.inn, 1)
    wait_for(lambda: client.server._waiting and client.server._live._credit._number == 1, "a line that is stuck")
    publish_one(shared, 1, 2)
    client.send(livemessages.SeenLive(number=1))
    client.ahead_s += 12.0  # whatever is looked at now and then is due
    client.frames += client.decoder.feed(beginning)
    first, policy, *_, second = order(client, livemessages.LiveBatch) + order(client, livemessages.LiveBatch)
    assert isinstance(policy.message, protocol.PublishedPolicy)
    assert "000000002" in policy.message.path
    assert {grown(first.payload), grown(second.payload)} == set(large)


def test_answers_go_before_the_agents_too(connect, shared):
    client = connect()
    write_ring(shared.path, RUN, pose(1))
    wishes = (WireWish(run_id=RUN, slot=0, lane="any", fps=30),)
    asked = [protocol.Get(key=str(n), path=f"v1/runs/{RUN}/0/LATEST.json", offset=0) for n in range(1, 4)]
    data = b"".join(map(protocol.encode, [livemessages.WatchLive(wishes=wishes), *asked]))
    os.write(client.out, data)
    said = [type(frame.message) for frame in order(client, livemessages.LiveBatch)]
    assert said == [protocol.Data] * 3 + [protocol.End] * 3 + [livemessages.LiveBatch]


def test_a_scene_is_handed_out_in_slices_behind_whole_files(connect, shared):
    folder = slot_of(shared.path, RUN) / "live"
    folder.mkdir()
    (folder / f"{SCENE_SUM}.scene").write_bytes(SCENE)
    client = connect()
    path = f"v1/runs/{RUN}/0/live/{SCENE_SUM}.scene"
    slices = [
        protocol.Get(key="a", path=path, offset=0, most=1000),
        protocol.Get(key="b", path=path, offset=0, most=10),
    ]
    whole = protocol.Get(key="c", path=f"v1/runs/{RUN}/0/LATEST.json", offset=0)
    os.write(client.out, b"".join(map(protocol.encode, [*slices, whole])))
    frames = [client.receive(protocol.Data | protocol.End) for _ in range(6)]
    assert [frame.message.key for frame in frames] == ["c", "c", "a", "b", "a", "b"]
    assert [frame.payload for frame in frames[2:4]] == [SCENE[:1000], SCENE[:10]]
    client.send(protocol.Get(key="d", path=path, offset=len(SCENE) - 5, most=1000))
    assert client.receive(protocol.Data).payload == SCENE[-5:]
    assert client.receive(protocol.End).message.bytes == len(SCENE)


@pytest.mark.parametrize("how", ["goodbye", "gone", "signal"])
def test_a_wish_ends_with_its_connection(connect, shared, how):
    client = connect()
    watch(client, 0)
    path = slot_of(shared.path, RUN).parent / FILE
    wait_for(lambda: read(path), "the wish")
    if how == "goodbye":
        client.send(protocol.Bye())
    elif how == "signal":
        client.server.stop("SIGTERM")
    else:
        os.close(client.out)
        client.out = os.open(os.devnull, os.O_WRONLY)
    wait_for(lambda: not read(path), "the wish's end")


def test_a_connection_under_a_limit_shows_agents_within_it(connect, shared):
    client = connect()
    client.server._bandwidth.kib_s = 1
    write_ring(shared.path, RUN, pose(1, bodies=1_000))
    watch(client, 0)
    assert grown(client.receive(livemessages.LiveBatch).payload) == pose(1, bodies=1_000)
    assert client.server._bandwidth.wait_s() > 5.0
