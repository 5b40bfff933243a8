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
from functools import partial
from typing import Any

import pytest
from daemons import PATIENCE_S, wait_for
from viewer_entrance import enter as show_token
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from anchorleg.errors import catalogue
from anchorleg.live.batches import MOST_SCENE_BYTES
from viewer.errors import ViewerError
from viewer.model import PageSnapshot, RunRow, ViewChoice
from viewer.server import serve, watchers
from viewer.server.serve import PONG_WITHIN_S, PageServer, make_server
from viewer.server.sockets import open_port
from viewer.server.watchers import Room

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
    monkeypatch.setattr(serve, "serve", partial(serve.serve, ping_interval=0.02))


@pytest.fixture
def soon_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewer.server.serve.PONG_WITHIN_S", 0.2)


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


def test_a_stranger_that_says_nothing_does_not_stay(
    serving: tuple[int, PageServer, threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "ENTER_WITHIN_S", 0.1)
    port, *_ = serving
    with page(port) as line, pytest.raises(ConnectionClosed):
        line.recv(PATIENCE_S)


def test_a_process_whose_descriptors_are_all_in_use_serves_again_when_there_are_some(
    serving: tuple[int, PageServer, threading.Thread],
) -> None:
    port, _, thread = serving
    assert asked(port).startswith(b"HTTP/1.1 200 ")
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.socket()) for _ in range(8)]
        stack.enter_context(no_free_descriptor())
        for line in lines:
            line.connect(("127.0.0.1", port))
    wait_for(lambda: asked(port).startswith(b"HTTP/1.1 200 "), "the page")
    assert thread.is_alive()


def test_a_page_that_cannot_begin_says_why_although_its_catalogue_cannot_be_opened(source: Large) -> None:
    catalogue.cache_clear()
    said: list[ViewerError] = []

    def is_refused() -> bool:
        """False: a thread of an earlier test ended meanwhile, and the server had its descriptor."""
        server = make_server(open_port(0), source, TOKEN)
        end = threading.Timer(1.0, server.shutdown)
        end.start()
        try:
            with no_free_descriptor():
                server.serve_forever()
        except ViewerError as error:
            said.append(error)
        end.join()
        return bool(said)

    wait_for(is_refused, "a page that cannot begin")
    assert said[0].id == "page.not-served"
    assert said[0].fields["why"] in str(said[0])


def stuck(port: int, source: Large) -> socket.socket:
    """A page that has shown its token and takes nothing any more, while a large picture waits to be sent."""
    line = page(port).__enter__()
    show_token(line, TOKEN)
    line.recv(PATIENCE_S)
    sock: socket.socket = line.socket.dup()
    line.recv_flow_control.acquire()  # its reader stands still
    source.size = 20_000_000
    wait_for(lambda: source.size in source.sizes, "a large picture")  # the page may be cut off before the second
    return sock


@pytest.mark.long
def test_it_ends_although_a_page_takes_nothing_any_more(
    source: Large, serving: tuple[int, PageServer, threading.Thread]
) -> None:
    port, server, thread = serving
    with stuck(port, source):
        server.shutdown()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


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
    often_pinged: None, soon_let_go: None, source: Large, serving: tuple[int, PageServer, threading.Thread]
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
                looks = -1

                def is_still() -> bool:
                    nonlocal looks
                    before, looks = looks, source.looks
                    threading.Event().wait(0.1)  # five times as long as from one look to the next
                    return before == looks == source.looks

                wait_for(is_still, "the end of reading")
        return True

    wait_for(was_let_go, "the end of a page that had entered")


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
    ended: list[ViewerError] = []

    def serve() -> None:
        try:
            server.serve_forever()
        except ViewerError as error:
            ended.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    with page(port) as line:
        show_token(line, TOKEN)
        line.recv(PATIENCE_S)
        source.defect = SystemExit("a defect")
        with pytest.raises(ConnectionClosed):
            deque(iter(lambda: line.recv(PATIENCE_S), None))
    thread.join(PATIENCE_S)
    [error] = ended
    assert (error.id, error.fields["kind"]) == ("page.reader-died", "SystemExit")
