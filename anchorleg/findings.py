"""What `doctor` says, of a cluster and of a laptop's way there: findings, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from anchorleg.printable import printable
from anchorleg.words import counted
from anchorleg.wrapping import folded

#: Between two columns.
_GAP = 2


class Level(StrEnum):
    """How bad it is. A problem stops the work; a warning costs time or works by luck."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


@dataclass(frozen=True)
class Finding:
    """One line of `doctor`: what was looked at, what was found, and what to do where something is to be done."""

    check: str
    level: Level
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        for name in ("found", "advice"):
            object.__setattr__(self, name, printable(getattr(self, name)))


def findings_table(findings: tuple[Finding, ...], width: int) -> Iterator[tuple[str, str]]:
    """One check a row; what to do stands below what was found. Texts and their styles, for `Text.assemble` of rich."""
    rooms = [max((len(text) for text in texts), default=0) for texts in _heads(findings)]
    margin = " " * (sum(rooms) + 2 * _GAP)
    for number, (finding, (level, check)) in enumerate(zip(findings, zip(*_heads(findings), strict=True), strict=True)):
        yield ("\n" * bool(number) + level.ljust(rooms[0] + _GAP), _COLOURS[finding.level])
        yield (check.ljust(rooms[1] + _GAP), "")
        yield (folded(margin + finding.found, width, indent="")[len(margin) :], "")
        if finding.advice:
            style = "bold" if finding.level is Level.PROBLEM else "dim"
            yield ("\n" + folded(margin + _sentence(finding.advice), width, indent=""), style)


def _heads(findings: tuple[Finding, ...]) -> tuple[list[str], list[str]]:
    return [finding.level.value for finding in findings], [finding.check for finding in findings]


def findings_lines(findings: tuple[Finding, ...]) -> list[str]:
    """`level: check: found (what to do)`."""
    return [
        f"{finding.level}: {finding.check}: {finding.found}" + (f". {_sentence(finding.advice)}" * bool(finding.advice))
        for finding in findings
    ]


def total(findings: tuple[Finding, ...]) -> str:
    """How many of each, in one line."""
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    parts = [f"{counts[Level.OK]} ok"]
    parts += [counted(counts[level], level.value) for level in (Level.WARNING, Level.PROBLEM) if counts[level]]
    return ", ".join(parts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
