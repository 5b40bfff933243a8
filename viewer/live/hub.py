"""While somebody looks: who is on screen, asking for them, reading what comes, and handing it to each page.

One thread does it, five times a second, and there is none while nobody looks. It reads rings and scenes of runs, and
writes one file of a run: the wishes (`anchorleg.live.wanted`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.live.wanted import FILE, MOST_LANES, Asking, Wish, contributor_of, folder_of, ring_name
from viewer.live.choice import HEIGHT, HERE, TOP_K, TRAINING, WIDTH, AgentNews, CheckedBatch, LiveChoice
from viewer.live.filming import film_command
from viewer.live.mailbox import Mailbox
from viewer.live.ranking import OnScreen, next_stage, ranked
from viewer.live.scenes import SceneShelf
from viewer.live.streams import RingStream
from viewer.live.troupe import Command, Role, Troupe, usual_command
from viewer.model import AgentRow, LiveFacts, PageSnapshot

LOOK_EVERY_S = 0.2
#: Pictures a second that jobs are asked for.
FPS = 30
#: After so long without a batch of the training, what is played here is shown, and an agent may leave the screen …
SILENT_S = 3.0
#: … and it is played here again.
PLAY_AFTER_S = 20.0
#: At the end, for the thread: longer than a child takes that does not listen (three times `player.END_WITHIN_S`).
CLOSE_WITHIN_S = 10.0
CROWDED = f"Other pages look at this run too; {MOST_LANES} agents of a run are sent at a time."
NO_AGENTS = "No agents of this run can be shown."
NOT_THERE = "{} shows nothing at present."
DEFECT = "Agents cannot be shown ({}): please report it."
NOT_ALLOWED = 'This run shows no agents: they are sent where its settings say `"stream": true`.'


@dataclass(frozen=True)
class HubSettings:
    """`top_k`: how many agents, None: as the run says; `width`, `height`: of a tile's canvas in pixels; `can_play`:
    whether this machine may play itself.
    """

    top_k: int | None = None
    width: int = WIDTH
    height: int = HEIGHT
    can_play: bool = False


class _View(NamedTuple):
    """What one page, or several that chose the same, has before it."""

    shared: Path
    run_id: str
    choice: LiveChoice

    @property
    def place(self) -> tuple[Path, str]:
        """Which run: copies of one share its id."""
        return self.shared, self.run_id

    def role(self, slot: int) -> Role:
        """A slot in the lane that was chosen."""
        return Role(self.shared, self.run_id, slot, self.choice.lane_of(slot))

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
        command: Command = usual_command,
        clock: Callable[[], float] = time.monotonic,
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._settings, self._clock, self._every_s = settings, clock, every_s
        self._changed = threading.Condition()
        self._boxes: list[Mailbox] = []
        self._facts: dict[str, LiveFacts] = {}
        self._shelf = SceneShelf()
        self._troupe = Troupe(self._shelf, command)
        self._stages: dict[_View, OnScreen] = {}
        self._asking: dict[Path, Asking] = {}
        self._notes: dict[Path, str] = {}
        self._streams: dict[Role, RingStream] = {}
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
        """Withdraw, end who plays here, and wait for both: some seconds, also where the shared folder hangs."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._stir()
        if thread is not None:
            thread.join(CLOSE_WITHIN_S)
            if thread.is_alive():
                self._troupe.dismiss()

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
                        box.put_stage({"tiles": [], "note": DEFECT.format(f"{type(error).__name__}: {error}")})
                    self._changed.notify_all()
            with self._changed:
                if not needed and not self._is_needed():
                    self._thread = None
                    return
                self._changed.wait_for(lambda: self._stirred and not self._is_needed(), self._every_s)

    def _rest(self) -> None:
        """Nobody looks."""
        self._streams.clear()
        self._stages.clear()
        self._notes.clear()
        self._troupe.dismiss()
        for path in list(self._asking):
            self._ask(path, ())

    def _look(self, views: Mapping[Mailbox, _View], facts: _Facts) -> None:
        now = self._clock()
        wanted = list(dict.fromkeys(views.values()))
        self._stages = {view: self._staged(view, facts[view.place], now) for view in wanted}
        asked = [role for role in self._ask_for(wanted, facts) if _is_offered(role, facts[role.shared, role.run_id])]
        self._streams = {role: self._streams.get(role) or RingStream(ring_of(role), self._shelf) for role in asked}
        training = {role: stream.look(now) for role, stream in self._streams.items()}
        if self._settings.can_play:
            self._troupe.cast(self._to_play(wanted, facts, now), now)
        here = self._troupe.look(now)
        with self._changed:
            for box, view in views.items():
                if box.run not in self._facts:
                    continue  # it went to a run without agents meanwhile
                box.put_stage(self._told(view, facts[view.place], now))
                for role in map(view.role, self._stages[view].shown):
                    self._hand_over(box, view, role, training.get(role, ()), here.get(role, ()), now)
            self._changed.notify_all()

    def _staged(self, view: _View, facts: LiveFacts, now: float) -> OnScreen:
        others = (stage for other, stage in self._stages.items() if other.place == view.place)
        before = self._stages.get(view) or next(others, OnScreen())  # who changes a choice keeps what is on screen
        return next_stage(
            before,
            facts.agents,
            seats=self._seats(view, facts),
            pins=view.choice.pins,
            now=now,
            may_leave={slot for slot in before.shown if self._may_leave(view.role(slot), now)},
        )

    def _seats(self, view: _View, facts: LiveFacts) -> int:
        return view.choice.top or self._settings.top_k or min(facts.top_k or TOP_K, MOST_LANES)

    def _may_leave(self, role: Role, now: float) -> bool:
        streams = [one for one in (self._streams.get(role), self._troupe.stream(role)) if one is not None]
        playing = [one for one in streams if one.is_fresh(now, SILENT_S)]
        return not playing or any(one.episode_ended for one in playing)

    # --- asking ---------------------------------------------------------------------------------------------------

    def _ask_for(self, wanted: Sequence[_View], facts: _Facts) -> list[Role]:
        """Ask for what is on screen; what was asked for: four agents of a run at most."""
        by_run: dict[Path, list[Role]] = {}
        for view in wanted:
            mine = by_run.setdefault(view.wishes, [])
            shown = [slot for slot in self._stages[view].shown if _asks(view, facts[view.place], slot)]
            mine += [role for slot in shown if (role := view.role(slot)) not in mine]
        for path in self._asking.keys() - by_run.keys():
            self._ask(path, ())
        asked = []
        for path, roles in by_run.items():
            del roles[MOST_LANES:]
            self._ask(path, tuple(Wish(role.slot, role.lane, FPS) for role in roles))
            asked += roles
        return asked

    def _ask(self, path: Path, wishes: tuple[Wish, ...]) -> None:
        if path not in self._asking and (not wishes or not path.parent.is_dir()):
            return
        try:
            if self._asking.setdefault(path, Asking(path, self._clock)).renew(wishes):
                self._notes.pop(path, None)  # what could not be written stays said until something was
        except OSError as error:
            self._notes[path] = f"Agents cannot be asked for: {path} cannot be written ({error.strerror or error})."
        if not wishes:
            del self._asking[path]

    def _is_beyond(self, view: _View, role: Role) -> bool:
        """Whether other viewers' agents take all places."""
        asking = self._asking.get(view.wishes)
        return asking is not None and asking.is_beyond(role.slot, role.lane)

    def _to_play(self, wanted: Sequence[_View], facts: _Facts, now: float) -> list[Role]:
        """Whom this machine should play: the best first."""
        found = []
        for view in wanted:
            shown = self._stages[view].shown
            for agent in ranked([one for one in facts[view.place].agents if one.slot in shown and one.has_policy]):
                role = view.role(agent.slot)
                stream = self._streams.get(role)
                comes = stream is not None and stream.is_fresh(now, PLAY_AFTER_S)
                way = view.choice.way_of(agent.slot)
                if way == HERE or (way == "both" and not comes):
                    found.append(role)
        return found

    # --- telling --------------------------------------------------------------------------------------------------

    def _hand_over(
        self,
        box: Mailbox,
        view: _View,
        role: Role,
        training: tuple[CheckedBatch, ...],
        here: tuple[CheckedBatch, ...],
        now: float,
    ) -> None:
        stream, played = self._streams.get(role), self._troupe.stream(role)
        way = view.choice.way_of(role.slot)
        if way != HERE and stream is not None and stream.is_fresh(now, SILENT_S):
            if training:
                box.put_batches(AgentNews(role.slot, role.lane, TRAINING, training), stream.scenes)
        elif way != TRAINING and played is not None and here:
            box.put_batches(AgentNews(role.slot, role.lane, HERE, here), played.scenes)

    def _told(self, view: _View, facts: LiveFacts, now: float) -> dict[str, Any]:
        """What a page is told of its agents; `static/tiles.js` shows it."""
        settings = self._settings
        agents = {one.slot: one for one in facts.agents}
        return {
            "run": facts.run_id,
            "top": self._seats(view, facts),
            "most": MOST_LANES,
            "size": [settings.width, settings.height],
            "way": view.choice.way,
            "can_play": settings.can_play,
            "tasks": list(facts.tasks),
            "agents": [[one.slot, one.name] for one in facts.agents],
            "note": NOT_ALLOWED if facts.streams is False and not settings.can_play else "",
            "tiles": [self._tile(view, facts, agents[slot], now) for slot in self._stages[view].shown],
        }

    def _tile(self, view: _View, facts: LiveFacts, agent: AgentRow, now: float) -> dict[str, Any]:
        role = view.role(agent.slot)
        stream, played = self._streams.get(role), self._troupe.stream(role)
        streams = [one for one in (stream, played) if one is not None]
        note = self._notes.get(view.wishes, "")
        if not note and _asks(view, facts, agent.slot) and (stream is None or self._is_beyond(view, role)):
            note = CROWDED
        if (who := contributor_of(role.lane)) and who not in agent.others:
            note = NOT_THERE.format(who)
        comes = any(one.is_fresh(now, SILENT_S) for one in streams)
        if not comes and view.choice.way_of(agent.slot) != TRAINING and self._settings.can_play:
            note = self._troupe.why_not(role) or note
        return {
            "slot": agent.slot,
            "name": agent.name,
            "lane": role.lane,
            "score": agent.success,
            "others": list(agent.others),
            "pinned": agent.slot in view.choice.pins,
            "at_work": agent.at_work,
            "playing": played is not None,
            "bad": sum(one.bad for one in streams),
            "why": next((one.why for one in streams if one.why), ""),
            "note": note,
            "film": self._film(view, role, facts, now) if agent.has_policy else "",
        }

    def _film(self, view: _View, role: Role, facts: LiveFacts, now: float) -> str:
        """What makes a film of what the page shows of an agent."""
        stream, played = self._streams.get(role), self._troupe.stream(role)
        if view.choice.way_of(role.slot) != HERE and stream is not None and stream.is_fresh(now, SILENT_S):
            return film_command(role, stream.newest, facts.tasks, is_exact=False)
        return film_command(role, played.newest if played is not None else {}, facts.tasks, is_exact=True)


def ring_of(role: Role) -> Path:
    """Where a job, or the server for a contributor, writes what is shown."""
    return role.shared.joinpath(*folder_of(role.run_id, role.slot, role.lane), ring_name(role.lane))


def _is_offered(role: Role, facts: LiveFacts) -> bool:
    """Whether the role is a job's, or of a contributor who may be watched now: what another one left is not read."""
    who = contributor_of(role.lane)
    return not who or any(who in agent.others for agent in facts.agents if agent.slot == role.slot)


def _view(facts: LiveFacts, choice: LiveChoice) -> _View:
    return _View(Path(facts.shared), facts.run_id, choice)


def _asks(view: _View, facts: LiveFacts, slot: int) -> bool:
    """Whether the agents of a slot are asked for at all."""
    return view.choice.way_of(slot) != HERE and facts.streams is not False
