"""The verbs that make a run go and stop: start, stop, tick."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from anchorleg.output import say
from orchestrator.commands.options import (
    ConfigOption,
    ExecutorOption,
    ForOption,
    JsonOption,
    NameArgument,
    PartitionOption,
    SetOption,
    SlotsOption,
    TimeOption,
    WorldSizeOption,
    age_of,
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
    probe_first: Annotated[
        bool, typer.Option("--probe-first", help="Start one slot; the others once it has done 20 steps.")
    ] = False,
    renew_code: Annotated[bool, typer.Option("--renew-code", help="Copy your program again (code.snapshot).")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the first actions without doing them.")] = False,
) -> None:
    """Start a run, or continue it.

    Keeps one job in each slot until the training is done. Ctrl-C ends this controller; the jobs go on.
    """
    from orchestrator.config import load_config
    from orchestrator.doctor.visit import look_before_first_job
    from orchestrator.run.starting import Typed, as_group, asked_for, with_world_size

    if via not in {"foreground", "daemon"}:
        raise ConfigError("cli.via", via=via)
    path = config_path_of(config)
    slots = number_of_slots(slots, world_size, sets)
    overrides = parse_overrides(sets, slots, partition, time_limit, executor)
    overrides |= {"queue.probe_first": True} if probe_first else {}
    if name is not None and config is not None:
        if (own := load_config(path, overrides).run_name) != name:
            raise ConfigError("start.other-name", path=path, own=own, name=name)
        name = None
    typed = Typed(name, path, overrides, fork, seconds_of(run_for), renew_code)
    asked = asked_for(typed)
    if world_size is not None:
        typed = replace(typed, overrides=as_group(asked, overrides))
        asked = with_world_size(asked_for(typed))
    look_before_first_job(asked, console(), offer=not dry_run)
    if dry_run:
        from orchestrator.hosts.dry import dry_start

        say(*dry_start(asked))
    elif via == "daemon":
        from orchestrator.hosts.detached import start_in_background

        start_in_background(asked, typed.words)
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


def clean(
    name: NameArgument = None,
    config: ConfigOption = None,
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Only what is older: 7-0 is seven days.")] = "7-0",
    larger_than: Annotated[str, typer.Option(metavar="SIZE", help="Only what is at least this large: 100M.")] = "0",
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also checkpoints of your program, but for the newest N.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and remove nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what no job needs any more.

    Scripts and output of ended jobs, and copies of code. `status --disk` shows what the run folder takes.
    """
    from orchestrator.run import leftovers
    from orchestrator.screens.usage import leftover_lines
    from orchestrator.sections import in_mb

    if not re.fullmatch(r"\d+[KMGT]?", larger_than):
        raise ConfigError("cli.size", size=larger_than)
    run_dir, out = locate(name, config), console()
    size = round(in_mb(larger_than) * 2**20) if larger_than[-1] in "KMGT" else int(larger_than)
    view = leftovers.disk_view(run_dir, older_than_s=age_of(older_than), larger_than=size, keep=keep)
    if not dry_run:
        leftovers.clean(run_dir, view.leftovers)
    if as_json:
        print(json.dumps([one.model_dump() for one in view.leftovers], indent=2))
    else:
        say(*leftover_lines(view, out.width, is_done=not dry_run))


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
