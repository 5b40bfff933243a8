"""What one page wants to see of the agents, what reaches it, and what waits for it.

At most one entry an agent waits, the newest: nothing piles up where a page is slow or gone.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from anchorleg.live.wanted import ANY, MOST_LANES, SHOWN_LANE
from viewer.live.scenes import Scene

#: Where neither the user nor the run says how many agents are shown.
TOP_K = 2
#: Of a tile's canvas, in pixels of the page.
WIDTH, HEIGHT = 480, 360
#: Bytes of agents that a page has not said to have; beyond, the line is slow, and what comes meanwhile is left out.
#: So many messages an agent, too: a browser that draws slowly has some 0.6 s before it, never more.
UNSEEN_BYTES, UNSEEN_MESSAGES = 64 * 1024, 3
#: A page keeps the last so many (`SCENES` of static/tiles.js).
SCENES_OF_A_PAGE = 16

_Slot = Annotated[int, Field(ge=0, lt=2**31)]
_Lane = Annotated[str, Field(pattern=f"^({SHOWN_LANE.pattern})$")]


class LiveChoice(BaseModel):
    """`on`: agents are shown at all. `top`: how many, None: as the run says. `pins`: slots that stay; `lanes`: (slot,
    lane) where the user picked a task, or a contributor's agents. Frozen, and so a key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: bool = True
    top: Annotated[int, Field(ge=1, le=MOST_LANES)] | None = None
    pins: Annotated[tuple[_Slot, ...], Field(max_length=MOST_LANES)] = ()
    lanes: Annotated[tuple[tuple[_Slot, _Lane], ...], Field(max_length=16)] = ()

    def lane_of(self, slot: int) -> str:
        """The lane that is shown of a slot."""
        return dict(self.lanes).get(slot, ANY)


class CheckedBatch(NamedTuple):
    """One batch that was checked: `anchorleg.live.batches`."""

    kind: int
    header: dict[str, Any]
    body: bytes


class AgentNews(NamedTuple):
    """News of one agent: what came since the last look, oldest first."""

    slot: int
    lane: str
    batches: tuple[CheckedBatch, ...]


class SceneFile(NamedTuple):
    """A scene, as it lies on the disk."""

    sha256: str
    data: bytes


class AgentsShown(NamedTuple):
    """Which tiles there are, and what is said of each: `Hub` has the fields."""

    value: dict[str, Any]


News = AgentsShown | SceneFile | AgentNews


class Mailbox:
    """Of one page. `changed`: the hub's lock. `run`: which run it chose, as in `ViewChoice`; None: it has not said yet;
    `asleep`: hidden.
    """

    def __init__(self, changed: threading.Condition, run: str | None = "") -> None:
        self._changed = changed
        self.choice, self.run = LiveChoice(), run
        self.asleep = self.gone = False
        self._shown: dict[str, Any] | None = None
        self._told: dict[str, Any] | None = None
        self._batches: dict[int, AgentNews] = {}
        self._scenes: dict[str, Scene] = {}
        self._sent_scenes: list[str] = []
        self._unseen: dict[int, int] = {}
        self._number = 0

    @property
    def is_watching(self) -> bool:
        """Whether anything is to be asked for or read for it. Called with the lock."""
        return self.choice.on and not self.asleep and not self.gone

    # --- the hub's side, with the lock ----------------------------------------------------------------------------

    def put_shown(self, value: dict[str, Any]) -> None:
        """What tiles there are now. What waits of agents that have none any more, or of another run, is thrown away."""
        if self._shown is not None and self._shown.get("run") != value.get("run"):
            self._batches.clear()
            self._scenes.clear()
        self._shown = value
        slots = {tile["slot"] for tile in value["tiles"]}
        self._batches = {slot: one for slot, one in self._batches.items() if slot in slots}

    def leave_for(self, value: dict[str, Any]) -> None:
        """The page went to a run without agents: those of the run before leave it. `value`: without tiles."""
        if self._shown is not None and self._shown.get("run") != value["run"]:
            self.put_shown(value)

    def put_batches(self, news: AgentNews, scenes: dict[str, Scene]) -> None:
        """News of one agent: what waited of it is thrown away. `scenes`: those that its ring named."""
        self._batches[news.slot] = news
        for batch in news.batches:
            name = batch.header.get("scene")
            if name in scenes and name not in self._sent_scenes:
                self._scenes[name] = scenes[name]

    def waiting(self) -> int:
        """How many agents' news wait."""
        return len(self._batches)

    def forget(self) -> None:
        """Nobody looks: what waits grows old."""
        self._batches.clear()
        self._unseen.clear()

    # --- the page's side ------------------------------------------------------------------------------------------

    def take(self, timeout_s: float | None = None) -> tuple[int, News] | None:
        """The next thing to send, with its number; waits for it. None: the page is gone, or the time is over."""
        with self._changed:
            self._changed.wait_for(partial(self._has_some), timeout_s)
            if self.gone:
                return None
            news = self._next()
            if news is None:
                return None
            self._number += 1
            size = _size(news)
            if size:
                self._unseen[self._number] = size
            return self._number, news

    def seen(self, number: object) -> None:
        """The page has everything up to this number."""
        with self._changed:
            if type(number) is int:
                self._unseen = {one: size for one, size in self._unseen.items() if one > number}
                self._changed.notify_all()

    def _next(self) -> News | None:
        if self._shown is not None and self._shown != self._told:
            self._told = self._shown
            return AgentsShown(self._shown)
        if not self._has_credit():
            return None
        if self._scenes:
            sha256, scene = self._scenes.popitem()
            self._sent_scenes = [*self._sent_scenes, sha256][-SCENES_OF_A_PAGE:]
            return SceneFile(sha256, scene.data)
        if self._batches:
            return self._batches.pop(next(iter(self._batches)))
        return None

    def _has_some(self) -> bool:
        is_new = self._shown is not None and self._shown != self._told
        return self.gone or is_new or (bool(self._scenes or self._batches) and self._has_credit())

    def _has_credit(self) -> bool:
        agents = len(self._shown["tiles"]) if self._shown is not None else 1
        few = len(self._unseen) < UNSEEN_MESSAGES * max(1, agents)
        return not self._unseen or (few and sum(self._unseen.values()) < UNSEEN_BYTES)


def _size(news: News) -> int:
    if isinstance(news, SceneFile):
        return len(news.data)
    return sum(len(batch.body) + 200 for batch in news.batches) if isinstance(news, AgentNews) else 0
