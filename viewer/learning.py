"""Rows of metrics and evaluations of several slots → the curves, tasks and evaluations of a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from anchorleg.words import wilson
from trainer.history.read import best_evaluation, mean_return, score_of, tells_success
from viewer.curves import (
    MOST_LINES,
    MOST_ROWS,
    MOST_TASKS,
    SlotCurves,
    counted,
    curves_until,
    line_of,
    mean_line,
    measures_of,
    newest,
    number,
    rounded,
    shown,
    slot_curves,
    spark_of,
    tasks_of,
    thinned,
    window_steps,
)
from viewer.model import CurveLine, CurvesPanel, EvaluationRow, TaskRow

Row = Mapping[str, Any]

#: A slot that has less than this part of the steps of the longest one has only begun.
_BEGUN = 0.1


@dataclass(frozen=True)
class Learned:
    """One slot. `evaluations`: oldest first, as `trainer.history.read.read_evaluations` has them; of very many the
    first, the last, the best and some between. `evaluated`: how many there are.
    """

    slot: int
    name: str
    curves: SlotCurves
    evaluations: Sequence[Row]
    evaluated: int

    @property
    def label(self) -> str:
        """What its line is called."""
        return self.name or f"slot {self.slot}"


def learned_from(slot: int, name: str, rows: Iterable[Row], evaluations: Iterable[Row]) -> Learned:
    """What is shown of a slot's rows, wherever they come from. Errors: `NOT_A_TRAININGS`, for no training's rows."""
    judged = sorted((_checked(row) for row in evaluations), key=lambda row: int(row["step"]))
    best = best_evaluation(judged)
    kept = {*thinned(len(judged), MOST_ROWS - 1), *([judged.index(best)] if best is not None else [])}
    curves = slot_curves(rows)
    if judged and not any(map(tells_success, judged)):  # the same rule as `trainer plot`; rows have a success of 0 then
        curves = replace(curves, success={})
    return Learned(slot, name, curves, [judged[place] for place in sorted(kept)], len(judged))


def learned_until(learned: Learned, at: float) -> Learned:
    """The rows and evaluations that were there at `at`. Where evaluations were thinned, their number is an estimate,
    and the best is that of those kept.
    """
    evaluations = [row for row in learned.evaluations if row["at"] is None or row["at"] <= at]
    evaluated = round(learned.evaluated * len(evaluations) / max(1, len(learned.evaluations)))
    return replace(learned, curves=curves_until(learned.curves, at), evaluations=evaluations, evaluated=evaluated)


def _checked(row: Row) -> Row:
    """The fields of an evaluation that are shown, each of its kind."""
    by_task = {
        name: {shown(task): number(value) for task, value in islice(dict(row.get(name) or {}).items(), MOST_TASKS)}
        for name in _BY_TASK
    }
    if not by_task["success"] or not by_task["returns"]:
        raise ValueError("an evaluation without a task")
    return {
        "step": int(counted(row["step"])),
        "at": number(row["at"]) if row.get("at") is not None else None,
        "goals_per_task": max(1, int(counted(row["goals_per_task"]))),
        "mean_success": number(row["mean_success"]),
        "score": "return" if row.get("score") == "return" else "success",
        "averaged": _averaged(row.get("averaged")),
        **by_task,
    }


def _averaged(row: Row | None) -> Row | None:
    """What an evaluation says of the moving average: success by task and its mean; None where it was not played."""
    if row is None or row.get("score") == "return":
        return None
    by_task = islice(dict(row["success"]).items(), MOST_TASKS)
    return {
        "mean_success": number(row["mean_success"]),
        "success": {shown(task): number(value) for task, value in by_task},
    }


_BY_TASK = ("success", "returns", "steps_to_success")
#: What rows that no training wrote are met with.
NOT_A_TRAININGS = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError, RecursionError)


def curves_of(slots: Sequence[Learned], measure: str, task: str, partial: int, *, alike: bool) -> CurvesPanel:
    """The curves of `measure` ("": success, else return). `alike`: the slots are seeds of one training, so that their
    mean means something. `partial`: of so many slots nothing was read yet.
    """
    known = [slot for slot in slots if slot.curves.steps]
    measures = measures_of([slot.curves for slot in known])
    if measure not in measures:
        measure = measures[0] if measures else ""
    task = task if task in tasks_of([slot.curves for slot in known]) and measure in {"success", "return"} else ""
    lines: list[CurveLine] = []
    mean = mean_line([slot.curves for slot in known], measure, task) if alike and len(known) > 1 else None
    if mean is not None:
        lines.append(mean)
    lines += [line_of(slot.curves, slot.slot, slot.label, measure, task) for slot in known[:MOST_LINES]]
    if measure in {"success", "return"}:
        lines += [line for slot in slots[:MOST_LINES] if (line := _evaluated(slot, measure, task)) is not None]
        lines += [line for slot in slots[:MOST_LINES] if (line := _average_line(slot, measure, task)) is not None]
    return CurvesPanel(
        measure=measure,
        measures=measures,
        task=task,
        lines=tuple(lines),
        about=_about(known, measure, task, {line.kind for line in lines}),
        partial=partial,
    )


def have_same_tasks(slots: Sequence[Learned]) -> bool:
    """Whether all slots of which anything is known train the same tasks: others are no seeds of one training. One that
    has only begun does not count: it may have ended no episode of some.
    """
    longest = max((slot.curves.steps[-1] for slot in slots if slot.curves.steps), default=0)
    known = [slot.curves for slot in slots if slot.curves.steps and slot.curves.steps[-1] >= _BEGUN * longest]
    return len({tasks_of([curves]) for curves in known}) < 2


def _about(known: Sequence[Learned], measure: str, task: str, kinds: AbstractSet[str]) -> str:
    """`kinds`: of the lines that are drawn."""
    if not known:
        return ""
    words = [f"Lines: training episodes, pooled over the last {window_steps([s.curves for s in known]):,} steps"]
    if measure not in {"success", "return"}:
        words = ["Lines: means of the metrics rows"]
    if "mean" in kinds:
        words.append("band: lowest to highest slot")
    elif task and measure == "success":
        words.append("bands: 95 % (Wilson)")
    if "evaluation" in kinds:
        bars = ", with 95 % intervals" if measure == "success" else ""
        words.append(f"dots: evaluations{bars}")
        if measure == "success" and any(row.get("averaged") for slot in known for row in slot.evaluations):
            words.append("dots without an interval: the moving average of the weights")
    if len(known) > MOST_LINES:
        words.append(f"lines: only the first {MOST_LINES} of {len(known)} slots")
    return "; ".join(words) + "."


def _evaluated(slot: Learned, measure: str, task: str) -> CurveLine | None:
    found = []
    for row in slot.evaluations:
        if (measure == "success") != tells_success(row):
            continue
        if measure == "success":
            found.append((int(row["step"]), *_success(row, task)))
        elif (value := row["returns"].get(task) if task else mean_return(row)) is not None:
            found.append((int(row["step"]), float(value), None, None))
    good = [one for one in found if one[1] is not None]
    if not good:
        return None
    steps, values, low, high = zip(*(good[place] for place in thinned(len(good))), strict=True)
    has_interval = any(one is not None for one in low)
    return CurveLine(
        label=f"{slot.label}, evaluated", kind="evaluation", slot=slot.slot, steps=steps,
        values=tuple(map(rounded, values)),
        low=tuple(map(rounded, low)) if has_interval else (), high=tuple(map(rounded, high)) if has_interval else (),
    )  # fmt: skip


def _average_line(slot: Learned, measure: str, task: str) -> CurveLine | None:
    """The success of the moving average, where it was played."""
    if measure != "success":
        return None
    found = [(int(row["step"]), row["averaged"]) for row in slot.evaluations if row.get("averaged")]
    told = [(step, row["success"].get(task) if task else row["mean_success"]) for step, row in found]
    good = [(step, float(value)) for step, value in told if value is not None]
    if not good:
        return None
    steps, values = zip(*(good[place] for place in thinned(len(good))), strict=True)
    return CurveLine(
        label=f"{slot.label}, averaged", kind="evaluation", slot=slot.slot, steps=steps,
        values=tuple(map(rounded, values)),
    )  # fmt: skip


def _success(row: Row, task: str) -> tuple[float | None, float | None, float | None]:
    """Of one task with Wilson's interval; else the mean over tasks, with the same over all episodes played."""
    goals = int(row["goals_per_task"])
    if task:
        share = row["success"].get(task)
        return (None, None, None) if share is None else (float(share), *wilson(float(share), goals))
    mean = float(row["mean_success"])
    return (mean, *wilson(mean, goals * max(1, len(row["success"]))))


def task_rows(slots: Sequence[Learned], *, measure: str) -> tuple[TaskRow, ...]:
    """All tasks, in alphabetical order. `measure`: success or return; another one is shown as success."""
    curves = [slot.curves for slot in slots]
    measure = "return" if measure == "return" or "success" not in measures_of(curves) else "success"
    last = [slot.evaluations[-1] for slot in slots if slot.evaluations]
    names = sorted({*tasks_of(curves), *(task for row in last for task in row["success"])})
    return tuple(_task_row(task, curves, last, measure) for task in names)


def _task_row(task: str, curves: Sequence[SlotCurves], last: Sequence[Row], measure: str) -> TaskRow:
    field = "success" if measure == "success" else "returns"
    judged = [row for row in last if task in row[field] and (measure == "return" or tells_success(row))]
    value = sum(float(row[field][task]) for row in judged) / len(judged) if judged else None
    low = high = None
    if value is not None and measure == "success":
        low, high = map(rounded, wilson(value, sum(int(row["goals_per_task"]) for row in judged)))
    took = [row["steps_to_success"][task] for row in judged if task in (row.get("steps_to_success") or {})]
    return TaskRow(
        task=task,
        training=newest(curves, measure, task),
        spark=spark_of(curves, measure, task),
        evaluated=rounded(value),
        low=low,
        high=high,
        steps_to_success=rounded(sum(took) / len(took)) if took else None,
    )


def evaluation_rows(slots: Sequence[Learned]) -> tuple[EvaluationRow, ...]:
    """One for each slot that was evaluated."""
    found = []
    for slot in slots:
        best = best_evaluation(slot.evaluations)
        if best is None:
            continue
        last = slot.evaluations[-1]
        interval = _success(last, "")[1:] if tells_success(last) else (None, None)
        took = [float(value) for value in (last.get("steps_to_success") or {}).values()]
        found.append(
            EvaluationRow(
                slot=slot.slot,
                name=slot.name,
                score="success" if tells_success(last) else "return",
                step=int(last["step"]),
                value=float(f"{score_of(last):.4g}"),
                low=rounded(interval[0]),
                high=rounded(interval[1]),
                best=float(f"{score_of(best):.4g}"),
                best_step=int(best["step"]),
                count=slot.evaluated,
                goals=int(last["goals_per_task"]),
                steps_to_success=rounded(sum(took) / len(took)) if took else None,
            )
        )
    return tuple(found)
