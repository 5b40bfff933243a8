"""Slurm's way of writing durations.

Source: sbatch(1), `--time`: "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours",
"days-hours:minutes" and "days-hours:minutes:seconds".
"""

from __future__ import annotations

import re

from orchestrator.errors import FieldError

_PLAIN = re.compile(r"(?:(\d+):)?(\d+):(\d+)\Z|(\d+)\Z")
_DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+)(?::(\d+))?)?\Z")
_UNLIMITED = frozenset({"infinite", "unlimited", "n/a"})


def parse_duration_s(text: str) -> int | None:
    """Seconds in a Slurm duration; None for "infinite". Errors: ValueError with the forms that are understood."""
    text = text.strip()
    if text.lower() in _UNLIMITED:
        return None
    if match := _DAYS.match(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if match := _PLAIN.match(text):
        hours_, minutes_, seconds_, only = match.groups()
        if only is not None:
            return int(only) * 60
        return (int(hours_ or 0) * 60 + int(minutes_)) * 60 + int(seconds_)
    raise FieldError("config.time-limit", text=text)


def format_duration(seconds: float) -> str:
    """`H:MM:SS`, with days in front where there are any; the form that sbatch reads."""
    total = max(0, int(seconds))
    days, rest = divmod(total, 86400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock
