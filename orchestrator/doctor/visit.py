"""The command: gather, judge, send the probe where it was asked for, show, and end with the code that says it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.console import Console

from anchorleg.findings import Finding, Level, as_objects, examine, problems_of, show_findings, total
from orchestrator.config import apply_overrides
from orchestrator.doctor.checks import CHECKS, LoginFacts
from orchestrator.doctor.gather import Subject, gather
from orchestrator.doctor.probechecks import CHECKS as PROBE_CHECKS
from orchestrator.doctor.probechecks import Probed
from orchestrator.doctor.probing import ProbeResult, send_probe
from orchestrator.doctor.slurmchecks import walltime_allowed_s
from orchestrator.errors import CheckFailed, Interrupted


def visit(subject: Subject, *, probe: bool, wait_s: float, as_json: bool, out: Console) -> None:
    """Examine, show. `wait_s`: the longest wait of the probe in the queue. Errors: CheckFailed."""
    facts = gather(subject)
    findings = examine(CHECKS, facts)
    if not as_json:
        show_findings(findings, out)
    result = None
    if probe:
        if (facts.slurm is None or facts.slurm.is_up) and "folder" not in problems_of(findings):
            result = _sent_probe(subject, facts, wait_s, out, silent=as_json)
            more = examine(PROBE_CHECKS, Probed(facts.config, facts.executor, result))
        else:
            more = (Finding("probe", Level.WARNING, "it was not sent: the problems above come first"),)
        if not as_json:
            out.print()
            show_findings(more, out)
        findings += more
    values = recommended(findings)
    if as_json:
        told = {
            "findings": as_objects(findings),
            "recommended": values,
            "probe": asdict(result) if result is not None else None,
        }
        print(json.dumps(told, indent=2))
    else:
        out.print()
        if values:
            out.print("Recommended for cluster_config.json:", style="bold")
            out.print(json.dumps(values, indent=2), soft_wrap=not out.is_terminal)
        elif result is not None:
            out.print("The config fits this place as it is.")
        out.print(f"{total(findings)}.")
    if bad := problems_of(findings):
        raise CheckFailed("doctor.problems", checks=", ".join(bad))


def recommended(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """What to write into the config, nested as in the file."""
    return apply_overrides({}, {name: value for one in findings for name, value in (one.sets or {}).items()})


def _sent_probe(subject: Subject, facts: LoginFacts, wait_s: float, out: Console, *, silent: bool) -> ProbeResult:
    longest_s = walltime_allowed_s(facts.config, facts.slurm) if facts.slurm is not None else None

    def say(words: str) -> None:
        if not silent:
            out.print(f"probe: {words}", soft_wrap=True, markup=False)

    try:
        return send_probe(subject, wait_s=wait_s, say=say, longest_s=longest_s)
    except KeyboardInterrupt:
        raise Interrupted("doctor.interrupted") from None
