"""Two pictures of single tasks: a small curve of each, and how well each is solved in the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.showing import plot
from trainer.showing.learning import aligned, mean_over
from trainer.showing.plot import LABEL, PALE, TICK, TITLE, colour_of, extent, intervals_are
from trainer.showing.summary import Summary, tasks_of
from trainer.showing.tables import in_short, percent, span

#: Five curves side by side: the longest name of a task fits above its own.
_COLUMNS = 5
_ROW_INCHES, _BAR_INCHES = 1.75, 0.4
#: What title, labels and caption take of the height.
_FRAME_INCHES = 1.6


def draw_tasks(runs: Sequence[Summary], out: Path, title: str) -> None:
    """Write a small curve for each task: success of training episodes as lines, of evaluations as dots. Needs a run
    that tells of success; others are left out.

    Errors: ConfigError for another kind of file, SaveError.
    """
    tell = [run for run in runs if run.tells_success]
    tasks = tasks_of(tell)
    columns = min(_COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    picture = plot.new_picture(out, _FRAME_INCHES + rows * max(_ROW_INCHES, 5.0 / rows if rows < 3 else 0))
    grid = picture.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(tasks):
            axes.set_visible(False)
            continue
        for index, run in enumerate(runs):
            if run.tells_success:
                _curve(axes, run, tasks[place], colour_of(index))
        axes.set_title(_short(tasks[place]), fontsize=TICK, loc="left", pad=4)
        plot.style_axes(axes)
        plot.percent_axis(axes.yaxis, (0, 0.5, 1))
        plot.step_axis(axes, extent(runs), 3)
        if place + columns >= len(tasks):  # nothing is below it
            axes.tick_params(labelbottom=True)
    picture.suptitle(title, fontsize=TITLE, x=0.01, ha="left")
    plot.draw_legend(picture, *grid.flat)
    words = "success by environment steps. Lines: training episodes, exploring"
    words += "; thin: single slots" if any(len(run.slots) > 1 for run in tell) else ""
    words += ". Dots: evaluations, deterministic" if any(run.last for run in tell) else ""
    plot.save_picture(picture, out, words)


def draw_bars(runs: Sequence[Summary], out: Path, title: str) -> None:
    """Write each task's success in the last evaluation, a bar a run, with its interval, and the best evaluation marked.
    Needs an evaluation that tells of success; runs without are left out. Errors: ConfigError, SaveError.
    """
    shown = [run for run in runs if run.last is not None and run.tells_success]
    tasks = sorted(tasks_of(shown), key=lambda task: -_mean_of_last(shown, task))
    picture = plot.new_picture(out, _FRAME_INCHES + max(2.0, len(tasks) * _BAR_INCHES))
    axes = picture.subplots()
    for index, run in enumerate(shown):
        _bars(axes, run, tasks, index, len(shown), colour_of(runs.index(run)))
    axes.set_yticks(range(len(tasks)), [_short(task) for task in tasks])
    axes.set_ylim(len(tasks) - 0.4, -0.7)
    plot.style_axes(axes)
    axes.grid(visible=False, axis="y")
    plot.percent_axis(axes.xaxis)
    axes.set_xlabel("success in the last evaluation", fontsize=LABEL)
    axes.set_title(title, fontsize=TITLE, loc="left")
    plot.draw_legend(picture, axes)
    plot.save_picture(picture, out, _bar_caption(shown))


def _short(task: str) -> str:
    """All are of version 3: that need not be said fifty times."""
    return task.removesuffix("-v3")


def _mean_of_last(runs: Sequence[Summary], task: str) -> float:
    found = [run.last.task(task).value for run in runs if run.last is not None and task in run.last.tasks]
    return float(np.mean(found or [0.0]))


def _curve(axes: Any, run: Summary, task: str, colour: str) -> None:
    mine = [curves for curves in run.slots if task in curves.tasks]
    if not mine:
        return
    is_single = len(mine) == 1
    for curves in mine:
        values = curves.success[:, curves.tasks.index(task)]
        width, alpha = (1.7, 1.0) if is_single else (0.8, 0.4)
        label = run.run if is_single else None
        plot.draw_curve(axes, curves.step, values, color=colour, label=label, linewidth=width, alpha=alpha)
    if not is_single:
        step, values = aligned(mine, "success")
        if step.size:
            mean = mean_over(values[:, :, mine[0].tasks.index(task)], 0)
            plot.draw_curve(axes, step, mean, color=colour, linewidth=2.0, label=run.run)
    marks = [(one.steps[0], one.task(task).value) for one in run.history if task in one.tasks]
    if marks:
        axes.plot(*zip(*marks, strict=True), "o", color=colour, markersize=4.5, markerfacecolor="white", clip_on=False)


def _bars(axes: Any, run: Summary, tasks: Sequence[str], number: int, count: int, colour: str) -> None:
    """Those of one of `count` runs, side by side."""
    if run.last is None or run.best is None:
        return
    height, label, best_label = 0.7 / count, run.run, "best evaluation" if number == 0 else None
    for place, task in enumerate(tasks):
        if task not in run.last.tasks:
            continue
        found, at = run.last.task(task), place + 0.7 * ((number + 0.5) / count - 0.5)
        axes.axhline(place + 0.5, color=PALE, linewidth=0.8, zorder=0)
        axes.barh(at, found.value, height=0.9 * height, color=colour, alpha=0.75, label=label)
        axes.plot([found.low, found.high], [at, at], color="black", linewidth=1.2)
        if task in run.best.tasks:
            best = run.best.task(task).value
            axes.plot([best], [at], "|", color="black", markersize=12 * height + 4, markeredgewidth=2, label=best_label)
        label, best_label = "", None


def _bar_caption(runs: Sequence[Summary]) -> str:
    words = []
    for run in runs:
        if run.last is None:
            continue
        mean, iqm = run.last.mean(), run.last.iqm()
        slots = f"{len(run.last.steps)} slots" if len(run.last.steps) > 1 else "one slot"
        words.append(
            f"{run.run}: step {span(run.last.steps, in_short)}, {slots}, {run.last.goals_per_task} goals a task; "
            f"mean {percent(mean)}, IQM {percent(iqm)}"
        )
    return "\n".join([*words, f"{intervals_are(runs)}; of a single task never less than Wilson's"])
