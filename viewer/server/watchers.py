"""What goes over one websocket: who each side is, then a picture, then what changes in it; and the choice of who looks.

::

    both ways       `viewer.server.exchange`, first of all; before it is over neither side says anything else
    page → server   {"choose": {…}}         `viewer.model.ViewChoice`
                    {"asleep": true}        the tab is hidden: nothing is read for it, and nothing is sent
    server → page   {"is": SNAPSHOT, "at": …, "now": …}  whole, after each choice
                    {"set": CHANGES, "at": …, "now": …}  `viewer.differences`; without any, as a sign of life

`at`: when the server looked, `now`: when it said so, both by its clock. A picture that grows old is so told as old.

and what `viewer.server.agentline` says of agents at play.

One thread reads for all, while anybody looks, and sleeps otherwise. Each watcher's thread sends the newest picture that
there is when the last one has gone: a slow line gets fewer pictures, never old ones, and nothing waits in a queue.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from pydantic import ValidationError

from viewer.differences import changes
from viewer.live.hub import Hub
from viewer.model import PageSnapshot, ViewChoice
from viewer.pacing import REST
from viewer.server.agentline import AgentLine
from viewer.server.exchange import is_nonce, is_proof, nonce, proof
from viewer.sources.base import ViewSource

#: Between two looks, or so many times the processor time that the last one took: `pacing.REST` is some 2 % of a core,
#: and a sixth of one while a page is still being filled in.
LOOK_EVERY_S = 2.0
FILLING = 5.0
#: For all of the exchange. Whoever has the token says so at once.
ENTER_WITHIN_S = 10.0
#: Who is awake hears something at least this often.
SIGN_S = 5.0
#: Pages of one account, all tabs together; each costs a thread or two.
MOST_WATCHERS = 16
#: Close codes of our own (RFC 6455 leaves 4000 to 4999 to programs).
NO_TOKEN, TOO_MANY, TOO_LATE = 4401, 4429, 4408
#: What a thread of ours that ends by a defect leaves to be said.
READER_DIED = "the thread that reads for the pages has ended ({}): please report it, and start the viewer again."
#: The largest message of a page: a choice has some hundred bytes.
MOST_BYTES = 4096


class PageConnection(Protocol):
    """What is used of `websockets.sync.server.ServerConnection`."""

    def recv(self, timeout: float | None = None) -> str | bytes:
        """The next message. Errors: TimeoutError; whatever says that it is closed."""

    def send(self, message: str | bytes) -> None:
        """Errors: whatever says that it is closed."""

    def close(self, code: int = 1000, reason: str = "") -> None:
        """End it."""


class _Watcher:
    """What one page wants. Changed under the room's lock."""

    def __init__(self) -> None:
        self.choice = ViewChoice()
        self.asked = 0  #: counts choices: each is answered by a whole picture
        self.asleep = False
        self.gone = False


class Room:
    """All who watch `source`. `closed`: what a connection raises when it is over. `died`: called by the reading thread
    when it ends by a defect; `failure` has the sentence.
    """

    def __init__(
        self,
        source: ViewSource,
        token: str,
        closed: type[Exception],
        *,
        hub: Hub | None = None,
        died: Callable[[], None] = lambda: None,
        every_s: float = LOOK_EVERY_S,
        sign_s: float = SIGN_S,
        clock: Callable[[], float] = time.time,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._source, self._token, self._closed = source, token, closed
        self._died, self._sign_s = died, sign_s
        self._every_s, self._clock, self._processor = every_s, clock, processor
        self._hub = hub or Hub()
        self.failure = ""
        self._changed = threading.Condition()
        self._watchers: list[_Watcher] = []
        self._looked: dict[ViewChoice, tuple[float, Any]] = {}
        self._looks = 0
        self._reader: threading.Thread | None = None

    @property
    def looks(self) -> int:
        """How often anything was read: it stands still while nobody watches."""
        return self._looks

    def watch(self, connection: PageConnection, entered: Callable[[], None] = lambda: None) -> None:
        """Serve one connection to its end. `entered`: called once it has shown the token."""
        try:
            is_known = self._exchange(connection)
        except TimeoutError:
            connection.close(TOO_LATE)
            return
        if not is_known:
            connection.close(NO_TOKEN)
            return
        me = _Watcher()
        if not self._enter(me):
            connection.close(TOO_MANY)
            return
        entered()
        agents = AgentLine(self._hub, connection, self._closed)
        listener = threading.Thread(target=self._listen, args=(me, connection, agents), daemon=True)
        listener.start()
        try:
            self._tell(me, connection)
        finally:
            self._leave(me)
            agents.leave()

    def _exchange(self, connection: PageConnection) -> bool:
        """See `viewer.server.exchange`. Errors: TimeoutError."""
        until = time.monotonic() + ENTER_WITHIN_S
        try:
            hello = _parsed(connection.recv(ENTER_WITHIN_S)).get("hello")
            if not is_nonce(hello):
                return False
            answer = nonce()
            connection.send(_text({"nonce": answer, "proof": proof(self._token, "server", str(hello), answer)}))
            said = _parsed(connection.recv(max(0.0, until - time.monotonic())))
        except self._closed:
            return False
        return is_proof(said.get("proof"), proof(self._token, "page", str(hello), answer))

    # --- who is there ---------------------------------------------------------------------------------------------

    def _enter(self, me: _Watcher) -> bool:
        with self._changed:
            if len(self._watchers) >= MOST_WATCHERS:
                return False
            self._watchers.append(me)
            if self._reader is None:
                self._reader = threading.Thread(target=self._read_on, daemon=True)
                self._reader.start()
            self._changed.notify_all()
            return True

    def _leave(self, me: _Watcher) -> None:
        with self._changed:
            me.gone = True
            if me in self._watchers:
                self._watchers.remove(me)
            self._changed.notify_all()

    def _listen(self, me: _Watcher, connection: PageConnection, agents: AgentLine) -> None:
        """Take up what the page says, until it is gone."""
        try:
            while True:
                said = _parsed(connection.recv())
                agents.hear(said)
                with self._changed:
                    if isinstance(asleep := said.get("asleep"), bool):
                        me.asleep = asleep
                    if "choose" in said:
                        me.choice, me.asked = _choice(said["choose"]), me.asked + 1
                    self._changed.notify_all()
                if "choose" in said:
                    agents.look_at(me.choice.run)
        except self._closed:
            self._leave(me)

    # --- reading --------------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - pages would go on showing an old picture as a new one
            with self._changed:
                self.failure = READER_DIED.format(f"{type(error).__name__}: {error}")
            self._died()

    def _read(self) -> None:
        """Look for everybody who is awake; end when nobody is there."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._watchers or any(not one.asleep for one in self._watchers))
                if not self._watchers:
                    self._reader = None
                    self._looked.clear()
                    return
                wanted = {one.choice for one in self._watchers if not one.asleep}
            began, unread = self._processor(), False
            for choice in wanted:
                now = self._clock()
                seen = self._look(choice, now)
                unread = unread or seen.is_unread
                self._hub.tell(choice.run, seen)
                value = seen.model_dump(mode="json")
                with self._changed:
                    self._looked[choice] = (now, value)
                    self._looks += 1
                    self._changed.notify_all()
            with self._changed:
                for choice in self._looked.keys() - wanted:
                    del self._looked[choice]
                rest_s = (self._processor() - began) * (FILLING if unread else REST)
                self._changed.wait_for(partial(self._is_new, wanted), max(self._every_s, rest_s))

    def _look(self, choice: ViewChoice, now: float) -> PageSnapshot:
        """What a defect of ours hides is said on the page, and the others' pages go on."""
        try:
            return self._source.look(choice, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page must not stand still in silence
            words = f"This could not be read ({type(error).__name__}: {error}): please report it."
            return PageSnapshot(source=self._source.kind, place=self._source.place, note=words)

    def _is_new(self, seen: set[ViewChoice]) -> bool:
        """Whether somebody came, left or chose what was not looked at yet. Called with the lock."""
        awake = {one.choice for one in self._watchers if not one.asleep}
        return not self._watchers or bool(awake - seen)

    # --- telling --------------------------------------------------------------------------------------------------

    def _tell(self, me: _Watcher, connection: PageConnection) -> None:
        told: Any = None
        answered = -1
        newest = -1.0
        said_at = time.monotonic()
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(partial(self._has_news, me, newest, answered), self._sign_s)
                    if me.gone:
                        return
                    if me.asleep or me.choice not in self._looked:
                        continue
                    asked = me.asked
                    newest, value = self._looked[me.choice]
                message = {"is": value} if asked != answered else {"set": changes(told, value)}
                told, answered = value, asked
                if message.get("set") != [] or time.monotonic() - said_at >= self._sign_s:
                    connection.send(_text({**message, "at": newest, "now": self._clock()}))
                    said_at = time.monotonic()
        except self._closed:
            return

    def _has_news(self, me: _Watcher, newest: float, answered: int) -> bool:
        known = self._looked.get(me.choice)
        return me.gone or (known is not None and not me.asleep and (known[0] != newest or me.asked != answered))


def _parsed(message: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _choice(value: object) -> ViewChoice:
    """What cannot be a choice is the first one."""
    try:
        return ViewChoice.model_validate(value)
    except ValidationError:
        return ViewChoice()


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
