"""What goes over one websocket: a picture, then what changes in it; and the choice of who looks.

::

    page → server   {"token": TOKEN}        first of all; before it the server says nothing
                    {"choose": {…}}         `viewer.model.ViewChoice`
                    {"asleep": true}        the tab is hidden: nothing is read for it, and nothing is sent
    server → page   {"is": SNAPSHOT, "at": …, "now": …}  whole, after each choice
                    {"set": CHANGES, "at": …, "now": …}  `changes`; without any, as a sign of life

`at`: when the server looked, `now`: when it said so, both by its clock. A picture that grows old is so told as old.

and of agents at play::

    page → server   {"live": {…}}   `viewer.live.shown.LiveChoice`
                    {"seen": n}     the page has message n, and all before it
    server → page   text    {"shown": {…}}   which tiles there are, and what is said of each
                    binary  u16 length, big endian | JSON | bytes
                            {"n", "scene": sha256}: the bytes are the scene's file, once a page
                            {"n", "now", "slot", "lane", "batches": [{"kind", "bytes", …header}, …]}: bodies, one after
                            another; headers as `anchorleg.live.batches.checked` has them; `now`: our clock

One task reads for all, in a thread, while anybody looks. Each page's task sends the newest picture that there is when
the last one has gone: a slow line gets fewer pictures, never old ones, and nothing waits in a queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from viewer.errors import ViewerError
from viewer.live.hub import Hub
from viewer.live.shown import AgentsShown, LiveChoice, News, SceneFile
from viewer.model import PageSnapshot, ViewChoice, ViewSource
from viewer.pacing import REST

#: Between two looks, or so many times the processor time that the last one took: `pacing.REST` is some 2 % of a core,
#: and a sixth of one while a page is still being filled in.
LOOK_EVERY_S = 2.0
FILLING = 5.0
#: For the token: a page sends it at once.
ENTER_WITHIN_S = 5.0
#: Who is awake hears something at least this often.
SIGN_S = 5.0
#: Pages of one account, all tabs together; each costs a thread.
MOST_WATCHERS = 16
#: Close codes of our own (RFC 6455 leaves 4000 to 4999 to programs).
NO_TOKEN, TOO_MANY, TOO_LATE = 4401, 4429, 4408
#: The largest message of a page: a choice has some hundred bytes.
MOST_BYTES = 4096

_LENGTH = struct.Struct(">H")

Choice = TypeVar("Choice", ViewChoice, LiveChoice)


class _Watcher:
    """What one page wants."""

    def __init__(self) -> None:
        self.choice = ViewChoice()
        self.asked = 0  #: counts choices: each is answered by a whole picture
        self.asleep = False


class _Look(NamedTuple):
    """What was seen at `at` (unix s), as JSON; `is_unread`: more of it comes. `took_s`: of a processor."""

    at: float
    value: Any
    is_unread: bool
    took_s: float


class Room:
    """All who watch `source`. `over`: set by who ends it, and by a defect of the reading task, whose `failure` says
    which. For one event loop.
    """

    def __init__(
        self,
        source: ViewSource,
        token: str,
        *,
        hub: Hub | None = None,
        every_s: float = LOOK_EVERY_S,
        sign_s: float = SIGN_S,
        clock: Callable[[], float] = time.time,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._source, self._token, self._hub = source, token, hub or Hub()
        self._every_s, self._sign_s, self._clock, self._processor = every_s, sign_s, clock, processor
        self.over = asyncio.Event()
        self.failure: ViewerError | None = None
        self._news = asyncio.Event()  # set, and replaced, whenever anything changes
        self._watchers: list[_Watcher] = []
        self._looked: dict[ViewChoice, tuple[float, Any]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def watch(self, connection: ServerConnection) -> None:
        """Serve one connection to its end."""
        why_not = await self._refusal(connection)
        if why_not is not None:
            await connection.close(why_not)
            return
        me = _Watcher()
        self._watchers.append(me)
        self._reader = self._reader or asyncio.create_task(self._read())
        agents = AgentLine(self._hub, connection)
        telling = asyncio.create_task(self._tell(me, connection))
        try:
            await self._listen(me, connection, agents)
        finally:
            telling.cancel()
            self._watchers.remove(me)
            self._stir()
            agents.leave()

    async def _refusal(self, connection: ServerConnection) -> int | None:
        """The close code of who has no token, or for whom there is no room; None: it may enter."""
        try:
            async with asyncio.timeout(ENTER_WITHIN_S):
                said = _parsed(await connection.recv()).get("token")
        except TimeoutError:
            return TOO_LATE
        except ConnectionClosed:
            return NO_TOKEN
        if not isinstance(said, str) or not hmac.compare_digest(said.encode(errors="replace"), self._token.encode()):
            return NO_TOKEN
        return TOO_MANY if len(self._watchers) >= MOST_WATCHERS else None

    async def _listen(self, me: _Watcher, connection: ServerConnection, agents: AgentLine) -> None:
        """Take up what the page says, until it is gone."""
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                said = _parsed(message)
                agents.hear(said)
                if isinstance(asleep := said.get("asleep"), bool):
                    me.asleep = asleep
                if "choose" in said:
                    me.choice, me.asked = _choice(ViewChoice, said["choose"]), me.asked + 1
                    agents.look_at(me.choice.run)
                self._stir()

    # --- waiting --------------------------------------------------------------------------------------------------

    def _stir(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _until(self, holds: Callable[[], bool], within_s: float | None = None) -> None:
        """Wait until it does, so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not holds():
                    await self._news.wait()

    # --- reading --------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Look for everybody who is awake; end when nobody is there."""
        try:
            while self._watchers:
                await self._until(lambda: not self._watchers or bool(self._awake()))
                wanted, took_s, unread = self._awake(), 0.0, False
                for choice in wanted:
                    seen = await _in_thread(partial(self._look, choice))
                    if isinstance(seen, BaseException):
                        # pages would go on showing an old picture as a new one
                        self.failure = ViewerError("page.reader-died", kind=type(seen).__name__, why=seen)
                        self.over.set()
                        return
                    self._looked[choice] = (seen.at, seen.value)
                    took_s, unread = took_s + seen.took_s, unread or seen.is_unread
                    self._stir()
                for choice in self._looked.keys() - wanted:
                    del self._looked[choice]
                rest_s = took_s * (FILLING if unread else REST)
                await self._until(partial(self._is_new, wanted), max(self._every_s, rest_s))
        finally:
            self._reader = None
            self._looked.clear()

    def _look(self, choice: ViewChoice) -> _Look:
        """What a defect of ours hides is said on the page, and the others' pages go on."""
        now, began = self._clock(), self._processor()
        try:
            seen = self._source.look(choice, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page must not stand still in silence
            words = f"This page's data could not be read ({type(error).__name__}: {error}): please report it."
            seen = PageSnapshot(source=self._source.kind, place=self._source.place, note=words)
        self._hub.tell(choice.run, seen)
        return _Look(now, seen.model_dump(mode="json"), seen.is_unread, self._processor() - began)

    def _awake(self) -> set[ViewChoice]:
        return {one.choice for one in self._watchers if not one.asleep}

    def _is_new(self, seen: set[ViewChoice]) -> bool:
        """Whether somebody left, or chose what was not looked at yet."""
        return not self._watchers or bool(self._awake() - seen)

    # --- telling --------------------------------------------------------------------------------------------------

    async def _tell(self, me: _Watcher, connection: ServerConnection) -> None:
        told, answered, newest, said_at = None, -1, -1.0, time.monotonic()
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._until(partial(self._has_news, me, newest, answered), self._sign_s)
                if me.asleep or me.choice not in self._looked:
                    continue
                asked = me.asked
                newest, value = self._looked[me.choice]
                message = {"is": value} if asked != answered else {"set": changes(told, value)}
                told, answered = value, asked
                if message.get("set") != [] or time.monotonic() - said_at >= self._sign_s:
                    await connection.send(_text({**message, "at": newest, "now": self._clock()}))
                    said_at = time.monotonic()

    def _has_news(self, me: _Watcher, newest: float, answered: int) -> bool:
        known = self._looked.get(me.choice)
        return known is not None and not me.asleep and (known[0] != newest or me.asked != answered)


def changes(old: Any, new: Any) -> list[list[Any]]:
    """What makes `new` of `old`: `[path, value]`, or `[path]` for what is gone; a path is the keys from the top. Empty
    where they are equal. Only objects are looked into: a list that differs is sent whole.
    """
    found: list[list[Any]] = []
    _compare(old, new, [], found)
    return found


def _compare(old: Any, new: Any, path: list[str], found: list[list[Any]]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        found.extend([[*path, key]] for key in old if key not in new)
        for key, value in new.items():
            if key not in old:
                found.append([[*path, key], value])
            else:
                _compare(old[key], value, [*path, key], found)
    elif old != new or type(old) is not type(new):
        found.append([path, new])


async def _in_thread(look: Callable[[], _Look]) -> _Look | BaseException:
    """What it finds, or ends with. A network folder may hang it for ever: nobody waits for that thread at the end."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[_Look | BaseException] = loop.create_future()

    def tell(result: _Look | BaseException) -> None:
        if not found.done():
            found.set_result(result)

    def run() -> None:
        result: _Look | BaseException
        try:
            result = look()
        except BaseException as error:  # noqa: BLE001 - for who waits
            result = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, result)

    threading.Thread(target=run, name="reader", daemon=True).start()
    return await found


def _parsed(message: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _choice(kind: type[Choice], value: object) -> Choice:
    """What cannot be a choice is the first one."""
    try:
        return kind.model_validate(value)
    except ValidationError:
        return kind()


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# --- agents at play ---------------------------------------------------------------------------------------------------


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
            self._hub.change(self._box, choice=_choice(LiveChoice, said["live"]))
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
        return _text({"shown": news.value})
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
    text = _text(value).encode()
    return _LENGTH.pack(len(text)) + text + data
