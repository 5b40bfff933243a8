"""The picture of a training: success, returns, and how sure the last evaluation is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from trainer.showing import canvas
from trainer.showing.canvas import GREY, LABEL, TICK, TITLE, colour_of, in_short
from trainer.showing.certainty import MIN_SEEDS, Estimate, band
from trainer.showing.learning import Curves, Evaluated, aligned, mean_over
from trainer.showing.summary import SlotRates, Summary, judged
from trainer.showing.tables import percent, span

_HEIGHT_INCHES = 8.0
#: Area of an evaluation's mark, in points²: from 5 goals a task to Meta-World's 50; a third of it in a crowd.
_MARK_A_GOAL, _SMALLEST_MARK, _CROWD = 1.6, 14, 25
#: What slots of a group are.
GROUPS = "Slots of a group learn from each other: together they are one sample, so there is no interval over them"
#: More rows than this do not fit beside the returns.
_MAX_ROWS = 8

#: "success" and "returns" → the axes on which they are drawn.
Panels = Mapping[str, Any]


def draw_curves(runs: Sequence[Summary], out: Path, title: str) -> None:
    """Write `runs` as a picture. One run: a colour a slot, all together in black. Several: a colour a run. Of a run
    that tells of no success there is the return alone.

    Errors: ConfigError for another kind of file, SaveError.
    """
    picture = canvas.new_picture(out, _HEIGHT_INCHES)
    grid = picture.add_gridspec(2, 5)
    tell = [run for run in runs if run.tells_success]
    is_judged = any(run.last for run in tell)
    panels = {"success": picture.add_subplot(grid[0, :])} if tell else {}
    panels["returns"] = picture.add_subplot(grid[1 if tell else 0 :, : 3 if is_judged else 5])
    for index, run in enumerate(runs):
        shown = panels if run.tells_success else {"returns": panels["returns"]}
        colour = colour_of(index) if len(runs) > 1 else "black"
        _slots(shown, run, colour, is_alone=len(runs) == 1)
        _together(shown, run, colour, is_alone=len(runs) == 1)
        _marks(shown, run, colour if len(runs) > 1 or len(run.slots) > 1 else colour_of(0))
    if is_judged:
        _intervals(picture.add_subplot(grid[1, 3:]), runs)
    _furnish(panels, runs, title)
    top = next(iter(panels.values()))
    names = {name for axes in panels.values() for name in axes.get_legend_handles_labels()[1]}
    if 1 < len(names) <= canvas.MAX_LEGEND:
        if len(runs) > 1:
            canvas.draw_legend(picture, *panels.values())
        else:
            top.legend(loc="best", fontsize=TICK, framealpha=0.85)
    canvas.save_picture(picture, out, caption(runs))


def caption(runs: Sequence[Summary]) -> str:
    """What the lines and marks are, a line each."""
    slots = [curves for run in runs for curves in run.slots]
    windows = span(curves.window_steps for curves in slots)
    lines = [f"Lines: training episodes, exploring, pooled over the last {windows} steps, mean over tasks"]
    if _shows_rows(slots):
        lines[0] += "; faint: not smoothed"
    elif any(run.has_band for run in runs):
        lines[0] += "; bands: 95 % over seeds"
    goals = [one.goals_per_task for curves in slots for one in curves.evaluations]
    if goals:
        lines.append(f"Marks: evaluations, deterministic, {span(goals)} goals a task")
        if any(run.last and run.tells_success for run in runs):
            lines[-1] += f". {intervals_are(runs)}"
        if not all(run.tells_success for run in runs):
            lines.append("Marks among the returns are of runs that tell of no success")
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
    episodes = "Intervals: 95 % over the episodes played; they say nothing of other seeds"
    return (
        episodes if about == {"episodes"} else f"Intervals: 95 % over seeds; with fewer than {MIN_SEEDS}, over episodes"
    )


def _shows_rows(slots: Sequence[Curves]) -> bool:
    """Several slots' single rows would be a thicket."""
    return len(slots) == 1 and slots[0].window_rows > 1


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
            if is_alone and _shows_rows(run.slots):
                raw = curves.mean(f"raw_{name}")
                canvas.draw_curve(axes, curves.step, raw, color=mine, linewidth=0.7, alpha=0.22, zorder=1)
            canvas.draw_curve(axes, curves.step, curves.mean(name), label=label, **how)


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
        canvas.draw_curve(axes, step, mean_over(values, (0, 2)), color=colour, linewidth=2.6, label=label, zorder=3)


def _marks(panels: Panels, run: Summary, colour: str) -> None:
    """The evaluations: success with its interval, or the return where no success is told."""
    axes = panels["success" if run.tells_success else "returns"]
    marked = run.history or [judged([one]) for curves in run.slots for one in curves.evaluations]
    crowd = 3 if len(marked) > _CROWD else 1
    for one in marked:
        value, step = one.mean_return, one.steps[0]
        if run.tells_success:
            found = one.mean()
            value = found.value
            axes.plot([step, step], [found.low, found.high], color=colour, linewidth=1.4 / crowd, zorder=4)
        area = max(_SMALLEST_MARK, _MARK_A_GOAL * one.goals_per_task) / crowd
        how = {"facecolor": "white", "edgecolor": colour, "linewidth": 1.7, "clip_on": False}
        axes.scatter([step], [value], s=area, zorder=5, **how)
    averaged = [(each.step, each.averaged) for each in _of_averages([run])]
    if averaged:
        how = {"facecolor": "none", "edgecolor": colour, "linewidth": 1.2, "clip_on": False, "alpha": 0.7}
        axes.scatter(*zip(*averaged, strict=True), marker="D", s=_SMALLEST_MARK / crowd, zorder=4, **how)


def _of_averages(runs: Sequence[Summary]) -> list[Evaluated]:
    """The evaluations in which the moving average was played too."""
    found = [one for run in runs for curves in run.slots for one in curves.evaluations]
    return [one for one in found if one.averaged is not None]


def _intervals(axes: Any, runs: Sequence[Summary]) -> None:
    """Mean and IQM of the last evaluation, a row each."""
    rows: list[tuple[str, Estimate, str, str]] = []
    for index, run in enumerate(runs):
        if run.last is None or not run.tells_success:
            continue
        colour = colour_of(index)
        if len(runs) == 1 and run.best is not None:
            rows += _rows_of("last", run.last, colour) + _rows_of("best", run.best, GREY)
        else:
            rows += _rows_of(run.run, run.last, colour)
    rows = rows[: 2 * _MAX_ROWS]
    for place, (_, found, colour, marker) in enumerate(rows):
        axes.plot([found.low, found.high], [place, place], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
        axes.plot([found.value], [place], marker=marker, color=colour, markersize=7, clip_on=False)
        where = (min(max(found.value, 0.2), 0.8), place)  # so that the words stay inside
        axes.annotate(percent(found), where, (0, 9), textcoords="offset points", ha="center", fontsize=TICK)
    last = runs[0].last
    when = "last evaluation" if len(runs) > 1 or last is None else f"evaluation at step {span(last.steps, in_short)}"
    axes.set_title(when, fontsize=LABEL, loc="left")
    canvas.name_rows(axes, [name for name, *_ in rows])
    canvas.percent_axis(axes.xaxis, (0, 0.25, 0.5, 0.75, 1))


def _rows_of(name: str, judged: SlotRates, colour: str) -> list[tuple[str, Estimate, str, str]]:
    shown = name if len(name) <= 14 else f"{name[:13]}…"
    return [(f"{shown}: mean", judged.mean(), colour, "o"), (f"{shown}: IQM", judged.iqm(), colour, "D")]


def _furnish(panels: Panels, runs: Sequence[Summary], title: str) -> None:
    next(iter(panels.values())).set_title(title, fontsize=TITLE, loc="left")
    if "success" in panels:
        canvas.percent_axis(panels["success"].yaxis)
        panels["success"].set_ylabel("success", fontsize=LABEL)
    below = panels["returns"]
    below.set_ylabel("return of an episode", fontsize=LABEL)
    low, high = below.get_ylim()
    below.set_ylim(min(0.0, low), high + 0.04 * abs(high))
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for axes in panels.values():
        canvas.style_axes(axes)
        canvas.step_axis(axes, extent(runs), 6 if axes is below and "success" in panels else 10)
        axes.set_xlabel("environment steps", fontsize=LABEL)


def extent(runs: Sequence[Summary]) -> float:
    """The last step of any slot."""
    return float(np.max([curves.step[-1] for run in runs for curves in run.slots]))
