"""All that one tick saw, in one frozen value: what `fold` takes into the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Attempt, Slot, parse_token
from orchestrator.executors.base import Accounting, JobRow, Poll
from orchestrator.sections import QueueSection, RelaySection

#: One line of history in the making: its kind and its facts.
Event = dict[str, Any]


def event(kind: str, slot: Slot, attempt: Attempt, **more: Any) -> Event:
    """An event of one attempt."""
    return {"kind": kind, "slot": slot.index, "attempt": attempt.number, **more}


@dataclass(frozen=True)
class Facts:
    """`evidence`: by (slot, attempt). `newest_claims`: by slot, the highest claimed attempt that the ledger does not
    know. `ahead`: tokens of jobs that were queued behind another, of those that the ledger does not know.
    `since_last_look_s`: how long nobody looked. `disk_full`: the run folder's disk has no room at this moment;
    `out_of_inodes`: for no file more.
    `avoids_nodes`: a job can be told where not to run. `trainer`: its program is ours. `lacking`: a job's last
    words are that a program is missing there, and this machine lacks one, too.
    """

    now: float
    poll: Poll
    history: Accounting | None
    evidence: Mapping[tuple[int, int], Evidence]
    newest_claims: Mapping[int, tuple[int, Evidence]]
    jobs_dir: str
    forget_after_s: float
    submit_grace_s: float
    ahead: frozenset[str] = frozenset()
    since_last_look_s: float = 0.0
    relay: RelaySection = field(default_factory=RelaySection)
    run_name: str = "NAME"
    queue: QueueSection = field(default_factory=QueueSection)
    disk_full: bool = False
    out_of_inodes: bool = False
    avoids_nodes: bool = True
    trainer: bool = False
    lacking: bool = False

    def job_dir(self, token: str) -> str:
        """The work folder that identifies a submission."""
        return f"{self.jobs_dir}/{token}"

    def past_of(self, token: str) -> JobRow | None:
        """What the history tells of a submission."""
        known = self.history is not None and self.history.status == "ok"
        return self.history.of(self.job_dir(token)) if self.history is not None and known else None

    @cached_property
    def heard_of(self) -> frozenset[str]:
        """Tokens of jobs that somebody else speaks of: the queue, or a claim."""
        claims = [evidence.claim for evidence in self.evidence.values() if evidence.claim is not None]
        return frozenset(self.poll.alive) | {claim.token for claim in claims if claim.token}

    @cached_property
    def rows_of_slot(self) -> dict[int, list[tuple[int, str, JobRow]]]:
        """By slot, the jobs of this run that are not over: (attempt, token, row)."""
        found: dict[int, list[tuple[int, str, JobRow]]] = {}
        for token, row in self.poll.alive.items():
            parsed = parse_token(token)
            if parsed is not None and row.work_dir.rstrip("/") == self.job_dir(token):
                found.setdefault(parsed[0], []).append((parsed[1], token, row))
        return found
