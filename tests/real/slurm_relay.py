"""A run of the counting program whose jobs are those of a test cluster."""

from __future__ import annotations

from typing import Any

from relay import NewRelay, Relay
from slurm_cluster import JobRow, SlurmCluster


def on_slurm(new_relay: NewRelay, cluster: SlurmCluster, name: str = "toy", **settings: Any) -> Relay:
    """A run on a test cluster, with short polls; `settings` as `Relay.make` takes them, `slurm` is merged into ours."""
    section = {"time_limit": "3", "mem": "100M", "cpus_per_task": 1, "gpus": 0, **settings.pop("slurm", {})}
    settings = {"poll_seconds": 0.5, **settings}
    return new_relay(name, env=cluster.env(), executor="slurm", slurm=section, **settings)


def rows_of(cluster: SlurmCluster, relay: Relay) -> list[JobRow]:
    """The run's jobs that wait, run or are ending."""
    return [row for row in cluster.squeue() if row.work_dir.startswith(f"{relay.run_dir}/")]


def ever(cluster: SlurmCluster, relay: Relay) -> list[JobRow]:
    """All jobs of the run that the cluster remembers, oldest first, the ended ones too."""
    rows = [row for row in cluster.jobs() if row.work_dir.startswith(f"{relay.run_dir}/")]
    return sorted(rows, key=lambda row: row.job_id)
