"""`trainer plot`: learning curves as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunsArgument = Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, slot folders, or mirrors.")]
OutOption = Annotated[Path, typer.Option(help="The picture, a PNG.")]


def plot(runs: RunsArgument, out: OutOption = Path("curves.png")) -> None:
    """Draw the success and return curves of runs or their mirrors."""
    from trainer.showing.learning import find  # noqa: PLC0415 - numpy
    from trainer.showing.plot import draw  # noqa: PLC0415 - matplotlib

    found = {(curves.run, curves.slot): curves for path in runs for curves in find(path)}
    slots = list(found.values())
    names = sorted({curves.run for curves in slots})
    title = names[0] if len(names) == 1 else f"{len(names)} runs"
    draw(slots, out, title)
    for curves in slots:
        last = f"{100 * curves.success[-1]:.0f} %" if curves.success[-1] == curves.success[-1] else "none yet"
        print(f"{curves.run}/{curves.slot}\tstep {curves.step[-1]:,.0f}\tsuccess {last}")
    print(f"the curves: {out}")
