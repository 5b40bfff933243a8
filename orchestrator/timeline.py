"""The history of a run in sentences: one line of the event log in, one sentence out. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

Event = Mapping[str, Any]

#: Facts that say where an event belongs, or that only the program needs.
_PLACE = frozenset({"at", "kind", "slot", "attempt", "token", "job_id"})
#: An end is seen at a poll; one that was seen later than this is told with its own time.
_SEEN_LATE_S = 90.0
_DAY_S = 86400.0


def clock(at: float, now: float) -> str:
    """The time of day, with the date where it is not of the last day."""
    return time.strftime("%H:%M:%S" if 0 <= now - at < _DAY_S else "%d %b %H:%M:%S", time.localtime(at))


def sentence(event: Event, now: float) -> str:
    """What happened, without the time. A kind that nobody knows is shown with its facts."""
    match str(event.get("kind", "?")):
        case "submission":
            return _submission(event)
        case "started":
            step = _number(event, "start_step")
            return f"{_job(event)} began attempt {event.get('attempt')}" + (f" at step {step:,.0f}" if step else "")
        case "ended":
            return _ended(event, now)
        case "adopted":
            return f"found {_job(event)} in the queue or at work, which the ledger did not know: taken in"
        case "revived":
            return f"{_job(event)} is there after all: taken back in"
        case "asked to hand over":
            return f"asked {_job(event)} to save and end"
        case "cancelled":
            complaint = f"; scancel said: {event['complaint']}" if event.get("complaint") else ""
            return f"cancelled {_job(event)}: {event.get('why') or 'no longer needed'}{complaint}"
        case kind:
            facts = ", ".join(f"{k} {v}" for k, v in event.items() if k not in _PLACE and v not in (None, "", [], ()))
            job = f" ({_job(event)})" if event.get("job_id") else ""
            return f"{kind}{job}" + (f": {facts}" if facts else "")


def _job(event: Event) -> str:
    return f"job {event['job_id']}" if event.get("job_id") else f"the job of attempt {event.get('attempt', '?')}"


def _submission(event: Event) -> str:
    attempt, outcome = event.get("attempt"), event.get("outcome")
    if not event.get("job_id"):
        return f"tried to submit attempt {attempt}: {outcome or 'no answer'}"
    behind = f", queued behind job {event['after']}" if event.get("after") else ""
    avoiding = f", avoiding {', '.join(event['exclude'])}" if event.get("exclude") else ""
    return f"submitted attempt {attempt} as job {event['job_id']}{behind}{avoiding}"


def _ended(event: Event, now: float) -> str:
    cause = f" ({event['cause']})" if event.get("cause") else ""
    words = f"{_job(event)} ended: {event.get('verdict')}{cause}"
    step, saved = _number(event, "step"), _number(event, "checkpoint_step")
    if step is not None:
        words += f" at step {step:,.0f}"
        if saved is not None and saved < step:
            words += f"; {step - saved:,.0f} steps after its last save are done again"
    elif saved is not None:
        words += f"; its last save is of step {saved:,.0f}"
    at, ended_at = _number(event, "at"), _number(event, "ended_at")
    if at is not None and ended_at is not None and at - ended_at > _SEEN_LATE_S:
        words += f"; it was over at {clock(ended_at, now)}"
    return words


def _number(event: Event, name: str) -> float | None:
    value = event.get(name)
    return value if isinstance(value, (int, float)) else None
