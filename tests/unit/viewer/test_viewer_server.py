"""The server itself, on a real port: who has the token gets pictures, everybody else nothing; and it ends when told."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, wait_for
from refused import refused
from viewer_entrance import enter as show_token
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from anchorleg.live.batches import MOST_SCENE_BYTES
from viewer.errors import ViewerError
from viewer.model import PageSnapshot, RunRow, ViewChoice
from viewer.server import serve, watchers
from viewer.server.serve import PONG_WITHIN_S, PageServer, make_server
from viewer.server.sockets import open_port
from viewer.server.watchers import MOST_WATCHERS, NO_TOKEN, TOO_LATE, TOO_MANY

TOKEN = "t" * 43
SECRET = "a-run-nobody-else-may-know-of"
TICK_S = 0.02


class Counting:
    """A source that tells its own looks, and what was chosen. `size`: of the run's name; `defect`: raised by the next
    look; `still`: every picture is the same.
    """

    kind = "runs"
    place = SECRET

    def __init__(self) -> None:
        self.looks, self.size, self.still = 0, 0, False
        self.sizes: set[int] = set()
        self.chosen: list[ViewChoice] = []
        self.defect: BaseException | None = None
        self.hangs: threading.Event | None = None

    def look(self, choice: ViewChoice, now: float) -> PageSnapshot:
        self.looks += 1
        self.chosen.append(choice)
        if self.hangs is not None:
            self.hangs.wait(PATIENCE_S)
        if self.defect is not None:
            raise self.defect
        if choice.run == "defect":
            raise KeyError("oops")
        step = 0 if self.still else self.looks
        name = (choice.task or f"{step}").ljust(self.size)
        self.sizes.add(len(name))
        row = RunRow(run_id="r", name=name, state="running", step=step)
        return PageSnapshot(source="runs", place=self.place, runs=(row,))


@pytest.fixture
def source() -> Counting:
    return Counting()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets how often the room looks, and gives a sign of life."""

    def set_times(sign_s: float) -> None:
        defaults = {**(watchers.Room.__init__.__kwdefaults__ or {}), "every_s": TICK_S, "sign_s": sign_s}
        monkeypatch.setattr(watchers.Room.__init__, "__kwdefaults__", defaults)

    set_times(PATIENCE_S)
    return set_times


@pytest.fixture
def often_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As websockets would do it by itself, and soon."""
    monkeypatch.setattr(serve, "serve", partial(serve.serve, ping_interval=TICK_S))


@pytest.fixture
def serving(source: Counting, soon: Callable[..., None]) -> Iterator[tuple[int, PageServer, threading.Thread]]:
    sock = open_port(0)
    server = make_server(sock, source, TOKEN)
    thread = threading.Thread(target=server.serve_forever)
    port = sock.getsockname()[1]
    thread.start()
    yield port, server, thread
    server.shutdown()
    thread.join(PATIENCE_S)


@pytest.fixture
def port(serving: tuple[int, PageServer, threading.Thread]) -> int:
    return serving[0]


def page(port: int, origin: str | None = None, **more: Any) -> connect:
    """Uncompressed, so that what is large stays so."""
    return connect(
        f"ws://127.0.0.1:{port}/socket", origin=origin or f"http://127.0.0.1:{port}", proxy=None, max_size=None,
        ping_interval=None, compression=None, **more,
    )  # fmt: skip


@contextlib.contextmanager
def entered(port: int) -> Iterator[ClientConnection]:
    with page(port) as line:
        show_token(line, TOKEN)
        hear(line)
        yield line


def hear(line: ClientConnection) -> dict[str, Any]:
    return json.loads(line.recv(PATIENCE_S))


def whole(line: ClientConnection, fits: Callable[[Any], object] = bool) -> Any:
    """The next whole picture that fits."""
    while not ("is" in (told := hear(line)) and fits(told["is"])):
        pass
    return told["is"]


def say(line: ClientConnection, **message: Any) -> None:
    line.send(json.dumps(message))


def closed_with(line: ClientConnection) -> int | None:
    with pytest.raises(ConnectionClosed) as closed:
        line.recv(PATIENCE_S)
    return closed.value.rcvd.code if closed.value.rcvd is not None else None


def asked(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        parts = []
        with contextlib.suppress(ConnectionError):
            sock.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            while part := sock.recv(65_536):
                parts.append(part)
        return b"".join(parts)


def test_who_has_the_token_gets_a_picture_and_then_what_changes(port: int) -> None:
    with page(port) as line:
        show_token(line, TOKEN)
        first, second = hear(line), hear(line)
    assert first["is"]["place"] == SECRET
    assert [path for path, *_ in second["set"]] == [["runs"]]
    head, _, body = asked(port).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"websockets" not in head, "the answer names no software"
    assert SECRET.encode() not in body


@pytest.mark.parametrize(
    "message",
    ['{"token": "wrong"}', '{"token": ""}', '{"token": null}', "[]", "nonsense", '{"choose": {}}', '{"token": ["t"]}',
     '{"token": "\\ud800"}', "9" * 4000],
)  # fmt: skip
def test_without_the_token_not_one_byte_of_data_is_sent(port: int, source: Counting, message: str) -> None:
    with page(port) as line:
        line.send(message)
        assert closed_with(line) == NO_TOKEN
    assert source.looks == 0


def test_a_line_that_stalls_before_its_token_is_not_told_that_it_has_no_token(
    port: int, source: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewer.server.watchers.ENTER_WITHIN_S", 0.05)
    with page(port) as line:
        assert closed_with(line) == TOO_LATE
    assert source.looks == 0


def test_another_origin_and_another_host_do_not_get_in(port: int, source: Counting) -> None:
    for more in ({"origin": "http://evil.example"}, {"additional_headers": {"Host": "evil.example"}}):
        with pytest.raises(InvalidStatus) as refusal, page(port, **more):
            pass
        assert (refusal.value.response.status_code, refusal.value.response.body) == (403, b"")
    assert source.looks == 0


def test_a_choice_is_answered_by_a_whole_picture_and_a_defect_is_said_on_it(port: int, source: Counting) -> None:
    with entered(port) as line:
        say(line, choose={"task": "reach-v3", "jobs": 2})
        assert whole(line, lambda seen: seen["runs"][0]["name"] == "reach-v3")
        assert ViewChoice(task="reach-v3", jobs=2) in source.chosen
        say(line, choose={"task": 7, "nonsense": True})
        assert whole(line)["runs"][0]["name"] != "reach-v3"
        say(line, choose={"run": "defect"})
        assert "please report it" in whole(line)["note"]
        say(line, choose={"run": ""})
        assert whole(line)["note"] == ""
        say(line, choose={"task": 10_000 * "x"})
        with pytest.raises(ConnectionClosed):
            deque(iter(lambda: line.recv(PATIENCE_S), None))


def is_still(source: Counting) -> Callable[[], bool]:
    """Whether nothing was read since it was last asked."""
    seen = [-1]

    def look() -> bool:
        before, seen[0] = seen[0], source.looks
        threading.Event().wait(5 * TICK_S)
        return before == seen[0] == source.looks

    return look


def test_nothing_is_read_while_nobody_looks(port: int, source: Counting) -> None:
    with entered(port):
        pass
    wait_for(is_still(source), "the end of reading")
    before = source.looks
    with page(port):  # somebody without a token is nobody
        pass
    assert source.looks == before
    with entered(port):
        pass
    assert source.looks > before


def test_a_hidden_tab_costs_nothing_and_what_does_not_change_is_not_sent_again(port: int, source: Counting) -> None:
    mark = ViewChoice(task="hidden")
    with entered(port) as hidden, entered(port) as seen:
        say(hidden, choose={"task": "hidden"})
        whole(hidden, lambda told: told["runs"][0]["name"] == "hidden")
        say(hidden, asleep=True)
        wait_for(lambda: mark not in source.chosen[-4:] and len(source.chosen) > 4, "the hidden tab's rest")
        say(hidden, asleep=False)
        wait_for(lambda: mark in source.chosen[-4:], "its return")
        source.still = True
        say(seen, choose={"task": "still"})
        whole(seen, lambda told: told["runs"][0]["name"] == "still")
        looked = source.looks
        wait_for(lambda: source.looks > looked + 6, "some looks")
        with pytest.raises(TimeoutError):
            seen.recv(0)


def test_too_many_pages_are_told_so(port: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_WATCHERS):
            stack.enter_context(entered(port))
        late = stack.enter_context(page(port))
        show_token(late, TOKEN)
        assert closed_with(late) == TOO_MANY


def test_the_port_is_on_this_machine_alone(port: int) -> None:
    table = Path("/proc/net/tcp").read_text().split("\n")[1:]
    listening = [line.split()[1] for line in table if line and line.split()[3] == "0A"]
    assert {address for address in listening if address.endswith(f":{port:04X}")} == {f"0100007F:{port:04X}"}
    with refused("port.taken", port=port):
        open_port(port)


# --- lines and processes in trouble ----------------------------------------------------------------------------------


@pytest.mark.long
def test_it_ends_although_a_page_takes_nothing_any_more(
    source: Counting, serving: tuple[int, PageServer, threading.Thread]
) -> None:
    port, server, thread = serving
    line = page(port).__enter__()
    show_token(line, TOKEN)
    hear(line)
    with line.socket.dup():
        line.recv_flow_control.acquire()  # its reader stands still
        source.size = 20_000_000
        wait_for(lambda: source.size in source.sizes, "a large picture")  # the page may be cut off before the second
        server.shutdown()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_page_whose_line_is_slow_is_kept(often_pinged: None, port: int, source: Counting) -> None:
    """The answer to a ping comes behind all that is under way."""
    assert PONG_WITHIN_S * 30_000 > MOST_SCENE_BYTES, "for the largest scene on a line of 30 kB a second"
    with entered(port) as line:
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


def test_a_sign_of_life_tells_how_old_the_picture_is(source: Counting, soon: Callable[..., None]) -> None:
    """Of a page on which nothing happens, and of one whose reader stands still."""
    soon(sign_s=0.05)
    source.still = True
    sock = open_port(0)
    server = make_server(sock, source, TOKEN)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with page(sock.getsockname()[1]) as line:
            show_token(line, TOKEN)
            first = hear(line)
            deadline = time.monotonic() + PATIENCE_S
            while (sign := hear(line))["at"] == first["at"] and time.monotonic() < deadline:
                pass  # a sign may come before the next look
            assert sign["set"] == []
            assert first["at"] < sign["at"] <= sign["now"]
            source.hangs = threading.Event()
            last = [hear(line) for _ in range(4)][-1]
            later = [hear(line) for _ in range(3)][-1]
            assert last["at"] == later["at"]
            assert last["now"] < later["now"]
    finally:
        if source.hangs is not None:
            source.hangs.set()
        server.shutdown()
        thread.join(PATIENCE_S)


def test_the_readers_end_is_the_servers_end_in_one_sentence(source: Counting, soon: Callable[..., None]) -> None:
    sock = open_port(0)
    port, server = sock.getsockname()[1], make_server(sock, source, TOKEN)
    ended: list[ViewerError] = []

    def serve_all() -> None:
        try:
            server.serve_forever()
        except ViewerError as error:
            ended.append(error)

    thread = threading.Thread(target=serve_all)
    thread.start()
    with entered(port) as line:
        source.defect = SystemExit("a defect")
        with pytest.raises(ConnectionClosed):
            deque(iter(lambda: line.recv(PATIENCE_S), None))
    thread.join(PATIENCE_S)
    [error] = ended
    assert (error.id, error.fields["kind"]) == ("page.reader-died", "SystemExit")
