"""The verbs of the `trainer` command beside `train`, one module a noun; here, the options that several share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunsArgument = Annotated[list[Path], typer.Argument(help="Run folders, slot folders or mirrors.")]
PolicyArgument = Annotated[
    str, typer.Argument(help="A checkpoint, a run folder, a mirror, or latest, best, RUN, RUN/SLOT.")
]
DEVICES = "[auto|cpu|cuda|mps]"

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="cluster_config.json, or a training section alone.")
]
PresetOption = Annotated[str | None, typer.Option(help="See `trainer presets`. Replaces the file's.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Any field, such as batch_size=256. Repeat for more.")
]
SharedDirOption = Annotated[Path | None, typer.Option(help="Mirror or shared folder of latest, best and RUN.")]
DeviceOption = Annotated[str, typer.Option(metavar=DEVICES, help="Where the policy computes.")]
BestOption = Annotated[bool, typer.Option("--best", help="The best checkpoint instead of the newest.")]
AveragedOption = Annotated[bool, typer.Option("--averaged", help="The moving average of the weights.")]
SlotOption = Annotated[int | None, typer.Option(min=0, help="Default: the slot that is furthest or newest.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
