"""The newest jobs of each slot, for who looks again and again at a run of thousands. Read-only."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from anchorleg.job import Stretch, attempt_numbers
from orchestrator.decisions.models import Slot
from orchestrator.run.rundir import RunDir
from orchestrator.screens.goodput import JobFacts, SlotFacts
from orchestrator.screens.worktime import Event, facts_with, has_claim, job_facts, moments_of, stretches_of


class NewestJobs:
    """Of each slot of a run `most` jobs. What has ended is read once, and of older jobs nothing at all."""

    def __init__(self, run_dir: RunDir, most: int) -> None:
        self._run_dir, self._most = run_dir, most
        self._ended: dict[int, dict[int, tuple[Stretch | None, JobFacts]]] = {}

    def look(self, slot: Slot, events: Iterable[Event], now: float, *, over: bool) -> tuple[SlotFacts, int]:
        """The facts of `slot` as if it had no older jobs, and how many it has. `events`: its own, oldest first.

        Errors: RunFolderError where its history is damaged.
        """
        folder, told = self._run_dir.slot(slot.index), moments_of(slot, events)
        numbers, known = attempt_numbers(folder), self._ended.get(slot.index, {})
        claimed = (n for n in reversed(numbers) if n in known or has_claim(self._run_dir, slot.index, n))
        newest = list(islice(claimed, self._most))[::-1]
        stretches = stretches_of(folder, newest[0]) if newest else {}
        jobs: list[JobFacts | None] = []
        ended: dict[int, tuple[Stretch | None, JobFacts]] = {}
        for number in newest:
            stretch, before = stretches.get(number), known.get(number)
            known_job = before[1] if before is not None and before[0] == stretch else None
            job = known_job or job_facts(self._run_dir, slot.index, number, told, now, stretch, newest=newest[-1])
            if job is not None and number != newest[-1] and _is_settled(job, stretch):
                ended[number] = stretch, job
            jobs.append(job)
        self._ended[slot.index] = ended
        older = max(0, slot.jobs - len(newest))
        if older:
            told = told._replace(begun_at=jobs[0].submitted_at if jobs[0] is not None else None)
        return facts_with(slot, jobs, told, over=over), older


def _is_settled(job: JobFacts, stretch: Stretch | None) -> bool:
    """Whether its facts stay as they are while its part in the history (`stretch`) does."""
    return job.proven_at is not None and (stretch is None or stretch.until is not None)
