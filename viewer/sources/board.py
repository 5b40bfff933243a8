"""From a run's view to the fields of a page: of its folder, or as its controller tells those who mirror it
(`orchestrator.screens.board`).

A board came from another machine: it may be damaged, of another version, or written by somebody else. Every text in it
is text; what is no board leaves the page as it is without one, with a sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from anchorleg.words import printable, roughly
from orchestrator.run.ledger import read_events
from orchestrator.run.rundir import RunDir
from orchestrator.screens.board import BEAT_S, FILE, MOST_BYTES, VERSION, Board
from orchestrator.screens.goodput import account
from orchestrator.screens.runview import RunEvents, RunView, SlotFacts
from orchestrator.screens.timeline import sentence
from syncd.store import SlotPlace
from viewer.learning import NOT_A_TRAININGS
from viewer.model import EVENTS_A_PAGE, HistoryPage, PastMoment, Trouble, ViewChoice
from viewer.timeline import row_of
from viewer.troubles import troubles_of

Event = Mapping[str, Any]

#: Times and steps of a run are smaller; sums of larger ones may leave the finite numbers.
MOST = 1e15
#: So many beats without news are more than a slow line.
BEATS_MISSED = 3
#: Clocks of two machines differ by less, or it is said.
CLOCKS_DIFFER_S = 60.0
_MOST_CHARS = 500


def run_fields(
    view: RunView,
    numbers: Collection[int],
    facts: Mapping[int, SlotFacts],
    shares: Mapping[int, float | None],
    events: RunEvents,
    choice: ViewChoice,
    now: float,
) -> dict[str, Any]:
    """The fields of a `viewer.model.RunPage` that a run's view tells. `facts`, `shares`: of the slots `numbers`, their
    jobs and their goodput.
    """
    return {
        "name": view.run_name,
        "executor": view.executor,
        "state": view.state,
        "controller": view.controller or "",
        "seen_at": view.written_at,
        "until": view.until,
        "cards": {str(s.slot): s.model_copy(update={"progress": {}}) for s in view.slots if s.slot in set(numbers)},
        "times": {
            str(k): row_of(one, events.of(k), now, shares.get(k), max(0, choice.jobs)) for k, one in facts.items()
        },
        "queue": view.queue,
        "history": history_of(events.all, max(0, choice.events), now),
        "troubles": troubles_of(view, now),
    }


def history_of(events: Sequence[Event], page: int, now: float) -> HistoryPage:
    """A page of what happened, newest first."""
    until = max(0, len(events) - page * EVENTS_A_PAGE)
    first = max(0, until - EVENTS_A_PAGE)
    moments = [
        PastMoment(
            at=float(event.get("at") or 0.0),
            slot=slot if isinstance(slot := event.get("slot"), int) else None,
            words=sentence(event, now),
        )
        for event in reversed(events[first:until])
    ]
    return HistoryPage(moments=tuple(moments), older=first)


def events_of(run_dir: RunDir) -> RunEvents:
    """A run's history, as far as it can be shown: what a crash or somebody else left in its files is passed over.

    Errors: OSError.
    """
    return RunEvents([event for event in read_events(run_dir) if isinstance(event, dict) and _can_be_told(event)])


def _can_be_told(event: Event) -> bool:
    numbers = [value for value in event.values() if isinstance(value, int | float)]
    return isinstance(event.get("at"), int | float) and all(abs(number) < MOST for number in numbers)


def signature_of_events(run_dir: RunDir) -> Hashable:
    """Changes when events come."""
    files = sorted(run_dir.path.glob("events-*.jsonl"))
    return tuple((path.name, path.stat().st_size) for path in files if path.exists())


# --- as a controller tells it -----------------------------------------------------------------------------------------


class Told(NamedTuple):
    """`fields`: of the `viewer.model.RunPage`, none where there is no board. `words`: what is wrong with it, or ""."""

    fields: Mapping[str, Any]
    words: str = ""


def board_signature(places: Sequence[SlotPlace], now: float) -> Hashable:
    """Changes when a board of the run does, and once a minute: a page says how old it is."""
    return (*(_stat(place) for place in places), int(now / 60))


def told_by(places: Sequence[SlotPlace], numbers: Sequence[int], choice: ViewChoice, now: float) -> Told:
    """What the newest board of a run tells of its slots `numbers`. Errors: OSError."""
    found = [(seen, place) for place in places if (seen := _stat(place)) is not None]
    if not found:
        return Told({})
    (changed_at, size), place = max(found, key=lambda one: one[0][0])
    if size > MOST_BYTES:
        return Told({}, "The controller's report on slots and jobs is too large to show.")
    try:
        value = json.loads((place.metrics / FILE).read_bytes(), parse_float=_finite, parse_constant=_finite)
        version = value["version"]
        if version != VERSION:
            other = printable(str(version), 20)
            return Told(
                {}, f"The controller's report on slots and jobs has another version ({other}) and is not shown."
            )
        board = Board.model_validate(_text(value))
        return Told(_fields(board, set(numbers), choice, now), _age(board, changed_at / 1e9, now))
    except NOT_A_TRAININGS as error:
        return Told({}, f"The controller's report on slots and jobs is damaged here ({type(error).__name__}).")


def _fields(board: Board, numbers: set[int], choice: ViewChoice, now: float) -> dict[str, Any]:
    """What ran when the board was told is taken to run on, as its newest word says. Older jobs than it has are not
    here: no page of them can be turned to, and no goodput counted.
    """
    facts = {one.slot: one for one in board.times if one.slot in numbers}
    jobs = {slot.slot: slot.jobs for slot in board.view.slots}
    shares = {
        k: round(share, 2)
        for k, one in facts.items()
        if jobs.get(k, 0) <= len(one.jobs) and (share := account(one, now).times.goodput) is not None
    }
    page = ViewChoice(events=choice.events)
    fields = run_fields(board.view, numbers, facts, shares, RunEvents(board.events), page, now)
    return {**fields, "seen_at": board.at}


def _age(board: Board, came_at: float, now: float) -> str:
    if board.at - now > CLOCKS_DIFFER_S:
        ahead = roughly(board.at - now)
        return f"The cluster's clock is {ahead} ahead of this one's: ages and remaining times are wrong by that amount."
    if now - came_at > BEATS_MISSED * BEAT_S:
        return f"Slots and jobs are as they were {roughly(now - came_at)} ago: nothing newer has arrived."
    return ""


def _stat(place: SlotPlace) -> tuple[int, int] | None:
    try:
        seen = (place.metrics / FILE).stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a number")
    return value


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value, _MOST_CHARS)
    if isinstance(value, list):
        return [_text(one) for one in value]
    if isinstance(value, dict):
        return {printable(str(name), _MOST_CHARS): _text(one) for name, one in value.items()}
    return value


def as_troubles(told: Told) -> tuple[Trouble, ...]:
    """What is wrong with it, as a line of the page."""
    return (Trouble(words=told.words, urgent=False),) if told.words else ()
