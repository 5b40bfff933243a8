"""The history of a run in sentences: one line of the event log in, one sentence out. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.decisions.models import Verdict
from orchestrator.notation import format_duration

Event = Mapping[str, Any]

_PLACE = frozenset({"at", "kind", "slot", "attempt", "token", "job_id"})


def clock(at: float, now: float) -> str:
    """The time of day, with the date where it is not of the last day."""
    return time.strftime("%H:%M:%S" if abs(now - at) < 86400 else "%d %b %H:%M:%S", time.localtime(at))


def at_and_in(at: float, now: float) -> str:
    """A moment to come: `at 09:07:52 (in 0:14:32)`."""
    return f"at {clock(at, now)} (in {format_duration(at - now)})"


def sentence(event: Event, now: float) -> str:
    """What happened, without the time. A kind that nobody knows is shown with its facts."""
    kind = str(event.get("kind") or "?")
    if kind in _SENTENCES:
        return _SENTENCES[kind](event, now)
    if kind not in _PLAIN:
        facts = ", ".join(f"{k} {v}" for k, v in event.items() if k not in _PLACE and v not in (None, "", [], ()))
        job = f" ({_job(event)})" if event.get("job_id") else ""
        return f"{kind}{job}" + (f": {facts}" if facts else "")
    words, usual = _PLAIN[kind]
    complaint = f"; Slurm said: {event['complaint']}" if event.get("complaint") else ""
    return words.format(job=_job(event), why=event.get("why") or event.get("error") or usual, complaint=complaint)


def _submission(event: Event, _now: float) -> str:
    attempt = event.get("attempt")
    if not event.get("job_id"):
        return f"tried to submit attempt {attempt}: {event.get('outcome') or 'no answer'}"
    behind = f", queued behind job {event['after']}" if event.get("after") else ""
    avoiding = f", avoiding {event['exclude']}" if event.get("exclude") else ""
    place = f", {event['place']}" if event.get("place") else ""
    return f"submitted attempt {attempt} as job {event['job_id']}{behind}{avoiding}{place}"


def _started(event: Event, _now: float) -> str:
    step, node = _number(event, "start_step"), event.get("node")
    where = f" on {node}" if node else ""
    return f"{_job(event)} began attempt {event.get('attempt')}{where}" + (f" at step {step:,.0f}" if step else "")


def _ended(event: Event, now: float) -> str:
    words = f"{_job(event)} ended: {end_words(str(event.get('verdict')), str(event.get('cause') or ''))}"
    step, saved = _number(event, "step"), _number(event, "checkpoint_step")
    if step is not None:
        words += f" at step {step:,.0f}"
        if saved is not None and saved < step:
            words += f"; {step - saved:,.0f} steps after its last save will be repeated"
    elif saved is not None:
        words += f"; its last save is of step {saved:,.0f}"
    at, ended_at = _number(event, "at"), _number(event, "ended_at")
    if at is not None and ended_at is not None and at - ended_at > 90.0:  # it was seen late
        words += f"; it was over at {clock(ended_at, now)}"
    return words


#: Why a job handed over, by what its own record says.
_HAND_OVERS = {
    "deadline": "its time was nearly over",
    "SIGUSR2": "its time was nearly over",
    "SIGTERM": "it got a SIGTERM",
    "asked to": "it was asked to",
}


def end_words(verdict: str, cause: str) -> str:
    """`crashed (out of memory)`, without saying a word twice."""
    if cause.startswith(verdict):
        return cause
    if verdict == Verdict.HANDED_OVER:
        cause = _HAND_OVERS.get(cause, cause)
    head, _, how = cause.rpartition(" (")
    cause = f"{head}, {how[:-1]}" if head and how.endswith(")") else cause
    return f"{verdict} ({cause})" if cause else verdict


def _sighted(event: Event, _now: float) -> str:
    blind_s = _number(event, "blind_s")
    return "the queue answers again" + (f", after {format_duration(blind_s)}" if blind_s is not None else "")


def _excluded(event: Event, now: float) -> str:
    until = _number(event, "until")
    ends = f" until {clock(until, now)}" if until is not None else ""
    return f"this run avoids node {event.get('node')}{ends}, because jobs died early on it"


def _requested(event: Event, _now: float) -> str:
    what, value = event.get("what"), event.get("value")
    if what == "add":
        return f"{value} was added"
    return f"{what} was requested" if what != "priority" else f"its priority was set to {value}"


#: What the controller writes into its log, by kind: a sentence, and the usual reason where the event has none.
_PLAIN: Mapping[str, tuple[str, str]] = {
    "adopted": ("found {job} in the queue or running, unknown to the ledger: adopted", ""),
    "asked to hand over": ("asked {job} to save and end", ""),
    "blind": ("the queue did not answer: {why}", "no answer"),
    "cancelled": ("cancelled {job}: {why}{complaint}", "no longer needed"),
    "given up": ("stopped the slot: {why}", "its job can never run"),
    "nodes forgiven": ("no node is avoided now: {why}", "too few are left"),
    "not accepted": ("{job} was not accepted after all: {why}", "the scheduler does not know it"),
    "put off": ("another job will be tried later: {why}", "this one can never run"),
    "raised": ("{why}", "its jobs ask for more than the config"),
    "revived": ("{job} exists after all: adopted again", ""),
    "stalled": ("{job} was asked to print its stacks and end: {why}", "no new report"),
}
_SENTENCES: Mapping[str, Callable[[Event, float], str]] = {
    "submission": _submission,
    "started": _started,
    "ended": _ended,
    "sighted": _sighted,
    "node excluded": _excluded,
    "requested": _requested,
}
KINDS = frozenset(_PLAIN) | frozenset(_SENTENCES)


def _job(event: Event) -> str:
    return f"job {event['job_id']}" if event.get("job_id") else f"the job of attempt {event.get('attempt', '?')}"


def _number(event: Event, name: str) -> float | None:
    value = event.get(name)
    return value if isinstance(value, (int, float)) else None
