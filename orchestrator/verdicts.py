"""How an attempt ended, and why. Pure: exit record, scheduler's word, progress, end of the log → verdict and cause."""

from __future__ import annotations

import re

from orchestrator.evidence import Evidence
from orchestrator.job import DO_NOT_REQUEUE, HANDED_OVER
from orchestrator.models import Gone, Verdict

#: The shim's word for a hand-over that somebody wished by the hand-over file.
ASKED_TO = "asked to"

#: What to look for in the end of a log, most specific first: pattern → words for the user.
CAUSES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"CUDA out of memory|OutOfMemoryError", re.IGNORECASE), "the GPU ran out of memory"),
    (
        re.compile(
            r"oom-kill|out of memory|exceeded \w+ memory limit|Cannot allocate memory|MemoryError", re.IGNORECASE
        ),
        "out of memory",
    ),
    (re.compile(r"No space left on device"), "no space left on the disk"),
    (re.compile(r"Disk quota exceeded"), "the disk quota is used up"),
    (re.compile(r"CUDA error|no CUDA-capable device|CUDA driver", re.IGNORECASE), "a CUDA error"),
    (
        re.compile(
            r"(error|fail|cannot|could not|unable)[^\n]*\b(egl|glfw|opengl|osmesa)\b"
            r"|\b(egl|glfw|opengl|osmesa)\w*\b[^\n]*(error|fail|cannot|could not|unable)",
            re.IGNORECASE,
        ),
        "the renderer (EGL/OpenGL) failed",
    ),
    (re.compile(r"not finite|\bNaN\b", re.IGNORECASE), "a value became NaN"),
)

_SCHEDULER_WORDS = {
    "TIMEOUT": (Verdict.TIMED_OUT, "killed at its walltime before it could hand over"),
    "DEADLINE": (Verdict.TIMED_OUT, "killed at its deadline before it could hand over"),
    "PREEMPTED": (Verdict.PREEMPTED, "preempted by another job"),
    "CANCELLED": (Verdict.CANCELLED, "cancelled"),
    "OUT_OF_MEMORY": (Verdict.CRASHED, "out of memory"),
    "NODE_FAIL": (Verdict.CRASHED, "its node failed"),
    "BOOT_FAIL": (Verdict.CRASHED, "its node did not boot"),
}


def made_progress(evidence: Evidence) -> bool:
    """Whether the attempt left a checkpoint beyond where it began."""
    steps = [evidence.newest_checkpoint]
    if evidence.progress is not None:
        steps.append(evidence.progress.checkpoint_step)
    return any(step is not None and step > evidence.start_step for step in steps)


def judge(evidence: Evidence, gone: Gone) -> tuple[Verdict, str]:
    """(verdict, cause in plain words) of an attempt whose claimant is gone."""
    ended, progress = evidence.exit, evidence.progress
    if ended is not None:
        if ended.superseded_by is not None:
            return Verdict.SUPERSEDED, f"attempt {ended.superseded_by} had taken over"
        if ended.code == 0:
            if progress is None or progress.checkpoint_step >= progress.total:
                return Verdict.FINISHED, ""
            if made_progress(evidence):
                return Verdict.HANDED_OVER, "it ended before its total"
            return Verdict.NO_PROGRESS, "it ended with 0 before its total, and saved nothing new"
        if ended.code == HANDED_OVER:
            # Who is asked in the middle of his start-up has nothing to save, and is not to blame.
            asked = ended.asked is not None if progress is None else ended.asked in {ASKED_TO, "SIGTERM"}
            if made_progress(evidence) or asked:
                return Verdict.HANDED_OVER, ended.asked or ""
            return Verdict.NO_PROGRESS, "it wants another job and left no new checkpoint"
        if ended.code == DO_NOT_REQUEUE:
            return Verdict.DO_NOT_REQUEUE, cause_in(evidence.log_tail) or "it asked not to be run again (exit code 93)"
        how = f"killed by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
        cause = ended.words or cause_in(evidence.log_tail)
        return Verdict.CRASHED, f"{cause} ({how})" if cause else how
    if gone.raw_state in _SCHEDULER_WORDS:
        return _SCHEDULER_WORDS[gone.raw_state]
    if evidence.claim is None:
        cause = cause_in(evidence.log_tail)
        return Verdict.CRASHED, f"it ended before it began ({cause or gone.raw_state or gone.proof})"
    return Verdict.CRASHED, cause_in(evidence.log_tail) or f"it ended without a word ({gone.raw_state or gone.proof})"


def cause_in(log_tail: str) -> str:
    """A known cause in the end of a log, else its last line; empty where there is nothing."""
    for pattern, words in CAUSES:
        if pattern.search(log_tail):
            return words
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""
