"""What the evaluations of a run's slots say together, and how sure that is: what other seeds, or other episodes, might
have made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anchorleg.words import wilson
from trainer.evaluation.protocol import RESAMPLES, iqm, iqm_interval, middle
from trainer.showing.learning import F64, Curves, Evaluated, mean_over

#: A run is judged by the mean of its last evaluations, not by its best one, which is chosen by its luck.
FINAL_EVALUATIONS = 5
#: From so many slots on an interval speaks about seeds (Agarwal et al. 2021 have three to ten); below, about episodes.
MIN_SEEDS = 3
#: Resamples for a band along a curve: its edges then move by a tenth of its width, which a picture does not show.
BAND_RESAMPLES = 400
_PERCENTILES = (2.5, 97.5)

Statistic = Callable[[F64], float]


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


def mean_of(rates: F64, goals: int, *, are_seeds: bool = True) -> Estimate:
    """The mean of success `rates` [S, K] of S slots and K tasks, each of `goals` episodes. `are_seeds`: the slots are
    trained apart; else they are one sample, and the interval is over episodes.

    Wilson's interval over all episodes (tasks that differ would make it narrower: it is never too narrow); from
    `MIN_SEEDS` slots on the seeds' own where that is wider. A few seeds that happen to agree are no certainty.
    """
    value = float(rates.mean())
    low, high = wilson(value, goals * rates.size)
    if are_seeds and len(rates) >= MIN_SEEDS:
        seeds = _over_seeds(rates, lambda values: float(values.mean()))
        low, high = min(low, seeds.low), max(high, seeds.high)
    return Estimate(value, low, high)


def iqm_of(rates: F64, goals: int | None, *, are_seeds: bool = True) -> Estimate:
    """The inter-quartile mean of `rates` [S, K] over slots and tasks together (Agarwal et al. 2021); else as `mean_of`.

    From `MIN_SEEDS` slots on the bootstrap over seeds; below, an evaluation's own interval (`iqm_interval`), of which
    each slot's tasks are rows. Where all seeds agree it is Wilson's over the episodes that the IQM is the mean of.
    `goals`: None for returns, which are no shares; they need `MIN_SEEDS` slots.
    """
    if goals is not None and not (are_seeds and len(rates) >= MIN_SEEDS):
        solved = np.arange(goals) < np.round(rates.reshape(-1, 1) * goals)
        return Estimate(iqm(rates.ravel()), *iqm_interval(solved))
    found = _over_seeds(rates, iqm)
    if goals is None or found.low < found.high:
        return found
    return Estimate(found.value, *wilson(found.value, goals * len(middle(rates.ravel()))))


def band(values: F64) -> tuple[F64, F64]:
    """95 % interval of a curve, the mean over slots and tasks: `values` [S, P, K] → low, high [P].

    Seeds are resampled within each task, the same ones all along the curve. Needs `MIN_SEEDS` slots.
    """
    slots, points, tasks = values.shape
    rng = np.random.default_rng(0)
    means = np.empty((BAND_RESAMPLES, points))
    for row, chosen in enumerate(rng.integers(slots, size=(BAND_RESAMPLES, slots, tasks))):
        means[row] = mean_over(np.take_along_axis(values, chosen[:, None, :], axis=0), (0, 2))
    low, high = np.percentile(means, _PERCENTILES, axis=0)
    return low, high


def _over_seeds(rates: F64, statistic: Statistic) -> Estimate:
    """The stratified bootstrap of Agarwal et al. 2021 (arXiv 2108.13264): seeds are resampled within each task."""
    slots, tasks = rates.shape
    rng = np.random.default_rng(0)
    chosen = rng.integers(slots, size=(RESAMPLES, slots, tasks))
    samples = np.take_along_axis(rates[None], chosen, axis=1).reshape(RESAMPLES, slots * tasks)
    low, high = np.percentile([statistic(sample) for sample in samples], _PERCENTILES)
    return Estimate(statistic(rates.ravel()), float(low), float(high))


@dataclass(frozen=True)
class SlotRates:
    """One evaluation of each of S slots: `steps` [S], `rates` [S, K] of `tasks` [K]. `are_seeds`: they are trained
    apart. `returns` [S]: by which they are judged where no success is told; else none.
    """

    steps: tuple[int, ...]
    tasks: tuple[str, ...]
    rates: F64
    goals_per_task: int
    are_seeds: bool = True
    returns: tuple[float, ...] = ()

    @property
    def mean_return(self) -> float:
        """Over slots; NaN where success is told."""
        return float(np.mean(self.returns)) if self.returns else float("nan")

    def mean(self) -> Estimate:
        """Mean success over slots and tasks."""
        return mean_of(self.rates, self.goals_per_task, are_seeds=self.are_seeds)

    def iqm(self) -> Estimate:
        """Inter-quartile mean over slots and tasks."""
        return iqm_of(self.rates, self.goals_per_task, are_seeds=self.are_seeds)

    def task(self, name: str) -> Estimate:
        """Success on one of `tasks`."""
        return mean_of(self.by_slot(name)[:, None], self.goals_per_task, are_seeds=self.are_seeds)

    def by_slot(self, name: str) -> F64:
        """Success of each slot on one of `tasks`, [S]."""
        rates: F64 = self.rates[:, self.tasks.index(name)]
        return rates


@dataclass(frozen=True)
class Summary:
    """A run. `history`: the evaluations that all its slots have, oldest first; `last`: the newest of them, or each
    slot's own last where they share none; `best`: each slot's own best; `final`: mean score of each slot's last five.
    None before the first evaluation. `about`: whether intervals speak about "seeds" or "episodes".
    """

    run: str
    slots: tuple[Curves, ...]
    history: tuple[SlotRates, ...]
    last: SlotRates | None
    best: SlotRates | None
    final: float | None
    about: str

    @property
    def tells_success(self) -> bool:
        """Whether it is judged by success, as all are before their first evaluation; else by its return alone."""
        return _tell_success(self.slots)

    @property
    def is_group(self) -> bool:
        """Whether its slots learn from each other: together they are one sample, and say nothing of other seeds."""
        return len(self.slots) > 1 and any(curves.in_group for curves in self.slots)

    @property
    def has_band(self) -> bool:
        """Whether its slots are enough seeds for an interval over them."""
        return len(self.slots) >= MIN_SEEDS and not self.is_group

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks, in alphabetical order."""
        return tuple(sorted({task for curves in self.slots for task in curves.tasks}))


def summaries(slots: Sequence[Curves]) -> list[Summary]:
    """One for each run, by name. Slots that train other tasks, or with other settings, are no seeds of the same: such a
    run is shown as several, `RUN/SLOTS` each. Pure.
    """
    groups: dict[str, dict[tuple[tuple[str, ...], str], list[Curves]]] = {}
    for curves in sorted(slots, key=lambda curves: (curves.run, curves.slot)):
        groups.setdefault(curves.run, {}).setdefault((curves.tasks, curves.key), []).append(curves)
    return [
        _summary(run if len(alike) == 1 else f"{run}/{','.join(str(one.slot) for one in group)}", tuple(group))
        for run, alike in groups.items()
        for group in alike.values()
    ]


def tasks_of(runs: Sequence[Summary]) -> list[str]:
    """The tasks of any of `runs`, in alphabetical order."""
    return sorted({task for run in runs for task in run.tasks})


def _summary(run: str, slots: tuple[Curves, ...]) -> Summary:
    by_step = [{one.step: one for one in curves.evaluations} for curves in slots if curves.evaluations]
    if not by_step:
        return Summary(run, slots, (), None, None, None, "episodes")
    shared = sorted(set.intersection(*(set(found) for found in by_step)))
    apart = not any(curves.in_group for curves in slots)
    history = tuple(judged([found[step] for found in by_step], are_seeds=apart) for step in shared)
    ends = [[found[step] for step in sorted(found)][-FINAL_EVALUATIONS:] for found in by_step]
    by_success = _tell_success(slots)
    return Summary(
        run=run,
        slots=slots,
        history=history,
        last=history[-1] if history else judged([end[-1] for end in ends], are_seeds=apart),
        best=judged([max(found.values(), key=lambda one: (one.score, one.step)) for found in by_step], are_seeds=apart),
        final=float(np.mean([np.mean([one.mean if by_success else one.score for one in end]) for end in ends])),
        about="seeds" if apart and len(by_step) >= MIN_SEEDS else "episodes",
    )


def _tell_success(slots: Sequence[Curves]) -> bool:
    returns = [one.mean_return for curves in slots for one in curves.evaluations]
    return not returns or None in returns


def judged(evaluations: Sequence[Evaluated], *, are_seeds: bool = True) -> SlotRates:
    """One evaluation of each slot, together, by the tasks that all have. `evaluations` must not be empty."""
    tasks = tuple(sorted(set.intersection(*(set(one.success) for one in evaluations))))
    returns = tuple(one.mean_return for one in evaluations if one.mean_return is not None)
    return SlotRates(
        steps=tuple(one.step for one in evaluations),
        tasks=tasks,
        rates=np.array([[one.success[task] for task in tasks] for one in evaluations], np.float64),
        goals_per_task=min(one.goals_per_task for one in evaluations),
        are_seeds=are_seeds,
        returns=returns if len(returns) == len(evaluations) else (),
    )
