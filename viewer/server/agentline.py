"""Agents at play over one page's websocket.

::

    page → server   {"live": {…}}   `viewer.live.shown.LiveChoice`
                    {"seen": n}     the page has message n, and all before it
    server → page   text    {"shown": {…}}   which tiles there are, and what is said of each
                    binary  u16 length, big endian | JSON | bytes
                            {"n", "scene": sha256}: the bytes are the scene's file, once a page
                            {"n", "now", "slot", "lane", "batches": [{"kind", "bytes", …header}, …]}: bodies, one after
                            another; headers as `anchorleg.live.batches.checked` has them; `now`: our clock

What is not sent because the line is slow is never sent: the next is the newest.
"""

from __future__ import annotations

import asyncio
import json
import struct
import threading
import time
from concurrent.futures import CancelledError
from typing import Any

from pydantic import ValidationError
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from viewer.live.hub import Hub
from viewer.live.shown import AgentsShown, LiveChoice, News, SceneFile

_LENGTH = struct.Struct(">H")


class AgentLine:
    """One page's. A thread hands what there is to the event loop of `connection`; it sleeps while there is nothing."""

    def __init__(self, hub: Hub, connection: ServerConnection) -> None:
        self._hub, self._connection, self._loop = hub, connection, asyncio.get_running_loop()
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
                sent = self._connection.send(message(*found, time.time()))
                asyncio.run_coroutine_threadsafe(sent, self._loop).result()
        except (ConnectionClosed, RuntimeError, CancelledError):  # the page is gone, or the loop has ended
            self.leave()


def message(number: int, news: News, now: float) -> str | bytes:
    """What is sent of it at `now` (unix s)."""
    if isinstance(news, AgentsShown):
        return json.dumps({"shown": news.value}, separators=(",", ":"), allow_nan=False)
    if isinstance(news, SceneFile):
        return _framed({"n": number, "scene": news.sha256}, news.data)
    batches = news.batches
    while True:
        heads = [{**batch.header, "kind": batch.kind, "bytes": len(batch.body)} for batch in batches]
        value = {"n": number, "now": now, "slot": news.slot, "lane": news.lane, "batches": heads}
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
