"""`orchestrator init`: a config for this machine, from what `sinfo` says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from anchorleg.files import write_json
from anchorleg.words import counted
from orchestrator.config import check_walltime, parse_config
from orchestrator.errors import ConfigError, SchedulerRefused, StorageError
from orchestrator.executors.slurm import SlurmExecutor
from orchestrator.executors.slurm_text import Partition
from orchestrator.notation import format_duration
from orchestrator.run.starting import has_torch_without_gpus

#: What most sites give a student, and what the relay is made for.
USUAL_TIME_LIMIT_S = 4 * 3600
#: Jobs at once that a student usually may have.
USUAL_SLOTS = 4
#: Meta-World wants CPUs; more than this hardly helps one trainer.
USUAL_CPUS = 8


def write_config(path: Path, partition: str | None, *, force: bool, out: Console) -> None:
    """Write `path`.

    Errors: ConfigError (it exists; its folder does not; no such partition), SchedulerRefused (sinfo did not answer),
    StorageError.
    """
    if not path.parent.is_dir():
        raise ConfigError("init.no-folder", path=path, folder=path.parent)
    if path.exists() and not force:
        raise ConfigError("init.file-is-there", path=path)
    # A user who names a partition may know more than sinfo shows.
    answer = SlurmExecutor(Path.cwd(), dict(os.environ)).partitions(hidden=partition is not None)
    rows = answer.rows
    if answer.error is not None and "could not be run" not in answer.error:
        raise SchedulerRefused("init.sinfo", why=answer.error)
    without_gpus = bool(rows) and has_torch_without_gpus(sys.executable)
    chosen = choose_partition(rows, partition, gpus=not without_gpus) if answer.error is None or partition else None
    if chosen is not None and without_gpus:
        chosen = chosen.model_copy(update={"gpus": {}})
    value = config_for(chosen)
    config = parse_config(value, str(path))
    check_walltime(config, config.executor)
    try:
        write_json(path, value)
    except OSError as error:
        raise StorageError("init.unwritable", path=path, why=error.strerror or error) from None
    if without_gpus:
        out.print(f"The torch of {sys.executable} is built without CUDA: no GPU is asked for.", soft_wrap=True)
    out.print(f"{path} is written: {summary(chosen)} Begin with `orchestrator start`.", soft_wrap=True)


def choose_partition(rows: tuple[Partition, ...], wanted: str | None, *, gpus: bool = True) -> Partition:
    """The partition asked for, else the default one, else the first with `gpus` (or without). Errors: ConfigError."""
    up = [row for row in rows if row.is_up]
    if wanted is not None:
        for row in rows:
            if row.name == wanted:
                return row
        names = ", ".join(row.name for row in rows) or "none: sinfo is not here"
        raise ConfigError("init.no-partition", partition=wanted, known=names)
    if not up:
        raise ConfigError("init.no-partition-up")
    fits = {row.name: bool(row.gpus) is gpus for row in up}
    return max(up, key=lambda row: (row.is_default and fits[row.name], fits[row.name], row.is_default))


def config_for(partition: Partition | None) -> dict[str, Any]:
    """The config's content; None: a machine without Slurm."""
    training = {"preset": "guide", "benchmark": "MT10"}
    if partition is None:
        return {"run_name": "mt10", "executor": "local", "slots": 1, "training": training}
    limit_s = min(partition.time_limit_s or USUAL_TIME_LIMIT_S, USUAL_TIME_LIMIT_S)
    most = max(partition.gpus.values(), default=0)
    slurm: dict[str, Any] = {
        "partition": partition.name,
        "time_limit": format_duration(limit_s),
        "cpus_per_task": max(1, min(USUAL_CPUS, partition.cpus_per_node // max(1, most))),
        "gpus": min(1, most),
    }
    slots = slots_for(partition)
    return {
        "run_name": "mt10",
        "executor": "slurm",
        "slots": slots,
        "slurm": slurm | {"max_jobs": slots},
        "training": training,
    }


def slots_for(partition: Partition) -> int:
    """As many as students may usually run at once, and no more than it has GPUs: what waits trains nothing."""
    gpus = partition.nodes * max(partition.gpus.values(), default=0)
    return min(USUAL_SLOTS, gpus) if gpus else USUAL_SLOTS


def summary(partition: Partition | None) -> str:
    """One sentence on what was chosen."""
    if partition is None:
        return "no Slurm here, so jobs run on this machine."
    kinds = ", ".join(f"{count}x {kind or 'GPU'}" for kind, count in partition.gpus.items()) or "no GPU"
    return f"partition {partition.name} ({kinds} a node), {counted(slots_for(partition), 'slot')}."
