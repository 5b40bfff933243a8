"""The verbs for a config and its place: init, schema, render, doctor. Imports stay inside: `--help` must be quick."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands import options
from orchestrator.errors import ConfigError


def render(
    config: options.ConfigOption = None,
    slot: Annotated[int, typer.Option(min=0, help="Number of the slot.")] = 0,
    slots: options.SlotsOption = None,
    world_size: options.WorldSizeOption = None,
    partition: options.PartitionOption = None,
    time_limit: options.TimeOption = None,
    executor: options.ExecutorOption = None,
    sets: options.SetOption = None,
) -> None:
    """Print the job script that `start` would submit."""
    from orchestrator.config import load_config
    from orchestrator.run.begin import rendered

    path = options.config_path_of(config)
    loaded = load_config(path, options.parse_overrides(sets, slots, partition, time_limit, executor, world_size))
    print(rendered(loaded, path, slot, os.environ), end="")
    if (command := loaded.command_of(slot)) is not None:
        print(f"note: the job runs {shlex.join(command)}", file=sys.stderr)


def init(
    path: Annotated[Path, typer.Argument(help="Config file to write.")] = options.DEFAULT_CONFIG,
    partition: options.PartitionOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a config for this machine.

    Reads partitions, limits and GPU types from sinfo.
    """
    from orchestrator.init import write_config

    write_config(path, partition, force=force, out=options.console())


def schema(markdown: Annotated[bool, typer.Option("--markdown", help="Print tables for people.")] = False) -> None:
    """Print the JSON schema of the config."""
    from orchestrator.config import RunConfig
    from orchestrator.reference import config_reference

    print(config_reference() if markdown else json.dumps(RunConfig.model_json_schema(), indent=2), end="")


def doctor(
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    sets: options.SetOption = None,
    probe: Annotated[bool, typer.Option("--probe", help="Submit a job of up to 3 minutes that checks a node.")] = False,
    probe_wait: Annotated[
        float, typer.Option("--probe-wait", min=1, help="Longest wait of the probe in the queue.")
    ] = 600.0,
    as_json: options.JsonOption = False,
) -> None:
    """Check the config, Slurm, folders and clocks.

    Changes nothing. Each finding says what to do; the exit code is 11 if one is a problem.
    """
    from orchestrator.config import load_config
    from orchestrator.doctor.gather import subject_of, subject_of_run
    from orchestrator.doctor.visit import visit
    from orchestrator.run.rundir import find_run

    if name is not None and (config is not None or sets):
        raise ConfigError("cli.name-and-config")
    if name is not None:
        subject = subject_of_run(find_run(name))
    else:
        path = options.config_path_of(config)
        subject = subject_of(load_config(path, options.parse_overrides(sets)), path, os.environ)
    visit(subject, probe=probe, wait_s=probe_wait, as_json=as_json, out=options.console())
