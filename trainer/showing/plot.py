"""The pictures of trainings: learning curves of runs, and those of a comparison; and what all pictures share."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from anchorleg.files import write_bytes
from trainer.errors import ConfigError, SaveError
from trainer.showing.comparison import Contender, at_step, shared_steps
from trainer.showing.learning import Evaluated, aligned, mean_over
from trainer.showing.summary import MIN_SEEDS, Summary, band, judged, tasks_of
from trainer.showing.tables import in_short, span, word_for

#: A picture is 1200 pixels wide: whole on a laptop's screen, readable in a chat and at half its size.
WIDTH_INCHES, DPI = 12.0, 100
_HEIGHT_INCHES = 8.0
#: Wong 2011 (Nature Methods 8, 441): told apart by colour-blind people too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#7F7F7F")
GREY, PALE = "#555555", "#DDDDDD"
#: Five curves of tasks side by side: the longest name of one fits above its own. What title and caption take below.
_COLUMNS, _ROW_INCHES, _FRAME_INCHES = 5, 1.75, 1.6
TITLE, LABEL, TICK, NOTE = 15, 13, 12, 10.5
FORMATS = (".png", ".svg")
#: Above this a list of names hides the picture.
MAX_LEGEND = 12
#: Letters of `TICK`'s size that fit beside each other in a picture, and what a line's sample takes of them.
_LEGEND_LETTERS, _KEY_LETTERS = 150, 8
#: Area of an evaluation's mark, in points²; a third of it in a crowd.
_MARK, _CROWD = 30, 25
#: What slots of a group are.
GROUPS = "Slots of a group learn from each other, so they are one sample without an interval"

mpl.rcParams["text.parse_math"] = False  # the dollars of a run's name are no formula

#: "success" and "returns" → the axes on which they are drawn.
Panels = Mapping[str, Any]


def new_picture(out: Path, height_inches: float) -> Any:
    """An empty picture that is to become `out`. Errors: ConfigError where its name says neither PNG nor SVG."""
    if out.suffix.lower() not in FORMATS:
        raise ConfigError("plot.out-suffix", out=out, suffixes=" or ".join(FORMATS))
    return Figure(figsize=(WIDTH_INCHES, height_inches), dpi=DPI, layout="constrained")


def save_picture(picture: Any, out: Path, caption: str) -> None:
    """Write it with `caption` below, whole or not at all. Errors: SaveError."""
    picture.supxlabel(caption, fontsize=NOTE, color=GREY, x=0.01, ha="left")
    data = io.BytesIO()
    picture.savefig(data, format=out.suffix.lower().removeprefix("."))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out, data.getvalue())
    except OSError as error:
        raise SaveError("output.unwritable-file", path=out, why=error.strerror) from None


def colour_of(index: int) -> str:
    """The colour of the run or slot number `index`."""
    return COLOURS[index % len(COLOURS)]


def draw_legend(picture: Any, *axes: Any) -> None:
    """The names of all that `axes` show, above them: long ones hide nothing there. One name, or too many: nothing."""
    found = {name: handle for one in axes for handle, name in zip(*one.get_legend_handles_labels(), strict=True)}
    if not 1 < len(found) <= MAX_LEGEND:
        return
    columns = max(1, min(len(found), _LEGEND_LETTERS // (max(map(len, found)) + _KEY_LETTERS)))
    picture.legend(found.values(), found.keys(), loc="outside upper right", ncols=columns, fontsize=TICK, frameon=False)


def style_axes(axes: Any) -> None:
    """Two spines, a pale grid behind the data, ticks that can be read."""
    axes.grid(visible=True, color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=TICK)


def percent_axis(axis: Any, ticks: Sequence[float] = (0, 0.2, 0.4, 0.6, 0.8, 1)) -> None:
    """`axis` (axes.xaxis or axes.yaxis) from 0 to 100 %; lines along both ends stay whole."""
    axis.set_ticks(ticks, [f"{tick:.0%}" for tick in ticks])
    setter = axis.axes.set_xlim if axis.axis_name == "x" else axis.axes.set_ylim
    setter(-0.02, 1.02)


def step_axis(axes: Any, last: float, most: int = 8) -> None:
    """The x axis in environment steps, from 0 to `last`."""
    axes.set_xlim(0, last * 1.01)
    axes.xaxis.set_major_locator(MaxNLocator(most))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_short(value)))


def draw_curve(axes: Any, step: Any, values: Any, **how: Any) -> None:
    """A curve without its NaNs; a single point is a dot."""
    good = np.isfinite(values)
    lone = {"marker": "o", "markersize": 4} if good.sum() == 1 else {}
    axes.plot(step[good], values[good], **how, **lone)


def extent(runs: Sequence[Summary]) -> float:
    """The last step of any slot."""
    return float(np.max([curves.step[-1] for run in runs for curves in run.slots]))


def draw_curves(runs: Sequence[Summary], out: Path, title: str) -> None:
    """Write `runs` as a picture. One run: a colour a slot, all together in black. Several: a colour a run. Of a run
    that tells of no success there is the return alone.

    Errors: ConfigError for another kind of file, SaveError.
    """
    picture = new_picture(out, _HEIGHT_INCHES)
    names = (["success"] if any(run.tells_success for run in runs) else []) + ["returns"]
    panels = dict(zip(names, picture.subplots(len(names), 1, squeeze=False).flat, strict=True))
    for index, run in enumerate(runs):
        shown = panels if run.tells_success else {"returns": panels["returns"]}
        colour = colour_of(index) if len(runs) > 1 else "black"
        _slots(shown, run, colour, is_alone=len(runs) == 1)
        _together(shown, run, colour, is_alone=len(runs) == 1)
        _marks(shown, run, colour if len(runs) > 1 or len(run.slots) > 1 else colour_of(0))
    next(iter(panels.values())).set_title(title, fontsize=TITLE, loc="left")
    if "success" in panels:
        percent_axis(panels["success"].yaxis)
        panels["success"].set_ylabel("success", fontsize=LABEL)
    panels["returns"].set_ylabel("return of an episode", fontsize=LABEL)
    panels["returns"].yaxis.set_major_formatter(FuncFormatter(lambda value, _: in_short(value)))
    for axes in panels.values():
        style_axes(axes)
        step_axis(axes, extent(runs), 10)
        axes.set_xlabel("environment steps", fontsize=LABEL)
    draw_legend(picture, *panels.values())
    save_picture(picture, out, caption(runs))


def caption(runs: Sequence[Summary]) -> str:
    """What the lines and marks are, a line each."""
    slots = [curves for run in runs for curves in run.slots]
    windows = span(curves.window_steps for curves in slots)
    lines = [f"Lines: training episodes, exploring, pooled over the last {windows} steps, mean over tasks"]
    if any(run.has_band for run in runs):
        lines[0] += "; bands: 95 % over seeds"
    goals = [one.goals_per_task for curves in slots for one in curves.evaluations]
    if goals:
        lines.append(f"Marks: evaluations, deterministic, {span(goals)} goals a task")
        if any(run.last and run.tells_success for run in runs):
            lines[-1] += f". {intervals_are(runs)}"
        if not all(run.tells_success for run in runs):
            lines.append("Marks among the returns are from runs without a success measure")
    if any(run.is_group for run in runs):
        lines.append(GROUPS)
    if _of_averages(runs):
        lines.append("Diamonds: the moving average of the weights, on the same goals")
    return "\n".join(lines)


def intervals_are(runs: Sequence[Summary]) -> str:
    """What the 95 % intervals of `runs` speak about, as far as they tell of success."""
    about = {run.about for run in runs if run.last and run.tells_success}
    if about == {"seeds"}:
        return "Intervals: 95 % over seeds, resampled within tasks (Agarwal et al. 2021)"
    episodes = "Intervals: 95 % over the episodes played, not over other seeds"
    return (
        episodes if about == {"episodes"} else f"Intervals: 95 % over seeds; with fewer than {MIN_SEEDS}, over episodes"
    )


def _slots(panels: Panels, run: Summary, colour: str, *, is_alone: bool) -> None:
    """Each slot's own curves: thin where there are several."""
    is_single = len(run.slots) == 1
    for place, curves in enumerate(run.slots):
        mine = colour_of(place) if is_alone else colour
        label = (f"slot {curves.slot}" if is_alone else run.run) if is_alone or is_single else None
        how = {"color": mine, "linewidth": 2.0, "zorder": 2}
        if not is_single:
            how |= {"linewidth": 1.0, "alpha": 0.8 if is_alone else 0.35}
        for name, axes in panels.items():
            draw_curve(axes, curves.step, curves.mean(name), label=label, **how)


def _together(panels: Panels, run: Summary, colour: str, *, is_alone: bool) -> None:
    """The mean of all slots, as far as all have got, with its band."""
    if len(run.slots) < 2:
        return
    words = f"mean of {len(run.slots)} slots" + ", one group" * run.is_group
    for name, axes in panels.items():
        step, values = aligned(run.slots, name)
        if not step.size:
            continue
        if run.has_band:
            axes.fill_between(step, *band(values), color=colour, alpha=0.13, linewidth=0, zorder=1)
        label = words if is_alone else f"{run.run}: {words}"
        draw_curve(axes, step, mean_over(values, (0, 2)), color=colour, linewidth=2.6, label=label, zorder=3)


def _marks(panels: Panels, run: Summary, colour: str) -> None:
    """The evaluations: success with its interval, or the return where no success is told."""
    axes = panels["success" if run.tells_success else "returns"]
    marked = run.history or [judged([one]) for curves in run.slots for one in curves.evaluations]
    area = _MARK / (3 if len(marked) > _CROWD else 1)
    for one in marked:
        value, step = one.mean_return, one.steps[0]
        if run.tells_success:
            found = one.mean()
            value = found.value
            axes.plot([step, step], [found.low, found.high], color=colour, linewidth=1.0, zorder=4)
        how = {"facecolor": "white", "edgecolor": colour, "linewidth": 1.7, "clip_on": False}
        axes.scatter([step], [value], s=area, zorder=5, **how)
    averaged = [(each.step, each.averaged) for each in _of_averages([run])]
    if averaged:
        how = {"facecolor": "none", "edgecolor": colour, "linewidth": 1.2, "clip_on": False, "alpha": 0.7}
        axes.scatter(*zip(*averaged, strict=True), marker="D", s=area / 2, zorder=4, **how)


def _of_averages(runs: Sequence[Summary]) -> list[Evaluated]:
    """The evaluations in which the moving average was played too."""
    found = [one for run in runs for curves in run.slots for one in curves.evaluations]
    return [one for one in found if one.averaged is not None]


def draw_tasks(runs: Sequence[Summary], out: Path, title: str) -> None:
    """Write a small curve for each task: success of training episodes as lines, of evaluations as dots. Needs a run
    that tells of success; others are left out.

    Errors: ConfigError for another kind of file, SaveError.
    """
    tell = [run for run in runs if run.tells_success]
    tasks = tasks_of(tell)
    columns = min(_COLUMNS, len(tasks))
    rows = -(-len(tasks) // columns)
    picture = new_picture(out, _FRAME_INCHES + rows * max(_ROW_INCHES, 5.0 / rows if rows < 3 else 0))
    grid = picture.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(tasks):
            axes.set_visible(False)
            continue
        for index, run in enumerate(runs):
            if run.tells_success:
                _task_curve(axes, run, tasks[place], colour_of(index))
        axes.set_title(tasks[place].removesuffix("-v3"), fontsize=TICK, loc="left", pad=4)
        style_axes(axes)
        percent_axis(axes.yaxis, (0, 0.5, 1))
        step_axis(axes, extent(runs), 3)
        if place + columns >= len(tasks):  # nothing is below it
            axes.tick_params(labelbottom=True)
    picture.suptitle(title, fontsize=TITLE, x=0.01, ha="left")
    draw_legend(picture, *grid.flat)
    words = "success by environment steps. Lines: training episodes, exploring"
    words += "; thin: single slots" if any(len(run.slots) > 1 for run in tell) else ""
    words += ". Dots: evaluations, deterministic" if any(run.last for run in tell) else ""
    save_picture(picture, out, words)


def _task_curve(axes: Any, run: Summary, task: str, colour: str) -> None:
    mine = [curves for curves in run.slots if task in curves.tasks]
    if not mine:
        return
    is_single = len(mine) == 1
    for curves in mine:
        values = curves.success[:, curves.tasks.index(task)]
        width, alpha = (1.7, 1.0) if is_single else (0.8, 0.4)
        label = run.run if is_single else None
        draw_curve(axes, curves.step, values, color=colour, label=label, linewidth=width, alpha=alpha)
    if not is_single:
        step, values = aligned(mine, "success")
        if step.size:
            mean = mean_over(values[:, :, mine[0].tasks.index(task)], 0)
            draw_curve(axes, step, mean, color=colour, linewidth=2.0, label=run.run)
    marks = [(one.steps[0], one.task(task).value) for one in run.history if task in one.tasks]
    if marks:
        axes.plot(*zip(*marks, strict=True), "o", color=colour, markersize=4.5, markerfacecolor="white", clip_on=False)


def draw_comparison(contenders: Sequence[Contender], out: Path, title: str) -> None:
    """Write scores over steps, and the same over time. Errors: ConfigError for another kind of file, SaveError."""
    picture = new_picture(out, _HEIGHT_INCHES)
    over_steps, over_time = picture.subplots(2, 1)
    for index, contender in enumerate(contenders):
        _compared(over_steps, over_time, contender, colour_of(index))
    word = word_for(contenders)
    over_steps.set_title(title, fontsize=TITLE, loc="left")
    for axes, label in ((over_steps, "environment steps"), (over_time, "minutes of training")):
        style_axes(axes)
        if word == "success":
            percent_axis(axes.yaxis)
        axes.set_xlabel(label, fontsize=LABEL)
        axes.set_ylabel(f"{word} (IQM)", fontsize=LABEL)
    step_axis(over_steps, max(one.evaluations[-1].step for each in contenders for one in each.curves), 10)
    over_time.set_xlim(left=0)
    draw_legend(picture, over_steps)
    goals = span(one.goals_per_task for each in contenders for seed in each.curves for one in seed.evaluations)
    words = f"Lines: evaluations of the deterministic policy, {goals} episodes a task; thin: seeds\n"
    if min(len(one.seeds) for one in contenders) < MIN_SEEDS:
        words += f"Fewer than {MIN_SEEDS} seeds: intervals do not cover other seeds"
    else:
        words += "Bands: 95 % over seeds, resampled within tasks (Agarwal et al. 2021)"
    save_picture(picture, out, words)


def _compared(over_steps: Any, over_time: Any, contender: Contender, colour: str) -> None:
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
        draw_curve(axes, x, middle, color=colour, linewidth=2.4, label=contender.name)
