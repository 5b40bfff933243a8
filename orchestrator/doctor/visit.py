"""The command: gather, judge, send the probe where it was asked for, show, and end with the code that says it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from anchorleg.findings import Finding, Level, as_objects, examine, problems_of, show_findings, total
from orchestrator.doctor.advice import advise
from orchestrator.doctor.checks import CHECKS
from orchestrator.doctor.facts import LoginFacts, ProbeResult
from orchestrator.doctor.gather import Subject, gather
from orchestrator.doctor.probechecks import CHECKS as PROBE_CHECKS
from orchestrator.doctor.probechecks import Probed
from orchestrator.doctor.probing import Say, send_probe
from orchestrator.doctor.slurmchecks import walltime_allowed_s
from orchestrator.errors import CheckFailed, Interrupted


def visit(subject: Subject, *, probe: bool, wait_s: float, as_json: bool, out: Console) -> None:
    """Examine, show. `wait_s`: the longest wait of the probe in the queue. Errors: CheckFailed."""
    with saying("looking at", out, silent=as_json or not out.is_terminal) as say:
        facts = gather(subject, say=say)
    findings = examine(CHECKS, facts)
    if not as_json:
        show_findings(findings, out)
    result = None
    if probe:
        if can_probe(facts, findings):
            result = _sent_probe(subject, facts, wait_s, out, silent=as_json)
            more = examine(PROBE_CHECKS, Probed(facts.config, facts.executor, result))
        else:
            more = (Finding("probe", Level.WARNING, "it was not sent: the problems above come first"),)
        if not as_json:
            out.print()
            show_findings(more, out)
        findings += more
    values, reasons = advise(facts, result)
    if as_json:
        told = {
            "findings": as_objects(findings),
            "recommended": values,
            "reasons": list(reasons),
            "facts": facts.model_dump(mode="json", exclude={"config"}),
            "probe": result.model_dump(mode="json") if result is not None else None,
        }
        print(json.dumps(told, indent=2))
    else:
        out.print()
        if values or result is not None:
            out.print(recommendation(values, reasons), soft_wrap=not out.is_terminal)
        out.print(f"{total(findings)}.")
    if bad := problems_of(findings):
        raise CheckFailed("doctor.problems", checks=", ".join(bad))


def can_probe(facts: LoginFacts, findings: tuple[Finding, ...]) -> bool:
    """Whether a job can be sent at all: Slurm answers, and the folder can be written."""
    slurm = facts.slurm
    is_up = slurm is None or (slurm.answered is not None and slurm.answered.up)
    return is_up and "folder" not in problems_of(findings)


def _sent_probe(subject: Subject, facts: LoginFacts, wait_s: float, out: Console, *, silent: bool) -> ProbeResult:
    longest_s = walltime_allowed_s(facts.config, facts.slurm) if facts.slurm is not None else None
    try:
        with saying("probe", out, silent=silent) as say:
            return send_probe(subject, wait_s=wait_s, say=say, longest_s=longest_s)
    except KeyboardInterrupt:
        raise Interrupted("doctor.interrupted") from None


def recommendation(values: dict[str, Any], reasons: tuple[str, ...]) -> Text:
    """What to write into the config, ready to be pasted, and why."""
    why = "".join(f"\n- {reason}" for reason in reasons)
    if not values:
        return Text(f"The config fits this place as it is.{why}")
    title = ("Recommended for cluster_config.json:", "bold")
    return Text.assemble(title, f"\n{json.dumps(values, indent=2)}{why}")


@contextlib.contextmanager
def saying(what: str, out: Console, *, silent: bool) -> Iterator[Say]:
    """Gives the function to say what is being done: a status line on a terminal, plain lines (each once) in a pipe."""
    if out.is_terminal and not silent:
        with out.status(what) as status:
            yield lambda words, detail: status.update(f"{what}: {words}{detail}")
        return
    said = ""

    def line(words: str, _detail: str) -> None:
        nonlocal said
        if not silent and words != said:
            print(f"{what}: {words}", flush=True)
        said = words

    yield line
