"""Learning curves for the page: rows of metrics in, few points out. Pure, and without numpy, which a login node does
not load. The same smoothing as `trainer plot`: a point pools 20 episodes a task, a fifth of the run at most.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from statistics import median
from typing import Any

from anchorleg.words import printable, wilson
from viewer.model import CurveLine

Row = Mapping[str, Any]

#: Points of one line: a screen has no room for more.
MOST_POINTS = 200
#: Rows that are kept of one slot: a long training has ten thousands, each with every task.
MOST_ROWS = 1000
#: Points of the small curve in a table.
SPARK_POINTS = 40
#: Lines of single slots; beyond that only their mean is readable.
MOST_LINES = 12
#: Meta-World has fifty tasks, and a row some twenty numbers; what a stranger wrote into a mirror may have more.
MOST_TASKS, MOST_MEASURES = 200, 60
#: Of a task's name.
MOST_CHARS = 120
_EPISODES_A_POINT = 20
_MAX_WINDOW_SHARE = 0.2
_SUCCESS, _RETURN = "success", "return"
#: Where a row lies, and when it was written: no measures.
_PLACES = {"from", "to", "at"}
#: Larger ones are no training's: sums and squares of them would leave the finite numbers, for all slots together.
_LARGEST = 1e30
#: Of steps and episodes: up to here each whole number is one of its own.
_MOST_COUNTED = 2.0**53


@dataclass(frozen=True)
class TaskCurve:
    """At the ends of a slot's rows: sums of episodes, and of the measure over them, up to there [R + 1]."""

    episodes: tuple[float, ...]
    sums: tuple[float, ...]


@dataclass(frozen=True)
class SlotCurves:
    """What the page needs of one slot's rows. `steps` [R]; `success`, `returns`: by task; `other` [R]: top-level
    numbers of a row by their name, None where the row has none; `window`: a point pools so many rows; `times` [R]: when
    they were written, unix seconds.
    """

    steps: tuple[int, ...] = ()
    success: Mapping[str, TaskCurve] = field(default_factory=dict)
    returns: Mapping[str, TaskCurve] = field(default_factory=dict)
    other: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    window: int = 1
    times: tuple[float | None, ...] = ()


_NO_CURVE = TaskCurve((0.0,), (0.0,))


def slot_curves(rows: Iterable[Row]) -> SlotCurves:
    """`MOST_ROWS` rows at most: of more, each is of several that follow one another, and what they pooled stays what it
    was. Of very many tasks and measures those that came first are shown.

    Errors: KeyError, TypeError, ValueError where rows are no training's.
    """
    pooled: list[_Pooled] = []
    tasks, names = set[str](), set[str]()
    size, count = 1, 0
    for row in rows:
        told = row["tasks"]
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float) and name not in _PLACES}
        for known, new, most in ((tasks, told.keys(), MOST_TASKS), (names, numbers.keys(), MOST_MEASURES)):
            known.update(islice(sorted(new - known), most - len(known)))
        if count % size == 0:
            pooled.append(_Pooled())
        pooled[-1].add(row, {task: told[task] or {} for task in tasks & told.keys()}, names & numbers.keys())
        count += 1
        if len(pooled) > MOST_ROWS:
            size, pooled = 2 * size, [_Pooled.of(pooled[k : k + 2]) for k in range(0, len(pooled), 2)]
    success, returns = (
        {shown(task): one for task in sorted(tasks) if (one := _curve(pooled, (task, name))).episodes[-1]}
        for name in (_SUCCESS, _RETURN)
    )
    episodes = sum(
        max(one.episodes[-1] for one in (success.get(shown(task)), returns.get(shown(task)), _NO_CURVE) if one)
        for task in tasks
    )
    wanted = math.ceil(_EPISODES_A_POINT * count * len(tasks) / episodes) if episodes else 1
    return SlotCurves(
        steps=tuple(one.to for one in pooled),
        success=success,
        returns=returns,
        other={shown(name): tuple(_ratio(one.other.get(name)) for one in pooled) for name in sorted(names)},
        window=max(1, round(min(wanted, int(_MAX_WINDOW_SHARE * count)) / size)),
        times=tuple(one.at for one in pooled),
    )


class _Pooled:
    """Rows that follow one another. `tasks`: by task and measure, [episodes, sum of the measure over them]; `other`: by
    name, [rows that have it, sum]; `to`, `at`: of the last one.
    """

    def __init__(self) -> None:
        self.to = 0
        self.at: float | None = None
        self.tasks: dict[tuple[str, str], list[float]] = {}
        self.other: dict[str, list[float]] = {}

    def add(self, row: Row, tasks: Mapping[str, Mapping[str, Any]], names: AbstractSet[str]) -> None:
        """One row more, of these tasks and measures."""
        self.to, self.at = int(counted(row["to"])), _finite(row.get("at"))
        for task, told in tasks.items():
            for name in (_SUCCESS, _RETURN):
                if (value := _finite(told.get(name))) is not None:
                    count = counted(told.get("episodes") or 0)
                    _add(self.tasks, (task, name), count, count * value)
        for name in names:
            if (value := _finite(row[name])) is not None:
                _add(self.other, name, 1.0, value)

    @classmethod
    def of(cls, parts: Sequence[_Pooled]) -> _Pooled:
        """All of them in one."""
        made = cls()
        for part in parts:
            made.to, made.at = part.to, part.at
            for key, pair in part.tasks.items():
                _add(made.tasks, key, *pair)
            for name, pair in part.other.items():
                _add(made.other, name, *pair)
        return made


def _add(table: dict[Any, list[float]], key: Hashable, count: float, total: float) -> None:
    pair = table.setdefault(key, [0.0, 0.0])
    pair[0], pair[1] = pair[0] + count, pair[1] + total


def _curve(pooled: Sequence[_Pooled], key: tuple[str, str]) -> TaskCurve:
    pairs = [one.tasks.get(key, (0.0, 0.0)) for one in pooled]
    return TaskCurve(*(tuple(accumulate((pair[k] for pair in pairs), initial=0.0)) for k in (0, 1)))


def _ratio(pair: Sequence[float] | None) -> float | None:
    return pair[1] / pair[0] if pair else None


def curves_until(slot: SlotCurves, at: float) -> SlotCurves:
    """What had been written at `at` (unix seconds): rows in their order, up to the first later one."""
    count = next((row for row, time in enumerate(slot.times) if time is not None and time > at), len(slot.steps))

    def cut(curves: Mapping[str, TaskCurve]) -> dict[str, TaskCurve]:
        parts = {task: TaskCurve(one.episodes[: count + 1], one.sums[: count + 1]) for task, one in curves.items()}
        return {task: one for task, one in parts.items() if one.episodes[-1]}

    return replace(
        slot, steps=slot.steps[:count], success=cut(slot.success), returns=cut(slot.returns),
        other={name: told[:count] for name, told in slot.other.items()}, times=slot.times[:count],
    )  # fmt: skip


def shown(name: Any) -> str:
    """A task's name as text that can be sent and shown: in a mirror it may be a stranger's."""
    return printable(str(name), MOST_CHARS)


def number(value: Any) -> float:
    """A finite number. Errors: ValueError where it is none, OverflowError where it is too large."""
    found = _finite(value)
    if found is None:
        raise ValueError(f"{str(value)[:40]} is not a number")
    return found


def counted(value: Any) -> float:
    """A number of steps, goals or episodes. Errors: ValueError where it is none."""
    found = number(value)
    if not 0 <= found <= _MOST_COUNTED:
        raise ValueError(f"{str(value)[:40]} is not a count")
    return found


def _finite(value: Any) -> float | None:
    """None for what is no finite number. Errors: ValueError for one that no training comes to."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if abs(value) > _LARGEST:
        raise ValueError(f"{str(value)[:40]} is too large")
    return float(value)


def measures_of(slots: Sequence[SlotCurves]) -> tuple[str, ...]:
    """What can be shown, success and return first."""
    first = [
        name for name, some in ((_SUCCESS, "success"), (_RETURN, "returns")) if any(getattr(s, some) for s in slots)
    ]
    return (*first, *sorted({name for slot in slots for name in slot.other}))


def tasks_of(slots: Sequence[SlotCurves]) -> tuple[str, ...]:
    """All tasks, in alphabetical order."""
    return tuple(sorted({task for slot in slots for task in (*slot.success, *slot.returns)}))


def values_of(slot: SlotCurves, measure: str, task: str, at: Sequence[int]) -> list[float | None]:
    """`measure` of `task` ("": the mean over tasks) at the rows `at` (places in `steps`)."""
    if measure not in {_SUCCESS, _RETURN}:
        told = slot.other.get(measure, ())
        return [_mean(told[max(0, row + 1 - slot.window) : row + 1]) for row in at]
    curves = slot.success if measure == _SUCCESS else slot.returns
    chosen = [curves[task]] if task in curves else list(curves.values()) if not task else []
    return [_mean([_window(curve, row, slot.window) for curve in chosen]) for row in at]


def _window(curve: TaskCurve, row: int, window: int) -> float | None:
    first = max(0, row + 1 - window)
    count = curve.episodes[row + 1] - curve.episodes[first]
    return (curve.sums[row + 1] - curve.sums[first]) / count if count else None


def _mean(values: Sequence[float | None]) -> float | None:
    good = [value for value in values if value is not None]
    return sum(good) / len(good) if good else None


def thinned(count: int, most: int = MOST_POINTS) -> list[int]:
    """At most `most` places of `count`, evenly, with the first and the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def line_of(slot: SlotCurves, number: int, label: str, measure: str, task: str) -> CurveLine:
    """One slot's line, with Wilson's 95 % interval where it is success of one task."""
    at = thinned(len(slot.steps))
    values = values_of(slot, measure, task, at)
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    if measure == _SUCCESS and task in slot.success:
        curve = slot.success[task]
        counts = [curve.episodes[row + 1] - curve.episodes[max(0, row + 1 - slot.window)] for row in at]
        pairs = [
            wilson(value, count) if value is not None else (None, None)
            for value, count in zip(values, counts, strict=True)
        ]
        low, high = tuple(rounded(one) for one, _ in pairs), tuple(rounded(two) for _, two in pairs)
    steps = tuple(slot.steps[row] for row in at)
    return CurveLine(
        label=label, kind="slot", slot=number, steps=steps, values=tuple(map(rounded, values)), low=low, high=high
    )


def mean_line(slots: Sequence[SlotCurves], measure: str, task: str) -> CurveLine | None:
    """The mean over slots as far as every slot has got, with the lowest and the highest of them. None where they have
    no stretch in common.
    """
    known = []
    for slot in slots:
        at = thinned(len(slot.steps))
        pairs = [(slot.steps[row], value) for row, value in zip(at, values_of(slot, measure, task, at), strict=True)]
        good = [(step, value) for step, value in pairs if value is not None]
        if not good:
            return None
        known.append(good)
    first, last = max(line[0][0] for line in known), min(line[-1][0] for line in known)
    grid = sorted({step for line in known for step, _ in line if first <= step <= last})
    grid = [grid[place] for place in thinned(len(grid))]
    if not grid:
        return None
    columns = [[_at(line, step) for line in known] for step in grid]
    return CurveLine(
        label=f"mean of {len(slots)} slots", kind="mean", steps=tuple(grid),
        values=tuple(rounded(sum(column) / len(column)) for column in columns),
        low=tuple(rounded(min(column)) for column in columns), high=tuple(rounded(max(column)) for column in columns),
    )  # fmt: skip


def _at(line: Sequence[tuple[int, float]], step: int) -> float:
    place = bisect_left(line, (step, -math.inf))
    if place == 0 or line[min(place, len(line) - 1)][0] == step:
        return line[min(place, len(line) - 1)][1]
    if place == len(line):
        return line[-1][1]
    (before, low), (after, high) = line[place - 1], line[place]
    return low + (high - low) * (step - before) / (after - before)


def spark_of(slots: Sequence[SlotCurves], measure: str, task: str) -> tuple[float | None, ...]:
    """A small curve: the mean over those slots that know the task, each along its own rows."""
    lines = []
    for slot in slots:
        at = thinned(len(slot.steps), SPARK_POINTS)
        values = values_of(slot, measure, task, at)
        if any(value is not None for value in values):
            lines.append(values)
    if not lines:
        return ()
    length = max(map(len, lines))
    stretched = [[line[min(len(line) - 1, k * len(line) // length)] for k in range(length)] for line in lines]
    return tuple(rounded(_mean([line[k] for line in stretched])) for k in range(length))


def newest(slots: Sequence[SlotCurves], measure: str, task: str) -> float | None:
    """The newest value, the mean over slots."""
    last = [values_of(slot, measure, task, [len(slot.steps) - 1])[0] for slot in slots if slot.steps]
    return rounded(_mean(last))


def rounded(value: float | None) -> float | None:
    """Four digits: what is sent is for eyes."""
    return None if value is None else float(f"{value:.4g}")


def window_steps(slots: Sequence[SlotCurves]) -> int:
    """So many steps back a point is pooled from, the median over slots."""
    spans = [slot.window * slot.steps[-1] // len(slot.steps) for slot in slots if slot.steps]
    return int(median(spans)) if spans else 0
