"""Both ends of a bridge in one process: what a browser's end says comes out at the server's, whole and in order."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from daemons import wait_for

from viewer.bridge.frames import MOST_DATA, WINDOW, BridgeFrame, BridgeKind
from viewer.bridge.line import LAST_WORDS_S, MOST_WAITING, SIGN_S, BridgeLine


class Two:
    """A near end and a far one; `served`: the server's sockets, in the order of their coming."""

    def __init__(self, stack: ExitStack) -> None:
        self.now = 0.0
        (up_out, up_in), (down_out, down_in) = os.pipe(), os.pipe()
        self.ends = [up_out, up_in, down_out, down_in]
        self.served: list[socket.socket] = []
        self.has_room = True
        more = {"silence_s": 20.0, "clock": lambda: self.now}
        self.near = BridgeLine(down_out, up_in, **more)  # type: ignore[arg-type]
        self.far = BridgeLine(up_out, down_in, opened=self._opened, **more)  # type: ignore[arg-type]
        self.stack = stack
        stack.callback(lambda: [os.close(end) for end in self.ends])
        stack.callback(self.near.close)
        stack.callback(self.far.close)

    def _opened(self) -> socket.socket | None:
        if not self.has_room:
            return None
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        self.served.append(self.stack.enter_context(mine))
        return theirs

    def browser(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        self.near.carry(theirs)
        return self.stack.enter_context(mine)

    def turn(self) -> None:
        self.near.turn(0)
        self.far.turn(0)

    def until(self, condition: Callable[[], object], what: str) -> None:
        wait_for(lambda: self.turn() or condition(), what)


@pytest.fixture
def two() -> Iterator[Two]:
    with ExitStack() as stack:
        yield Two(stack)


def sent(sock: socket.socket, data: bytes) -> int:
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0


def received(sock: socket.socket) -> bytes | None:
    try:
        return sock.recv(1 << 16)
    except BlockingIOError:
        return None


def test_what_several_say_at_once_comes_whole_and_in_order_both_ways(two: Two) -> None:
    browsers = [two.browser() for _ in range(3)]
    two.until(lambda: len(two.served) == 3, "three connections")
    data = [bytes([65 + k]) * 10 + os.urandom(3 * WINDOW) for k in range(3)]
    for here, there in ((browsers, two.served), (two.served, browsers)):
        rest, got = [memoryview(each) for each in data], [bytearray() for _ in data]

        def move(here: list = here, there: list = there, rest: list = rest, got: list = got) -> bool:  # type: ignore[type-arg]
            for k in range(3):
                rest[k] = rest[k][sent(here[k], rest[k]) :]
                got[k] += received(there[k]) or b""
            return [bytes(each) for each in got] == data

        two.until(move, "all of it")


def test_of_a_page_that_takes_nothing_no_more_than_a_window_is_under_way_and_others_go_on(two: Two) -> None:
    two.browser(), two.browser()
    two.until(lambda: len(two.served) == 2, "two connections")
    stuck, quick = two.served
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    taken = 0
    for _ in range(2000):
        taken += sent(stuck, bytes(4096))
        two.turn()
    assert taken < 8 * WINDOW  # the window, and what sockets hold
    assert sent(quick, b"news") == 4
    two.until(lambda: True, "a turn")
    two.turn()


def test_an_end_is_told_after_the_last_byte(two: Two) -> None:
    browser = two.browser()
    two.until(lambda: two.served, "the connection")
    two.served[0].send(b"the last")
    two.served[0].close()
    two.until(lambda: len(two.near) == len(two.far) == 0, "its end")
    assert received(browser) == b"the last"
    assert received(browser) == b""
    other = two.browser()
    two.until(lambda: len(two.served) == 2, "another one")
    other.close()
    two.until(lambda: received(two.served[1]) == b"", "its end over there")


def test_where_there_is_no_room_the_browser_is_let_go(two: Two) -> None:
    two.has_room = False
    browser = two.browser()
    two.until(lambda: received(browser) == b"", "its end")


def test_who_says_nothing_gives_signs_and_who_gives_none_is_gone(two: Two) -> None:
    for _ in range(10):
        two.now += SIGN_S
        two.turn(), two.turn()
    two.now += 20.5
    with pytest.raises(TimeoutError):
        two.near.turn(0)


def test_the_end_of_the_pipe_is_an_end(two: Two) -> None:
    os.close(two.ends.pop(1))
    with pytest.raises(EOFError):
        two.far.turn(0)


@pytest.mark.parametrize(
    "frames",
    [
        [BridgeFrame(BridgeKind.DATA, 2, b"x")],
        [BridgeFrame(BridgeKind.OPEN, 1)],
        [BridgeFrame(BridgeKind.OPEN, 2), BridgeFrame(BridgeKind.OPEN, 2)],
        [BridgeFrame(BridgeKind.CREDIT, 1, (1).to_bytes(4, "big"))],
        [BridgeFrame(BridgeKind.DATA, 1, bytes(MOST_DATA))] * (8 * WINDOW // MOST_DATA),
        [BridgeFrame(BridgeKind.TOKEN, 0, b"\xff")],
    ],
    ids=["of nobody", "again", "twice", "more taken than sent", "more than asked for", "no token"],
)
def test_an_other_end_that_says_what_it_cannot_is_not_believed(two: Two, frames: list[BridgeFrame]) -> None:
    browser = two.browser()
    two.until(lambda: two.served, "the connection")
    two.served[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    with pytest.raises(ValueError):  # noqa: PT011 - of several sentences
        two.far.hear(b"".join(frame.packed() for frame in frames))
    browser.close()


def test_the_laptop_lets_the_other_end_open_nothing(two: Two) -> None:
    with pytest.raises(ValueError, match="not the other end's to open"):
        two.near.hear(BridgeFrame(BridgeKind.OPEN, 1).packed())


def test_a_browser_that_takes_no_last_words_is_let_go(two: Two) -> None:
    two.browser()
    two.until(lambda: two.served, "the connection")
    two.near.hear(b"".join(BridgeFrame(BridgeKind.DATA, 1, bytes(MOST_DATA)).packed() for _ in range(1)))
    one = two.near._carried[1]
    while one.sock.fileno() >= 0 and sent(one.sock, bytes(MOST_WAITING)):
        pass  # its buffers are full
    one.waiting += b"last"
    two.near.hear(BridgeFrame(BridgeKind.CLOSE, 1).packed())
    assert len(two.near) == 1
    two.now += LAST_WORDS_S + 0.5
    two.turn()
    assert len(two.near) == 0
