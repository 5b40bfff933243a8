"""How `doctor` looks: columns on a terminal, a line a check in a pipe."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from syncd.doctor.facts import Finding, Level

_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def findings_table(findings: tuple[Finding, ...]) -> RenderableType:
    """One check a row; what to do stands below what was found."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        words = Text(finding.found)
        if finding.advice:
            style = "bold" if finding.level is Level.PROBLEM else "dim"
            words.append(f"\n{_sentence(finding.advice)}", style=style)
        table.add_row(Text(finding.level.value, style=_COLOURS[finding.level]), Text(finding.check), words)
    return table


def findings_lines(findings: tuple[Finding, ...]) -> list[str]:
    """`level: check: found. What to do`."""
    return [
        f"{finding.level}: {finding.check}: {finding.found}" + (f". {_sentence(finding.advice)}" * bool(finding.advice))
        for finding in findings
    ]


def total(findings: tuple[Finding, ...]) -> str:
    """How many of each, in one line."""
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    parts = [f"{counts[Level.OK]} ok"]
    some = [level for level in (Level.WARNING, Level.PROBLEM) if counts[level]]
    parts += [f"{counts[level]} {level.value}{'s' * (counts[level] != 1)}" for level in some]
    return ", ".join(parts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
