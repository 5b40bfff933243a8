"""What waits for one page: at most one entry an agent, the newest. Nothing piles up where a page is slow or gone."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from viewer.live.choice import AgentNews, LiveChoice, SceneFile, StageNews
from viewer.live.scenes import Scene

#: Bytes of agents that a page has not said to have; beyond, the line is slow, and what comes meanwhile is left out.
#: So many messages an agent, too: a browser that draws slowly has some 0.6 s before it, never more.
UNSEEN_BYTES, UNSEEN_MESSAGES = 64 * 1024, 3
#: A page keeps the last so many (`SCENES` of static/tiles.js).
SCENES_OF_A_PAGE = 16
News = StageNews | SceneFile | AgentNews


class Mailbox:
    """Of one page. `changed`: the hub's lock. `run`: which run it chose, as in `ViewChoice`; None: it has not said yet;
    `asleep`: hidden.
    """

    def __init__(self, changed: threading.Condition, run: str | None = "") -> None:
        self._changed = changed
        self.choice, self.run = LiveChoice(), run
        self.asleep = self.gone = False
        self._stage: dict[str, Any] | None = None
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

    def put_stage(self, value: dict[str, Any]) -> None:
        """What tiles there are now. What waits of agents that have none any more, or of another run, is thrown away."""
        if self._stage is not None and self._stage.get("run") != value.get("run"):
            self._batches.clear()
            self._scenes.clear()
        self._stage = value
        shown = {tile["slot"] for tile in value["tiles"]}
        self._batches = {slot: one for slot, one in self._batches.items() if slot in shown}

    def leave_for(self, value: dict[str, Any]) -> None:
        """The page went to a run without agents: those of the run before leave it. `value`: a stage without tiles."""
        if self._stage is not None and self._stage.get("run") != value["run"]:
            self.put_stage(value)

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
        if self._stage is not None and self._stage != self._told:
            self._told = self._stage
            return StageNews(self._stage)
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
        is_new = self._stage is not None and self._stage != self._told
        return self.gone or is_new or (bool(self._scenes or self._batches) and self._has_credit())

    def _has_credit(self) -> bool:
        agents = len(self._stage["tiles"]) if self._stage is not None else 1
        few = len(self._unseen) < UNSEEN_MESSAGES * max(1, agents)
        return not self._unseen or (few and sum(self._unseen.values()) < UNSEEN_BYTES)


def _size(news: News) -> int:
    if isinstance(news, SceneFile):
        return len(news.data)
    return sum(len(batch.body) + 200 for batch in news.batches) if isinstance(news, AgentNews) else 0
