"""The client's session against servers that are noisy, wrong, hostile or silent: one error each, and no memory."""

from __future__ import annotations

import errno
import hashlib
import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from refused import refused

from syncd.errors import GoneError, RemoteError, SyncError, UnreachableError
from syncd.wire import protocol
from syncd.wire import session as session_module
from syncd.wire.arrivals import Arrivals, News, Offer
from syncd.wire.protocol import DEAD_AFTER_S, PREAMBLE, Decoder, Frame, Message, encode
from syncd.wire.session import MAX_NOISE_BYTES, MOST_LIVE, Session

WELCOME = protocol.Welcome(protocol=protocol.PROTOCOL, version="test", contributor="anna", time=0.0, segment_bytes=1000)
SLOT = "v1/runs/demo-0/0"
LOOK_S = 0.02


class Peer:
    """A stream whose other end is the test: `say` puts frames there, `answers` are given when a message arrives."""

    def __init__(self, *said: bytes | Message, why: SyncError | None = None) -> None:
        self.queue: queue.Queue[bytes] = queue.Queue()
        self.heard: list[Message] = []
        self.answers: Callable[[Message], list[bytes]] = lambda message: []
        self.ahead_s = 0.0
        self._decoder = Decoder()
        self._why = why or UnreachableError("peer.ends-for-now", sentence="the stream ended")
        self.closed = False
        self.say(*said)

    def say(self, *said: bytes | Message) -> None:
        for one in said:
            self.queue.put(encode(one) if isinstance(one, Message) else one)

    def end(self) -> None:
        self.queue.put(b"")

    def clock(self) -> float:
        """It stands still: a slow machine makes nobody silent."""
        return 1000.0 + self.ahead_s

    def read(self, timeout_s: float) -> bytes | None:
        try:
            return b"" if self.closed else self.queue.get(timeout=LOOK_S)
        except queue.Empty:
            return None

    def write(self, data: bytes, timeout_s: float) -> None:
        if self.closed:
            raise BrokenPipeError(32, "closed")
        for frame in self._decoder.feed(data):
            self.heard.append(frame.message)
            self.say(*self.answers(frame.message))

    def why(self) -> SyncError:
        return self._why

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def begin() -> Iterator[Callable[[Peer], Session]]:
    opened: list[Session] = []

    def begin_it(peer: Peer) -> Session:
        opened.append(Session("test", peer, "me", place="cluster", logins=1, clock=peer.clock))
        return opened[-1]

    yield begin_it
    for session in opened:
        session.close()


def a_policy() -> protocol.Offered:
    file = protocol.File(path=f"{SLOT}/manifests/000001-000000001.json", bytes=2, sha256="a" * 64)
    return protocol.Offered(files=(file,))


@pytest.mark.parametrize(
    "noise", [b"", b"Welcome to cluster!\n\x1b[0m", b"\n\x00anchorleg syn" + PREAMBLE[:5], b"x" * 99_999]
)
def test_what_a_login_prints_before_is_skipped(begin, noise):
    peer = Peer()
    data = noise + PREAMBLE + encode(WELCOME)
    peer.say(*[data[at : at + 7] for at in range(0, len(data), 7)])
    assert begin(peer).facts().contributor == "anna"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ([b"x" * (MAX_NOISE_BYTES + 1)], "connection.noise"),
        ([PREAMBLE, protocol.Goaway(reason="x", sentence="no such folder", retry_after_s=None)], "peer.ends"),
        ([PREAMBLE, protocol.Goaway(reason="x", sentence="ended", retry_after_s=1.0)], "peer.ends-for-now"),
        ([PREAMBLE, protocol.goaway(UnreachableError("gate.full", name="eve", most=4), 60.0)], "gate.full"),
        ([PREAMBLE, b"\xff" * 20], "wire.frame-length"),
        ([PREAMBLE, protocol.Hello(protocol=1, version="", client="a")], "wire.unexpected-server"),
        ([b""], "peer.ends-for-now"),
    ],
)
def test_a_server_that_does_not_welcome_us_is_one_error(begin, said, name):
    peer = Peer(*said)
    with refused(name):
        begin(peer)
    assert peer.closed


def test_a_server_that_answered_once_and_is_gone_may_come_back(begin):
    peer = Peer(PREAMBLE, WELCOME, why=RemoteError("peer.ends", sentence="it does not start"))
    session = begin(peer)
    peer.end()
    with refused("connection.ended"):
        session.wait(PATIENCE_S)
    with pytest.raises(UnreachableError):
        session.listing()


def test_silence_is_noticed_by_whoever_waits(begin):
    peer = Peer(PREAMBLE, WELCOME)
    session = begin(peer)
    peer.ahead_s = DEAD_AFTER_S - 2
    assert session.wait(0.2).offers == ()
    wait_for(lambda: any(isinstance(message, protocol.Ping) for message in peer.heard), "a ping")
    peer.ahead_s = DEAD_AFTER_S + 2
    with refused("connection.silent"):
        session.wait(PATIENCE_S)


def test_a_listing_is_waited_for_as_long_as_its_server_says_that_it_lives(begin, monkeypatch):
    """However little time nothing may come; and whoever waits is called meanwhile."""
    monkeypatch.setattr(session_module, "STUCK_AFTER_S", 0.0)
    peer = Peer(PREAMBLE, WELCOME)
    session = begin(peer)
    pings = iter(range(1, 4))

    def tick() -> None:
        before = session._bytes_in
        if (n := next(pings, None)) is not None:
            peer.say(protocol.Ping(n=n))
            wait_for(lambda: session._bytes_in > before, "a sign of life")
        else:
            peer.say(protocol.Listed())
            wait_for(lambda: session._arrivals.listings, "the end of the list")

    session.tick = tick
    assert session.listing() == News()
    assert next(pings, None) is None
    session.tick = lambda: None
    with refused("connection.stuck", what="did not list what it has"):
        session.listing()


def blob_offer(blob: bytes, length: int | None = None) -> Offer:
    sha256 = hashlib.sha256(blob).hexdigest()
    return Offer(f"{SLOT}/blobs/{sha256[:2]}/{sha256}", len(blob) if length is None else length, sha256, "blob")


@pytest.mark.parametrize("fault", ["gap", "too much", "too little", "gone"])
def test_a_file_that_is_not_what_was_offered_is_an_error_and_no_more_bytes(begin, tmp_path, fault):
    blob = b"weights" * 10
    peer = Peer(PREAMBLE, WELCOME)

    def answers(message: Message) -> list[bytes]:
        if not isinstance(message, protocol.Get):
            return []
        key = message.key
        return {
            "gap": [encode(protocol.Data(key=key, offset=5), blob[5:])],
            "too much": [encode(protocol.Data(key=key, offset=0), blob + b"!")],
            "too little": [encode(protocol.Data(key=key, offset=0), blob[:-1]), encode(protocol.End(key=key, bytes=9))],
            "gone": [encode(protocol.FileGone(key=key, sentence="it went"))],
        }[fault]

    peer.answers = answers
    session = begin(peer)
    with pytest.raises(GoneError):
        session.fetch(blob_offer(blob), tmp_path / "blob")
    assert len((tmp_path / "blob").read_bytes()) <= len(blob)
    peer.say(a_policy())
    assert session.wait(PATIENCE_S).offers, "the connection lives on"


def test_a_segment_that_this_disk_changed_is_not_sent_and_one_that_cannot_be_read_now_is_tried_again(
    begin, tmp_path, monkeypatch
):
    changed, locked = (tmp_path / hashlib.sha256(data).hexdigest() for data in (b"changed", b"locked"))
    for path in (changed, locked):
        path.write_bytes(b"chanfed")
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == locked:
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    peer = Peer(PREAMBLE, WELCOME)
    receipts = begin(peer).send([(changed, "demo-0", 0), (locked, "demo-0", 0)])
    assert [receipt.reason for receipt in receipts] == ["damaged", "unreadable"]
    assert [receipt.retry_after_s is None for receipt in receipts] == [True, False]
    assert not any(isinstance(message, protocol.Put) for message in peer.heard)


def test_what_a_server_says_unasked_fills_no_memory(begin):
    arrivals = Arrivals(offers=30, verdicts=40)
    for number in range(200):
        file = protocol.File(path=f"v1/runs/demo-{number}/0/metrics/train-000000.jsonl", bytes=1, sha256="a" * 64)
        assert arrivals.put(Frame(protocol.Offered(files=(file,))))
        said = protocol.SegmentVerdict(sha256=f"{number:064x}", accepted=True, reason="")
        assert arrivals.put(Frame(protocol.Verdicts(verdicts=(said,))))
    news = arrivals.take_news()
    assert (len(news.offers), len(news.verdicts)) == (30, 40)
    assert "announced too many files" in news.left_out
    assert not arrivals
    batches = (protocol.LiveBatch(run_id=f"demo-{n}", slot=0, lane="any", number=n, kind=1) for n in range(1, 200))
    stored = (protocol.SegmentStored(sha256=f"{number:064x}") for number in range(100))
    peer = Peer(PREAMBLE, WELCOME, *batches, *stored, protocol.Verdicts(verdicts=(said,)))
    session = begin(peer)
    wait_for(lambda: session.wait(PATIENCE_S).verdicts, "the last of it")
    assert session._answers == {}
    assert [frame.message.number for frame in session.take_live()] == list(range(200 - MOST_LIVE, 200))
