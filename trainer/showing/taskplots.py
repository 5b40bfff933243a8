"""Two pictures of single tasks: a small curve of each, and how well each is solved in the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.showing import canvas
from trainer.showing.canvas import LABEL, PALE, TICK, TITLE, colour_of, in_short, short_task
from trainer.showing.certainty import Estimate
from trainer.showing.learning import aligned, mean_over
from trainer.showing.plot import extent, intervals_are
from trainer.showing.summary import Summary, tasks_of
from trainer.showing.tables import percent, span

#: Five curves side by side: the longest name of a task fits above its own.
_COLUMNS = 5
_ROW_INCHES, _BAR_INCHES, _DOT_INCHES = 1.75, 0.3, 0.1
#: Longer names are written smaller, so that the number beside them has its place.
_LONG_NAME = 18
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
    picture = canvas.new_picture(out, _FRAME_INCHES + rows * max(_ROW_INCHES, 5.0 / rows if rows < 3 else 0))
    grid = picture.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(tasks):
            axes.set_visible(False)
            continue
        for index, run in enumerate(runs):
            if run.tells_success:
                _curve(axes, run, tasks[place], colour_of(index))
        _head(axes, runs, tasks[place])
        canvas.style_axes(axes)
        canvas.percent_axis(axes.yaxis, (0, 0.5, 1))
        canvas.step_axis(axes, extent(runs), 3)
        if place + columns >= len(tasks):  # nothing is below it
            axes.tick_params(labelbottom=True)
    if 1 < len(runs) <= canvas.MAX_LEGEND:
        canvas.draw_legend(picture, *grid.flat)  # in the title's place: it has the runs' names, too
    else:
        picture.suptitle(title, fontsize=TITLE, x=0.01, ha="left")
    words = "success by environment steps. Lines: training episodes, exploring"
    words += "; thin: single slots" if any(len(run.slots) > 1 for run in tell) else ""
    words += ". Dots: evaluations, deterministic" if any(run.last for run in tell) else ""
    words += "; the number is the last one's" if len(runs) == 1 and runs[0].last else ""
    canvas.save_picture(picture, out, words)


def draw_bars(runs: Sequence[Summary], out: Path, title: str) -> None:
    """Write each task's success in the last evaluation, the best solved on top. Needs an evaluation that tells of
    success; runs without are left out.

    One run: bars, with the best evaluation marked. Several: a dot a run. Errors: ConfigError, SaveError.
    """
    judged = [run for run in runs if run.last is not None and run.tells_success]
    tasks = sorted(tasks_of(judged), key=lambda task: -np.mean([one.value for one in _last(judged, task)]))
    picture = canvas.new_picture(
        out, _FRAME_INCHES + max(2.0, len(tasks) * (_BAR_INCHES + _DOT_INCHES * (len(judged) - 1)))
    )
    axes = picture.subplots()
    for index, run in enumerate(judged):
        if len(judged) == 1:
            _bars(axes, run, tasks)
        else:
            offset = 0.6 * ((index + 0.5) / len(judged) - 0.5)
            _dots(axes, run, tasks, offset, colour_of(runs.index(run)))
    canvas.name_rows(axes, [short_task(task) for task in tasks])
    canvas.percent_axis(axes.xaxis)
    axes.set_xlim(-0.01, 1.08 if len(judged) == 1 else 1.02)
    axes.set_xlabel("success in the last evaluation", fontsize=LABEL)
    axes.set_title(title, fontsize=TITLE, loc="left")
    canvas.draw_legend(picture, axes)
    canvas.save_picture(picture, out, _bar_caption(judged))


def _last(runs: Sequence[Summary], task: str) -> list[Estimate]:
    return [run.last.task(task) for run in runs if run.last is not None and task in run.last.tasks] or [
        Estimate(0.0, 0.0, 0.0)
    ]


def _head(axes: Any, runs: Sequence[Summary], task: str) -> None:
    """The task, and how often the only run solved it last."""
    name = short_task(task)
    axes.set_title(name, fontsize=TICK * min(1.0, _LONG_NAME / len(name)), loc="left", pad=4)
    last = runs[0].last
    if len(runs) == 1 and last is not None and task in last.tasks:
        axes.set_title(f"{last.task(task).value:.0%}", fontsize=TICK, loc="right", pad=4, color=colour_of(0))


def _curve(axes: Any, run: Summary, task: str, colour: str) -> None:
    mine = [curves for curves in run.slots if task in curves.tasks]
    if not mine:
        return
    is_single = len(mine) == 1
    for curves in mine:
        values = curves.success[:, curves.tasks.index(task)]
        width, alpha = (1.7, 1.0) if is_single else (0.8, 0.4)
        label = run.run if is_single else None
        canvas.draw_curve(axes, curves.step, values, color=colour, label=label, linewidth=width, alpha=alpha)
    if not is_single:
        step, values = aligned(mine, "success")
        if step.size:
            mean = mean_over(values[:, :, mine[0].tasks.index(task)], 0)
            canvas.draw_curve(axes, step, mean, color=colour, linewidth=2.0, label=run.run)
    marks = [(one.steps[0], one.task(task).value) for one in run.history if task in one.tasks]
    if marks:
        axes.plot(*zip(*marks, strict=True), "o", color=colour, markersize=4.5, markerfacecolor="white", clip_on=False)


def _bars(axes: Any, run: Summary, tasks: Sequence[str]) -> None:
    if run.last is None or run.best is None:
        return
    colour = colour_of(0)
    for place, task in enumerate(tasks):
        if task not in run.last.tasks:
            continue
        found = run.last.task(task)
        first = place == 0
        axes.barh(place, found.value, height=0.68, color=colour, alpha=0.75, label="last" if first else None)
        axes.plot([found.low, found.high], [place, place], color="black", linewidth=1.4)
        if len(run.slots) > 1:
            rates = run.last.by_slot(task)
            how = {"s": 16, "facecolor": "white", "edgecolor": "black", "linewidth": 0.8, "zorder": 3}
            axes.scatter(rates, [place] * len(rates), label="each slot" if first else None, clip_on=False, **how)
        if task in run.best.tasks:
            best = run.best.task(task).value
            label = "best evaluation" if first else None
            axes.plot([best], [place], "|", color="#D55E00", markersize=14, markeredgewidth=2.5, label=label)
        axes.text(1.025, place, f"{found.value:.0%}", va="center", fontsize=TICK)


def _dots(axes: Any, run: Summary, tasks: Sequence[str], offset: float, colour: str) -> None:
    if run.last is None:
        return
    label: str | None = run.run
    for place, task in enumerate(tasks):
        if task not in run.last.tasks:
            continue
        found = run.last.task(task)
        axes.axhline(place + 0.5, color=PALE, linewidth=0.8, zorder=0)
        axes.plot([found.low, found.high], [place + offset] * 2, color=colour, linewidth=1.6, alpha=0.6)
        axes.plot([found.value], [place + offset], "o", color=colour, markersize=6, label=label, clip_on=False)
        label = None


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
