"""Agents at play over one page's websocket.

::

    page → server   {"live": {…}}   `viewer.live.choice.LiveChoice`
                    {"seen": n}     the page has message n, and all before it
    server → page   text    {"stage": {…}}   which tiles there are, and what is said of each
                    binary  u16 length, big endian | JSON | bytes
                            {"n", "scene": sha256}: the bytes are the scene's file, once a page
                            {"n", "now", "slot", "lane", "way", "batches": [{"kind", "bytes", …header}, …]}: bodies,
                            one after another; headers as `anchorleg.live.batches.checked` has them; `now`: our clock

What is not sent because the line is slow is never sent: the next is the newest.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from typing import Any, Protocol

from pydantic import ValidationError

from viewer.live.choice import LiveChoice, SceneFile, StageNews
from viewer.live.hub import Hub
from viewer.live.mailbox import News

_LENGTH = struct.Struct(">H")


class LiveConnection(Protocol):
    """What is used of `websockets.sync.server.ServerConnection`."""

    def send(self, message: str | bytes) -> None:
        """Errors: whatever says that it is closed."""


class AgentLine:
    """One page's. A thread sends; it sleeps while there is nothing to send. `closed`: what a connection raises when it
    is over.
    """

    def __init__(self, hub: Hub, connection: LiveConnection, closed: type[Exception]) -> None:
        self._hub, self._connection, self._closed = hub, connection, closed
        self._box = hub.enter(None)  # a page that comes back would first be shown another run than its own
        threading.Thread(target=self._tell, name="agents", daemon=True).start()

    def hear(self, said: dict[str, Any]) -> None:
        """Take up what the page says."""
        if isinstance(asleep := said.get("asleep"), bool):
            self._hub.change(self._box, asleep=asleep)
        if "live" in said:
            self._hub.change(self._box, choice=_choice(said["live"]))
        if "seen" in said:
            self._box.seen(said["seen"])

    def look_at(self, run: str) -> None:
        """The page chose that run."""
        if run != self._box.run:
            self._hub.change(self._box, run=run)

    def leave(self) -> None:
        """The page is gone."""
        self._hub.leave(self._box)

    def _tell(self) -> None:
        try:
            while (found := self._box.take()) is not None:
                self._connection.send(message(*found, time.time()))
        except self._closed:
            self.leave()


def message(number: int, news: News, now: float) -> str | bytes:
    """What is sent of it at `now` (unix s)."""
    if isinstance(news, StageNews):
        return json.dumps({"stage": news.value}, separators=(",", ":"), allow_nan=False)
    if isinstance(news, SceneFile):
        return _framed({"n": number, "scene": news.sha256}, news.data)
    batches = news.batches
    while True:
        heads = [{**batch.header, "kind": batch.kind, "bytes": len(batch.body)} for batch in batches]
        value = {"n": number, "now": now, "slot": news.slot, "lane": news.lane, "way": news.way, "batches": heads}
        try:
            return _framed(value, b"".join(batch.body for batch in batches))
        except struct.error:  # headers of strangers may be long: the newest is what matters
            batches = batches[1:]


def _framed(value: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return _LENGTH.pack(len(text)) + text + data


def _choice(value: object) -> LiveChoice:
    """What cannot be a choice is the first one."""
    try:
        return LiveChoice.model_validate(value)
    except ValidationError:
        return LiveChoice()
