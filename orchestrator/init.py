"""`orchestrator init`: a config for this machine, from what `sinfo` says of the nodes and this Python of its torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from anchorleg.files import write_json
from anchorleg.words import counted
from orchestrator.config import RunConfig, check_walltime, parse_config, smallest_time_limit_s
from orchestrator.errors import ConfigError, SchedulerRefused, StorageError
from orchestrator.executors.slurm import SlurmExecutor
from orchestrator.executors.slurm_text import Partition
from orchestrator.notation import format_duration
from orchestrator.run.starting import python_facts, unusable_python

#: What most sites give a student, and how many jobs at once.
USUAL_TIME_LIMIT_S = 4 * 3600
USUAL_SLOTS = 4
#: Meta-World wants CPUs; more than this hardly helps one trainer.
USUAL_CPUS = 8
#: Enough for MT10's replay and environments. Without a request many sites give a job a node's whole memory.
USUAL_MEMORY_GB = 32


def write_config(path: Path, partition: str | None, *, force: bool, out: Console) -> None:
    """Write `path`. Errors: ConfigError, SchedulerRefused (sinfo did not answer), StorageError."""
    if not path.parent.is_dir():
        raise ConfigError("init.no-folder", path=path, folder=path.parent)
    if path.exists() and not force:
        raise ConfigError("init.file-is-there", path=path)
    # A user who names a partition may know more than sinfo shows.
    answer = SlurmExecutor(Path.cwd(), dict(os.environ)).partitions(hidden=partition is not None)
    if answer.error is not None and "could not be run" not in answer.error:
        raise SchedulerRefused("init.sinfo", why=answer.error, path=path)
    python = python_facts(sys.executable, os.environ)
    gpus = python.torch != "CPU"
    on_slurm = answer.error is None or partition is not None
    chosen = choose_partition(answer.rows, partition, gpus=gpus) if on_slurm else None
    value = config_for(chosen, gpus=gpus)
    config = parse_config(value, str(path))
    check_walltime(config, config.executor)
    try:
        write_json(path, value)
    except OSError as error:
        raise StorageError("init.unwritable", path=path, why=error.strerror or error) from None
    said = [f"The torch of {sys.executable} has no CUDA, so jobs ask for no GPU."] if chosen and not gpus else []
    said += [f"{path} is written: {_summary(config)}. Start with `orchestrator start`."]
    vain = unusable_python(config, python, config.executor)
    for line in [*said, *([f"note: {vain}"] if vain else [])]:
        out.print(line, markup=False, soft_wrap=not out.is_terminal)


def choose_partition(rows: tuple[Partition, ...], wanted: str | None, *, gpus: bool = True) -> Partition:
    """The one asked for, else the default one, else the first that suits. Errors: ConfigError."""
    up = [row for row in rows if row.is_up]
    if named := [row for row in rows if row.name == wanted]:
        return named[0]
    if wanted is not None:
        names = ", ".join(row.name for row in rows) or "none: there is no sinfo here"
        raise ConfigError("init.no-partition", partition=wanted, known=names)
    if not up:
        raise ConfigError("init.no-partition-up")
    least_s = smallest_time_limit_s(RunConfig().lead_seconds, "slurm")

    def merit(row: Partition) -> tuple[bool, ...]:
        fits = bool(row.gpus) is gpus
        return row.time_limit_s is None or row.time_limit_s >= least_s, row.is_default and fits, fits, row.is_default

    return max(up, key=merit)


def config_for(partition: Partition | None, *, gpus: bool) -> dict[str, Any]:
    """The config's content; None: a machine without Slurm. There are no more slots than nodes have room for."""
    training = {"preset": "guide", "benchmark": "MT10"}
    if partition is None:
        return {"run_name": "mt10", "executor": "local", "slots": 1, "training": training}
    limit_s = min(partition.time_limit_s or USUAL_TIME_LIMIT_S, USUAL_TIME_LIMIT_S)
    a_node = max(partition.gpus.values(), default=0) if gpus else 0
    cpus = max(1, min(USUAL_CPUS, partition.cpus_per_node // max(1, a_node)))
    room = partition.nodes * (a_node or max(1, partition.cpus_per_node // cpus))
    slots = min(USUAL_SLOTS, room)
    memory_gb = int(0.9 * partition.memory_mb / 1024 * min(1.0, cpus / partition.cpus_per_node))
    slurm: dict[str, Any] = {
        "partition": partition.name,
        "time_limit": format_duration(limit_s),
        "cpus_per_task": cpus,
        "gpus": min(1, a_node),
        **({"mem": f"{min(USUAL_MEMORY_GB, memory_gb)}G"} if memory_gb else {}),
        "max_jobs": slots,
    }
    return {"run_name": "mt10", "executor": "slurm", "slots": slots, "slurm": slurm, "training": training}


def _summary(config: RunConfig) -> str:
    if config.executor == "local":
        return "there is no Slurm here, so jobs run on this machine"
    slurm = config.slurm
    parts = [counted(slurm.cpus_per_task, "CPU"), counted(slurm.gpus, "GPU") if slurm.gpus else "no GPU"]
    parts += [f"{slurm.mem} of memory"] if slurm.mem else []
    each = f"{', '.join(parts)}, {format_duration(slurm.time_limit)}"
    return f"partition {slurm.partition}, {counted(config.slots, 'slot')}, for each job {each}"
