"""From a run to its executor."""

from __future__ import annotations

from orchestrator.executors.base import Executor
from orchestrator.executors.local import LocalExecutor
from orchestrator.run.rundir import Run, RunDir


def make_executor(run: Run, run_dir: RunDir, *, patience_s: float | None = None) -> Executor:
    """The executor that `run.json` names, with the environment that it recorded. `patience_s`: how long each of Slurm's
    commands may take, where that is not the usual.
    """
    if run.executor == "slurm":
        from orchestrator.executors.slurm import COMMAND_TIMEOUT_S, SlurmExecutor  # noqa: PLC0415 - not on a laptop

        return SlurmExecutor(run_dir.jobs, run.env, command_timeout_s=patience_s or COMMAND_TIMEOUT_S)
    return LocalExecutor(run_dir.jobs, run.env)
