"""What is answered over HTTP: the static files of the page, or the way to the websocket. Pure but for `load_assets`.

Files hold no data and need no token; data goes over the websocket alone, behind the token (`viewer.server.watchers`). A
page of a stranger can make a browser ask us, so the browser's own word is checked: `Host` is this machine (a name that
was rebound to 127.0.0.1 is another one), and `Origin`, which a browser always says of a websocket, is that of this very
page. Nothing can be changed over HTTP, so only GET is answered. There are no cookies.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Collection, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

#: Beside the code, in the wheel as in the tree.
STATIC = Path(__file__).resolve().parents[1] / "static"
#: What the page is made of, in the order in which it is needed.
PAGE = "index.html"
FILES = (
    PAGE,
    "page.css",
    "vendor/uPlot.min.css",
    "vendor/uPlot.iife.min.js",
    "vendor/lit-html.js",
    "main.js",
    "panels.js",
    "drawing.js",
)
#: Loaded with the first word of agents at play.
AGENTS = ("tiles.js", "orbit.js", "playback.js", "scene.js")
#: Where the page opens its websocket, relative to itself.
SOCKET = "/socket"
#: Browsers ask for it unasked.
_ICON = "/favicon.ico"
#: A tunnel may end at any port.
_LOCAL = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?")
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
#: Of every answer, refusals too.
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Connection": "close",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"


class Asset(NamedTuple):
    """One file of the page. `kind`: its media type; `zipped`: the same for browsers that take gzip."""

    data: bytes
    kind: str
    zipped: bytes


def load_assets() -> dict[str, Asset]:
    """Path in the URL → file; "/" is the page. Errors: OSError where the installation is not whole."""
    found = {}
    for name in (*FILES, *AGENTS):
        data = (STATIC / name).read_bytes()
        found[f"/{name}"] = Asset(data, _KINDS[Path(name).suffix], gzip.compress(data, 9, mtime=0))
    return {"/": found[f"/{PAGE}"], **found}


def policy(host: str) -> str:
    """The Content-Security-Policy of the page that was asked for as `host` (checked before)."""
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        f"connect-src 'self' ws://{host} wss://{host}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


def answer(request: Request, assets: Mapping[str, Asset], allowed_hosts: Collection[str] = ()) -> Response | None:
    """The answer to a request; None: it may open the websocket. `allowed_hosts`: names (with their port, if any) under
    which a gateway of the site shows the page (`--allow-host`). Refusals have no body: a stranger learns nothing.
    """
    asked = request.headers.get_all
    host, *more = asked("Host") or [""]
    if more or not (_LOCAL.fullmatch(host) or host in allowed_hosts):
        return _refusal(HTTPStatus.FORBIDDEN)
    origins = asked("Origin")
    own = {f"http://{host}", *([f"https://{host}"] if host in allowed_hosts else [])}  # a gateway may speak https
    if len(origins) > 1 or not own.issuperset(origins):
        return _refusal(HTTPStatus.FORBIDDEN)
    # Somebody may follow a link to the page: alone it holds nothing.
    is_visit = asked("Sec-Fetch-Mode") == ["navigate"] and asked("Sec-Fetch-Dest") == ["document"]
    if not {"same-origin", "none"}.issuperset(asked("Sec-Fetch-Site")) and not is_visit:
        return _refusal(HTTPStatus.FORBIDDEN)
    if request.method != "GET":
        return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET")
    path = request.path.partition("?")[0]
    if path == SOCKET:
        if "websocket" not in ",".join(asked("Upgrade")).lower():
            return _refusal(HTTPStatus.UPGRADE_REQUIRED, Upgrade="websocket")
        return None if origins else _refusal(HTTPStatus.FORBIDDEN)
    headers = {"Content-Security-Policy": policy(host)}
    if path == _ICON:
        return _response(HTTPStatus.NO_CONTENT, headers)
    asset = assets.get(path)
    if asset is None:
        return _refusal(HTTPStatus.NOT_FOUND)
    headers |= {"Content-Type": asset.kind, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if any("gzip" in value for value in asked("Accept-Encoding")):
        return _response(HTTPStatus.OK, {**headers, "Content-Encoding": "gzip"}, asset.zipped)
    return _response(HTTPStatus.OK, headers, asset.data)


def _refusal(status: HTTPStatus, **more: str) -> Response:
    return _response(status, {"Content-Security-Policy": _NOTHING, "Cache-Control": "no-store", **more})


def _response(status: HTTPStatus, headers: Mapping[str, str], body: bytes = b"") -> Response:
    every = {**headers, **_ALWAYS, "Content-Length": str(len(body))}
    return Response(status, status.phrase, Headers(every), body)
