"""The short texts in the columns and lines of `status`. Empty where there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorleg.words import counted
from orchestrator.screens.status import SlotView
from orchestrator.walltime import format_duration

#: In place of the time that a job has left.
OVER = "over"
#: Of the bar, in characters.
BAR_WIDTH = 16
#: Of an experiment's name.
NAME_WIDTH = 32
#: Of a field in the name of an experiment that is too long.
FIELD_WIDTH = 4
#: So many givers of experience are named; a class is more, and `syncd contributors` shows all.
NAMED = 5
#: What a program reports of whom, and what they are called.
_WHO = {"contributors": "others", "group": "its group"}


def ranges(numbers: list[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for value in numbers:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def slots_words(numbers: list[int]) -> str:
    """`slot 3`, `slots 0-2, 7`."""
    return f"{'slot' if len(numbers) == 1 else 'slots'} {ranges(numbers)}"


def number(value: float | None) -> str:
    """Thousands with separators; empty for nothing."""
    return f"{value:,.0f}" if value is not None else ""


def steps(slot: SlotView) -> str:
    """`done/total`."""
    if slot.step is None:
        return ""
    return f"{slot.step:,}/{slot.total:,}" if slot.total is not None else f"{slot.step:,}"


def bar(slot: SlotView) -> str:
    """How much of the training is done, as a bar; full only when all is."""
    if not slot.total:
        return ""
    done = min(slot.step or 0, slot.total) * BAR_WIDTH // slot.total
    return "━" * done + "╌" * (BAR_WIDTH - done)


def short_steps(slot: SlotView) -> str:
    """`steps` for narrow terminals: `9.28M/20M`."""
    if slot.step is None:
        return ""
    return f"{short(slot.step)}/{short(slot.total)}" if slot.total is not None else short(slot.step)


def short(value: int) -> str:
    """Three digits of a large number, cut off, not rounded up: what is not done is not shown as done."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= 10 * size or (value >= size > 10**3):
            digits = max(0, 3 - len(str(value // size)))
            whole, part = divmod(value * 10**digits // size, 10**digits)
            fraction = f".{part:0{digits}d}".rstrip("0") if part else ""
            return f"{whole}{fraction}{unit}"
    return f"{value:,}"


def rate(slot: SlotView) -> str:
    """Steps per second while it runs; slow ones with a digit more."""
    if slot.rate is None:
        return ""
    return number(slot.rate) if slot.rate >= 10 or slot.rate == 0 else f"{slot.rate:.1f}"


def metric(value: float | None) -> str:
    """Four digits of whatever an experiment is judged by."""
    return f"{value:.4g}" if value is not None else ""


def shortened(name: str) -> str:
    """The name of an experiment; of a long one the fields are cut to their first letters, and then its middle."""
    if len(name) > NAME_WIDTH:
        name = ",".join(_short_field(part) for part in name.split(","))
    if len(name) > NAME_WIDTH:
        name = f"{name[: NAME_WIDTH // 2]}…{name[-(NAME_WIDTH - NAME_WIDTH // 2 - 1) :]}"
    return name


def _short_field(part: str) -> str:
    field, equals, value = part.partition("=")
    return f"{field[:FIELD_WIDTH]}={value}" if equals else part


def success(slot: SlotView) -> str:
    """The last evaluation's mean success."""
    value = slot.progress.get("success")
    return f"{100 * value:.0f} %" if isinstance(value, (int, float)) else ""


def gpu(slot: SlotView) -> str:
    """How busy the GPU of the running job is."""
    value = slot.progress.get("gpu_percent")
    return f"{value:.0f} %" if isinstance(value, (int, float)) and slot.rate is not None else ""


def ends_in(slot: SlotView, now: float) -> str:
    """Time to the walltime."""
    if slot.ends_at is None:
        return ""
    return span(slot.ends_at - now) if slot.ends_at > now else OVER


def done_in(slot: SlotView) -> str:
    """Time to the end of the slot's training; `>` where waits for further jobs come on top that nobody knows yet."""
    if slot.forecast is None:
        return ""
    return ("" if slot.forecast.waits_included else ">") + span(slot.forecast.finish_in_s)


def span(seconds: float) -> str:
    """A time to wait: `3:12:45`; from a day on `2 d 5 h`, which is as exact as a forecast can be."""
    days, rest = divmod(max(0, int(seconds)), 86400)
    return f"{days} d {rest // 3600} h" if days else format_duration(seconds)


def ago(seconds: float) -> str:
    """How long ago: `42 s ago`, `0:05:12 ago`."""
    return f"{max(0.0, seconds):.0f} s ago" if seconds < 100 else f"{format_duration(seconds)} ago"


def next_job(slot: SlotView) -> str:
    """The job that is queued behind the running one."""
    return (slot.successor.job_id or "(new)") if slot.successor is not None else ""


def given_words(progress: Mapping[str, Any], now: float) -> str:
    """One line: "others gave: ann 12 segments (6,000 transitions, last 40 s ago)", and the same of the other slots of
    its group; empty where nobody gave anything.
    """
    said = [_of_all(words, progress.get(name), now) for name, words in _WHO.items()]
    return "; ".join(words for words in said if words)


def _of_all(who: str, told: Any, now: float) -> str:
    givers = told.items() if isinstance(told, Mapping) else ()
    parts = [_words(giver, one, now) for giver, one in givers if isinstance(one, Mapping)]
    parts, more = parts[:NAMED], len(parts) - NAMED
    if not parts:
        return ""
    return f"{who} gave: " + ", ".join([*parts, *([f"and {more} more"] if more > 0 else [])])


def _words(who: str, one: Mapping[str, Any], now: float) -> str:
    segments, transitions, last_at = (_number(one.get(name)) for name in ("segments", "transitions", "last_at"))
    last = f", last {ago(now - last_at)}" if last_at else ""
    return f"{who} {counted(round(segments), 'segment')} ({transitions:,.0f} transitions{last})"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
