"""How sure a number is: what other seeds, or other episodes, might have made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anchorleg.words import wilson
from trainer.evaluation.protocol import RESAMPLES, iqm, iqm_interval, middle
from trainer.showing.learning import F64, mean_over

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


def share_of(rates: F64, goals: int, *, are_seeds: bool = True) -> Estimate:
    """One task's success in S slots of `goals` episodes each, `rates` [S]; else as `mean_of`."""
    return mean_of(rates[:, None], goals, are_seeds=are_seeds)


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
