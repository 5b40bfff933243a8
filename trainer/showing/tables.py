"""Runs and comparisons as tables, for people without a screen for pictures, and as JSON for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from anchorleg.output import say
from anchorleg.words import duration, folded, table_lines
from trainer.history.read import RETURN, SUCCESS
from trainer.showing.comparison import THRESHOLDS, Contender, Seeded, probability_of_improvement, rising
from trainer.showing.learning import F64, Curves, mean_over
from trainer.showing.summary import MIN_SEEDS, Estimate, SlotRates, Summary, tasks_of

#: With more runs than this a column for each does not fit a terminal.
_MAX_COLUMNS = 4
#: Digits that a machine gets of a smoothed number.
_DIGITS = 5


def print_table(
    out: Console, names: Sequence[str], rows: Sequence[Sequence[str]], *, best: Sequence[bool] = ()
) -> None:
    """A table, or lines where it is wider than the terminal; a pipe gets tabs. `best`: which rows stand out."""
    if not out.is_terminal:
        for row in [names, *rows]:
            print("\t".join(row).rstrip())
        return
    lines = table_lines(names, rows, out.width)
    stands_out = [False] * (len(lines) - len(rows)) + list(best or [False] * len(rows))
    for line, is_best in zip(lines, stands_out, strict=True):
        out.print(Text(folded(line, out.width), "bold green" if is_best else ""))


def show_runs(runs: Sequence[Summary], out: Console) -> None:
    """A line a run and a line a task; a terminal gets frames, a pipe gets tabs."""
    heads = ["run", "slots", "steps", "training", "evaluation", "IQM", "best", "mean of last 5"]
    judged = [run for run in runs if run.last is not None]
    told = len(heads) if judged else heads.index("evaluation")
    print_table(out, heads[:told], [_run(run)[:told] for run in runs])
    if not judged:
        say("training: the newest training episodes; no evaluation yet")
        return
    tell = [run for run in judged if run.tells_success]
    if tell:
        _show_tasks(tell, out)
    for run in judged:
        if run.is_group:
            say(f"{run.run}: its slots learn from each other, so they are one sample: no interval over them")
    for run in judged:
        for curves in run.slots:
            earned = [one.mean_return for one in curves.evaluations if one.mean_return is not None]
            if earned:
                say(
                    f"{run.run}, slot {curves.slot}: judged by its return, because its environments report no success; "
                    f"last {earned[-1]:,.1f}, best {max(earned):,.1f}"
                )


def _show_tasks(judged: Sequence[Summary], out: Console) -> None:
    """A line a task, of runs that tell of success."""
    shown = judged[:_MAX_COLUMNS]
    names = [run.run if len(shown) > 1 else "last evaluation" for run in shown]
    tasks = tasks_of(shown)
    print_table(out, ["task", *names], [[task, *(_cell(run, task) for run in shown)] for task in tasks])
    if len(judged) > len(shown):
        say(f"{len(judged) - len(shown)} more runs: see the pictures, or --json")
    say(f"in brackets: 95 % intervals over {' or '.join(sorted({run.about for run in judged}))}")


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


def in_short(value: float) -> str:
    """12,000 as 12k, 1,500,000 as 1.5M, 1,234,567 as 1.235M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


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


def _cell(run: Summary, task: str) -> str:
    return "-" if run.last is None or task not in run.last.tasks else percent(run.last.task(task))


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


def show_comparison(contenders: Sequence[Contender], out: Console) -> None:
    """Three tables: how well, how soon, and who is better than whom; and at which step they are judged."""
    order = rising(contenders)
    print_table(
        out,
        ["algorithm", "seeds", f"{word_for(order)} (IQM)", "return", "area", "worst seed", "largest drop"],
        [
            [
                one.name, str(len(one.seeds)), scored(one, one.final), f"{one.mean_return:.4g}", f"{one.area:.3g}",
                _score(one, one.worst), _score(one, one.largest_drop),
            ]
            for one in order
        ],
    )  # fmt: skip
    soon = [f"to {threshold:.0%}" for threshold in THRESHOLDS]
    print_table(
        out,
        ["algorithm", *soon, "steps", "time", "steps/s"],
        [
            [
                one.name, *(_steps(one.steps_to(threshold)) for threshold in THRESHOLDS), _trained(one),
                duration(one.seconds), f"{one.steps_per_second:,.0f}",
            ]
            for one in order
        ],
    )  # fmt: skip
    if len(order) > 1:
        print_table(
            out,
            ["is better", "than", "probability"],
            [[a.name, b.name, _likely(probability_of_improvement(a, b))] for a, b in combinations(order, 2)],
        )
    say(judged_at(order))
    say(f"in brackets: {' or '.join(dict.fromkeys(one.interval for one in order))}")
    if (count := min(len(one.seeds) for one in order)) < MIN_SEEDS:
        say(f"{count} seeds say nothing about other seeds; use {MIN_SEEDS} or more")


def comparison_as_json(contenders: Sequence[Contender]) -> dict[str, Any]:
    """All numbers of the tables, and the curves."""
    order = rising(contenders)
    return {
        "contenders": [
            {
                "algorithm": one.name,
                "seeds": [seed.seed for seed in one.seeds],
                "judged_at": one.step,
                "steps": [seed.steps for seed in one.seeds],
                "iqm": asdict(one.final),
                "interval": one.interval,
                "mean_return": one.mean_return,
                "area": one.area,
                "worst_seed": one.worst,
                "largest_drop": one.largest_drop,
                "steps_to": {str(threshold): one.steps_to(threshold) for threshold in THRESHOLDS},
                "seconds": one.seconds,
                "steps_per_second": one.steps_per_second,
                "evaluations": [_evaluations(seed) for seed in one.curves],
            }
            for one in order
        ],
        "probability_of_improvement": [
            {"is_better": a.name, "than": b.name, **asdict(probability_of_improvement(a, b))}
            for a, b in combinations(order, 2)
        ],
    }


def not_apart(contenders: Sequence[Contender]) -> list[str]:
    """A sentence of each contender that counts a seed more than once: equal seeds begin alike, and are one sample."""
    told = []
    for one in contenders:
        counts = Counter(seed for each in one.seeds for seed in {*(each.group or (each.seed,))})
        if again := sorted(seed for seed, count in counts.items() if count > 1):
            named = f"seed{'s' if again[1:] else ''} {', '.join(map(str, again))}"
            told.append(
                f"{one.name}: {named} counted more than once, and equal seeds are not new samples: give each run "
                "its own seeds (slot k uses seed + k: at least `slots` apart)"
            )
    return told


def judged_at(contenders: Sequence[Contender]) -> str:
    """The step at which they are, and whether some were evaluated later too: a sentence."""
    words = f"judged at step {min(one.step for one in contenders):,}"
    is_last = all(one.curves == one.seeds for one in contenders)
    return words if is_last else f"{words}, the last that all have evaluated (--json has the progress of each)"


def word_for(contenders: Sequence[Contender]) -> str:
    """What their scores are."""
    return "success" if all(one.tells_success for one in contenders) else "return"


def scored(contender: Contender, found: Estimate) -> str:
    """A score with its interval."""
    if contender.tells_success:
        return percent(found)
    return f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g})"


def _score(contender: Contender, value: float) -> str:
    return f"{100 * value:.0f} %" if contender.tells_success else f"{value:.4g}"


def _likely(found: Estimate) -> str:
    """Of few seeds nothing is known about others."""
    return f"{found.value:.0%}" if (found.low, found.high) == (0.0, 1.0) else percent(found)


def _evaluations(seed: Seeded) -> list[dict[str, Any]]:
    return [{"step": one.step, "success": dict(one.success), "return": one.earned} for one in seed.evaluations]


def _trained(one: Contender) -> str:
    """So many steps, or from the seed with the fewest to that with the most."""
    least, most = min(seed.steps for seed in one.seeds), max(seed.steps for seed in one.seeds)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _steps(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
