"""While somebody looks: who is on screen, asking for them, reading what comes, and handing it to each page.

One thread does it, five times a second, and there is none while nobody looks. It reads rings and scenes of runs, and
writes one file of a run: the wishes (`anchorleg.live.wanted`).
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.live.batches import FACTS
from anchorleg.live.wanted import FILE, MOST_LANES, Asking, Wish, contributor_of, folder_of, ring_name
from viewer.live.scenes import SceneShelf
from viewer.live.shown import HEIGHT, TOP_K, WIDTH, AgentNews, LiveChoice, Mailbox
from viewer.live.streams import RingStream
from viewer.model import AgentRow, LiveFacts, PageSnapshot

LOOK_EVERY_S = 0.2
#: Of a name, what a film's name does without.
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
#: Pictures a second that jobs are asked for.
FPS = 30
#: So much better, in success or as a part of the steps, another agent must be to take the place of one on screen.
BETTER_BY = 0.05
#: At the end, for the thread: the shared folder may hang.
CLOSE_WITHIN_S = 3.0
CROWDED = f"Other pages watch this run, too; at most {MOST_LANES} agents of a run are sent at a time."
NO_AGENTS = "No agents of this run can be shown."
NOT_THERE = "{} shows nothing now."
DEFECT = "Agents cannot be shown ({}): please report it."
NOT_ALLOWED = 'This run sends no agents: set `"stream": true` in its settings.'


@dataclass(frozen=True)
class HubSettings:
    """`top_k`: how many agents, None: as the run says; `width`, `height`: of a tile's canvas in pixels."""

    top_k: int | None = None
    width: int = WIDTH
    height: int = HEIGHT


class AgentPlace(NamedTuple):
    """An agent of a slot, in a lane."""

    shared: Path
    run_id: str
    slot: int
    lane: str


class _View(NamedTuple):
    """What one page, or several that chose the same, has before it."""

    shared: Path
    run_id: str
    choice: LiveChoice

    @property
    def place(self) -> tuple[Path, str]:
        """Which run: copies of one share its id."""
        return self.shared, self.run_id

    def agent(self, slot: int) -> AgentPlace:
        """A slot in the lane that was chosen."""
        return AgentPlace(self.shared, self.run_id, slot, self.choice.lane_of(slot))

    @property
    def wishes(self) -> Path:
        """The file in which the run's agents are asked for."""
        return self.shared / "v1" / "runs" / self.run_id / FILE


#: By `_View.place`.
_Facts = Mapping[tuple[Path, str], LiveFacts]


class Hub:
    """For all pages of a viewer. Thread safe."""

    def __init__(
        self,
        settings: HubSettings = HubSettings(),
        *,
        clock: Callable[[], float] = time.monotonic,
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._settings, self._clock, self._every_s = settings, clock, every_s
        self._changed = threading.Condition()
        self._boxes: list[Mailbox] = []
        self._facts: dict[str, LiveFacts] = {}
        self._shelf = SceneShelf()
        self._on_screen: dict[_View, tuple[int, ...]] = {}
        self._asking: dict[Path, Asking] = {}
        self._notes: dict[Path, str] = {}
        self._streams: dict[AgentPlace, RingStream] = {}
        self._thread: threading.Thread | None = None
        self._stirred = False
        self._closed = False

    # --- who is there ---------------------------------------------------------------------------------------------

    def enter(self, run: str | None = "") -> Mailbox:
        """A page more. `run`: which one it looks at; None: it gets nothing until it says so."""
        with self._changed:
            box = Mailbox(self._changed, run)
            self._boxes.append(box)
            self._stir()
            return box

    def change(self, box: Mailbox, **fields: Any) -> None:
        """Set `choice`, `run` or `asleep` of a page."""
        with self._changed:
            before = box.run
            for name, value in fields.items():
                setattr(box, name, value)
            if not box.is_watching:
                box.forget()
            self._drop_unread(before)
            self._stir()

    def leave(self, box: Mailbox) -> None:
        """A page less."""
        with self._changed:
            box.gone = True
            if box in self._boxes:
                self._boxes.remove(box)
            self._drop_unread(box.run)
            self._stir()

    def _drop_unread(self, run: str | None) -> None:
        """Where all pages of a run are hidden or gone nobody reads of it, and what was seen of it would grow old."""
        if run is not None and not any(one.run == run and not one.asleep for one in self._boxes):
            self._facts.pop(run, None)

    def tell(self, run: str, snapshot: PageSnapshot) -> None:
        """What was seen of the run that pages chose as `run`."""
        facts = snapshot.run.live if snapshot.run is not None else None
        with self._changed:
            self._facts.pop(run, None)
            if facts is not None:
                self._facts[run] = facts  # the last one: as of now, where others chose the same run by another word
            elif snapshot.run is not None:
                for box in self._boxes:
                    if box.run == run:
                        box.leave_for({"run": snapshot.run.run_id, "most": 0, "tiles": [], "note": NO_AGENTS})
            self._stir()

    def close(self) -> None:
        """Withdraw, and wait for it: some seconds, also where the shared folder hangs."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._stir()
        if thread is not None and thread.is_alive():  # Ctrl-C may come before it is
            thread.join(CLOSE_WITHIN_S)

    def _stir(self) -> None:
        self._stirred = True
        if self._thread is None and self._is_needed():
            self._thread = threading.Thread(target=self._run, name="live", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _is_needed(self) -> bool:
        return not self._closed and any(box.is_watching and box.run in self._facts for box in self._boxes)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                needed, self._stirred = self._is_needed(), False
                views = {
                    box: _view(self._facts[box.run], box.choice)
                    for box in self._boxes
                    if box.is_watching and box.run in self._facts
                }
                chosen = {box.run for box in views}
                facts = {(Path(one.shared), one.run_id): one for run, one in self._facts.items() if run in chosen}
            try:
                if needed:
                    self._look(views, facts)
                else:
                    self._rest()
            except Exception as error:  # noqa: BLE001 - whatever it is, tiles must not stand still in silence
                with self._changed:
                    for box in views:
                        box.put_shown({"tiles": [], "note": DEFECT.format(f"{type(error).__name__}: {error}")})
                    self._changed.notify_all()
            with self._changed:
                if not needed and not self._is_needed():
                    self._thread = None
                    return
                self._changed.wait_for(lambda: self._stirred and not self._is_needed(), self._every_s)

    def _rest(self) -> None:
        """Nobody looks."""
        self._streams.clear()
        self._on_screen.clear()
        self._notes.clear()
        for path in list(self._asking):
            self._ask(path, ())

    def _look(self, views: Mapping[Mailbox, _View], facts: _Facts) -> None:
        now = self._clock()
        wanted = list(dict.fromkeys(views.values()))
        self._on_screen = {view: self._next_on_screen(view, facts[view.place]) for view in wanted}
        asked = [one for one in self._ask_for(wanted, facts) if _is_offered(one, facts[one.shared, one.run_id])]
        self._streams = {one: self._streams.get(one) or RingStream(ring_of(one), self._shelf) for one in asked}
        came = {agent: stream.look(now) for agent, stream in self._streams.items()}
        with self._changed:
            for box, view in views.items():
                if box.run not in self._facts:
                    continue  # it went to a run without agents meanwhile
                box.put_shown(self._told(view, facts[view.place]))
                for agent in map(view.agent, self._on_screen[view]):
                    if batches := came.get(agent):
                        news = AgentNews(agent.slot, agent.lane, batches)
                        box.put_batches(news, self._streams[agent].scenes)
            self._changed.notify_all()

    def _next_on_screen(self, view: _View, facts: LiveFacts) -> tuple[int, ...]:
        others = (one for other, one in self._on_screen.items() if other.place == view.place)
        before = self._on_screen.get(view) or next(others, ())  # who changes a choice keeps what is on screen
        return on_screen(before, facts.agents, self._seats(view, facts), view.choice.pins)

    def _seats(self, view: _View, facts: LiveFacts) -> int:
        return view.choice.top or self._settings.top_k or min(facts.top_k or TOP_K, MOST_LANES)

    # --- asking ---------------------------------------------------------------------------------------------------

    def _ask_for(self, wanted: Sequence[_View], facts: _Facts) -> list[AgentPlace]:
        """Ask for what is on screen; what was asked for: four agents of a run at most."""
        by_run: dict[Path, list[AgentPlace]] = {}
        for view in wanted:
            mine = by_run.setdefault(view.wishes, [])
            slots = self._on_screen[view] if facts[view.place].streams is not False else ()
            mine += [agent for slot in slots if (agent := view.agent(slot)) not in mine]
        for path in self._asking.keys() - by_run.keys():
            self._ask(path, ())
        asked = []
        for path, agents in by_run.items():
            del agents[MOST_LANES:]
            self._ask(path, tuple(Wish(agent.slot, agent.lane, FPS) for agent in agents))
            asked += agents
        return asked

    def _ask(self, path: Path, wishes: tuple[Wish, ...]) -> None:
        if path not in self._asking and (not wishes or not path.parent.is_dir()):
            return
        try:
            if self._asking.setdefault(path, Asking(path, self._clock)).renew(wishes):
                self._notes.pop(path, None)  # what could not be written stays said until something was
        except OSError as error:
            self._notes[path] = f"Agents cannot be requested: {path} cannot be written ({error.strerror or error})."
        if not wishes:
            del self._asking[path]

    def _is_beyond(self, view: _View, agent: AgentPlace) -> bool:
        """Whether other viewers' agents take all places."""
        asking = self._asking.get(view.wishes)
        return asking is not None and asking.is_beyond(agent.slot, agent.lane)

    # --- telling --------------------------------------------------------------------------------------------------

    def _told(self, view: _View, facts: LiveFacts) -> dict[str, Any]:
        """What a page is told of its agents; `static/tiles.js` shows it."""
        settings = self._settings
        agents = {one.slot: one for one in facts.agents}
        return {
            "run": facts.run_id,
            "top": self._seats(view, facts),
            "most": MOST_LANES,
            "size": [settings.width, settings.height],
            "tasks": list(facts.tasks),
            "agents": [[one.slot, one.name] for one in facts.agents],
            "note": NOT_ALLOWED if facts.streams is False else "",
            "tiles": [self._tile(view, facts, agents[slot]) for slot in self._on_screen[view]],
        }

    def _tile(self, view: _View, facts: LiveFacts, agent: AgentRow) -> dict[str, Any]:
        shown = view.agent(agent.slot)
        stream = self._streams.get(shown)
        newest = stream.newest if stream is not None else {}
        note = self._notes.get(view.wishes, "")
        if not note and facts.streams is not False and (stream is None or self._is_beyond(view, shown)):
            note = CROWDED
        if (who := contributor_of(shown.lane)) and who not in agent.others:
            note = NOT_THERE.format(who)
        return {
            "slot": agent.slot,
            "name": agent.name,
            "lane": shown.lane,
            "score": agent.success,
            "others": list(agent.others),
            "pinned": agent.slot in view.choice.pins,
            "at_work": agent.at_work,
            "bad": stream.bad if stream is not None else 0,
            "why": stream.why if stream is not None else "",
            "note": note,
            # A training that its frame recorder cannot draw; a program of one's own publishes no policy.
            "undrawn": agent.has_policy and stream is not None and stream.kind == FACTS,
            "film": film_command(shown, newest, facts.tasks) if agent.has_policy else "",
        }


def on_screen(before: Sequence[int], agents: Sequence[AgentRow], seats: int, pins: Sequence[int]) -> tuple[int, ...]:
    """The slots that are shown, each in the place where it was `before`: those that the user pinned, and the best
    others; `seats` in all, and four at most. By the success of the newest policy's evaluation, else by that of training
    episodes, else by the step; those without a job come last. Pure.
    """

    def merit(agent: AgentRow) -> tuple[bool, bool, float, int]:
        score = agent.success if agent.success is not None else agent.training
        stays = agent.slot in before
        worth = (agent.step or 0) * (1 + BETTER_BY * stays) if score is None else score + BETTER_BY * stays
        return not agent.at_work, score is None, -worth, agent.slot

    known = {agent.slot for agent in agents}
    pinned = [slot for slot in dict.fromkeys(pins) if slot in known][:MOST_LANES]
    others = [agent.slot for agent in sorted(agents, key=merit) if agent.slot not in pinned]
    chosen = [*pinned, *others][: max(min(seats, MOST_LANES), len(pinned))]
    stay = [slot for slot in before if slot in chosen]
    return (*stay, *(slot for slot in chosen if slot not in stay))


def ring_of(agent: AgentPlace) -> Path:
    """Where a job, or the server for a contributor, writes what is shown."""
    return agent.shared.joinpath(*folder_of(agent.run_id, agent.slot, agent.lane), ring_name(agent.lane))


def _is_offered(agent: AgentPlace, facts: LiveFacts) -> bool:
    """Whether it is a job's, or of a contributor who may be watched now: what another one left is not read."""
    who = contributor_of(agent.lane)
    return not who or any(who in row.others for row in facts.agents if row.slot == agent.slot)


def _view(facts: LiveFacts, choice: LiveChoice) -> _View:
    return _View(Path(facts.shared), facts.run_id, choice)


def film_command(agent: AgentPlace, header: Mapping[str, Any], tasks: Sequence[str]) -> str:
    """`trainer play …`, for the shell of the viewer's machine: a film of the slot's newest policy. `header`: of the
    newest batch that is shown. Strangers wrote it: where its task is none of `tasks`, the first of them is filmed; ""
    where there is none.
    """
    task = header.get("task")
    if task not in tasks:
        if not tasks:
            return ""
        task = tasks[0]
    name = _ODD.sub("_", f"{agent.run_id.rpartition('-')[0] or agent.run_id}-slot{agent.slot}-{task}")
    policy = [f"{agent.run_id}/{agent.slot}", "--shared-dir", str(agent.shared.absolute())]
    return shlex.join(["trainer", "play", *policy, "--task", str(task), "--out", f"{name}.mp4"])
