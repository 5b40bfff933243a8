"""Numbers, times, bytes and slips of the pen as people say them: one way for all programs. Standard library."""

from __future__ import annotations

from collections.abc import Iterable

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def did_you_mean(wrong: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean "x"?` where a known name is near, else `otherwise`; without one, what there is."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(wrong, names, n=1, cutoff=0.5)
    return f'did you mean "{near[0]}"?' if near else otherwise or f"known here: {', '.join(names) or 'none'}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 job`, `2,000 jobs`; `plural` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """`42 s`, `12 min 07 s`, `3 h 05 min`, `2 d 05 h`."""
    whole = max(0, round(seconds))
    for unit, length, smaller, part in (
        ("d", _DAY_S, "h", _HOUR_S),
        ("h", _HOUR_S, "min", _MINUTE_S),
        ("min", _MINUTE_S, "s", 1),
    ):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part:02d} {smaller}"
    return f"{whole} s"


def roughly(seconds: float) -> str:
    """`42 s`, `12 min`, `30 h`, `5 d`: in the largest unit of which there are two."""
    for unit, length in (("d", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def sized(count: float) -> str:
    """Bytes: `812 B`, `1.4 MiB`, `3 GiB`, `24 TiB`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    number = f"{count:.1f}" if count < 10 else f"{count:,.0f}"
    return f"{number.removesuffix('.0')} {units[0]}"
