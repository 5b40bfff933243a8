"""How sure a number is: what other seeds, or other episodes, might have made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trainer.evaluation.protocol import RESAMPLES, bootstrap_interval, iqm
from trainer.showing.learning import F64, mean_over

#: From so many slots on an interval speaks about seeds (Agarwal et al. 2021 have three to ten); below, about episodes.
MIN_SEEDS = 3
#: Resamples for a band along a curve: its edges then move by a tenth of its width, which a picture does not show.
BAND_RESAMPLES = 400
#: 95 % of a normal distribution lie within so many standard errors.
_Z95 = 1.96
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
    """
    if are_seeds and len(rates) >= MIN_SEEDS:
        return _over_seeds(rates, lambda values: float(values.mean()))
    value = float(rates.mean())
    smoothed = (rates * goals + 1) / (goals + 2)  # one goal more of each kind: 5 of 5 is no certainty
    half = _Z95 * float(np.sqrt((smoothed * (1 - smoothed)).sum() / goals)) / rates.size
    return Estimate(value, max(0.0, value - half), min(1.0, value + half))


def iqm_of(rates: F64, goals: int, *, are_seeds: bool = True) -> Estimate:
    """The inter-quartile mean of `rates` [S, K] over slots and tasks together (Agarwal et al. 2021); else as above."""
    if are_seeds and len(rates) >= MIN_SEEDS:
        return _over_seeds(rates, iqm)
    # As an evaluation's own interval: each slot's goals are resampled, so slots and tasks are all rows of it.
    solved = np.arange(goals) < np.round(rates.reshape(-1, 1) * goals)
    return Estimate(iqm(rates.ravel()), *bootstrap_interval(solved, 0))


def share_of(rates: F64, goals: int, *, are_seeds: bool = True) -> Estimate:
    """One task's success in S slots of `goals` episodes each, `rates` [S]; else as above.

    Wilson's interval over all episodes; from `MIN_SEEDS` slots on the seeds' own where that is wider. A few seeds that
    happen to agree are no certainty.
    """
    episodes = goals * len(rates)
    p = float(rates.mean())
    centre = p + _Z95**2 / (2 * episodes)
    half = _Z95 * float(np.sqrt(p * (1 - p) / episodes + (_Z95 / (2 * episodes)) ** 2))
    scale = 1 + _Z95**2 / episodes
    low, high = min(p, (centre - half) / scale), max(p, (centre + half) / scale)
    if are_seeds and len(rates) >= MIN_SEEDS:
        seeds = mean_of(rates[:, None], goals)
        low, high = min(low, seeds.low), max(high, seeds.high)
    return Estimate(p, low, high)


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
