"""A laptop's mirror (`syncd watch`), or the shared folder itself: policies and curves.

Slots and jobs are in the run folder, on the cluster; of them it has what the run's controller tells (`board`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.screens.runview import SlotView
from syncd import store
from syncd.laptop.status import MirrorView, PolicyView, read_mirror
from viewer.learning import NOT_A_TRAININGS, Learned, curves_of, evaluation_rows, have_same_tasks, task_rows
from viewer.model import (
    SLOTS_A_PAGE,
    Kind,
    LiveFacts,
    PageSnapshot,
    RunPage,
    RunRow,
    Trouble,
    ViewChoice,
)
from viewer.pacing import Pacer
from viewer.sources.board import Told, as_troubles, board_signature, told_by
from viewer.sources.shared import (
    SHARED_S,
    agent_rows,
    curves_signature,
    learned_of,
    manifests_of,
    policy_rows,
    shown_others,
    task_names,
)
from viewer.troubles import troubles_of_mirror

#: What a mirror has no files of, and where they are.
LACKS = "The state of jobs and slots has not arrived here: use `viewer` on the cluster."
#: What there is none of where `trainer train` was typed by hand.
NO_JOBS = "A training without the orchestrator has no jobs, and its state is unknown."


class MirrorFolder:
    """A `viewer.sources.base.ViewSource` of the mirror `folder`."""

    kind: Kind = "mirror"
    port = None

    def __init__(self, folder: Path, *, alone: bool = False, pacer: Pacer | None = None) -> None:
        """`alone`: it is the shared folder of a training that no orchestrator keeps, on this machine."""
        self.place = str(folder)
        self._alone = alone
        self._folder = folder
        self._pacer = pacer or Pacer()
        self._first: str | None = None

    def look(self, choice: ViewChoice, now: float) -> PageSnapshot:
        """See `ViewSource`."""
        self._pacer.begin_look(choice)
        try:
            view = self._pacer.read("mirror", now, lambda: read_mirror(self._folder, now))
            view = view or read_mirror(self._folder, now)
            return self._snapshot(view, choice, now)
        except OSError as error:
            words = f"{error.filename or self._folder} cannot be read: {error.strerror or error}."
            return PageSnapshot(source=self.kind, place=self.place, note=words)

    def _snapshot(self, view: MirrorView, choice: ViewChoice, now: float) -> PageSnapshot:
        by_run: dict[str, list[PolicyView]] = {}
        for slot in view.slots:
            by_run.setdefault(slot.run_id, []).append(slot)
        for place in store.Shared(self._folder).slots():
            by_run.setdefault(place.run_id, [])
        newest = sorted(by_run, key=lambda run_id: -max((slot.created_at for slot in by_run[run_id]), default=0.0))
        names = _names_of(by_run)
        rows = tuple(_row_of(run_id, names[run_id], by_run[run_id]) for run_id in newest)
        if not newest:
            words = "Nothing is here yet: `syncd watch` fetches the policies and curves of a run."
            return PageSnapshot(source=self.kind, place=self.place, note=words, runs=rows)
        if self._first not in by_run:  # a page does not change its run because another one publishes
            self._first = newest[0]
        run_id = choice.run if choice.run in by_run else self._first
        page = self._page(view, run_id, names[run_id], by_run[run_id], choice, now)
        return PageSnapshot(source=self.kind, place=self.place, runs=rows, run=page)

    def _page(
        self, view: MirrorView, run_id: str, name: str, policies: list[PolicyView], choice: ViewChoice, now: float
    ) -> RunPage:
        places = [place for place in store.Shared(self._folder).slots() if place.run_id == run_id]
        pages = max(1, -(-len(places) // SLOTS_A_PAGE))
        page = min(max(0, choice.slots), pages - 1)
        unreadable: list[Trouble] = []
        learned: list[Learned] = []
        unread = 0
        for place in places[page * SLOTS_A_PAGE : (page + 1) * SLOTS_A_PAGE]:
            try:
                one = self._pacer.read(place.path, curves_signature(place), partial(learned_of, place))
            except (OSError, *NOT_A_TRAININGS) as error:
                unreadable.append(Trouble(words=f"Slot {place.slot}: its curves are damaged ({error}).", urgent=False))
                continue
            if one is None:
                unread += 1
            else:
                learned.append(one)
        manifests = self._pacer.read(
            ("manifests", run_id), int(view.looked_at / SHARED_S), lambda: manifests_of(self._folder, run_id)
        )
        others = self._pacer.read(
            ("others", run_id), int(now / SHARED_S), lambda: shown_others(self._folder, run_id, now)
        )
        publishing = {one.slot: True for one in learned if one.curves.steps}  # curves, if no policy
        steps = {slot.curves.steps[-1] for slot in learned if slot.curves.steps}
        numbers = [place.slot for place in places[page * SLOTS_A_PAGE : (page + 1) * SLOTS_A_PAGE]]
        told = self._board(places, numbers, choice, now)
        apart = any(card.name for card in told.fields.get("cards", {}).values())  # experiments have names
        alike = have_same_tasks(learned) and not apart
        curves = curves_of(learned, choice.measure, choice.task, unread, alike=alike)
        fields: dict[str, Any] = {
            "name": name,
            "executor": "mirror",
            "state": self._state(view),
            "seen_at": max((slot.created_at for slot in policies), default=None),
            "cards": {str(one.slot): _card(one, policies) for one in learned} if steps else {},
            **told.fields,
        }
        troubles = (*fields.pop("troubles", ()), *as_troubles(told), *unreadable)
        return RunPage(
            **fields,
            run_id=run_id,
            folder=view.folder,
            page=page,
            pages=pages,
            slots=len(places),
            curves=curves,
            tasks=task_rows(learned, measure=curves.measure),
            evaluations=evaluation_rows(learned),
            policies=policy_rows(manifests or ()),
            troubles=(*(() if self._alone else troubles_of_mirror(view)), *troubles),
            lacks=() if told.fields else (NO_JOBS if self._alone else LACKS,),
            live=LiveFacts(
                run_id=run_id,
                shared=str(self._folder),
                agents=agent_rows(manifests or (), learned, publishing, {}, others or {}),
                tasks=task_names(manifests or ()),
            ),
        )

    def _board(self, places: list[store.SlotPlace], numbers: list[int], choice: ViewChoice, now: float) -> Told:
        key = ("board", places[0].run_id if places else "", choice.slots, choice.events)
        found = self._pacer.read(key, board_signature(places, now), partial(told_by, places, numbers, choice, now))
        return found or Told({})

    def _state(self, view: MirrorView) -> str:
        if self._alone:
            return "trained alone"
        return view.client.state if view.runs and view.client is not None else "not synced now"


def _card(one: Learned, policies: list[PolicyView]) -> SlotView:
    """What curves and policies tell of a slot: how far it is, and nothing of its job."""
    saved = next((slot.step for slot in policies if slot.slot == one.slot), None)
    step = one.curves.steps[-1] if one.curves.steps else saved
    return SlotView(slot=one.slot, state="known by its curves", step=step, checkpoint_step=saved)


def _names_of(by_run: Mapping[str, Sequence[PolicyView]]) -> dict[str, str]:
    """What each run is called: by its id where its name says not which one it is."""
    names = {run_id: policies[0].run_name if policies else run_id for run_id, policies in by_run.items()}
    often = Counter(names.values())
    return {run_id: name if often[name] == 1 else run_id for run_id, name in names.items()}


def _row_of(run_id: str, name: str, policies: list[PolicyView]) -> RunRow:
    return RunRow(
        run_id=run_id,
        name=name,
        state="mirrored",
        slots=len(policies),
        step=max((slot.step for slot in policies), default=None),
    )
