"""Who gets what over HTTP. What is refused gets no byte: no body, and no header that tells of a run."""

from __future__ import annotations

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from viewer.server.http import AGENTS, FILES, STATIC, answer, load_assets, policy

ASSETS = load_assets()
HOST = ("Host", "127.0.0.1:9999")
UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
OWN = ("Origin", "http://127.0.0.1:9999")


def asked(
    path: str = "/", *headers: tuple[str, str], method: str = "GET", allowed: tuple[str, ...] = ()
) -> Response | None:
    return answer(Request(path, Headers(headers), method), ASSETS, allowed)


def is_refused(told: Response | None, status: int) -> bool:
    return told is not None and (told.status_code, told.body) == (status, b"")


def test_the_page_and_each_of_its_files_are_served_with_their_rules() -> None:
    for path in ("/", *(f"/{name}" for name in FILES)):
        told = asked(path, HOST)
        assert told is not None
        assert told.status_code == 200
        assert told.headers["X-Content-Type-Options"] == "nosniff"
        assert told.headers["Referrer-Policy"] == "no-referrer"
        assert told.headers["Content-Security-Policy"] == policy("127.0.0.1:9999")
        assert "Set-Cookie" not in told.headers


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9999", "127.0.0.1.evil.example", "localhost.evil.example",
     "127.0.0.1:9999@evil.example", "10.0.0.7:9999", "0.0.0.0:9999", "[::1]:9999", "",
     "localhost:99999999"],
)  # fmt: skip
def test_another_host_gets_nothing(host: str) -> None:
    assert is_refused(asked("/", ("Host", host)), 403)
    assert is_refused(asked("/socket", ("Host", host), ("Origin", f"http://{host}"), *UPGRADE), 403)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://127.0.0.1:9999", "http://127.0.0.1:9998", "http://localhost:9999", "null", ""],
)
def test_another_origin_gets_nothing(origin: str) -> None:
    assert is_refused(asked("/socket", HOST, ("Origin", origin), *UPGRADE), 403)
    assert is_refused(asked("/", HOST, ("Origin", origin)), 403)


def test_a_websocket_without_an_origin_is_refused() -> None:
    assert is_refused(asked("/socket", HOST, *UPGRADE), 403)


def test_its_own_page_may_open_the_websocket_at_any_port_a_tunnel_ends_at() -> None:
    assert asked("/socket", HOST, OWN, *UPGRADE) is None
    there = (("Host", "localhost:4711"), ("Origin", "http://localhost:4711"))
    assert asked("/socket", *there, *UPGRADE) is None
    assert is_refused(asked("/socket", HOST, OWN), 426)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD", "CONNECT", "TRACE"])
def test_only_get_is_answered(method: str) -> None:
    told = asked("/", HOST, method=method)
    assert is_refused(told, 405)
    assert told is not None
    assert told.headers["Allow"] == "GET"


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/vendor/../../model.py", "//etc/passwd", "/vendor/", "/%2e%2e/x", "/main.js/", "/run.json"],
)
def test_no_other_file_is_served(path: str) -> None:
    assert is_refused(asked(path, HOST), 404)


def test_a_page_elsewhere_may_not_load_our_files_but_a_person_may_follow_a_link() -> None:
    cross = ("Sec-Fetch-Site", "cross-site")
    assert is_refused(asked("/main.js", HOST, cross, ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "script")), 403)
    visit = asked("/", HOST, cross, ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document"))
    assert visit is not None
    assert visit.status_code == 200
    assert is_refused(asked("/", HOST, cross, ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")), 403)


def test_the_page_weighs_little_and_names_no_other_place() -> None:
    assert len(FILES) == 8
    assert sum(len(ASSETS[f"/{name}"].zipped) for name in (*FILES, *AGENTS)) <= 150_000
    ours = [name for name in (*FILES, *AGENTS) if not name.startswith("vendor/")]
    text = "".join((STATIC / name).read_text() for name in ours)
    assert not {
        word
        for word in ("http:", "https:", "innerHTML", "unsafeHTML", "eval(", "document.cookie", "localStorage")
        if word in text.replace('"https:"', "")
    }
    assert " style=" not in text
