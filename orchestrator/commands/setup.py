"""The verbs for a config: init, schema, render."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    ExecutorOption,
    PartitionOption,
    SetOption,
    SlotsOption,
    TimeOption,
    WorldSizeOption,
    config_path_of,
    console,
    number_of_slots,
    parse_overrides,
)


def render(
    config: ConfigOption = None,
    slot: Annotated[int, typer.Option(min=0, help="Slot to render for.")] = 0,
    slots: SlotsOption = None,
    world_size: WorldSizeOption = None,
    partition: PartitionOption = None,
    time_limit: TimeOption = None,
    executor: ExecutorOption = None,
    sets: SetOption = None,
) -> None:
    """Print the job script that `start` would submit. Nothing is submitted or written."""
    from orchestrator.config import load_config  # noqa: PLC0415
    from orchestrator.run.begin import rendered  # noqa: PLC0415

    path = config_path_of(config)
    slots = number_of_slots(slots, world_size, sets)
    loaded = load_config(path, parse_overrides(sets, slots, partition, time_limit, executor))
    print(rendered(loaded, path, slot, os.environ), end="")
    if (command := loaded.command_of(slot)) is not None:
        print(f"note: it runs {shlex.join(command)}", file=sys.stderr)


def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = DEFAULT_CONFIG,
    partition: PartitionOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a config for this machine.

    Reads Slurm's partitions, limits and GPU types from sinfo.
    """
    from orchestrator.init import write_config  # noqa: PLC0415

    write_config(path, partition, force=force, out=console())


def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a table for people.")] = False,
) -> None:
    """Print the JSON schema of the config."""
    from orchestrator.config import RunConfig  # noqa: PLC0415
    from orchestrator.reference import config_reference  # noqa: PLC0415

    print(config_reference() if markdown else json.dumps(RunConfig.model_json_schema(), indent=2), end="")
