"""What a tick may do, as values. Pure: `plan` chooses, `controller` does, `tick --dry-run` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Submit:
    """Submit `attempt` of `slot` under `token`. `exclude`: nodes to avoid. For a queued successor, `after`: the job
    to queue behind, and `behind`: that job's attempt. `level`: how many rungs of successive halving it may pass from
    now on, where that changes.
    """

    slot: int
    attempt: int
    token: str
    after: str | None = None
    behind: int | None = None
    exclude: tuple[str, ...] = ()
    level: int | None = None


@dataclass(frozen=True)
class HandOver:
    """Ask a running job to save and exit."""

    slot: int
    attempt: int
    token: str
    job_id: str | None


@dataclass(frozen=True)
class Cancel:
    """End a job. `why` goes into the history."""

    slot: int
    attempt: int
    token: str
    job_id: str
    why: str


@dataclass(frozen=True)
class Release:
    """Let a job go that the scheduler itself held, because its launch failed."""

    slot: int
    attempt: int
    token: str
    job_id: str


@dataclass(frozen=True)
class Abort:
    """Make a program that reports nothing any more print its stacks and end."""

    slot: int
    attempt: int
    token: str
    why: str


Action = Submit | HandOver | Cancel | Release | Abort
