"""What `doctor` says, of a cluster and of a laptop's way there: findings, and how they are shown."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict
from rich.console import RenderableType
from rich.text import Text

from orchestrator.printable import printable
from orchestrator.screens.wrapping import folded

#: Between two columns.
_GAP = 2


class Level(StrEnum):
    """How bad it is. A problem stops the work; a warning costs time or works by luck."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_Words = Annotated[str, AfterValidator(printable)]


class Finding(BaseModel):
    """One line of `doctor`: what was looked at, what was found, and what to do where something is to be done."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    check: str
    level: Level
    found: _Words
    advice: _Words = ""


def findings_table(findings: tuple[Finding, ...], width: int) -> RenderableType:
    """One check a row; what to do stands below what was found."""
    rooms = [max((len(text) for text in texts), default=0) for texts in _heads(findings)]
    margin = " " * (sum(rooms) + 2 * _GAP)
    lines = Text()
    for finding, (level, check) in zip(findings, zip(*_heads(findings), strict=True), strict=True):
        lines.append(level.ljust(rooms[0] + _GAP), style=_COLOURS[finding.level])
        lines.append(check.ljust(rooms[1] + _GAP))
        lines.append(folded(margin + finding.found, width, indent="")[len(margin) :] + "\n")
        if finding.advice:
            style = "bold" if finding.level is Level.PROBLEM else "dim"
            lines.append(folded(margin + _sentence(finding.advice), width, indent="") + "\n", style=style)
    lines.rstrip()
    return lines


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
    parts += [_counted(counts[level], level.value) for level in (Level.WARNING, Level.PROBLEM) if counts[level]]
    return ", ".join(parts)


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" + ("s" if number != 1 else "")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
