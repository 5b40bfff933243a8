"""The verb: gather, judge, send the probe where it was asked for, show, and end with the code that says it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from anchorleg.findings import Finding, Level, findings_lines, findings_table, total
from orchestrator.doctor.advice import advise
from orchestrator.doctor.checks import examine
from orchestrator.doctor.facts import LoginFacts, ProbeResult
from orchestrator.doctor.gather import Subject, gather
from orchestrator.doctor.probechecks import probe_findings
from orchestrator.doctor.probing import Say, send_probe
from orchestrator.doctor.slurmchecks import walltime_allowed_s
from orchestrator.errors import CheckFailed, Interrupted


def visit(subject: Subject, *, probe: bool, wait_s: float, as_json: bool, out: Console) -> None:
    """Examine, show. `wait_s`: the longest wait of the probe in the queue. Errors: CheckFailed."""
    voice = VisitProgress(out, silent=as_json)
    if out.is_terminal and not as_json:
        with voice.saying("looking at") as say:
            facts = gather(subject, say=say)
    else:
        facts = gather(subject)
    findings = examine(facts)
    if not as_json:
        show(findings, out)
    result = None
    if probe and not can_probe(facts, findings):
        words = "it was not sent: the problems above come first"
        unsent = (Finding(check="probe", level=Level.WARNING, found=words),)
        if not as_json:
            show(unsent, out)
        findings += unsent
    elif probe:
        try:
            with voice.saying("probe") as say:
                longest_s = walltime_allowed_s(facts.config, facts.slurm) if facts.slurm is not None else None
                result = send_probe(subject, wait_s=wait_s, say=say, longest_s=longest_s)
        except KeyboardInterrupt:
            raise Interrupted("doctor.interrupted") from None
        more = probe_findings(subject.config, facts.executor, result)
        if not as_json:
            out.print()
            show(more, out)
        findings += more
    values, reasons = advise(facts, result)
    if as_json:
        print(json.dumps(as_object(findings, facts, result, values, reasons), indent=2))
    else:
        out.print()
        if values or result is not None:
            out.print(recommendation(values, reasons), soft_wrap=not out.is_terminal)
        out.print(f"{total(findings)}.")
    bad = [finding.check for finding in findings if finding.level is Level.PROBLEM]
    if bad:
        raise CheckFailed("doctor.problems", checks=", ".join(bad))


def can_probe(facts: LoginFacts, findings: tuple[Finding, ...]) -> bool:
    """Whether a job can be sent at all: Slurm answers, and the folder can be written."""
    slurm = facts.slurm
    folder_fails = any(one.check == "folder" and one.level is Level.PROBLEM for one in findings)
    return not folder_fails and (slurm is None or (slurm.answered is not None and slurm.answered.up))


def show(findings: tuple[Finding, ...], out: Console) -> None:
    """For people at a terminal, or for a pipe."""
    if out.is_terminal:
        out.print(Text.assemble(*findings_table(findings, out.width)))
    else:
        print("\n".join(findings_lines(findings)))


def recommendation(values: dict[str, Any], reasons: tuple[str, ...]) -> RenderableType:
    """What to write into the config, ready to be pasted, and why."""
    if not values:
        lines = ["The config fits this place as it is.", *(f"- {reason}" for reason in reasons)]
        return Group(*(Text(line) for line in lines))
    title = Text("Recommended for cluster_config.json:", style="bold")
    why = [Text(f"- {reason}") for reason in reasons]
    return Group(title, Text(json.dumps(values, indent=2)), *why)


def as_object(
    findings: tuple[Finding, ...],
    facts: LoginFacts,
    result: ProbeResult | None,
    values: dict[str, Any],
    reasons: tuple[str, ...],
) -> dict[str, Any]:
    """Everything for machines."""
    return {
        "findings": [dataclasses.asdict(finding) for finding in findings],
        "recommended": values,
        "reasons": list(reasons),
        "facts": facts.model_dump(mode="json", exclude={"config"}),
        "probe": result.model_dump(mode="json") if result is not None else None,
    }


class VisitProgress:
    """What is being done now: a status line on a terminal, plain lines (each once) in a pipe, nothing with --json."""

    def __init__(self, out: Console, *, silent: bool) -> None:
        self._out = out
        self._silent = silent
        self._last = ""

    @contextlib.contextmanager
    def saying(self, what: str) -> Iterator[Say]:
        """Gives the function to say things with."""
        if not self._silent and self._out.is_terminal:
            with self._out.status(what) as status:

                def say(words: str, detail: str = "") -> None:
                    status.update(f"{what}: {words}{detail}")

                yield say
            return

        def line(words: str, detail: str = "") -> None:  # noqa: ARG001 - a pipe wants each line once
            if not self._silent and words != self._last:
                print(f"{what}: {words}", flush=True)
            self._last = words

        yield line
