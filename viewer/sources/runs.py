"""Runs by their folders, on a machine that sees them: the login node, or wherever a local run is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from anchorleg.job import attempt_numbers
from anchorleg.words import printable
from orchestrator.errors import AnchorlegError
from orchestrator.run.rundir import Run, RunDir, load_run, shared_dir
from orchestrator.screens.goodput import Times, account, total
from orchestrator.screens.jobtimes import slot_facts
from orchestrator.screens.reading import run_view
from orchestrator.screens.runview import RunEvents, RunView, SlotFacts
from syncd.store import Manifest
from trainer.history.read import EVALUATIONS, METRICS, read_evaluations, rows_of
from viewer.learning import NOT_A_TRAININGS, Learned, curves_of, evaluation_rows, learned_from, learned_until, task_rows
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
from viewer.sources.board import MOST, events_of, history_of, run_fields, signature_of_events
from viewer.sources.shared import (
    SHARED_S,
    agent_rows,
    contributors_of,
    manifests_of,
    policy_rows,
    shown_others,
    slots_of,
    task_names,
)
from viewer.timeline import row_of

#: What no history is kept of.
LACKS = "This is an earlier moment. Slots, policies, contributors, troubles and goodput are shown only for the present."
#: A line of the list of runs is looked at so often.
ROW_S = 10.0
#: What a job that runs tells of itself (its first step, a request to hand over) is read so often.
LIVE_S = 3.0
#: It grows all the time, and nobody reads its seconds.
GOODPUT_S = 10.0


class RunFolders:
    """A `viewer.sources.base.ViewSource`. `folders`: of the runs, the first is shown first; `place`: their name."""

    kind: Kind = "runs"

    def __init__(
        self,
        folders: Sequence[Path],
        place: str,
        *,
        pacer: Pacer | None = None,
        find: Callable[[], Sequence[Path]] | None = None,
    ) -> None:
        """`find`: asked again from time to time, where runs may come and go; what it does not find any more is gone."""
        self.place = place
        self._find = find or (lambda: folders)
        self._folders = [RunDir(folder) for folder in folders]
        self._pacer = pacer or Pacer()
        self._ids: dict[Path, str] = {}
        self._first: RunDir | None = None

    @property
    def port(self) -> int | None:
        """See `ViewSource`."""
        try:
            told = load_run(self._folders[0]).config.training.written.get("stream_port")
        except (AnchorlegError, OSError, IndexError):
            return None
        return told if len(self._folders) == 1 and isinstance(told, int) else None

    def look(self, choice: ViewChoice, now: float) -> PageSnapshot:
        """See `ViewSource`."""
        self._pacer.begin_look(choice)
        found = self._pacer.read("folders", int(now / ROW_S), self._find)
        if found is not None and list(found) != [one.path for one in self._folders]:
            self._folders = [RunDir(folder) for folder in found]
        chosen = next((one for one in self._folders if choice.run in {str(one.path), self._ids.get(one.path)}), None)
        if chosen is None and choice.run:  # asked for before its line was read
            chosen = next((one for one in self._folders if self._row(one, now).run_id == choice.run), None)
        if chosen is None and choice.run:
            rows = self._rows(now)
            if all(row.state for row in rows):
                words = (
                    f"The run {printable(choice.run, 80)} no longer exists here{': choose another' if rows else ''}."
                )
                return PageSnapshot(source=self.kind, place=self.place, note=words, runs=rows)
        chosen = chosen or self._default()
        page, note = self._page(chosen, choice, now) if chosen is not None else (None, "There is no run here.")
        rows = self._rows(now)
        for folder, row in zip(self._folders, rows, strict=True):
            if page is not None and folder is chosen:
                page = page.model_copy(update={"run_id": row.run_id})
        return PageSnapshot(source=self.kind, place=self.place, note=note, runs=rows, run=page)

    def _default(self) -> RunDir | None:
        """The first one, and the same as long as it is there: a page does not change its run because another begins."""
        if self._first is None or self._first.path not in {one.path for one in self._folders}:
            self._first = self._folders[0] if self._folders else None
        return self._first

    # --- the list -------------------------------------------------------------------------------------------------

    def _rows(self, now: float) -> tuple[RunRow, ...]:
        """Of copies of one run, which share its id, each goes by its folder."""
        rows = [self._row(one, now) for one in self._folders]
        count = Counter(row.run_id for row in rows)
        return tuple(
            row
            if count[row.run_id] == 1
            else row.model_copy(update={"run_id": str(one.path), "name": f"{row.name} in {one.path.name}"})
            for one, row in zip(self._folders, rows, strict=True)
        )

    def _row(self, run_dir: RunDir, now: float) -> RunRow:
        row = self._pacer.read(("row", run_dir.path), int(now / ROW_S), lambda: _row_of(run_dir, now))
        if row is None:
            return RunRow(run_id=str(run_dir.path), name=run_dir.path.name)
        self._ids[run_dir.path] = row.run_id
        return row

    # --- one run --------------------------------------------------------------------------------------------------

    def _page(self, run_dir: RunDir, choice: ViewChoice, now: float) -> tuple[RunPage | None, str]:
        try:
            return self._read(run_dir, choice, now), ""
        except AnchorlegError as error:
            return None, str(error)
        except OSError as error:
            return None, f"{error.filename or run_dir.path} cannot be read: {error.strerror or error}."
        except NOT_A_TRAININGS as error:
            return None, f"{run_dir.path} contains something that no run wrote ({type(error).__name__}: {error})."

    def _read(self, run_dir: RunDir, choice: ViewChoice, now: float) -> RunPage:
        path, pacer = run_dir.path, self._pacer
        view = pacer.read(("view", path), now, lambda: run_view(run_dir, now)) or run_view(run_dir, now)
        run = view.source.run if view.source is not None else load_run(run_dir)
        events = pacer.read(("events", path), signature_of_events(run_dir), lambda: events_of(run_dir)) or RunEvents(())
        pages = max(1, -(-len(view.slots) // SLOTS_A_PAGE))
        page = min(max(0, choice.slots), pages - 1)
        shown = view.slots[page * SLOTS_A_PAGE : (page + 1) * SLOTS_A_PAGE]
        numbers = [slot.slot for slot in shown]
        lacks: list[str] = []
        facts, goodput = self._times(run, run_dir, view, numbers, events, now, lacks)
        learned, unread = self._learned(run, run_dir, numbers, lacks)
        shared = shared_dir(run.config, run.folder, run_dir)
        manifests = self._shared(("policies", path), now, lambda: manifests_of(shared, run.run_id), lacks)
        others = self._pacer.read(("others", path), int(now / SHARED_S), lambda: shown_others(shared, run.run_id, now))
        shows = None  # a program of one's own has a folder there once it has asked whether somebody looks
        if run.config.command is not None:
            shows = self._shared(("shows", path), now, lambda: slots_of(shared, run.run_id), lacks)
        live = _live(run, view, shared, manifests, learned, others or {}, shows)  # of now: pages of the run share it
        begun_at = float(events.all[0]["at"]) if events.all else None
        as_of = None if choice.at is None or begun_at is None else min(max(choice.at, begun_at), now)
        if as_of is not None:
            learned = [learned_until(one, as_of) for one in learned]
        curves = curves_of(learned, choice.measure, choice.task, unread, alike=_are_seeds(run, numbers))
        shares = {number: _share(one, now) for number, one in facts.items()}
        fields = run_fields(view, numbers, facts, shares, events, choice, now)
        if as_of is None:
            who = self._shared(("who", path), now, lambda: contributors_of(shared, now), lacks)
            fields |= {"goodput": goodput, "contributors": who, "policies": policy_rows(manifests)}
            fields["troubles"] += tuple(Trouble(words=words) for words in lacks)
        else:
            told = [event for event in events.all if float(event["at"]) <= as_of]
            fields |= {"state": "earlier", "as_of": as_of, "lacks": (LACKS,), "seen_at": None, "until": None}
            fields |= {"cards": {}, "queue": None, "troubles": (), "controller": ""}
            fields["times"] = {
                str(k): row_of(one, events.of(k), now, None, max(0, choice.jobs), as_of) for k, one in facts.items()
            }
            fields["history"] = history_of(told, max(0, choice.events), as_of)
        return RunPage(
            **fields,
            begun_at=begun_at,
            run_id=view.run_id,
            folder=view.run_dir,
            page=page,
            pages=pages,
            slots=len(view.slots),
            curves=curves,
            tasks=task_rows(learned, measure=curves.measure),
            evaluations=evaluation_rows(learned),
            live=live,
        )

    def _times(
        self,
        run: Run,
        run_dir: RunDir,
        view: RunView,
        numbers: Sequence[int],
        events: RunEvents,
        now: float,
        lacks: list[str],
    ) -> tuple[dict[int, SlotFacts], Times | None]:
        """The facts of the slots `numbers`, as far as they were read, and the run's goodput where all of them were."""
        ledger = view.source.ledger if view.source is not None else None
        known = {slot.index: slot for slot in ledger.slots} if ledger is not None else {}
        found: dict[int, SlotFacts] = {}
        for number in [*numbers, *(slot.slot for slot in view.slots if slot.slot not in set(numbers))]:
            slot = known.get(number)
            if slot is None:
                continue
            over = view.wish != "run" or str(slot.status) != "active" or number >= run.config.slots
            mine = events.of(number)
            living = view.slots[number].job_id is not None or bool(slot.occupied)
            signature: Hashable = (len(mine), over, int(now / LIVE_S) if living else 0)
            make = partial(slot_facts, run_dir, slot, mine, now, over=over)
            try:
                facts = self._pacer.read(("facts", run_dir.path, number), signature, partial(_sound, make))
            except (AnchorlegError, OSError, *NOT_A_TRAININGS) as error:
                lacks.append(f"Slot {number}: its jobs cannot be shown: {error}")
                continue
            if facts is not None:
                found[number] = facts
        goodput = None
        if known and len(found) == len(known):
            facts_of_all = list(found.values())
            goodput = self._pacer.read(
                ("goodput", run_dir.path),
                int(now / GOODPUT_S),
                lambda: total([account(one, now).times for one in facts_of_all]),
            )
        return {number: found[number] for number in numbers if number in found}, goodput

    def _learned(
        self, run: Run, run_dir: RunDir, numbers: Sequence[int], lacks: list[str]
    ) -> tuple[list[Learned], int]:
        found, unread = [], 0
        for number in numbers:
            folder, name = run_dir.slot(number), run.config.name_of(number)
            try:
                signature = _signature_of_rows(folder)
                learned = self._pacer.read(("rows", folder), signature, partial(_learned_in, folder, number, name))
            except (OSError, *NOT_A_TRAININGS) as error:
                lacks.append(f"Slot {number}: its curves cannot be read ({error}): look at {folder}/attempts.")
                continue
            if learned is None:
                unread += 1
            else:
                found.append(learned)
        return found, unread

    def _shared(
        self, key: Hashable, now: float, make: Callable[[], tuple[Any, ...]], lacks: list[str]
    ) -> tuple[Any, ...]:
        try:
            return self._pacer.read(key, int(now / SHARED_S), make) or ()
        except (OSError, ValueError) as error:
            lacks.append(f"The shared folder cannot be read: {error}.")
            return ()


def _sound(make: Callable[[], SlotFacts]) -> SlotFacts:
    """What `make` finds. Errors: its own; ValueError where a number would spoil what is made of all slots."""
    facts = make()
    if not all(abs(value or 0) < MOST for job in facts.jobs for value in vars(job).values()):
        raise ValueError("a job's record contains an impossible number")
    return facts


def _share(facts: SlotFacts, now: float) -> float | None:
    """The slot's goodput, to the percent that is shown."""
    share = account(facts, now).times.goodput
    return None if share is None else round(share, 2)


def _live(
    run: Run,
    view: RunView,
    shared: Path,
    manifests: Sequence[Manifest],
    learned: Sequence[Learned],
    others: Mapping[int, tuple[str, ...]],
    shows: Collection[int] | None,
) -> LiveFacts | None:
    """What it takes to watch the agents; None for actors, and where a program of one's own shows nothing. `shows`: the
    slots in which one does; None: the trainer does in all.
    """
    at_work = {slot.slot: slot.state == "running" for slot in view.slots if shows is None or slot.slot in shows}
    if run.config.role != "train" or (shows is not None and not shows):
        return None
    names = {slot.slot: slot.name for slot in view.slots}
    told = run.config.training.written
    top_k = told.get("stream_top_k")
    return LiveFacts(
        run_id=view.run_id,
        shared=str(shared),
        agents=agent_rows(manifests, learned, at_work, names, others),
        tasks=task_names(manifests),
        top_k=top_k if isinstance(top_k, int) else None,
        streams=False if told.get("stream") is False else None,
    )


def _are_seeds(run: Run, slots: Sequence[int]) -> bool:
    """Whether `slots` differ in their seed alone."""
    if run.config.experiments is not None:
        return False
    own = [{name: value for name, value in run.config.fields_of(slot).items() if name != "seed"} for slot in slots]
    return all(fields == own[0] for fields in own)


def _learned_in(folder: Path, slot: int, name: str) -> Learned:
    return learned_from(slot, name, rows_of(folder), read_evaluations(folder))


def _signature_of_rows(folder: Path) -> Hashable:
    """Changes when rows come: which attempts there are, and the sizes of the files of the newest."""
    attempts = attempt_numbers(folder)
    newest = [folder / "attempts" / str(number) / name for number in attempts[-1:] for name in (METRICS, EVALUATIONS)]
    return len(attempts), tuple(path.stat().st_size if path.exists() else 0 for path in newest)


def _row_of(run_dir: RunDir, now: float) -> RunRow:
    try:
        view = run_view(run_dir, now)
    except (AnchorlegError, OSError, *NOT_A_TRAININGS) as error:
        return RunRow(run_id=str(run_dir.path), name=run_dir.path.name, state="unreadable", note=str(error))
    known = [slot for slot in view.slots if slot.step is not None and slot.total]
    return RunRow(
        run_id=view.run_id,
        name=view.run_name,
        state=view.state,
        slots=len(view.slots),
        counts=Counter(slot.state for slot in view.slots),
        step=sum(slot.step or 0 for slot in known) if known else None,
        total=sum(slot.total or 0 for slot in known) if known else None,
    )
