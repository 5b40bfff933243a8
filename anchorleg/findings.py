"""The engine of checks: what `doctor`, `start` and the page look for, what they find, and how findings are shown.

A place, a way or a run is a frozen object of facts, gathered before. What may be wrong with it is a list of `Check`s
over these facts, in the order in which a person should read them. A check touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from anchorleg.words import counted, folded, printable

#: Between two columns.
_GAP = 2


class Level(StrEnum):
    """How bad it is. A problem stops the work; a warning costs time or works by luck."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


class Judgement(NamedTuple):
    """What a check says: how bad, what was found, and what to do where something is to be done.

    `sets`: values for the config, by dotted names, that would mend it.
    """

    level: Level
    found: str
    advice: str = ""
    sets: Mapping[str, Any] | None = None


def ok(found: str) -> Judgement:
    """All is well."""
    return Judgement(Level.OK, found)


def warning(found: str, advice: str = "", sets: Mapping[str, Any] | None = None) -> Judgement:
    """It costs time, or works by luck."""
    return Judgement(Level.WARNING, found, advice, sets)


def problem(found: str, advice: str = "", sets: Mapping[str, Any] | None = None) -> Judgement:
    """It stops the work."""
    return Judgement(Level.PROBLEM, found, advice, sets)


#: Of a check: one judgement, several, or none where there is nothing to say.
Judgements = Judgement | Iterable[Judgement] | None
Facts_contra = TypeVar("Facts_contra", contravariant=True)


@dataclass(frozen=True)
class Check(Generic[Facts_contra]):
    """One thing that may be wrong. `name`: what people and `--json` know it by; `judge`: facts → judgements, pure."""

    name: str
    judge: Callable[[Facts_contra], Judgements]


@dataclass(frozen=True)
class Finding:
    """What a check found, printable whatever other machines said."""

    check: str
    level: Level
    found: str
    advice: str = ""
    sets: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("found", "advice"):
            object.__setattr__(self, name, printable(getattr(self, name)))


def examine(checks: Sequence[Check[Facts_contra]], facts: Facts_contra) -> tuple[Finding, ...]:
    """What all checks find, in their order."""
    return tuple(Finding(check.name, *one) for check in checks for one in _each(check.judge(facts)))


def _each(judgements: Judgements) -> Iterable[Judgement]:
    if judgements is None:
        return ()
    return (judgements,) if isinstance(judgements, Judgement) else judgements


def problems_of(findings: Iterable[Finding]) -> list[str]:
    """The checks that found a problem: where there is one, a doctor ends with 11."""
    return [finding.check for finding in findings if finding.level is Level.PROBLEM]


def as_objects(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """For `--json`."""
    return [{name: text for name, text in asdict(finding).items() if name != "sets"} for finding in findings]


def show_findings(findings: Sequence[Finding], screen: Any) -> None:
    """A table on a terminal; in a pipe one line each. `screen`: a Console of rich's, which is not needed here."""
    if not screen.is_terminal:
        print(*findings_lines(findings), sep="\n", flush=True)
        return
    for text, style in findings_table(findings, screen.width):
        screen.print(text, style=style, end="", markup=False, soft_wrap=True)
    screen.print()


def findings_table(findings: Sequence[Finding], width: int) -> Iterator[tuple[str, str]]:
    """Texts and their styles: one finding a row, and below what was found what to do."""
    levels = max((len(finding.level) for finding in findings), default=0) + _GAP
    checks = max((len(finding.check) for finding in findings), default=0) + _GAP
    margin = " " * (levels + checks)
    for number, finding in enumerate(findings):
        yield ("\n" * bool(number) + finding.level.ljust(levels), _COLOURS[finding.level])
        yield (finding.check.ljust(checks), "")
        yield (folded(margin + finding.found, width, indent="")[len(margin) :], "")
        if finding.advice:
            style = "bold" if finding.level is Level.PROBLEM else "dim"
            yield ("\n" + folded(margin + _sentence(finding.advice), width, indent=""), style)


def findings_lines(findings: Iterable[Finding]) -> list[str]:
    """`level: check: found. What to do`."""
    return [
        f"{finding.level}: {finding.check}: {finding.found}" + (f". {_sentence(finding.advice)}" * bool(finding.advice))
        for finding in findings
    ]


def as_sentences(findings: Iterable[Finding]) -> list[str]:
    """`What was found. What to do.`, for programs that go on."""
    return [f"{one.found}." + (f" {_sentence(one.advice)}." if one.advice else "") for one in findings]


def total(findings: Iterable[Finding]) -> str:
    """How many of each, in one line."""
    levels = [finding.level for finding in findings]
    counts = [f"{levels.count(Level.OK)} ok"]
    for level in (Level.WARNING, Level.PROBLEM):
        counts += [counted(levels.count(level), level)] * (level in levels)
    return ", ".join(counts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
