"""What a run's controller tells those who mirror it (`orchestrator.screens.board`), as a page shows it.

It came from another machine: it may be damaged, of another version, or written by somebody else. Every text in it is
text; what is no board leaves the page as it is without one, with a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from anchorleg.words import printable, roughly
from orchestrator.screens.board import BEAT_S, FILE, MOST_BYTES, VERSION, Board
from orchestrator.screens.goodput import account
from syncd.store import SlotPlace
from viewer.learning import NOT_A_TRAININGS
from viewer.model import Trouble, ViewChoice
from viewer.sources.slotcards import RunEvents, run_fields
from viewer.troubles import troubles_of

#: So many beats without news are more than a slow line.
BEATS_MISSED = 3
#: Clocks of two machines differ by less, or it is said.
CLOCKS_DIFFER_S = 60.0
_MOST_CHARS = 500


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
        return Told({}, "What the controller told of slots and jobs is too large: it is not shown.")
    try:
        value = json.loads((place.metrics / FILE).read_bytes())
        version = value["version"]
        if version != VERSION:
            other = printable(str(version), 20)
            return Told(
                {}, f"What the controller told of slots and jobs is of another version ({other}), and not shown."
            )
        board = Board.model_validate(_text(value))
        return Told(_fields(board, set(numbers), choice, now), _age(board, changed_at / 1e9, now))
    except NOT_A_TRAININGS as error:
        return Told({}, f"What the controller told of slots and jobs is damaged here ({type(error).__name__}).")


def _fields(board: Board, numbers: set[int], choice: ViewChoice, now: float) -> dict[str, Any]:
    """What ran when the board was told is taken to run on, as its newest word says. Older jobs than it has are not
    here: no page of them can be turned to, and no goodput counted.
    """
    by_slot: dict[int, list[Mapping[str, Any]]] = {}
    for event in board.events:
        by_slot.setdefault(event.get("slot", -1), []).append(event)
    facts = {one.slot: one for one in board.times if one.slot in numbers}
    shares = {
        k: round(share, 2)
        for k, one in facts.items()
        if not board.older.get(k) and (share := account(one, now).times.goodput) is not None
    }
    events = RunEvents(board.events, by_slot)
    page = ViewChoice(events=choice.events)
    fields = run_fields(board.view, board.at, numbers, facts, shares, events, page, now)
    return {**fields, "troubles": troubles_of(board.view, now)}


def _age(board: Board, came_at: float, now: float) -> str:
    if board.at - now > CLOCKS_DIFFER_S:
        ahead = roughly(board.at - now)
        return f"The cluster's clock is {ahead} ahead of this one's: ages and times left are wrong by that."
    if now - came_at > BEATS_MISSED * BEAT_S:
        return f"Slots and jobs are as they were {roughly(now - came_at)} ago: nothing newer has come here."
    return ""


def _stat(place: SlotPlace) -> tuple[int, int] | None:
    try:
        seen = (place.metrics / FILE).stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size


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
