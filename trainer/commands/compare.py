"""`trainer compare`: algorithms on equal terms, as a table, a picture and JSON."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from anchorleg.output import set_aside
from trainer.commands.options import JsonOption
from trainer.errors import ConfigError

RunsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="RUN…", help="Runs and slots, grouped by what they were trained with.")
]
OutOption = Annotated[Path | None, typer.Option(help="The picture, .png or .svg; default: compare.png.")]


def compare(runs: RunsArgument = None, out: OutOption = None, as_json: JsonOption = False) -> None:
    """Say which of the trainings in RUN… did better, how surely and how fast: such as experiments of one run.

    With --json there is a picture only with --out.
    """
    if not runs or any(run.startswith("-") for run in runs):
        raise ConfigError("compare.trains-nothing")
    from rich.console import Console

    from trainer.showing.comparison import contenders_at, rising
    from trainer.showing.tables import comparison_as_json, not_apart, show_comparison

    with set_aside() if as_json else contextlib.nullcontext():
        contenders = rising(contenders_at(map(Path, runs)))
    for words in not_apart(contenders):
        print(f"warning: {words}", file=sys.stderr)
    if as_json:
        print(json.dumps(comparison_as_json(contenders)))
    else:
        show_comparison(contenders, Console(emoji=False, highlight=False, markup=False))
    if out is not None or not as_json:
        from trainer.showing.plot import draw_comparison

        picture = out or Path("compare.png")
        draw_comparison(contenders, picture, ", ".join(one.name for one in contenders))
        if not as_json:
            print(f"the picture: {picture}")
