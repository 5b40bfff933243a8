"""`trainer wandb`: learning curves for Weights & Biases, from the journals that every training writes."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from trainer.commands.options import RunsArgument

OutOption = Annotated[Path, typer.Option(help="Folder of the offline runs.")]
ProjectOption = Annotated[
    str | None,
    typer.Option(envvar="WANDB_PROJECT", help="Project on W&B; left out: what the run's jobs were told, or anchorleg."),
]
EntityOption = Annotated[
    str | None, typer.Option(envvar="WANDB_ENTITY", help="User or team on W&B; left out: as --project, else the key's.")
]


def wandb(
    runs: RunsArgument, out: OutOption = Path("wandb"), project: ProjectOption = None, entity: EntityOption = None
) -> None:
    """Write each slot's curves as one offline run of Weights & Biases, for `wandb sync`. Again: with what is new.

    With WANDB_MODE=online a job sends them itself while it trains; then this fills in whatever did not arrive.
    """
    from trainer.history.slots import find_histories, told_where
    from trainer.wandb import Destination, library, write

    unset = "env -u WANDB_RESUME " if os.environ.get("WANDB_RESUME") else ""  # it would send every row twice
    library()  # before anything is read: one sentence where it is missing
    found = {(history.run_id, history.slot): (path, history) for path in runs for history in find_histories(path)}
    for path, history in found.values():
        with told_where(path):
            there = Destination.recorded(history.folder / "slots" / str(history.slot))
            there = replace(there, project=project or there.project, entity=entity or there.entity)
            written = write(history, out, there)
        print(f"{written.folder.name}\tstep {written.last_step:,}\t{written.lines} points\t{written.folder}")
    patterns = {f"{shlex.quote(str(out))}/offline-run-*-{history.run_id}-*" for _, history in found.values()}
    print(f"send: {unset}wandb sync {' '.join(sorted(patterns))}")
