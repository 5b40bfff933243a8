"""Who gets what over HTTP: a request in, an answer out, or the way to the websocket. Pure.

Files hold no data and need no token; data goes over the websocket alone, behind its first message
(`viewer.server.watchers`). A page of a stranger can make a browser ask us, so the browser's own word is checked: `Host`
is this machine (a name that was rebound to 127.0.0.1 is another one), and `Origin`, which a browser always says of a
websocket, is that of this very page. Nothing can be changed over HTTP, so only GET is answered. There are no cookies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from viewer.server.assets import Asset

#: Where the page opens its websocket, relative to itself.
SOCKET = "/socket"
#: Browsers ask for it unasked.
_ICON = "/favicon.ico"
#: A tunnel may end at any port.
_LOCAL = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?")

#: Of every answer, refusals too.
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"


@dataclass(frozen=True)
class HttpRequest:
    """What a browser asks. `headers`: (name, value), as they came, several of one name too."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]] = ()

    def all(self, name: str) -> list[str]:
        """Every value of a header, whatever the case of its name."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass(frozen=True)
class HttpAnswer:
    """What it gets. Refusals have no body: a stranger learns nothing, not even what this is."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def policy(host: str) -> str:
    """The Content-Security-Policy of the page that was asked for as `host` (checked before)."""
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        f"connect-src 'self' ws://{host} wss://{host}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


def answer(request: HttpRequest, assets: Mapping[str, Asset], allowed_hosts: Collection[str] = ()) -> HttpAnswer | None:
    """The answer to a request; None: it may open the websocket. `allowed_hosts`: names (with their port, if any) under
    which a gateway of the site shows the page (`--allow-host`).
    """
    hosts = request.all("Host")
    if len(hosts) != 1 or not (_LOCAL.fullmatch(hosts[0]) or hosts[0] in allowed_hosts):
        return _refusal(403)
    host = hosts[0]
    origins = request.all("Origin")
    if any(origin not in _origins(host, allowed_hosts) for origin in origins) or len(origins) > 1:
        return _refusal(403)
    if any(site not in {"same-origin", "none"} for site in request.all("Sec-Fetch-Site")) and not _is_visit(request):
        return _refusal(403)
    if request.method != "GET":
        return _refusal(405, {"Allow": "GET"})
    path = request.path.partition("?")[0]
    if path == SOCKET:
        if "websocket" not in ",".join(request.all("Upgrade")).lower():
            return _refusal(426, {"Upgrade": "websocket", "Connection": "close"})
        return None if origins else _refusal(403)
    if path == _ICON:
        return HttpAnswer(204, _with_rules({}, host))
    asset = assets.get(path)
    if asset is None:
        return _refusal(404)
    headers = {"Content-Type": asset.kind, "Cache-Control": "no-cache", "ETag": asset.tag, "Vary": "Accept-Encoding"}
    if asset.tag in request.all("If-None-Match"):
        return HttpAnswer(304, _with_rules(headers, host))
    zipped = any("gzip" in value for value in request.all("Accept-Encoding"))
    body = asset.zipped if zipped else asset.data
    headers |= {"Content-Encoding": "gzip"} if zipped else {}
    return HttpAnswer(200, _with_rules(headers, host), body)


def _is_visit(request: HttpRequest) -> bool:
    """Somebody follows a link to the page: harmless, since the page alone holds nothing."""
    return request.all("Sec-Fetch-Mode") == ["navigate"] and request.all("Sec-Fetch-Dest") == ["document"]


def _origins(host: str, allowed_hosts: Collection[str]) -> set[str]:
    """A gateway may speak https to the browser; on this machine nobody does."""
    return {f"http://{host}"} | ({f"https://{host}"} if host in allowed_hosts else set())


def _refusal(status: int, more: Mapping[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(
        status, {**_ALWAYS, "Content-Security-Policy": _NOTHING, "Cache-Control": "no-store", **(more or {})}
    )


def _with_rules(headers: Mapping[str, str], host: str) -> dict[str, str]:
    return {**headers, **_ALWAYS, "Content-Security-Policy": policy(host)}
