"""The verb `doctor`. Imports stay inside: `--help` must be quick."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from orchestrator.commands.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonOption,
    NameArgument,
    SetOption,
    config_path_of,
    console,
    parse_overrides,
)
from orchestrator.errors import ConfigError


def doctor(
    name: NameArgument = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Send a job of at most 3 minutes that looks at a node.")
    ] = False,
    probe_wait: Annotated[
        float, typer.Option("--probe-wait", min=1, help="Seconds that the probe may wait in the queue.")
    ] = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Examine this place: Slurm, limits, the shared folder, clocks.

    Says what to do about each finding. Ends with 11 where one of them is a problem. Changes nothing.
    """
    from orchestrator.config import RunConfig, load_config  # noqa: PLC0415 - `--help` must stay quick
    from orchestrator.doctor.gather import subject_of, subject_of_run  # noqa: PLC0415
    from orchestrator.doctor.visit import visit  # noqa: PLC0415
    from orchestrator.run.registry import find_run  # noqa: PLC0415

    if name is not None and (config is not None or sets):
        raise ConfigError("a run keeps its own config: give either its name, or --config and --set.")
    if name is not None:
        subject = subject_of_run(find_run(name))
    elif config is not None or DEFAULT_CONFIG.exists():
        path = config_path_of(config)
        loaded = load_config(path, parse_overrides(sets, None, None, None, None))
        subject = subject_of(loaded, path, os.environ)
    else:
        subject = subject_of(RunConfig(), config_path_of(None), os.environ, known=False)
    visit(subject, probe=probe, wait_s=probe_wait, as_json=as_json, out=console())
