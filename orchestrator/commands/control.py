"""The verbs that make a run go and stop: start, stop, tick."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from anchorleg.output import say
from orchestrator.commands.options import (
    ConfigOption,
    ExecutorOption,
    ForOption,
    NameArgument,
    PartitionOption,
    SetOption,
    SlotsOption,
    TimeOption,
    WorldSizeOption,
    config_path_of,
    console,
    locate,
    number_of_slots,
    parse_overrides,
    seconds_of,
)
from orchestrator.errors import ConfigError

ViaOption = Annotated[
    str, typer.Option(metavar="[foreground|daemon]", help="Where the controller runs: here, or in the background.")
]


def start(
    name: NameArgument = None,
    config: ConfigOption = None,
    slots: SlotsOption = None,
    world_size: WorldSizeOption = None,
    partition: PartitionOption = None,
    time_limit: TimeOption = None,
    executor: ExecutorOption = None,
    sets: SetOption = None,
    fork: Annotated[str | None, typer.Option(help="Start a new run of this name with this config.")] = None,
    via: ViaOption = "foreground",
    run_for: ForOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the first actions without doing them.")] = False,
) -> None:
    """Start a run, or continue it.

    Keeps one job in each slot until the training is done. Ctrl-C ends this controller; the jobs go on.
    """
    from orchestrator.config import load_config
    from orchestrator.doctor.visit import look_before_first_job
    from orchestrator.run.starting import as_group, asked_for, command_line, with_world_size

    if via not in {"foreground", "daemon"}:
        raise ConfigError("cli.via", via=via)
    path = config_path_of(config)
    slots = number_of_slots(slots, world_size, sets)
    overrides = parse_overrides(sets, slots, partition, time_limit, executor)
    if name is not None and config is not None:
        if (own := load_config(path, overrides).run_name) != name:
            raise ConfigError("start.other-name", path=path, own=own, name=name)
        name = None
    for_s = seconds_of(run_for)
    asked = asked_for(name, path, overrides, fork, for_s)
    if world_size is not None:
        overrides = as_group(asked, overrides)
        asked = with_world_size(asked_for(name, path, overrides, fork, for_s))
    look_before_first_job(asked, console(), offer=not dry_run)
    if dry_run:
        from orchestrator.hosts.dry import dry_start

        say(*dry_start(asked))
    elif via == "daemon":
        from orchestrator.hosts.detached import start_in_background

        start_in_background(asked, command_line(name, path, overrides, fork, for_s))
    else:
        from orchestrator.hosts import host

        host.start(asked, console())


def stop(
    name: NameArgument = None,
    config: ConfigOption = None,
    now: Annotated[bool, typer.Option("--now", help="Cancel the jobs without waiting for them to save.")] = False,
    grace: Annotated[float | None, typer.Option(min=0, help="Time to save. Default: lead_seconds + 60.")] = None,
) -> None:
    """Stop a run: every job saves and exits. `orchestrator start` continues it."""
    if grace is not None and not math.isfinite(grace):
        raise ConfigError("cli.grace")
    from orchestrator.hosts import stopping

    stopping.stop(locate(name, config), at_once=now, grace_s=grace, out=console())


def tick(
    name: NameArgument = None,
    config: ConfigOption = None,
    run_dir: Annotated[Path | None, typer.Option(help="The run's folder, in place of its name.")] = None,
    failover: Annotated[bool, typer.Option("--failover", help="As a job does when it ends.", hidden=True)] = False,
) -> None:
    """Check the run once, do what is due, and exit. `start` repeats this."""
    if run_dir is not None and (name is not None or config is not None):
        raise ConfigError("cli.several-runs")
    from orchestrator.run.rundir import RunDir

    folder = RunDir(run_dir.resolve()) if run_dir is not None else locate(name, config)
    from orchestrator.hosts import ticking

    if failover:
        ticking.tick_for_job(folder)
    else:
        ticking.tick(folder)
