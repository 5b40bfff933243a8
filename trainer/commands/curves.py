"""`trainer plot`, `compare` and `wandb`: learning curves as pictures, as tables, as JSON, for Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.output import Waiting, say, set_aside
from trainer.commands import JsonOption, RunsArgument

if TYPE_CHECKING:
    from trainer.showing.summary import Summary

#: Letters that fit above a picture.
_TITLE_LETTERS = 80

PicturesOption = Annotated[
    Path | None, typer.Option(help="NAME.png or .svg; writes NAME-tasks too. Default: curves.png.")
]


def plot(runs: RunsArgument, out: PicturesOption = None, as_json: JsonOption = False) -> None:
    """Draw learning curves and print results.

    Slots of a run that differ only in their seed are shown together, with 95 % intervals. Several runs are compared.
    """
    with Waiting("reading curves") as line:
        from rich.console import Console

        from trainer.showing.learning import find_curves
        from trainer.showing.summary import summaries
        from trainer.showing.tables import runs_as_json, show_runs

        found = summaries(find_curves(*runs))
        line.words = "drawing"
        drawn = [] if as_json and out is None else _draw(found, out or Path("curves.png"))
    if as_json:
        print(json.dumps(runs_as_json(found)))
    else:
        show_runs(found, Console(emoji=False, highlight=False, markup=False))
        print(f"the pictures: {', '.join(map(str, drawn))}")


def _draw(found: list[Summary], picture: Path) -> list[Path]:
    """The files that were written."""
    from trainer.showing.plot import draw_curves, draw_tasks

    names = [run.run for run in found]
    title = ", ".join(names)
    title = title if len(names) == 1 or len(title) <= _TITLE_LETTERS else f"{len(names)} runs"
    tasks = max(len(run.tasks) for run in found)
    title += f" · {tasks} tasks" if tasks > 1 else ""
    draw_curves(found, picture, title)
    if max((len(run.tasks) for run in found if run.tells_success), default=0) < 2:
        return [picture]
    beside = picture.with_stem(f"{picture.stem}-tasks")
    draw_tasks(found, beside, title)
    return [picture, beside]


PictureOption = Annotated[Path | None, typer.Option(help="A .png or .svg. Default: compare.png.")]


def compare(runs: RunsArgument, out: PictureOption = None, as_json: JsonOption = False) -> None:
    """Compare algorithms or settings over several seeds.

    Groups runs and slots by their settings. With --json, a picture is written only with --out.
    """
    with set_aside() if as_json else contextlib.nullcontext(), Waiting("reading curves"):
        from rich.console import Console

        from trainer.showing.comparison import contenders_at, rising
        from trainer.showing.tables import comparison_as_json, not_apart, show_comparison

        contenders = rising(contenders_at(runs))
    for words in not_apart(contenders):
        say(f"warning: {words}", file=sys.stderr)
    if as_json:
        print(json.dumps(comparison_as_json(contenders)))
    else:
        show_comparison(contenders, Console(emoji=False, highlight=False, markup=False))
    if out is not None or not as_json:
        from trainer.showing.plot import draw_comparison

        picture = out or Path("compare.png")
        with Waiting("drawing"):
            draw_comparison(contenders, picture, ", ".join(one.name for one in contenders))
        if not as_json:
            print(f"the picture: {picture}")


FolderOption = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the offline runs.")]
ProjectOption = Annotated[
    str | None,
    typer.Option(envvar="WANDB_PROJECT", help="Project on W&B. Default: the one of the run's jobs, or anchorleg."),
]
EntityOption = Annotated[
    str | None, typer.Option(envvar="WANDB_ENTITY", help="User or team on W&B. Default: the run's, or the API key's.")
]


def wandb(
    runs: RunsArgument, out: FolderOption = Path("wandb"), project: ProjectOption = None, entity: EntityOption = None
) -> None:
    """Write curves as offline runs of Weights & Biases.

    `wandb sync` uploads them. Repeat the command to add new points. With WANDB_MODE=online, jobs upload their curves
    themselves, and this adds the points that did not arrive.
    """
    from trainer.history.slots import find_histories, told_where
    from trainer.wandb import Destination, library, write

    unset = "env -u WANDB_RESUME " if os.environ.get("WANDB_RESUME") else ""  # it would send every row twice
    with Waiting("reading curves"):
        library()  # before anything is read: one sentence where it is missing
        found = {(history.run_id, history.slot): (path, history) for path in runs for history in find_histories(path)}
    for path, history in found.values():
        with told_where(path):
            there = Destination.recorded(history.folder / "slots" / str(history.slot))
            there = replace(there, project=project or there.project, entity=entity or there.entity)
            with Waiting(f"writing slot {history.slot}"):
                written = write(history, out, there)
        print(f"{written.folder.name}\tstep {written.last_step:,}\t{written.lines} points\t{written.folder}")
    patterns = {f"{shlex.quote(str(out))}/offline-run-*-{history.run_id}-*" for _, history in found.values()}
    print(f"send: {unset}wandb sync {' '.join(sorted(patterns))}")
