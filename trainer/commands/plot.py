"""`trainer plot`: learning curves as pictures, as a table, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainer.commands.options import RunsArgument

if TYPE_CHECKING:
    from trainer.showing.summary import Summary

#: Letters that fit above a picture.
_TITLE_LETTERS = 80

OutOption = Annotated[
    Path | None, typer.Option(help="The pictures: NAME.png (or .svg), NAME-tasks; default: curves.png.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Numbers for machines; pictures only with --out.")]


def plot(runs: RunsArgument, out: OutOption = None, as_json: JsonOption = False) -> None:
    """Draw the learning curves of runs or their mirrors, and print how well they do.

    Slots of a run that differ in their seed alone are shown together, with 95 % intervals. Several runs are compared.
    """
    from rich.console import Console

    from trainer.showing.learning import find_curves
    from trainer.showing.summary import summaries
    from trainer.showing.tables import runs_as_json, show_runs

    found = summaries(find_curves(*runs))
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
