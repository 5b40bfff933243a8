"""The verbs that make a run go and stop: start, stop, tick."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.commands.options import (
    ConfigOption,
    ExecutorOption,
    NameArgument,
    PartitionOption,
    SetOption,
    SlotsOption,
    TimeOption,
    config_path_of,
    console,
    locate,
    parse_overrides,
)
from orchestrator.errors import ConfigError


def start(
    name: NameArgument = None,
    config: ConfigOption = None,
    slots: SlotsOption = None,
    partition: PartitionOption = None,
    time_limit: TimeOption = None,
    executor: ExecutorOption = None,
    sets: SetOption = None,
    fork: Annotated[str | None, typer.Option(help="Begin a new run under this name with this config.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Go on in the background.")] = False,
) -> None:
    """Begin a run, or go on with it.

    Keeps every slot at one job until the training is done. Ctrl-C ends this controller, not the jobs.
    """
    from orchestrator import host  # noqa: PLC0415
    from orchestrator.starting import asked_for, command_line  # noqa: PLC0415

    if name is not None and config is not None:
        raise ConfigError("give either a run's name or --config, not both.")
    path = config_path_of(config)
    overrides = parse_overrides(sets, slots, partition, time_limit, executor)
    asked = asked_for(name, path, overrides, fork)
    if detach:
        host.start_detached(asked, command_line(name, path, overrides, fork), console())
    else:
        host.start(asked, console())


def stop(
    name: NameArgument = None,
    config: ConfigOption = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for a hand-over: cancel the jobs.")] = False,
    grace: Annotated[float | None, typer.Option(min=0, help="Seconds to hand over in; default: lead + 60.")] = None,
) -> None:
    """Have every job save and exit, and wait for it. `orchestrator start` goes on from there."""
    from orchestrator import host  # noqa: PLC0415

    host.stop(locate(name, config), at_once=now, grace_s=grace, out=console())


def tick(name: NameArgument = None, config: ConfigOption = None) -> None:
    """Look once, do what is due, and end: what `start` repeats."""
    from orchestrator import host  # noqa: PLC0415

    host.tick(locate(name, config), console())
