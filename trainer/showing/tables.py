"""Curves for people without a screen for pictures, and for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console

from trainer.history.read import RETURN, SUCCESS
from trainer.showing.certainty import Estimate
from trainer.showing.frame import print_table
from trainer.showing.learning import F64, Curves, mean_over
from trainer.showing.summary import SlotRates, Summary, tasks_of

_BAR = 20
#: Columns of a terminal that a bar takes with its numbers and its frame.
_BAR_CELL = _BAR + 22
#: With more runs than this a column for each does not fit a terminal.
_MAX_COLUMNS = 4
#: Digits that a machine gets of a smoothed number.
_DIGITS = 5


def show_runs(runs: Sequence[Summary], out: Console) -> None:
    """A line a run and a line a task; a terminal gets frames and bars, a pipe gets tabs."""
    heads = ["run", "slots", "steps", "training", "evaluation", "IQM", "best", "mean of last 5"]
    print_table(out, heads, [_run(run) for run in runs])
    judged = [run for run in runs if run.last is not None]
    if not judged:
        print("no evaluation yet: the rows above are training episodes")
        return
    tell = [run for run in judged if run.tells_success]
    if tell:
        _show_tasks(tell, out)
    for run in judged:
        if run.is_group:
            print(f"{run.run}: its slots learn from each other, so they are one sample: no interval over them")
    for run in judged:
        for curves in run.slots:
            earned = [one.mean_return for one in curves.evaluations if one.mean_return is not None]
            if earned:
                print(
                    f"{run.run}, slot {curves.slot}: judged by its return, for its environments tell of no success; "
                    f"last {earned[-1]:,.1f}, best {max(earned):,.1f}"
                )


def _show_tasks(judged: Sequence[Summary], out: Console) -> None:
    """A line a task, of runs that tell of success."""
    shown = judged[:_MAX_COLUMNS]
    names = [run.run if len(shown) > 1 else "last evaluation" for run in shown]
    tasks = tasks_of(shown)
    bars = out.is_terminal and 4 + max(map(len, tasks)) + len(shown) * _BAR_CELL <= out.width
    print_table(out, ["task", *names], [[task, *(_cell(run, task, bars=bars) for run in shown)] for task in tasks])
    if len(judged) > len(shown):
        print(f"{len(judged) - len(shown)} more runs: see the pictures, or --json")
    print(f"in brackets: 95 % intervals over {' or '.join(sorted({run.about for run in judged}))}")


def runs_as_json(runs: Sequence[Summary]) -> dict[str, Any]:
    """Everything that the pictures show, by run: summaries, evaluations, and the smoothed curves of each slot. What is
    judged by its return has that in place of success.
    """
    return {
        "runs": [
            {
                "run": run.run,
                "tasks": list(run.tasks),
                "judged_by": SUCCESS if run.tells_success else RETURN,
                "intervals_over": run.about if run.tells_success else None,
                "is_group": run.is_group,
                "last": _judged(run, run.last),
                "best": _judged(run, run.best),
                "mean_of_last_5": run.final,
                "evaluations": [_judged(run, one) for one in run.history],
                "slots": [_slot(run, curves) for curves in run.slots],
            }
            for run in runs
        ]
    }


def percent(found: Estimate) -> str:
    """`84 % (80 to 88)`."""
    return f"{100 * found.value:.0f} % ({100 * found.low:.0f} to {100 * found.high:.0f})"


def span(values: Iterable[float], shown: Callable[[float], str] = "{:,}".format) -> str:
    """The least and the largest of `values`: `5 to 50`, or the one that they are."""
    found = list(values)
    return " to ".join(map(shown, sorted({min(found), max(found)})))


def _run(run: Summary) -> list[str]:
    steps = span(int(curves.step[-1]) for curves in run.slots)
    ends = [curves.mean("success" if run.tells_success else "returns")[-1] for curves in run.slots]
    show = _percent if run.tells_success else _earned
    training = "none yet" if not np.isfinite(ends).any() else show(float(np.nanmean(ends)))
    judged = ["-"] * 4
    if run.last is not None and run.best is not None and run.final is not None:
        if run.tells_success:
            judged = [percent(run.last.mean()), percent(run.last.iqm()), show(run.best.mean().value), show(run.final)]
        else:
            judged = [show(run.last.mean_return), "-", show(run.best.mean_return), show(run.final)]
    return [run.run, str(len(run.slots)), steps, training, *judged]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _earned(value: float) -> str:
    return f"{value:,.1f}"


def _cell(run: Summary, task: str, *, bars: bool) -> str:
    if run.last is None or task not in run.last.tasks:
        return "-"
    found = run.last.task(task)
    full = round(_BAR * found.value)
    return (f"{'█' * full}{'░' * (_BAR - full)} " if bars else "") + percent(found)


def _judged(run: Summary, judged: SlotRates | None) -> dict[str, Any] | None:
    if judged is None:
        return None
    told: dict[str, Any] = {"steps": list(judged.steps), "goals_per_task": judged.goals_per_task}
    if not run.tells_success:
        return told | {"return": judged.mean_return, "slots": list(judged.returns)}
    return told | {
        "mean": asdict(judged.mean()),
        "iqm": asdict(judged.iqm()),
        "tasks": {task: {**asdict(judged.task(task)), "slots": judged.by_slot(task).tolist()} for task in judged.tasks},
    }


def _slot(run: Summary, curves: Curves) -> dict[str, Any]:
    shown = {"success": curves.success, "return": curves.returns}
    if not run.tells_success:
        del shown["success"]
    return {
        "slot": curves.slot,
        "window_steps": curves.window_steps,
        "step": [int(step) for step in curves.step],
        **{name: _numbers(mean_over(values, 1)) for name, values in shown.items()},
        "tasks": {
            task: {name: _numbers(values[:, k]) for name, values in shown.items()}
            for k, task in enumerate(curves.tasks)
        },
    }


def _numbers(values: F64) -> list[float | None]:
    return [round(float(value), _DIGITS) if np.isfinite(value) else None for value in values]
