"""What `orchestrator status` knows of a run, in the page's words. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from orchestrator.run.ledger import read_events
from orchestrator.run.rundir import RunDir
from orchestrator.screens.runview import RunView, SlotFacts, SlotView
from orchestrator.screens.summary import steps_lost
from orchestrator.screens.timeline import end_words, sentence
from viewer.model import EVENTS_A_PAGE, ExperimentRow, Experiments, HistoryPage, PastMoment, SlotCard, ViewChoice
from viewer.timeline import row_of

Event = Mapping[str, Any]

#: A forecast moves all the time; a page shows it to the minute.
_FORECAST_S = 60.0
#: Times and steps of a run are smaller; sums of larger ones may leave the finite numbers.
MOST = 1e15


def card_of(slot: SlotView, events: Iterable[Event], now: float) -> SlotCard:
    """One slot. `events`: its own."""
    after = slot.successor
    return SlotCard(
        slot=slot.slot,
        name=slot.name,
        state=slot.state,
        why=slot.why,
        next=slot.next,
        warning=slot.warning,
        job=slot.job_id or "",
        attempt=slot.attempt,
        node=slot.node + (f" (GPU {slot.gpus})" if slot.gpus else ""),
        started_at=slot.started_at,
        ends_at=slot.ends_at,
        expected_start_at=slot.expected_start_at,
        retry_at=slot.retry_at,
        done_at=_soon(now, slot.forecast.finish_in_s)
        if slot.forecast is not None and _is_finite(slot.forecast.finish_in_s)
        else None,
        successor=f"job {after.job_id or '(new)'} {after.state}" + (f", {after.why}" if after.why else "")
        if after
        else "",
        step=slot.step,
        total=slot.total,
        saved_step=slot.checkpoint_step,
        rate=float(f"{slot.rate:.3g}") if _is_finite(slot.rate) else None,
        jobs=slot.jobs,
        hand_overs=slot.hand_overs,
        failures=slot.failures,
        failure_budget=slot.failure_budget,
        steps_lost=steps_lost(events),
        last_end=end_words(str(slot.last_verdict), slot.last_cause) if slot.last_verdict else "",
        best=slot.best if _is_finite(slot.best) else None,
    )


def _is_finite(value: float | None) -> TypeGuard[float]:
    """A program may report anything."""
    return value is not None and math.isfinite(value)


def _soon(now: float, in_s: float) -> float:
    return (now + in_s) // _FORECAST_S * _FORECAST_S


def experiments_of(view: RunView, goal: str, now: float) -> Experiments | None:
    """All experiments, the best first; those without a value come last. `goal`: "min" or "max"."""
    queue = view.queue
    if queue is None:
        return None
    sign = 1.0 if goal == "min" else -1.0
    ranked = sorted((s for s in view.slots if _is_finite(s.best)), key=lambda s: (sign * (s.best or 0.0), s.slot))
    others = [slot for slot in view.slots if not _is_finite(slot.best)]
    rows = [_experiment(place, slot) for place, slot in enumerate(ranked, 1)] + [_experiment(None, s) for s in others]
    done_at = _soon(now, queue.finish_in_s) if queue.finish_in_s else None
    return Experiments(metric=queue.metric or "", counts=queue.counts, rows=tuple(rows), done_at=done_at)


def _experiment(place: int | None, slot: SlotView) -> ExperimentRow:
    value = slot.best if place is not None else None
    return ExperimentRow(place=place, slot=slot.slot, name=slot.name, state=slot.state, value=value, step=slot.step)


def history_of(events: Sequence[Event], page: int, now: float) -> HistoryPage:
    """A page of what happened, newest first."""
    until = max(0, len(events) - page * EVENTS_A_PAGE)
    first = max(0, until - EVENTS_A_PAGE)
    moments = [
        PastMoment(at=float(event.get("at") or 0.0), slot=_slot(event), words=sentence(event, now))
        for event in reversed(events[first:until])
    ]
    return HistoryPage(moments=tuple(moments), older=first)


def _slot(event: Event) -> int | None:
    slot = event.get("slot")
    return slot if isinstance(slot, int) else None


class RunEvents:
    """`all` events, oldest first, and by slot."""

    def __init__(self, events: Sequence[Event], by_slot: Mapping[int, Sequence[Event]]) -> None:
        self.all, self._by_slot = events, by_slot

    def of(self, slot: int) -> Sequence[Event]:
        """Of one slot."""
        return self._by_slot.get(slot, ())


def run_fields(
    view: RunView,
    at: float | None,
    numbers: Collection[int],
    facts: Mapping[int, SlotFacts],
    shares: Mapping[int, float | None],
    events: RunEvents,
    choice: ViewChoice,
    now: float,
) -> dict[str, Any]:
    """The fields of a `viewer.model.RunPage` that a run's view tells, of its folder or of its board. `at`: when its
    controller looked; `facts`, `shares`: of the slots `numbers`, their jobs and their goodput.
    """
    return {
        "name": view.run_name,
        "executor": view.executor,
        "state": view.state,
        "controller": view.controller or "",
        "seen_at": at,
        "until": view.until,
        "cards": {str(s.slot): card_of(s, events.of(s.slot), now) for s in view.slots if s.slot in set(numbers)},
        "times": {
            str(k): row_of(one, events.of(k), now, shares.get(k), max(0, choice.jobs)) for k, one in facts.items()
        },
        "history": history_of(events.all, max(0, choice.events), now),
    }


def events_of(run_dir: RunDir) -> RunEvents:
    """A run's history, as far as it can be shown: what a crash or somebody else left in its files is passed over.

    Errors: OSError.
    """
    events = [event for event in read_events(run_dir) if isinstance(event, dict) and _can_be_told(event)]
    by_slot: dict[int, list[Event]] = {}
    for event in events:
        slot = event.get("slot")
        if isinstance(slot, int) and all(name in event for name in ("at", "kind")):
            by_slot.setdefault(slot, []).append(event)
    return RunEvents(events, by_slot)


def _can_be_told(event: Event) -> bool:
    numbers = [value for value in event.values() if isinstance(value, int | float)]
    return isinstance(event.get("at"), int | float) and all(abs(number) < MOST for number in numbers)


def signature_of_events(run_dir: RunDir) -> Hashable:
    """Changes when events come."""
    files = sorted(run_dir.path.glob("events-*.jsonl"))
    return tuple((path.name, path.stat().st_size) for path in files if path.exists())
