"""From a run to its executor."""

from __future__ import annotations

from orchestrator.executors.base import Executor
from orchestrator.executors.local import LocalExecutor
from orchestrator.run.rundir import Run, RunDir


def make_executor(run: Run, run_dir: RunDir) -> Executor:
    """The executor that `run.json` names, with the environment that it recorded."""
    if run.executor == "slurm":
        from orchestrator.executors.slurm import SlurmExecutor

        return SlurmExecutor(run_dir.jobs, run.env)
    return LocalExecutor(run_dir.jobs, run.env)
