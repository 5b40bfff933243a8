"""What a slot asks for beyond the config, because a job ran out of it. Pure."""

from __future__ import annotations

from orchestrator.decisions.models import Attempt, Raised, Slot, Verdict
from orchestrator.decisions.verdicts import OUT_OF_MEMORY
from orchestrator.notation import format_duration
from orchestrator.sections import EscalateSection, SlurmSection

MEM_TIMES, TIME_TIMES = 1.5, 2


def raised_slurm(slurm: SlurmSection, raised: Raised | None) -> SlurmSection:
    """What the next job asks for."""
    if raised is None:
        return slurm
    update: dict[str, object] = {"time_limit": max(slurm.time_limit, raised.time_limit)}
    if raised.mem_mb > slurm.memory_mb:
        whole, rest = divmod(raised.mem_mb, 1024)
        update["mem"] = f"{raised.mem_mb}M" if rest else f"{whole}G"
    return slurm.model_copy(update=update)


def raised_after(slot: Slot, attempt: Attempt, slurm: SlurmSection, most: EscalateSection) -> Raised | None:
    """As `slot` should have it after the end of `attempt`, which left no new checkpoint."""
    before = slot.raised or Raised()
    now = raised_slurm(slurm, before)
    mem_mb, time_limit = before.mem_mb, before.time_limit
    if attempt.verdict is Verdict.CRASHED and attempt.cause.startswith(OUT_OF_MEMORY):
        mem_mb = max(mem_mb, round(min(now.memory_mb * MEM_TIMES, most.memory_mb)))
    if attempt.verdict is Verdict.TIMED_OUT:
        time_limit = max(time_limit, min(now.time_limit * TIME_TIMES, most.time_limit or 0))
    raised = Raised(mem_mb=mem_mb, time_limit=time_limit)
    return raised if raised_slurm(slurm, raised) != now else slot.raised


def raised_words(slurm: SlurmSection, raised: Raised | None) -> str:
    """What is asked for, why, and how to keep it; empty where it is what the config says."""
    asked, found = raised_slurm(slurm, raised), []
    if asked.mem != slurm.mem:
        found.append(f"a job ran out of {slurm.mem} of memory, so the next ones get {asked.mem} (slurm.mem)")
    if asked.time_limit != slurm.time_limit:
        longer, before = format_duration(asked.time_limit), format_duration(slurm.time_limit)
        found.append(f"a job saved nothing in {before}, so the next ones get {longer} (slurm.time_limit)")
    return "; ".join(found)
