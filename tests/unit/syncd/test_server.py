"""The server's loop against clients that are good, mean, silent, or slow; over pipes, in a thread."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from policies import RUN, publish_one
from served import HELLO, Connection

from syncd import store
from syncd.shared.counts import last_seen
from syncd.wire import protocol
from syncd.wire.feed import Feed
from syncd.wire.protocol import DEAD_AFTER_S, MAX_PAYLOAD_BYTES, Message, encode
from syncd.wire.server import BUFFER_BYTES, MOST_UNREAD_BYTES


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., Connection]]:
    opened: list[Connection] = []

    def open_it(contributor: str | None = None) -> Connection:
        opened.append(Connection(tmp_path, contributor))
        return opened[-1]

    yield open_it
    for connection in opened:
        connection.close()


@pytest.fixture
def shared(tmp_path: Path) -> store.Shared:
    return store.Shared(tmp_path)


@pytest.mark.parametrize(("stated", "is_called"), [(None, "anna"), ("ben", "ben")])
def test_the_login_says_whose_inbox_it_is_before_the_client_does(connect, shared, stated, is_called):
    publish_one(shared, 1, 1)
    client = connect(stated)
    client.send(HELLO)
    assert client.receive(protocol.Welcome).message.contributor == is_called
    data = b"a segment"
    sha256 = hashlib.sha256(data).hexdigest()
    client.send(protocol.Put(sha256=sha256, run_id=RUN, slot=0, bytes=len(data)))
    assert client.receive(protocol.Have).message.offset == 0
    client.send(protocol.Data(key=sha256, offset=0), payload=data)
    client.receive(protocol.SegmentStored)
    assert (store.Inbox.of(shared, is_called).place("new", RUN, 0) / sha256).read_bytes() == data


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ([encode(protocol.Listing())], "wire.no-hello"),
        ([encode(HELLO), encode(HELLO)], "wire.unexpected-client"),
        ([b"GET / HTTP/1.1\r\n\r\n"], "wire.frame-length"),
        ([encode(HELLO.model_copy(update={"protocol": 99}))], "wire.other-protocol"),
        ([encode(HELLO), encode(protocol.SegmentStored(sha256="a" * 64))], "wire.unexpected-client"),
        ([encode(HELLO) + encode(protocol.Listing()) * 1000], "wire.listed-twice"),
        (
            [encode(HELLO)] + [encode(protocol.Get(key="1", path="v1/runs/a/b", offset=0))] * 10_000,
            "wire.too-many-files",
        ),
    ],
)
def test_who_does_not_speak_the_protocol_is_sent_away(connect, said, name):
    client = connect()
    try:
        for data in said:
            os.write(client.out, data)
    except BrokenPipeError:
        pass  # it had heard enough
    assert client.receive(protocol.Goaway).message.reason == name
    with pytest.raises(EOFError):
        client.receive(protocol.Goaway)


def test_bytes_of_a_segment_out_of_order_end_the_connection(connect, shared):
    publish_one(shared, 1, 1)
    client = connect()
    client.send(HELLO, protocol.Put(sha256="a" * 64, run_id=RUN, slot=0, bytes=10))
    client.receive(protocol.Have)
    client.send(protocol.Data(key="a" * 64, offset=5), payload=b"later")
    assert client.receive(protocol.Goaway).message.reason == "wire.segment-order"
    assert store.Inbox.of(shared, "anna").waiting(RUN, 0, now=0.0) == []


@pytest.mark.parametrize("greets", [True, False])
def test_silence_is_death(connect, greets):
    now = time.monotonic()
    client = connect()
    client.clock = lambda: now + client.ahead_s  # it stands still: a slow machine is not silent
    if greets:
        client.send(HELLO)
        client.receive(protocol.Welcome)
    client.ahead_s = DEAD_AFTER_S - 3
    if greets:
        client.receive(protocol.Ping)
    assert client.thread.is_alive()
    client.ahead_s = 2 * DEAD_AFTER_S
    client.thread.join(PATIENCE_S)
    assert not client.thread.is_alive()


def test_a_signal_ends_it_and_says_come_again(connect):
    client = connect()
    client.send(HELLO)
    client.receive(protocol.Welcome)
    client.server.stop("SIGTERM")
    goaway = client.receive(protocol.Goaway).message
    assert goaway.retry_after_s is not None


def test_a_client_that_does_not_read_costs_no_memory(connect, shared):
    manifest = publish_one(shared, 1, 1, wide=100_000)
    path = f"v1/runs/{RUN}/0/blobs/{manifest.blob.sha256[:2]}/{manifest.blob.sha256}"
    client = connect()
    client.send(HELLO, *[protocol.Get(key=str(n), path=path, offset=0) for n in range(10)])
    os.set_blocking(client.out, False)
    rest = flood = encode(protocol.Ping(n=1)) * 1000
    stuck_since = time.monotonic()
    while time.monotonic() - stuck_since < 0.5:
        try:
            rest = rest[os.write(client.out, rest) :] or flood
            stuck_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
        assert len(client.server._waiting) < BUFFER_BYTES + MOST_UNREAD_BYTES + 2 * MAX_PAYLOAD_BYTES


SLOTS = 12


@pytest.fixture
def slow(connect, shared, monkeypatch):
    """A client whose server finds the next `most` slots after `step_s` each, by its clock: on a network's disk, say.
    `at` is called each time with how many were found before; the client says meanwhile that it lives.
    """
    for slot in range(SLOTS):
        publish_one(shared, 1, 1, slot=slot)
    client = connect()
    client.at, client.found, client.most, client.step_s = lambda found: None, 0, SLOTS, 3.0
    find_slot = Feed._find_slot

    def find_slowly(feed, *words):
        if client.found < client.most:
            client.ahead_s += client.step_s
            client.send(protocol.Ping(n=7))
            client.at(client.found)
            client.found += 1
        return find_slot(feed, *words)

    monkeypatch.setattr(Feed, "_find_slot", find_slowly)
    client.send(HELLO)
    client.receive(protocol.Welcome)
    return client


def of(kind: type[Message], said: list[Message]) -> list[Message]:
    return [message for message in said if isinstance(message, kind)]


def test_a_verdict_that_changed_after_it_was_fetched_is_told_again(connect, shared):
    """Accepted, then dropped; and what was acknowledged is not kept in mind as long as the connection lives."""
    inbox = store.Inbox.of(shared, "anna")
    sha256 = "5" * 64
    inbox.write_verdict(sha256, accepted=True, now=1.0)
    client = connect()
    client.send(HELLO, protocol.Listing())
    assert client.receive(protocol.Verdicts).message.verdicts[0].accepted
    client.send(protocol.Ack(sha256s=(sha256,)), protocol.Ping(n=1))
    client.receive(protocol.Pong)
    inbox.write_verdict(sha256, accepted=False, reason="dropped", now=2.0)
    assert client.receive(protocol.Verdicts).message.verdicts[0].reason == "dropped"


def test_a_contributor_is_heard_of_by_connecting_and_a_mere_reader_gets_no_inbox(connect, shared):
    (store.Inbox.of(shared, "anna").path / "new").mkdir(parents=True)
    for hello in (HELLO, HELLO.model_copy(update={"client": "rita"})):
        client = connect()
        client.send(hello)
        assert client.receive(protocol.Welcome).message.contributor == hello.client
    assert last_seen(store.Inbox.of(shared, "anna").path) is not None
    assert not store.Inbox.of(shared, "rita").path.exists()
