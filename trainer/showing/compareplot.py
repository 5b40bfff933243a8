"""The picture of a comparison: scores over steps, the same over time, and how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from trainer.showing import canvas
from trainer.showing.canvas import LABEL, TICK, TITLE, colour_of
from trainer.showing.certainty import MIN_SEEDS
from trainer.showing.comparetable import scored, word_for
from trainer.showing.comparison import Contender, at_step, shared_steps

_HEIGHT_INCHES = 8.0


def draw_comparison(contenders: Sequence[Contender], out: Path, title: str) -> None:
    """Write it. Errors: ConfigError for another kind of file, SaveError."""
    picture = canvas.new_picture(out, _HEIGHT_INCHES)
    grid = picture.add_gridspec(2, 2)
    over_steps, over_time = picture.add_subplot(grid[0, :]), picture.add_subplot(grid[1, 0])
    ends = picture.add_subplot(grid[1, 1])
    for index, contender in enumerate(contenders):
        _curves(over_steps, over_time, contender, colour_of(index))
        _end(ends, contender, index)
    word = word_for(contenders)
    over_steps.set_title(title, fontsize=TITLE, loc="left")
    for axes, label in ((over_steps, "environment steps"), (over_time, "minutes of training")):
        canvas.style_axes(axes)
        if word == "success":
            canvas.percent_axis(axes.yaxis)
        axes.set_xlabel(label, fontsize=LABEL)
        axes.set_ylabel(f"{word} (IQM)", fontsize=LABEL)
    canvas.step_axis(over_steps, max(one.evaluations[-1].step for each in contenders for one in each.curves), 10)
    over_time.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    over_time.set_xlim(left=0)
    canvas.name_rows(ends, [contender.name for contender in contenders])
    if word == "success":
        canvas.percent_axis(ends.xaxis, (0, 0.25, 0.5, 0.75, 1))
    step = canvas.in_short(min(contender.step for contender in contenders))
    ends.set_title(f"evaluation at step {step}: IQM", fontsize=LABEL, loc="left")
    canvas.draw_legend(picture, over_steps)
    canvas.save_picture(picture, out, caption(contenders))


def caption(contenders: Sequence[Contender]) -> str:
    """What the lines are."""
    seeds = sorted({len(one.seeds) for one in contenders})
    goals = sorted({one.goals_per_task for each in contenders for seed in each.curves for one in seed.evaluations})
    episodes = " or ".join(map(str, goals))
    what = f"Lines: evaluations of the deterministic policy, {episodes} episodes a task; thin: seeds"
    if min(seeds) < MIN_SEEDS:
        return f"{what}\nFewer than {MIN_SEEDS} seeds: intervals say nothing of other seeds"
    return f"{what}\nBands and intervals: 95 % over seeds, resampled within tasks (Agarwal et al. 2021)"


def _curves(over_steps: Any, over_time: Any, contender: Contender, colour: str) -> None:
    steps = shared_steps(contender)
    found = [at_step(contender, step) for step in steps]
    middle = np.array([one.value for one in found])
    per_step = 1 / 60 / contender.steps_per_second if contender.steps_per_second else 0.0
    for axes, scale in ((over_steps, 1.0), (over_time, per_step)):
        for seed in contender.curves:
            x = np.array([one.step for one in seed.evaluations]) * scale
            axes.plot(x, seed.scores, color=colour, linewidth=0.8, alpha=0.35)
        x = np.array(steps) * scale
        low, high = ([getattr(one, edge) for one in found] for edge in ("low", "high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
        canvas.draw_curve(axes, x, middle, color=colour, linewidth=2.4, label=contender.name)


def _end(axes: Any, contender: Contender, place: int) -> None:
    found, colour = contender.final, colour_of(place)
    axes.plot([found.low, found.high], [place, place], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
    axes.plot([found.value], [place], marker="D", color=colour, markersize=7, clip_on=False)
    where = (min(max(found.value, 0.2), 0.8) if contender.tells_success else found.value, place)
    axes.annotate(scored(contender, found), where, (0, 9), textcoords="offset points", ha="center", fontsize=TICK)
