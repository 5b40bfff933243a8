"""Judges a probe's report. Pure. A report is another machine's word: every field may be missing.

What the program finds on the node is `programchecks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from anchorleg.findings import Finding, Level
from anchorleg.words import sized
from orchestrator.config import EARLY_SIGNAL_S, RunConfig
from orchestrator.doctor.checks import skew_finding
from orchestrator.doctor.facts import ProbeResult, Report, section
from orchestrator.doctor.programchecks import program_findings
from orchestrator.executors.base import SubmitRefused
from orchestrator.executors.slurm_text import read_submission
from orchestrator.walltime import format_duration

#: Slurm looks at its jobs' ends every 30 s, and start and end are told in whole seconds.
SIGNAL_SLACK_S = 5.0
#: A controller looks every 30 s anyhow; a file that shows later than that delays what it decides.
SLOW_FILE_S = 10.0
#: Scratch holds what an image unpacks; nothing of the trainer.
SMALL_SCRATCH_BYTES = 2**30
MEMORY_KINDS = frozenset({"tmpfs", "ramfs"})


def probe_findings(config: RunConfig, executor: str, result: ProbeResult) -> tuple[Finding, ...]:
    """Every check of the probe, in the order in which they are shown."""
    return tuple(_all(config, executor, result))


def earliness_s(result: ProbeResult) -> float | None:
    """How long before the job's end the signal came; None where it did not, or the end is not known."""
    heard = section(result.report, "heard").get("SIGUSR2")
    end = section(result.report, "end").get("at")
    return float(end) - float(heard) if isinstance(heard, int | float) and isinstance(end, int | float) else None


def sbatch_works(report: Report) -> bool | None:
    """Whether a job can be submitted from the node; None where nobody looked. A full quota is no obstacle."""
    answer = section(section(report, "slurm"), "answers").get("sbatch")
    if not isinstance(answer, dict):
        return None
    if answer.get("code") == 0:
        return True
    outcome = read_submission(int(answer.get("code", 1)), "", str(answer.get("err", "")))
    return isinstance(outcome, SubmitRefused) and outcome.kind == "quota"


def _all(config: RunConfig, executor: str, result: ProbeResult) -> Iterator[Finding]:
    report = result.report
    if result.error:
        last = next((line for line in reversed(result.output.splitlines()) if line.strip()), "")
        found = result.error + (f"; its last words: {last}" if last else "")
        advice = "look at what it waited for" if "waited" in found else "correct what it names, and probe again"
        yield Finding(check="probe", level=Level.PROBLEM, found=found, advice=advice)
    if not report:
        return
    if not result.error:
        waited = f" after {format_duration(result.pending_s)} in the queue" if result.pending_s is not None else ""
        found = f"job {result.job_id} ran on {report.get('host', '?')}{waited}"
        yield Finding(check="probe", level=Level.OK, found=found)
    for name, words in section(report, "errors").items():
        yield Finding(check=f"node: {name}", level=Level.WARNING, found=f"could not be looked at: {words}")
    yield from signal_findings(result, executor)
    yield from _files(result)
    yield from _node(report)
    yield from _slurm(config, report)
    yield from program_findings(config, executor, report)


def signal_findings(result: ProbeResult, executor: str) -> Iterator[Finding]:
    """Whether, when, and by whose word a job learns of its end."""
    end = section(result.report, "end")
    if end:
        found = f"known from {end.get('how')}"
        yield Finding(check="job's end", level=Level.OK, found=found)
    early_s = earliness_s(result)
    asked = f"asked for {result.lead_s:.0f} s before the end"
    if early_s is None:
        if not result.report.get("done"):
            return
        yield Finding(
            check="signal",
            level=Level.WARNING,
            found=f"USR2, {asked}, never came",
            advice="jobs hand over by the clock instead, which needs the node's clock to be right",
        )
        return
    after_s = float(section(result.report, "heard")["SIGUSR2"]) - float(result.report.get("started_at", 0))
    found = f"USR2, {asked}, came {early_s:.0f} s before it ({after_s:.0f} s after the start)"
    if early_s < result.lead_s - SIGNAL_SLACK_S:
        advice = "raise lead_seconds by the difference"
        yield Finding(check="signal", level=Level.WARNING, found=found, advice=advice)
    elif early_s > result.lead_s + EARLY_SIGNAL_S + SIGNAL_SLACK_S:
        advice = f"more than the {EARLY_SIGNAL_S} s that Slurm announces: each job ends as much earlier"
        yield Finding(check="signal", level=Level.WARNING, found=found, advice=advice)
    else:
        allowed = f"; Slurm may be {EARLY_SIGNAL_S} s early" if executor == "slurm" else ""
        yield Finding(check="signal", level=Level.OK, found=found + allowed)


def _files(result: ProbeResult) -> Iterator[Finding]:
    if not result.visible_s:
        found = "no file was answered from the node: it does not see the folder as this machine does, or was too short"
        yield Finding(check="shared files", level=Level.WARNING, found=found, advice="probe again")
        return
    most = max(result.visible_s)
    found = f"a replaced file is seen and answered by the node within {most:.1f} s (worst of {len(result.visible_s)})"
    if most > SLOW_FILE_S:
        advice = "the controller learns of ends that much later; nothing is decided by it"
        yield Finding(check="shared files", level=Level.WARNING, found=found, advice=advice)
    else:
        yield Finding(check="shared files", level=Level.OK, found=found)
    if result.skew_s is not None:
        yield skew_finding("node's clock", "the node", result.skew_s)


def _node(report: Report) -> Iterator[Finding]:
    leaks = section(report, "environment").get("leaks") or []
    if leaks:
        yield Finding(
            check="environment",
            level=Level.WARNING,
            found=f"set in the job: {', '.join(map(str, leaks))}",
            advice="they change what a job loads or asks; unset them in slurm.setup",
        )
    limits = section(report, "limits")
    if limits:
        memory = limits.get("memory_bytes")
        words = f"{sized(memory)} of memory enforced" if memory else "no memory limit enforced"
        yield Finding(check="node's limits", level=Level.OK, found=f"{limits.get('cpus')} CPUs, {words}")
    scratch = section(report, "scratch")
    if scratch:
        free, kind = scratch.get("free_bytes") or 0, scratch.get("kind")
        found = f"{scratch.get('path')} ({kind or 'unknown kind'}), {sized(free)} free"
        level, advice = Level.OK, ""
        if kind in MEMORY_KINDS:
            level, advice = Level.WARNING, "it is memory, and counts against the job's: ask for more slurm.mem"
        elif free < SMALL_SCRATCH_BYTES:
            level = Level.WARNING
            advice = "an image may not find room; set TMPDIR in slurm.setup, or SLURM_TMPDIR where the site sets it"
        yield Finding(check="scratch", level=level, found=found, advice=advice)


def _slurm(config: RunConfig, report: Report) -> Iterator[Finding]:
    works = sbatch_works(report)
    if works is None:
        return
    answers = section(section(report, "slurm"), "answers")
    queue = section(answers, "squeue")
    if works and queue.get("code") == 0:
        found = "sbatch and squeue work on the node: a job can run a failover tick"
        yield Finding(check="failover", level=Level.OK, found=found)
        return
    words = section(answers, "squeue" if works else "sbatch").get("err") or "no word"
    level = Level.WARNING if config.relay.failover_tick else Level.OK
    advice = (
        "set relay.failover_tick to false and keep a controller alive, or have a crontab run `orchestrator tick`"
        if config.relay.failover_tick
        else ""
    )
    which = "squeue" if works else "sbatch"
    yield Finding(check="failover", level=level, found=f"{which} does not work on the node ({words})", advice=advice)
