"""The command: gather, judge, send the probe where it was asked for, show, and end with the code that says it."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from anchorleg.findings import Finding, Level, as_objects, examine, problems_of, show_findings, total
from anchorleg.output import Waiting
from anchorleg.places import runs_folder
from orchestrator.config import apply_overrides, check_start
from orchestrator.doctor.checks import CHECKS, LoginFacts
from orchestrator.doctor.gather import Subject, gather, subject_of
from orchestrator.doctor.probechecks import CHECKS as PROBE_CHECKS
from orchestrator.doctor.probechecks import Probed
from orchestrator.doctor.probing import ProbeResult, send_probe
from orchestrator.doctor.slurmchecks import SlurmFacts, partition, walltime_allowed_s
from orchestrator.errors import AnchorlegError, CheckFailed, ConfigError, Interrupted
from orchestrator.executors.slurm import SlurmExecutor
from orchestrator.run.begin import has_begun
from orchestrator.run.rundir import Entry, RunDir, entries, load_run
from orchestrator.run.starting import StartRequest

#: Beside the records of the account's runs: it has sent a probe.
PROBED = runs_folder() / "probed"
#: `start` does not wait longer for sinfo; sbatch checks what is asked for, too.
SINFO_S = 5.0


def visit(subject: Subject, *, probe: bool, wait_s: float, as_json: bool, out: Console) -> None:
    """Examine, show. `wait_s`: the longest wait of the probe in the queue. Errors: CheckFailed."""
    with Waiting("checking"):
        facts = gather(subject)
        findings = examine(CHECKS, facts)
    if not as_json:
        show_findings(findings, out)
    result = None
    if probe:
        if (facts.slurm is None or facts.slurm.is_up) and "folder" not in problems_of(findings):
            result = _sent_probe(subject, facts, wait_s, out, silent=as_json)
            with suppress(OSError):
                PROBED.parent.mkdir(parents=True, exist_ok=True)
                PROBED.touch()
            more = examine(PROBE_CHECKS, Probed(facts.config, facts.executor, result))
        else:
            more = (Finding("probe", Level.WARNING, "not sent", "solve the problems above first"),)
        if not as_json:
            out.print()
            show_findings(more, out)
        findings += more
    values = recommended(findings)
    if as_json:
        told = {"findings": as_objects(findings), "recommended": values, "probe": asdict(result) if result else None}
        print(json.dumps(told, indent=2))
    else:
        out.print()
        if values:
            out.print("Recommended for cluster_config.json:", style="bold")
            out.print(json.dumps(values, indent=2), soft_wrap=not out.is_terminal)
        elif result is not None:
            out.print("The config fits this site.")
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
            Waiting.clear()
            out.print(f"probe: {words}", soft_wrap=True, markup=False)

    try:
        with Waiting("waiting for the probe's job"):
            return send_probe(subject, wait_s=wait_s, say=say, longest_s=longest_s)
    except KeyboardInterrupt:
        raise Interrupted("doctor.interrupted") from None


def look_before_first_job(asked: StartRequest, out: Console, *, offer: bool) -> None:
    """Where no job of the run has begun by Slurm: refuse what no node of its partition can give, and `offer` the probe
    where no job of this account has run yet. Errors: ConfigError; CheckFailed where the probe found a problem.
    """
    subject = subject_of(asked.config, asked.path, os.environ)
    if subject.executor != "slurm" or has_begun(asked.run_dir):
        return
    check_start(asked.config, "slurm")
    told = SlurmExecutor(
        asked.run_dir.jobs, subject.env, clusters=asked.config.slurm.clusters, command_timeout_s=SINFO_S
    ).partitions()
    named = asked.config.slurm.partition is not None  # else the site may choose another one than its default
    found = partition(asked.config, SlurmFacts(partitions=told.rows), lasting=True) if named and told.rows else ()
    if problems := [f"{one.found}: {one.advice}" for one in found if one.level is Level.PROBLEM]:
        raise ConfigError("slurm.never-fits", why="; ".join(problems))
    if not offer or not told.rows or PROBED.exists() or any(map(_has_run_by_slurm, entries())):
        return
    if not (out.is_terminal and sys.stdin.isatty()):
        hint = "note: no job has run on this cluster yet: `orchestrator doctor --probe` tries one for 3 minutes."
        print(hint, file=sys.stderr)
    elif typer.confirm("No job has run on this cluster yet. Send a probe of 3 minutes first?"):
        visit(subject, probe=True, wait_s=600.0, as_json=False, out=out)


def _has_run_by_slurm(entry: Entry) -> bool:
    with suppress(AnchorlegError, OSError):
        return has_begun(RunDir(Path(entry.run_dir))) and load_run(RunDir(Path(entry.run_dir))).executor == "slurm"
    return False
