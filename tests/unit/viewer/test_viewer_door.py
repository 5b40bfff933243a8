"""What strangers on the same machine can take of a viewer, and that it ends when it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from daemons import PATIENCE_S, wait_for
from viewer_entrance import enter as show_token
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import serve

from anchorleg.live.batches import MOST_SCENE_BYTES
from viewer.errors import ViewerError
from viewer.model import PageSnapshot, RunRow, ViewChoice
from viewer.server import door, watchers
from viewer.server.exchange import nonce, proof
from viewer.server.serve import PONG_WITHIN_S, PageServer, make_server, open_port
from viewer.server.watchers import NO_TOKEN, Room
from viewer.showing import end_quietly_without_descriptors

TOKEN = "t" * 43


class Large:
    """A source whose picture is large, and another one each time. `defect`: raised by the next look."""

    kind = "runs"
    place = "here"

    def __init__(self) -> None:
        self.size = 10
        self.looks = 0
        self.sizes: set[int] = set()  # of the pictures so far
        self.defect: BaseException | None = None

    def look(self, choice: ViewChoice, now: float) -> PageSnapshot:
        self.looks += 1
        if self.defect is not None:
            raise self.defect
        words = f"{self.looks}".ljust(self.size)
        self.sizes.add(len(words))
        return PageSnapshot(source="runs", place=self.place, runs=(RunRow(run_id="r", name=words, state="running"),))


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Large:
    defaults = {**(Room.__init__.__kwdefaults__ or {}), "every_s": 0.02, "sign_s": 0.05}
    monkeypatch.setattr(Room.__init__, "__kwdefaults__", defaults)
    return Large()


@pytest.fixture
def often_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As websockets would do it by itself, and soon."""
    defaults = {**(serve.__kwdefaults__ or {}), "ping_interval": 0.02, "ping_timeout": 0.02}
    monkeypatch.setattr(serve, "__kwdefaults__", defaults)


@pytest.fixture
def soon_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewer.server.serve.PONG_WITHIN_S", 0.2)


@pytest.fixture
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says nothing stays until the test has looked."""
    monkeypatch.setattr("viewer.server.serve.REQUEST_WITHIN_S", PATIENCE_S)


@pytest.fixture
def serving(source: Large) -> Iterator[tuple[int, PageServer, threading.Thread]]:
    sock = open_port(0)
    port = sock.getsockname()[1]
    server = make_server(sock, source, TOKEN)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield port, server, thread
    server.shutdown()
    thread.join(PATIENCE_S)


def page(port: int) -> connect:
    """Uncompressed, so that what is large stays so."""
    return connect(
        f"ws://127.0.0.1:{port}/socket", origin=f"http://127.0.0.1:{port}", proxy=None, max_size=None,
        ping_interval=None, compression=None,
    )  # fmt: skip


def asked(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        parts = []
        with contextlib.suppress(ConnectionError):
            sock.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            while part := sock.recv(65_536):
                parts.append(part)
        return b"".join(parts)


@contextlib.contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Every descriptor that this process has open stays below the limit: one that is closed can be had again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[socket.socket] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 20, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(socket.socket())
        yield
    finally:
        for each in held:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_replays_what_a_page_said_gets_nothing(serving: tuple[int, PageServer, threading.Thread]) -> None:
    """A stranger who has heard one exchange, or hands back the server's own proof, is none the wiser."""
    port, *_ = serving
    hello = nonce()
    with page(port) as line:
        line.send(json.dumps({"hello": hello}))
        heard = json.loads(line.recv(PATIENCE_S))
        line.send(json.dumps({"proof": proof(TOKEN, "page", hello, heard["nonce"])}))
        assert "is" in json.loads(line.recv(PATIENCE_S))
    for replayed in (proof(TOKEN, "page", hello, heard["nonce"]), None):
        with page(port) as line:
            line.send(json.dumps({"hello": hello}))
            own = json.loads(line.recv(PATIENCE_S))
            assert own.keys() == {"nonce", "proof"}
            line.send(json.dumps({"proof": replayed or own["proof"]}))
            with pytest.raises(ConnectionClosed) as closed:
                line.recv(PATIENCE_S)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == NO_TOKEN


def test_strangers_leave_the_pages_alone_and_are_told_in_a_sentence(
    never_late: None, serving: tuple[int, PageServer, threading.Thread]
) -> None:
    port, *_ = serving
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(page(port))
        show_token(line, TOKEN)
        line.recv(PATIENCE_S)
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(door.MOST_STRANGERS)
        ]
        refused = b""

        def is_refused() -> bool:
            nonlocal refused
            refused = asked(port)
            return refused.startswith(b"HTTP/1.1 503 ")

        wait_for(is_refused, "the refusal")
        assert refused.endswith(b"load this one again in some seconds.\n")
        assert "set" in json.loads(line.recv(PATIENCE_S)), "the page goes on"
        for stranger in strangers:
            stranger.close()
        wait_for(lambda: asked(port).startswith(b"HTTP/1.1 200 "), "the page again")


def test_a_stranger_that_says_nothing_does_not_stay(
    serving: tuple[int, PageServer, threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "ENTER_WITHIN_S", 0.1)
    port, *_ = serving
    with page(port) as line, pytest.raises(ConnectionClosed):
        line.recv(PATIENCE_S)

    def was_let_go() -> bool:
        """False: the hello itself came too late."""
        with page(port) as line:
            try:
                line.send(json.dumps({"hello": nonce()}))
                line.recv(PATIENCE_S)
            except ConnectionClosed:
                return False
            with pytest.raises(ConnectionClosed):
                line.recv(PATIENCE_S)
        return True

    wait_for(was_let_go, "the end of who says no more")


def test_a_process_without_free_descriptors_refuses_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, serving: tuple[int, PageServer, threading.Thread]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # so it is put back after the test
    end_quietly_without_descriptors()  # a line that was let in by the last descriptor has none for its selector
    port, _, thread = serving
    assert asked(port).startswith(b"HTTP/1.1 200 ")  # its thread has begun: it needs a descriptor for that
    told: list[bytes] = []

    def is_refused() -> bool:
        """False: another thread of this process had the descriptor that was kept for refusals."""
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(socket.socket()) for _ in range(8)]
            stack.enter_context(no_free_descriptor())
            for line in lines:
                line.connect(("127.0.0.1", port))
            for line in lines:
                line.settimeout(2.0)
                with contextlib.suppress(ConnectionError, TimeoutError):
                    told.append(line.recv(65_536))
        wait_for(lambda: asked(port).startswith(b"HTTP/1.1 200 "), "the page")  # it has let in all who waited before
        return any(told)

    wait_for(is_refused, "a refusal")
    assert all(one == b"" or one.startswith(b"HTTP/1.1 503 ") for one in told)
    assert thread.is_alive()


def test_a_page_that_cannot_begin_says_why_in_a_sentence(source: Large) -> None:
    said: list[str] = []

    def is_refused() -> bool:
        """False: a thread of an earlier test ended meanwhile, and the server had its descriptor."""
        server = make_server(open_port(0), source, TOKEN)
        end = threading.Timer(1.0, server.shutdown)
        end.start()
        try:
            with no_free_descriptor():
                server.serve_forever()
        except ViewerError as error:
            said.append(str(error))
        end.join()
        return bool(said)

    wait_for(is_refused, "a page that cannot begin")
    assert "ulimit -n)" in said[0]


def handlers() -> list[threading.Thread]:
    """The threads of connections, by the name that websockets gives them."""
    return [one for one in threading.enumerate() if "sock_handler" in one.name]


def stuck(port: int, source: Large) -> socket.socket:
    """A page that has shown its token and takes nothing any more, while a large picture waits to be sent."""
    line = page(port).__enter__()
    show_token(line, TOKEN)
    line.recv(PATIENCE_S)
    assert handlers(), "websockets calls its threads otherwise by now: whoever waits for their end waits for nothing"
    sock: socket.socket = line.socket.dup()
    line.recv_flow_control.acquire()  # its reader stands still
    source.size = 20_000_000
    wait_for(lambda: source.size in source.sizes, "a large picture")  # the page may be cut off before the second
    return sock


def test_it_ends_although_a_page_takes_nothing_any_more(
    monkeypatch: pytest.MonkeyPatch, source: Large, serving: tuple[int, PageServer, threading.Thread]
) -> None:
    monkeypatch.setattr(door, "SEND_WITHIN_S", 2 * PATIENCE_S)
    port, server, thread = serving
    with stuck(port, source):
        server.shutdown()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        wait_for(lambda: not handlers(), "the end of its threads")


def test_a_page_that_takes_nothing_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch, source: Large, serving: tuple[int, PageServer, threading.Thread]
) -> None:
    monkeypatch.setattr(door, "SEND_WITHIN_S", 0.2)
    port, *_ = serving
    with stuck(port, source):
        wait_for(lambda: not handlers(), "the end of its thread")


def test_a_page_whose_line_is_slow_is_kept(
    often_pinged: None, source: Large, serving: tuple[int, PageServer, threading.Thread]
) -> None:
    """The answer to a ping comes behind all that is under way."""
    assert PONG_WITHIN_S * 30_000 > MOST_SCENE_BYTES, "for the largest scene on a line of 30 kB a second"
    port, *_ = serving
    with page(port) as line:
        show_token(line, TOKEN)
        line.recv(PATIENCE_S)
        with line.recv_flow_control:  # its reader stands still
            before = source.looks
            wait_for(lambda: source.looks > before + 20, "pings without an answer")
        seen = source.looks
        while number_in(line.recv(PATIENCE_S)) <= seen:
            pass


def number_in(told: str | bytes) -> int:
    """Of the look that a message is of; 0: a sign of life."""
    found = re.search(r'"name":"(\d+)', str(told))
    return int(found[1]) if found else 0


def test_a_page_that_vanished_without_a_word_is_let_go(
    often_pinged: None, soon_let_go: None, serving: tuple[int, PageServer, threading.Thread]
) -> None:
    port, *_ = serving

    def was_let_go() -> bool:
        """False: it was taken for gone before it had entered."""
        with page(port) as line:
            try:
                show_token(line, TOKEN)
                line.recv(PATIENCE_S)
            except ConnectionClosed:
                return False
            with line.recv_flow_control:
                wait_for(lambda: not handlers(), "the end of its thread")
        return True

    wait_for(was_let_go, "the end of a page that had entered")


def test_a_connection_that_is_handed_out_as_one_that_does_not_block_is_served(
    source: Large, serving: tuple[int, PageServer, threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As macOS does it, where the listening socket has a timeout (CPython's issue 7995)."""
    accept = door.Door._accept  # type: ignore[attr-defined]

    def as_macos_does(self: door.Door) -> tuple[int, Any]:
        fd, address = accept(self)
        os.set_blocking(fd, False)
        return fd, address

    monkeypatch.setattr(door.Door, "_accept", as_macos_does)
    port, *_ = serving
    source.size = 20_000_000  # more than the system takes at once
    with page(port) as line:
        show_token(line, TOKEN)
        assert len(line.recv(PATIENCE_S)) > source.size


def test_a_page_on_which_nothing_happens_hears_how_old_it_is(
    source: Large, serving: tuple[int, PageServer, threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, *_ = serving
    monkeypatch.setattr(source, "look", lambda *_: PageSnapshot(source="runs", place="still"))
    with page(port) as line:
        show_token(line, TOKEN)
        first = json.loads(line.recv(PATIENCE_S))
        sign: dict[str, Any] = {"at": first["at"]}
        deadline = time.monotonic() + PATIENCE_S
        while sign["at"] == first["at"] and time.monotonic() < deadline:  # a sign may come before the next look
            sign = json.loads(line.recv(PATIENCE_S))
    assert first["is"]["place"] == "still"
    assert sign["set"] == []
    assert first["at"] < sign["at"] <= sign["now"]


def test_while_the_reader_stands_still_the_sign_of_life_tells_the_old_moment(
    source: Large, serving: tuple[int, PageServer, threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, *_ = serving
    hangs = threading.Event()
    still = PageSnapshot(source="runs", place="still")

    def look(*_: object) -> PageSnapshot:
        source.looks += 1
        if source.looks > 1:
            hangs.wait(PATIENCE_S)
        return still

    monkeypatch.setattr(source, "look", look)
    try:
        with page(port) as line:
            show_token(line, TOKEN)
            told = [json.loads(line.recv(PATIENCE_S)) for _ in range(3)]
    finally:
        hangs.set()
    assert told[0]["at"] == told[1]["at"] == told[2]["at"]
    assert told[1]["now"] < told[2]["now"]


def test_the_readers_end_is_the_servers_end_in_one_sentence(source: Large) -> None:
    sock = open_port(0)
    port = sock.getsockname()[1]
    server = make_server(sock, source, TOKEN)
    ended: list[str] = []

    def serve() -> None:
        try:
            server.serve_forever()
        except ViewerError as error:
            ended.append(str(error))

    thread = threading.Thread(target=serve)
    thread.start()
    with page(port) as line:
        show_token(line, TOKEN)
        line.recv(PATIENCE_S)
        source.defect = SystemExit("a defect")
        with pytest.raises(ConnectionClosed):
            deque(iter(lambda: line.recv(PATIENCE_S), None))
    thread.join(PATIENCE_S)
    assert len(ended) == 1
    assert ended[0].startswith("the thread that reads for the pages has ended (SystemExit: a defect)")
