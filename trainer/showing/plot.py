"""Learning curves as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from orchestrator.job import write_bytes
from trainer.errors import ConfigError, SaveError
from trainer.showing.learning import Curves, mean_over_slots

#: 1200 x 800 pixels: whole on a laptop's screen, readable in a chat.
SIZE_INCHES, DPI = (12, 8), 100
#: Wong 2011 (Nature Methods 8, 441): told apart by colour-blind people too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#7F7F7F")
#: Area of an evaluation's mark, in points²: from 5 goals a task to Meta-World's 50.
_MARK_A_GOAL, _SMALLEST_MARK = 1.6, 14
#: Above this a list of slots hides the picture.
_MAX_LEGEND = 12


def draw(slots: Sequence[Curves], out: Path, title: str) -> None:
    """Write the curves of `slots` as a PNG. One run: a colour a slot, the mean in black. Several: a colour a run.

    Errors: ConfigError for another kind of file, SaveError.
    """
    if out.suffix.lower() != ".png":
        raise ConfigError(f"--out {out}: give a name that ends in .png")
    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    runs = {run: list(group) for run, group in groupby(sorted(slots, key=lambda c: (c.run, c.slot)), lambda c: c.run)}
    alone = _shows_rows(slots)
    for index, (run, group) in enumerate(runs.items()):
        for place, curves in enumerate(group):
            colour = COLOURS[(index if len(runs) > 1 else place) % len(COLOURS)]
            label = f"slot {curves.slot}" if len(runs) == 1 else (run if len(group) == 1 else None)
            thin = len(runs) > 1 and len(group) > 1
            _line(above, curves, "success", colour, label, thin=thin, with_rows=alone)
            _line(below, curves, "returns", colour, None, thin=thin, with_rows=alone)
            _marks(above, curves, colour)
        colour = "black" if len(runs) == 1 else COLOURS[index % len(COLOURS)]
        label = f"mean of {len(group)} slots" if len(runs) == 1 else f"{run}: mean of {len(group)} slots"
        for axes, name in ((above, "success"), (below, "returns")):
            step, mean = mean_over_slots(group, name)
            if step.size:
                axes.plot(step, mean, color=colour, linewidth=2.6, label=label, zorder=3)
    _furnish(figure, above, below, slots, title)
    data = io.BytesIO()
    figure.savefig(data, format="png")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out, data.getvalue())
    except OSError as error:
        raise SaveError(f"{out} cannot be written: {error.strerror}; choose another --out") from None


def caption(slots: Sequence[Curves]) -> str:
    """What the lines and marks are, a line each."""
    windows = sorted({curves.window_steps for curves in slots})
    span = f"{windows[0]:,}" if len(windows) == 1 else f"{windows[0]:,} to {windows[-1]:,}"
    words = f"Lines: training episodes, exploring, pooled over the last {span} steps, mean over tasks"
    words += (
        "; faint: not smoothed" if _shows_rows(slots) else ("; means as far as all slots got" if len(slots) > 1 else "")
    )
    goals = sorted({evaluated.goals_per_task for curves in slots for evaluated in curves.evaluations})
    if goals:
        size = f"{goals[0]}" if len(goals) == 1 else f"{goals[0]} to {goals[-1]}"
        words += f"\nMarks: evaluations, deterministic, {size} goals a task (the larger the more), bars 95 %"
    return words


def _shows_rows(slots: Sequence[Curves]) -> bool:
    """Several slots' single rows would be a thicket."""
    return len(slots) == 1 and slots[0].window_rows > 1


def _line(axes: Any, curves: Curves, name: str, colour: str, label: str | None, *, thin: bool, with_rows: bool) -> None:
    values = getattr(curves, name)
    single = getattr(curves, f"raw_{name}")
    if with_rows:
        good = np.isfinite(single)
        axes.plot(curves.step[good], single[good], color=colour, linewidth=0.7, alpha=0.22, zorder=1)
    good = np.isfinite(values)
    lone = {"marker": "o", "markersize": 4} if good.sum() == 1 else {}
    width, alpha = (1.0, 0.55) if thin else (1.8, 1.0)
    axes.plot(
        curves.step[good], values[good], color=colour, linewidth=width, alpha=alpha, label=label, zorder=2, **lone
    )


def _marks(axes: Any, curves: Curves, colour: str) -> None:
    for one in curves.evaluations:
        low, high = max(0.0, one.success - one.half_width), min(1.0, one.success + one.half_width)
        axes.plot([one.step, one.step], [low, high], color=colour, linewidth=1.2, zorder=4)
        area = max(_SMALLEST_MARK, _MARK_A_GOAL * one.goals_per_task)
        axes.scatter(
            [one.step],
            [one.success],
            s=area,
            facecolor="white",
            edgecolor=colour,
            linewidth=1.6,
            zorder=5,
            clip_on=False,
        )


def _furnish(figure: Any, above: Any, below: Any, slots: Sequence[Curves], title: str) -> None:
    above.set_title(title, fontsize=14, loc="left")
    above.set_ylim(-0.015, 1.015)  # lines along 0 and 1 stay whole
    above.set_yticks(np.linspace(0, 1, 6), [f"{tick:.0%}" for tick in np.linspace(0, 1, 6)])
    above.set_ylabel("success", fontsize=12)
    below.set_ylabel("return of an episode", fontsize=12)
    below.set_xlabel("environment steps", fontsize=12)
    below.set_xlim(0, max(curves.step[-1] for curves in slots) * 1.01)
    below.set_ylim(bottom=min(0.0, below.get_ylim()[0]))
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    below.xaxis.set_major_formatter(FuncFormatter(_steps))
    for axes in (above, below):
        axes.grid(visible=True, color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=11)
    if 1 < len(above.get_legend_handles_labels()[0]) <= _MAX_LEGEND:
        above.legend(loc="upper left", fontsize=10, framealpha=0.85)
    figure.supxlabel(caption(slots), fontsize=9, color="#555555", x=0.01, ha="left")


def _steps(value: float, _position: int | None = None) -> str:
    """12,000 as 12k, 1,500,000 as 1.5M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
