"""The server itself, on a real port and a real socket: who has the token gets pictures, everybody else nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, wait_for
from refused import refused
from viewer_entrance import enter as show_token
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect, unix_connect

from viewer.model import PageSnapshot, RunRow, ViewChoice
from viewer.server import watchers
from viewer.server.serve import make_server
from viewer.server.sockets import open_port, open_socket
from viewer.server.watchers import MOST_WATCHERS, NO_TOKEN, TOO_LATE, TOO_MANY

TOKEN = "t" * 43
SECRET = "a-run-nobody-else-may-know-of"


class Counting:
    """A source that tells its own looks, and what was chosen."""

    kind = "runs"
    place = SECRET

    def __init__(self) -> None:
        self.looks = 0
        self.chosen: list[ViewChoice] = []
        self.stopped = threading.Event()

    def look(self, choice: ViewChoice, now: float) -> PageSnapshot:
        self.looks += 1
        self.chosen.append(choice)
        if choice.run == "defect":
            raise KeyError("oops")
        step = 0 if self.stopped.is_set() else self.looks
        return PageSnapshot(
            source="runs",
            place=self.place,
            runs=(RunRow(run_id="r", name=choice.task or "r", state="running", step=step),),
        )


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Counting:
    defaults = {**(watchers.Room.__init__.__kwdefaults__ or {}), "every_s": 0.02, "sign_s": PATIENCE_S}
    monkeypatch.setattr(watchers.Room.__init__, "__kwdefaults__", defaults)
    return Counting()


@pytest.fixture
def port(source: Counting) -> Iterator[int]:
    sock = open_port(0)
    with serving(sock, source):
        yield sock.getsockname()[1]


@contextlib.contextmanager
def serving(sock: socket.socket, source: Counting) -> Iterator[None]:
    server = make_server(sock, source, TOKEN)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join(PATIENCE_S)


def enter(port: int, origin: str | None = None, **more: Any) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{port}/socket", origin=origin or f"http://127.0.0.1:{port}", proxy=None, **more)


def hear(line: ClientConnection) -> dict[str, Any]:
    return json.loads(line.recv(PATIENCE_S))


def say(line: ClientConnection, **message: Any) -> None:
    line.send(json.dumps(message))


def raw(port: int, request: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        sock.sendall(request.encode())
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(65_536):
                parts.append(part)
        return b"".join(parts)


def test_who_has_the_token_gets_a_picture_and_then_what_changes(port: int) -> None:
    with enter(port) as line:
        show_token(line, TOKEN)
        first, second = hear(line), hear(line)
    assert first["is"]["place"] == SECRET
    assert [path for path, *_ in second["set"]] == [["runs"]]


@pytest.mark.parametrize(
    "message",
    [
        '{"token": "wrong"}',
        '{"token": ""}',
        '{"token": null}',
        "{}",
        "[]",
        "nonsense",
        '{"choose": {}}',
        '{"token": ["t"]}',
        '{"token": "\\ud800"}',
        "9" * 4000,
    ],
)
def test_without_the_token_not_one_byte_of_data_is_sent(port: int, source: Counting, message: str) -> None:
    with enter(port) as line:
        line.send(message)
        with pytest.raises(ConnectionClosed) as closed:
            line.recv(PATIENCE_S)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (NO_TOKEN, "")
    assert source.looks == 0


def test_a_line_that_stalls_before_its_token_is_not_told_that_it_has_no_token(
    port: int, source: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewer.server.watchers.ENTER_WITHIN_S", 0.05)
    with enter(port) as line, pytest.raises(ConnectionClosed) as closed:
        line.recv(PATIENCE_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == TOO_LATE
    assert source.looks == 0


def test_another_origin_and_another_host_do_not_get_in(port: int, source: Counting) -> None:
    for more in ({"origin": "http://evil.example"}, {"additional_headers": {"Host": "evil.example"}}):
        with pytest.raises(InvalidStatus) as refused, enter(port, **more):
            pass
        assert refused.value.response.status_code == 403
        assert refused.value.response.body == b""
    assert source.looks == 0


@pytest.mark.parametrize(
    "request_line",
    [
        "POST / HTTP/1.1",
        "GET /socket HTTP/1.1",
        "DELETE /socket HTTP/1.1",
        "GET /../../etc/passwd HTTP/1.1",
        "GET / HTTP/0.9",
        "\x00\x01",
    ],
)
def test_whatever_is_asked_over_http_tells_nothing_of_the_run(port: int, source: Counting, request_line: str) -> None:
    told = raw(port, f"{request_line}\r\nHost: 127.0.0.1:{port}\r\n\r\n")
    assert SECRET.encode() not in told
    assert b"websockets" not in told.partition(b"\r\n\r\n")[0], "the answer names no software"
    assert source.looks == 0


def test_a_rebound_name_gets_no_page(port: int) -> None:
    told = raw(port, f"GET / HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 403 ")
    assert told.endswith(b"\r\n\r\n")


def test_the_page_comes_over_plain_http_with_its_rules(port: int) -> None:
    told = raw(port, f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n")
    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert f"connect-src 'self' ws://localhost:{port}".encode() in head
    assert body.startswith(b"<!doctype html>")
    assert b"set-cookie" not in head.lower()


def test_a_choice_is_answered_by_a_whole_picture(port: int, source: Counting) -> None:
    with enter(port) as line:
        show_token(line, TOKEN)
        hear(line)
        say(line, choose={"task": "reach-v3", "jobs": 2})
        while "is" not in (told := hear(line)) or told["is"]["runs"][0]["name"] != "reach-v3":
            pass
        say(line, choose={"task": 7, "nonsense": True})
        while "is" not in (told := hear(line)):
            pass
    assert told["is"]["runs"][0]["name"] == "r"
    assert ViewChoice(task="reach-v3", jobs=2) in source.chosen


def test_nothing_is_read_while_nobody_looks(port: int, source: Counting) -> None:
    with enter(port) as line:
        show_token(line, TOKEN)
        hear(line)
    seen = -1

    def is_still() -> bool:
        nonlocal seen
        before, seen = seen, source.looks
        threading.Event().wait(0.1)  # five times as long as from one look to the next
        return before == seen == source.looks

    wait_for(is_still, "the end of reading")
    before = source.looks
    with enter(port):  # somebody without a token is nobody
        pass
    assert source.looks == before
    with enter(port) as line:
        show_token(line, TOKEN)
        assert "is" in hear(line)
    assert source.looks > before


def test_a_hidden_tab_costs_nothing(port: int, source: Counting) -> None:
    with enter(port) as hidden, enter(port) as seen:
        for line in (hidden, seen):
            show_token(line, TOKEN)
            hear(line)
        say(hidden, choose={"task": "hidden"})
        while hear(hidden).get("is", {"runs": [{"name": ""}]})["runs"][0]["name"] != "hidden":
            pass
        say(hidden, asleep=True)
        mark = ViewChoice(task="hidden")
        wait_for(lambda: mark not in source.chosen[-4:] and len(source.chosen) > 4, "the hidden tab's rest")
        say(hidden, asleep=False)
        wait_for(lambda: mark in source.chosen[-4:], "its return")


def test_what_does_not_change_is_not_sent_again(port: int, source: Counting) -> None:
    source.stopped.set()
    with enter(port) as line:
        show_token(line, TOKEN)
        hear(line)
        looked = source.looks
        wait_for(lambda: source.looks > looked + 3, "some looks")
        with pytest.raises(TimeoutError):
            line.recv(0)


def test_a_defect_is_said_on_the_page_and_the_page_lives(port: int) -> None:
    with enter(port) as line:
        show_token(line, TOKEN)
        hear(line)
        say(line, choose={"run": "defect"})
        while "is" not in (told := hear(line)):
            pass
        assert "please report it" in told["is"]["note"]
        say(line, choose={"run": ""})
        while "is" not in (told := hear(line)):
            pass
        assert told["is"]["note"] == ""


def test_too_many_pages_are_told_so(port: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_WATCHERS):
            line = stack.enter_context(enter(port))
            show_token(line, TOKEN)
            hear(line)
        late = stack.enter_context(enter(port))
        show_token(late, TOKEN)
        with pytest.raises(ConnectionClosed) as closed:
            late.recv(PATIENCE_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == TOO_MANY


def test_a_long_message_ends_the_connection(port: int) -> None:
    with enter(port) as line:
        show_token(line, TOKEN)
        hear(line)
        say(line, choose={"task": 10_000 * "x"})
        with pytest.raises(ConnectionClosed):
            deque(iter(lambda: line.recv(PATIENCE_S), None))


def test_the_port_is_on_this_machine_alone(port: int) -> None:
    table = Path("/proc/net/tcp").read_text().split("\n")[1:]
    listening = [line.split()[1] for line in table if line and line.split()[3] == "0A"]
    assert {address for address in listening if address.endswith(f":{port:04X}")} == {f"0100007F:{port:04X}"}


def test_a_unix_socket_serves_the_same_and_is_private(tmp_path: Path, source: Counting) -> None:
    path = tmp_path / "page.sock"
    with serving(open_socket(path), source):
        assert path.stat().st_mode & 0o077 == 0
        with unix_connect(str(path), uri="ws://localhost:9999/socket", origin="http://localhost:9999") as line:
            show_token(line, TOKEN)
            assert hear(line)["is"]["place"] == SECRET


def test_a_port_that_another_program_has_is_taken(port: int) -> None:
    with refused("port.taken", port=port):
        open_port(port)


def test_a_port_that_nobody_has_and_that_cannot_be_had_is_not_called_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("viewer.server.sockets.socket.socket.bind", refuse)
    with refused("port.not-opened", port=80, why="Permission denied"):
        open_port(80)
