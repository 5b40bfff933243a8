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
    str,
    typer.Option(metavar="[foreground|daemon]", help="Where the controller lives: here, or in the background."),
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
    fork: Annotated[str | None, typer.Option(help="Begin a new run under this name with this config.")] = None,
    via: ViaOption = "foreground",
    run_for: ForOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done now, and do nothing.")] = False,
) -> None:
    """Begin a run, or go on with it.

    Keeps every slot at one job until the training is done. Ctrl-C ends this controller, not the jobs.
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
    now: Annotated[bool, typer.Option("--now", help="Do not wait for a hand-over: cancel the jobs.")] = False,
    grace: Annotated[float | None, typer.Option(min=0, help="Seconds to hand over in; default: lead + 60.")] = None,
) -> None:
    """Have every job save and exit, and wait for it. `orchestrator start` goes on from there."""
    if grace is not None and not math.isfinite(grace):
        raise ConfigError("cli.grace")
    from orchestrator.hosts import stopping

    stopping.stop(locate(name, config), at_once=now, grace_s=grace, out=console())


def tick(
    name: NameArgument = None,
    config: ConfigOption = None,
    run_dir: Annotated[Path | None, typer.Option(help="The run's folder, in place of its name.")] = None,
    failover: Annotated[bool, typer.Option("--failover", help="As a job does that ends.", hidden=True)] = False,
) -> None:
    """Look once, do what is due, and end: what `start` repeats."""
    if run_dir is not None and (name is not None or config is not None):
        raise ConfigError("cli.several-runs")
    from orchestrator.run.rundir import RunDir

    folder = RunDir(run_dir.resolve()) if run_dir is not None else locate(name, config)
    from orchestrator.hosts import ticking

    if failover:
        ticking.tick_for_job(folder)
    else:
        ticking.tick(folder)
