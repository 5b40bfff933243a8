"""Learning curves as numbers: found in run folders and mirrors, smoothed in a way that can be said in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syncd import store
from trainer.errors import ConfigError
from trainer.metrics import EVALUATIONS, METRICS, read, read_evaluations

F64 = npt.NDArray[np.float64]

#: Episodes a task that one point of a curve is made of: a rate of 20 yes-or-noes has a standard error of 0.11 at most.
EPISODES_A_POINT = 20
#: A window beyond a fifth of the run would show the past more than the present.
MAX_WINDOW_SHARE = 0.2
#: 95 % of a normal distribution lie within so many standard errors.
_Z95 = 1.96

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Evaluated:
    """One evaluation: mean success over tasks, half the width of its 95 % interval, and its size."""

    step: int
    success: float
    half_width: float
    goals_per_task: int


@dataclass(frozen=True)
class Curves:
    """One slot. `step` [R] are the ends of its R rows; `success` and `returns` [R] are means over tasks, NaN where no
    episode ended; `raw_success` and `raw_returns` are the same of the single rows.

    `window_rows`: each point covers so many rows back, `window_steps` at the median.
    """

    run: str
    slot: int
    step: F64
    success: F64
    returns: F64
    raw_success: F64
    raw_returns: F64
    window_rows: int
    window_steps: int
    evaluations: tuple[Evaluated, ...]
    tasks: int


def curves_of(run: str, slot: int, rows: Rows, evaluations: Rows) -> Curves:
    """The curves of rows as `trainer.metrics` has them. `rows` must not be empty. Pure."""
    tasks = sorted({task for row in rows for task in row["tasks"]})
    step = np.array([row["to"] for row in rows], np.float64)
    episodes = _table(rows, tasks, "episodes")
    solved = episodes * _table(rows, tasks, "success")
    earned = episodes * _table(rows, tasks, "return")
    window = window_rows(episodes)
    lengths = [row["to"] - row["from"] for row in rows]
    return Curves(
        run=run,
        slot=slot,
        step=step,
        success=_pooled(solved, episodes, window),
        returns=_pooled(earned, episodes, window),
        raw_success=_pooled(solved, episodes, 1),
        raw_returns=_pooled(earned, episodes, 1),
        window_rows=window,
        window_steps=int(window * np.median(lengths)),
        evaluations=tuple(map(_evaluated, evaluations)),
        tasks=len(tasks),
    )


def window_rows(episodes: F64) -> int:
    """Rows that a point is pooled from, for `episodes` [R, K]: 20 episodes a task, at most a fifth of all."""
    rows = len(episodes)
    a_row = episodes.sum() / max(1, episodes.size)
    wanted = int(np.ceil(EPISODES_A_POINT / a_row)) if a_row > 0 else 1
    return max(1, min(wanted, int(MAX_WINDOW_SHARE * rows)))


def mean_over_slots(slots: Sequence[Curves], name: str) -> tuple[F64, F64]:
    """(step, mean of the curve `name`) where every slot has got to; empty where they share nothing."""
    series = [(c.step[good], getattr(c, name)[good]) for c in slots if (good := np.isfinite(getattr(c, name))).any()]
    if len(series) < max(2, len(slots)):
        return np.array([]), np.array([])
    first, last = max(step[0] for step, _ in series), min(step[-1] for step, _ in series)
    grid = np.unique(np.concatenate([step for step, _ in series]))
    grid = grid[(grid >= first) & (grid <= last)]
    return grid, np.mean([np.interp(grid, step, values) for step, values in series], axis=0) if grid.size else grid


def find(path: Path) -> list[Curves]:
    """The curves of a run folder, a slot folder, or a mirror or `$SHARED`; slots without any rows are left out.

    Errors: ConfigError where there is nothing of the kind, or no row yet.
    """
    path = path.expanduser().resolve()
    sources: list[tuple[str, int, Rows, Rows]] = []
    if (path / "attempts").is_dir():
        sources = [_of_slot(path)]
    elif (path / "slots").is_dir():
        numbered = sorted((p for p in (path / "slots").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        sources = [_of_slot(folder) for folder in numbered]
    elif (path / "v1" / "runs").is_dir():
        sources = [_of_place(place) for place in store.Shared(path).slots()]
    elif path.is_dir() and (path / "manifests").is_dir() and path.name.isdigit():
        sources = [_of_place(store.SlotPlace(path, path.parent.name, int(path.name)))]
    else:
        raise ConfigError(f"there is no run at {path}; give a run folder, a slot's folder, or a mirror (`syncd pull`)")
    found = [curves_of(*source) for source in sources if source[2]]
    if not found:
        raise ConfigError(f"{path} has no metrics yet: a training writes its first row after metrics_interval steps")
    return found


def _of_slot(folder: Path) -> tuple[str, int, Rows, Rows]:
    slot = int(folder.name) if folder.name.isdigit() else 0
    return folder.parent.parent.name, slot, read(folder), read_evaluations(folder)


def _of_place(place: store.SlotPlace) -> tuple[str, int, Rows, Rows]:
    names = (METRICS.removesuffix(".jsonl"), EVALUATIONS.removesuffix(".jsonl"))
    metrics, evaluations = (store.read_metrics(place, name) for name in names)
    return place.run_id, place.slot, metrics, evaluations


def _table(rows: Rows, tasks: Sequence[str], name: str) -> F64:
    """[R, K], 0 where a row lacks it."""
    return np.array([[row["tasks"].get(task, {}).get(name, 0.0) for task in tasks] for row in rows], np.float64)


def _pooled(sums: F64, episodes: F64, window: int) -> F64:
    """Mean over tasks of (sum of `sums`) / (sum of `episodes`) over the last `window` rows, [R]; tasks without an
    episode in the window are left out.
    """
    total, count = _trailing(sums, window), _trailing(episodes, window)
    seen = count > 0.5
    rates = np.divide(total, count, out=np.zeros_like(total), where=seen)
    tasks = seen.sum(axis=1)
    means: F64 = np.divide(rates.sum(axis=1), tasks, out=np.full(len(rates), np.nan), where=tasks > 0)
    return means


def _trailing(values: F64, window: int) -> F64:
    """Sums over the last `window` rows (fewer at the start)."""
    running = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    ends = np.arange(1, len(values) + 1)
    sums: F64 = running[ends] - running[np.maximum(0, ends - window)]
    return sums


def _evaluated(row: Mapping[str, Any]) -> Evaluated:
    goals = int(row["goals_per_task"])
    rates = np.array(list(row["success"].values()), np.float64)
    rates = (rates * goals + 1) / (goals + 2)  # one goal more of each kind: 5 of 5 is no certainty
    half = _Z95 * np.sqrt((rates * (1 - rates)).sum() / goals) / len(rates)
    return Evaluated(int(row["step"]), float(row["mean_success"]), float(half), goals)
