"""`lease/cron.json`: on which machine the crontab has the run's line (`orchestrator.hosts.cron` writes both)."""

from __future__ import annotations

from pathlib import Path

from orchestrator.disk import read_json_or_none
from orchestrator.executors.base import Frozen
from orchestrator.processes import host_name
from orchestrator.run.rundir import RunDir


class CronHost(Frozen):
    """Where the line of a run is. `since`: unix seconds."""

    host: str
    run_id: str
    since: float

    @property
    def is_here(self) -> bool:
        """Whether this machine's cron ticks the run."""
        return self.host == host_name()


def host_of(run_dir: RunDir) -> CronHost | None:
    """The machine whose cron ticks this run, None where none does. When it last looked: `written_at` of the ledger."""
    value = read_json_or_none(run_dir.disk, cron_record(run_dir))
    try:
        return CronHost.model_validate(value) if value is not None else None
    except ValueError:
        return None


def cron_record(run_dir: RunDir) -> Path:
    """Where that is written."""
    return run_dir.lease / "cron.json"
