"""Learning curves as numbers: found in run folders and mirrors, smoothed in a way that can be said in one sentence."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.config.settings import GroupSettings
from trainer.config.training import Training
from trainer.history.read import mean_return, success_of, tells_success
from trainer.history.slots import History, Rows, find_histories, told_where

F64 = npt.NDArray[np.float64]

#: Episodes a task that one point of a curve is made of: a rate of 20 yes-or-noes has a standard error of 0.11 at most.
EPISODES_A_POINT = 20
#: A window beyond a fifth of the run would show the past more than the present.
MAX_WINDOW_SHARE = 0.2
#: Points of a curve over several slots: more than that no picture of ours shows.
MAX_POINTS = 300
#: What rows tell of each task, and curves are made of.
_MEASURES = ("episodes", "success", "return")
#: sha256, and as many of its digits as a file goes by.
_SUM, _DIGITS = re.compile("[0-9a-f]{64}"), 12


@dataclass(frozen=True)
class Evaluated:
    """One evaluation of one slot: the share of `goals_per_task` goals that was solved, by task. `mean_return`: by
    which it is judged where its suite tells of no success.
    """

    step: int
    success: Mapping[str, float]
    goals_per_task: int
    mean_return: float | None = None
    averaged: float | None = None
    """Mean success of the moving average on the same goals, where that was played."""
    earned: float = 0.0
    """The mean return over tasks, whatever it is judged by."""

    @property
    def mean(self) -> float:
        """Mean success over tasks."""
        return float(np.mean(list(self.success.values())))

    @property
    def score(self) -> float:
        """What it is judged by."""
        return self.mean if self.mean_return is None else self.mean_return


@dataclass(frozen=True)
class Curves:
    """One slot. `step` [R] are the ends of its R rows; `success` and `returns` [R, K] are of its K `tasks`, pooled over
    the window, NaN where no episode ended in it.

    `window_rows`: each point covers so many rows back, `window_steps` at the median. `in_group`: it learned from other
    slots. `key`: equal for seeds of one training (`key_of`).
    """

    run: str
    slot: int
    tasks: tuple[str, ...]
    step: F64
    success: F64
    returns: F64
    window_rows: int
    window_steps: int
    evaluations: tuple[Evaluated, ...]
    in_group: bool = False
    key: str = ""

    def mean(self, name: str) -> F64:
        """The field `name` as a mean over tasks, [R]; tasks without an episode are left out, NaN where all are."""
        return mean_over(getattr(self, name), 1)


def curves_of(run: str, slot: int, rows: Rows, evaluations: Rows, key: str = "") -> Curves:
    """The curves of rows as `trainer.history.read` has them, which are gone through once. There must be one. Pure."""
    columns = _Columns()
    for row in rows:
        columns.add(row)
    tasks = tuple(sorted(columns.tasks))
    episodes = columns.table(tasks, "episodes")
    solved = episodes * columns.table(tasks, "success")
    earned = episodes * columns.table(tasks, "return")
    window = window_rows(episodes)
    return Curves(
        run=run,
        slot=slot,
        tasks=tasks,
        step=np.array(columns.steps, np.float64),
        success=_pooled(solved, episodes, window),
        returns=_pooled(earned, episodes, window),
        window_rows=window,
        window_steps=int(window * np.median(columns.lengths)),
        evaluations=tuple(evaluated(row) for row in evaluations),
        in_group=columns.in_group,
        key=key,
    )


class _Columns:
    """What curves need of rows, as they come: of each row a number a task and measure, and not the row itself."""

    def __init__(self) -> None:
        self.steps, self.lengths = array("d"), array("d")
        self.in_group = False
        self.tasks: dict[str, dict[str, array[float]]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Errors: KeyError, TypeError, AttributeError for a row that is no training's."""
        told = row["tasks"]
        for task in told.keys() - self.tasks.keys():
            before = [0.0] * len(self.steps)
            self.tasks[task] = {name: array("d", before) for name in _MEASURES}
        for task, columns in self.tasks.items():
            measured = told.get(task, {})
            for name in _MEASURES:
                columns[name].append(measured.get(name, 0.0))
        self.steps.append(row["to"])
        self.lengths.append(row["to"] - row["from"])
        self.in_group = self.in_group or learned_from_others(row)

    def table(self, tasks: Sequence[str], name: str) -> F64:
        """[R, K], 0 where a row lacks it. The columns go with it."""
        columns = [self.tasks[task].pop(name) for task in tasks]
        return np.array(columns, np.float64).reshape(len(tasks), len(self.steps)).T.copy()


def learned_from_others(row: Mapping[str, Any]) -> bool:
    """Whether a slot with this row was in a group: what slots of one come to are not several results."""
    return "group" in row


def evaluated(row: Mapping[str, Any]) -> Evaluated:
    """A row of evaluations."""
    judged_by = None if tells_success(row) else mean_return(row)
    averaged, earned = success_of(row.get("averaged")), row.get("returns", {}).values()
    mean = float(np.mean(list(earned))) if earned else 0.0
    return Evaluated(int(row["step"]), dict(row["success"]), int(row["goals_per_task"]), judged_by, averaged, mean)


def window_rows(episodes: F64) -> int:
    """Rows that a point is pooled from, for `episodes` [R, K]: 20 episodes a task, at most a fifth of all."""
    rows = len(episodes)
    a_row = episodes.sum() / max(1, episodes.size)
    wanted = int(np.ceil(EPISODES_A_POINT / a_row)) if a_row > 0 else 1
    return max(1, min(wanted, int(MAX_WINDOW_SHARE * rows)))


def mean_over(values: F64, axis: int | tuple[int, ...]) -> F64:
    """The mean of what is not NaN along `axis`; NaN where nothing is."""
    good = np.isfinite(values)
    count = good.sum(axis=axis)
    total = np.where(good, values, 0.0).sum(axis=axis)
    means: F64 = np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)
    return means


def aligned(slots: Sequence[Curves], name: str) -> tuple[F64, F64]:
    """The field `name` of all `slots` at common steps, as far as every slot has got: (step [P], values [S, P, K]).

    Values are interpolated; NaN before a slot has seen an episode of a task. Both empty where there is no common
    stretch.
    """
    seen = [(c.step[np.isfinite(c.mean(name))], c) for c in slots]
    if not seen or any(not step.size for step, _ in seen):
        return np.array([]), np.array([])
    first, last = max(step[0] for step, _ in seen), min(step[-1] for step, _ in seen)
    grid = np.unique(np.concatenate([step for step, _ in seen]))
    grid = grid[(grid >= first) & (grid <= last)]
    if grid.size > MAX_POINTS:
        grid = grid[np.unique(np.linspace(0, grid.size - 1, MAX_POINTS).astype(int))]
    tasks = slots[0].tasks
    return grid, np.stack([_on_grid(grid, curves, name, tasks) for curves in slots])


def _on_grid(grid: F64, curves: Curves, name: str, tasks: Sequence[str]) -> F64:
    """[P, K]."""
    values = np.full((grid.size, len(tasks)), np.nan)
    for column, task in enumerate(tasks):
        if task not in curves.tasks:
            continue
        series = getattr(curves, name)[:, curves.tasks.index(task)]
        good = np.isfinite(series)
        if good.any():
            values[:, column] = np.interp(grid, curves.step[good], series[good], left=np.nan)
    return values


def find_curves(*paths: Path) -> list[Curves]:
    """The curves of what `trainer.history.slots.find_histories` finds at `paths`, each slot once.

    Runs of one name in different places go by their places. Errors: ConfigError.
    """
    found = {(one.folder, one.slot): one for path in paths for one in find_histories(path)}
    homes: dict[str, set[Path]] = {}
    for folder, _ in found:
        homes.setdefault(folder.name, set()).add(folder)
    curves = []
    for one in found.values():
        run = one.folder.name if len(homes[one.folder.name]) == 1 else str(one.folder)
        with told_where(one.folder):
            curves.append(curves_of(run, one.slot, one.rows, one.evaluations, key_of(one)))
    return curves


def _pooled(sums: F64, episodes: F64, window: int) -> F64:
    """(Sum of `sums`) / (sum of `episodes`) over the last `window` rows, [R, K]; NaN without an episode in them."""
    total, count = _trailing(sums, window), _trailing(episodes, window)
    rates: F64 = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0.5)
    return rates


def _trailing(values: F64, window: int) -> F64:
    """Sums over the last `window` rows (fewer at the start)."""
    running = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    ends = np.arange(1, len(values) + 1)
    sums: F64 = running[ends] - running[np.maximum(0, ends - window)]
    return sums


def training_in(history: History) -> Training | None:
    """What was trained there; None where that is not at hand, or nobody here understands it."""
    try:
        return Training.model_validate(dict(history.training))
    except ValueError:
        return None


def key_of(history: History) -> str:
    """Equal for the seeds of one training, and for nothing else; empty where nobody says what was trained."""
    training = training_in(history)
    if training is None:
        return ""
    return json.dumps([training.env.model_dump(mode="json"), learned_with(training, history)], sort_keys=True)


def learned_with(training: Training, history: History) -> dict[str, Any]:
    """What decides what is learned, but for the environment and the seed, by its short name."""
    sections = training.model_dump(mode="json", include={"algorithm", "network", "num_envs", "total_steps"})
    algorithm, network = sections.pop("algorithm"), sections.pop("network")
    slot_dir = history.folder / "slots" / str(history.slot)  # with copies as trainer.training keeps them
    _by_its_sum(algorithm, "demos", slot_dir)
    _by_its_sum(network["encoder"], "weights", slot_dir)
    found = {**algorithm, **network, **sections}
    if training.group.ways:
        found["group"] = _given_by(training.group)
    if training.init_seed is not None:
        found["init_seed"] = training.init_seed
    return found


def _by_its_sum(settings: dict[str, Any], name: str, slot_dir: Path) -> None:
    """Where a file lies teaches nothing: it goes by its sum, as the settings or the slot's only copy tell it."""
    sha256 = settings.pop(f"{name}_sha256", None)
    if settings.get(name) is None:
        return
    copies = [path.stem for path in (slot_dir / name).glob("*") if _SUM.fullmatch(path.stem)]
    if sha256 is None and len(copies) == 1:
        sha256 = copies[0]
    if sha256 is not None:
        settings[name] = sha256[:_DIGITS]


def _given_by(group: GroupSettings) -> dict[str, Any]:
    """What slots give each other, without what that does not need."""
    unused = {*(() if group.rows else ("share", "every")), *(() if group.mix else ("mix_every",))}
    found: dict[str, Any] = group.model_dump(mode="json", exclude_defaults=True, exclude=unused)
    return found
