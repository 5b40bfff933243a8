"""What several commands are told alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunsArgument = Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, slot folders, or mirrors.")]
PolicyArgument = Annotated[
    str,
    typer.Argument(metavar="POLICY", help="A checkpoint or run folder; a mirror; or latest, best, RUN, RUN/SLOT."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="A training section as JSON, or a cluster_config.json.")
]
PresetOption = Annotated[str | None, typer.Option(help="A preset, as for `trainer train`; stronger than the file's.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Any field: --set batch_size=256. May be repeated.")]
SharedDirOption = Annotated[
    Path | None, typer.Option(help="The mirror or shared folder that latest, best, RUN are in.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
BestOption = Annotated[bool, typer.Option("--best", help="The best evaluated checkpoint, not the newest.")]
AveragedOption = Annotated[
    bool, typer.Option("--averaged", help="The moving average of what was trained, in place of its last weights.")
]
SlotOption = Annotated[
    int | None, typer.Option(min=0, help="This slot of a run or mirror; left out: the furthest, or newest.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Numbers for machines.")]
