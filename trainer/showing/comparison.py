"""Algorithms side by side: how well, how surely, how soon and how fast each came to what it can.

A contender is trained with several seeds, and evaluated on equal goals; all are judged at the same step
(`as_far_as_all`). The definitions are those of Agarwal et al. 2021 (arXiv 2108.13264, their `rliable`): inter-quartile
means, intervals by the stratified bootstrap, the probability that one of two is better. Its own code is archived, and
its bootstrap heeds no seed.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainer.config.training import Training, differences_in, group_identity
from trainer.errors import ConfigError
from trainer.evaluation.protocol import RESAMPLES
from trainer.history.slots import History, find_histories, told_where
from trainer.showing.learning import F64, Evaluated, evaluated, learned_from_others, learned_with, training_in
from trainer.showing.summary import MIN_SEEDS, Estimate, iqm_of, judged

#: Scores whose first step is told: where the score is a share of successes.
THRESHOLDS = (0.5, 0.8, 0.95)
_PERCENTILES = (2.5, 97.5)
#: A row that came so much later than others do was another job's first: nobody trained in between.
_PAUSE = 5.0
#: As much of a difference as a sentence can bear: fifty tasks are more.
_LONGEST = 80
#: Of one evaluation of each training, where it is among them.
Places = tuple[int, ...]


@dataclass(frozen=True)
class Seeded:
    """One training of a contender. `seconds`: what its `steps` took, without the time between its jobs. `num_envs`:
    its evaluations come fewer steps late than that. `group`: the seeds of the slots whose mean it is.
    """

    seed: int
    evaluations: tuple[Evaluated, ...]
    steps: int
    seconds: float
    num_envs: int = 1
    group: tuple[int, ...] = ()

    @property
    def scores(self) -> F64:
        """[E] of its evaluations: mean success over tasks, or the mean return where no success is told."""
        return np.array([one.score for one in self.evaluations])


@dataclass(frozen=True)
class Contender:
    """An algorithm with its seeds, all of them evaluated at least once, up to their last evaluation: that is the one by
    which they are judged. `since`: the step from which the area counts. `whole`: the seeds with what came later, too.
    """

    name: str
    seeds: tuple[Seeded, ...]
    since: int = 0
    whole: tuple[Seeded, ...] = ()

    @property
    def curves(self) -> tuple[Seeded, ...]:
        """The seeds as far as each has come."""
        return self.whole or self.seeds

    @property
    def step(self) -> int:
        """At which it is judged."""
        return min(one.evaluations[-1].step for one in self.seeds)

    @property
    def tells_success(self) -> bool:
        """Whether scores are shares of successes; else they are returns."""
        return all(one.mean_return is None for seed in self.seeds for one in seed.evaluations)

    @property
    def final(self) -> Estimate:
        """Inter-quartile mean of the last evaluation over seeds and tasks."""
        return _iqm([one.evaluations[-1] for one in self.seeds])

    @property
    def interval(self) -> str:
        """What that of `final` is."""
        if len(self.seeds) >= MIN_SEEDS:
            return "95 % over seeds"
        return "95 % over episodes" if self.tells_success else "from the lowest seed to the highest"

    @property
    def mean_return(self) -> float:
        """Of the last evaluation, over seeds and tasks."""
        return float(np.mean([one.evaluations[-1].earned for one in self.seeds]))

    @property
    def area(self) -> float:
        """The mean height of the curve from `since` to its last evaluation, over seeds: who learns early has more."""
        return float(np.mean([_area(one, self.since) for one in self.seeds]))

    def steps_to(self, threshold: float) -> float | None:
        """Steps at which half of the seeds had first reached it; None where fewer than half did."""
        if not self.tells_success:
            return None
        reached = [
            next((one.step for one in seed.evaluations if one.mean >= threshold), float("inf")) for seed in self.seeds
        ]
        middle = float(np.sort(reached)[(len(reached) - 1) // 2])
        return middle if np.isfinite(middle) else None

    @property
    def worst(self) -> float:
        """The last score of the seed that did worst."""
        return float(min(one.scores[-1] for one in self.seeds))

    @property
    def largest_drop(self) -> float:
        """How far any seed fell below what it had reached before: 0 where none ever did."""
        return float(max(np.max(np.maximum.accumulate(one.scores) - one.scores) for one in self.seeds))

    @property
    def seconds(self) -> float:
        """The median seed's."""
        return float(np.median([one.seconds for one in self.seeds]))

    @property
    def steps_per_second(self) -> float:
        """The median seed's."""
        return float(np.median([one.steps / one.seconds for one in self.seeds if one.seconds > 0] or [0.0]))


def together(slots: Sequence[Seeded]) -> Seeded:
    """A group's slots as one training: the means of what was evaluated at steps that all have, else of the last ones.
    `steps` are those of one slot: all had the same time.
    """
    by_step = [{one.step: place for place, one in enumerate(slot.evaluations)} for slot in slots]
    shared = sorted(set.intersection(*(set(places) for places in by_step)))
    chosen = [[places[step] for places in by_step] for step in shared] or [[-1] * len(slots)]
    of_each = [[slot.evaluations[place] for slot, place in zip(slots, places, strict=True)] for places in chosen]
    return Seeded(
        seed=min(slot.seed for slot in slots),
        evaluations=tuple(map(_mean, of_each)),
        steps=max(slot.steps for slot in slots),
        seconds=max(slot.seconds for slot in slots),
        num_envs=slots[0].num_envs,
        group=tuple(slot.seed for slot in slots),
    )


def _mean(evaluations: Sequence[Evaluated]) -> Evaluated:
    tasks = set.intersection(*(set(one.success) for one in evaluations))
    returns = [one.mean_return for one in evaluations if one.mean_return is not None]
    return Evaluated(
        step=max(one.step for one in evaluations),
        success={task: float(np.mean([one.success[task] for one in evaluations])) for task in sorted(tasks)},
        goals_per_task=min(one.goals_per_task for one in evaluations),
        mean_return=float(np.mean(returns)) if returns else None,
        earned=float(np.mean([one.earned for one in evaluations])),
    )


def probability_of_improvement(one: Contender, other: Contender) -> Estimate:
    """How likely a seed of `one` ends above one of `other`; 0.5 where they are alike. Mean over tasks, and what other
    seeds might have made of it, by the bootstrap: from 0 to 1 where seeds are few, or where all seeds of one are above
    all of the other, which no resample changes.
    """
    x, y = (_rates([seed.evaluations[-1] for seed in side.seeds]) for side in (one, other))
    value = _share_above(x, y)
    if min(len(x), len(y)) < MIN_SEEDS or value in {0.0, 1.0}:
        return Estimate(value, 0.0, 1.0)
    rng = np.random.default_rng(0)
    samples = np.empty(RESAMPLES)
    for row in range(RESAMPLES):
        drawn = [np.take_along_axis(side, rng.integers(len(side), size=side.shape), axis=0) for side in (x, y)]
        samples[row] = _share_above(*drawn)
    low, high = np.percentile(samples, _PERCENTILES)
    return Estimate(value, float(low), float(high))


def as_far_as_all(contenders: Sequence[Contender]) -> list[Contender]:
    """Each up to the last step at which all seeds of all were evaluated: who trains on, or was stopped, is judged by
    what all had come to by then. Errors: ConfigError where there is no such step.
    """
    seeds = [seed for each in contenders for seed in each.seeds]
    shared = _shared(seeds)
    if not shared:
        evaluated = ", ".join(f"{one.name} at {_between(one)}" for one in contenders)
        raise ConfigError("compare.no-common-step", evaluated=evaluated)
    begun = (seed.evaluations[place].step for seed, place in zip(seeds, shared[0], strict=True))
    cut = (
        replace(seed, evaluations=seed.evaluations[: place + 1]) for seed, place in zip(seeds, shared[-1], strict=True)
    )
    return [
        replace(
            each, seeds=tuple(islice(cut, len(each.seeds))), since=min(islice(begun, len(each.seeds))), whole=each.seeds
        )
        for each in contenders
    ]


def _shared(seeds: Sequence[Seeded]) -> list[Places]:
    """The steps at which all were evaluated, oldest first."""
    curves = [[one.step for one in seed.evaluations] for seed in seeds]
    due = {step for steps in curves for step in steps}
    return sorted({places for step in due if (places := _places(seeds, curves, step)) is not None})


def _places(seeds: Sequence[Seeded], curves: Sequence[Sequence[int]], step: int) -> Places | None:
    """Of each one's evaluation that was due at `step`: it came then, or fewer than `num_envs` steps later."""
    places = [bisect_left(steps, step) for steps in curves]
    for seed, steps, place in zip(seeds, curves, places, strict=True):
        if place == len(steps) or steps[place] - step >= seed.num_envs:
            return None
    return tuple(places)


def _between(one: Contender) -> str:
    steps = [each.step for seed in one.seeds for each in seed.evaluations]
    return f"{min(steps):,} to {max(steps):,}" if len(set(steps)) > 1 else f"{steps[0]:,}"


def shared_steps(contender: Contender) -> list[int]:
    """The steps at which all of its seeds were evaluated, however far the others are."""
    return sorted(set.intersection(*({one.step for one in seed.evaluations} for seed in contender.curves)))


def at_step(contender: Contender, step: int) -> Estimate:
    """As `final`, of the evaluation at one of `shared_steps`."""
    return _iqm([next(one for one in seed.evaluations if one.step == step) for seed in contender.curves])


def rising(contenders: Sequence[Contender]) -> list[Contender]:
    """The best first, by the inter-quartile mean at the end, then by the area."""
    return sorted(contenders, key=lambda one: (-one.final.value, -one.area, one.name))


def _rates(evaluations: Sequence[Evaluated]) -> F64:
    """[S, K] success of one evaluation of each seed, or [S, 1] returns."""
    if any(one.mean_return is not None for one in evaluations):
        return np.array([[one.score] for one in evaluations])
    return judged(evaluations).rates


def _iqm(evaluations: Sequence[Evaluated]) -> Estimate:
    rates = _rates(evaluations)
    if all(one.mean_return is None for one in evaluations):
        return iqm_of(rates, min(one.goals_per_task for one in evaluations))
    if len(rates) < MIN_SEEDS:
        return Estimate(float(rates.mean()), float(rates.min()), float(rates.max()))
    return iqm_of(rates, None)


def _area(seed: Seeded, since: int) -> float:
    steps = [one.step for one in seed.evaluations if one.step >= since]
    scores = seed.scores[-len(steps) :]
    if len(steps) == 1:
        return float(scores[0])
    areas = [(b - a) * (scores[i] + scores[i + 1]) / 2 for i, (a, b) in enumerate(pairwise(steps))]
    return float(sum(areas) / (steps[-1] - steps[0]))


def _share_above(x: F64, y: F64) -> float:
    """Mean over tasks of P(x > y) + P(x = y) / 2, for [S, K] and [R, K] (Mann and Whitney 1947)."""
    above = x[:, None] > y[None]
    equal = x[:, None] == y[None]
    return float((above + equal / 2).mean())


class _Slot(NamedTuple):
    training: Training
    learned: dict[str, Any]
    seeded: Seeded
    folder: Path
    slot: int
    in_group: bool


def contenders_at(paths: Iterable[Path]) -> list[Contender]:
    """Those of run folders and slots, each slot once. Trainings that differ in their seed alone, or in what changes
    nothing that is learned, are one; those of one algorithm are told apart by the preset or by what differs.

    Slots of a run that learned from each other are one seed: the mean of all. Each comes as far as all have.

    Errors: ConfigError, also where no evaluation was made, where all share no step at which one was, or where two were
    trained in different environments.
    """
    histories = {(one.folder, one.slot): one for path in paths for one in find_histories(path)}
    found = [slot for history in histories.values() if (slot := _slot(history)) is not None]
    if not found:
        raise ConfigError("compare.nothing-evaluated")
    must_share_environment([(f"slot {one.slot} of {one.folder}", one.training) for one in found])
    groups: dict[str, dict[str, list[_Slot]]] = {}
    for one in _samples(found):
        alike = json.dumps(one.learned, sort_keys=True)
        groups.setdefault(one.training.algorithm.name, {}).setdefault(alike, []).append(one)
    firsts = {algorithm: [one[0] for one in alike.values()] for algorithm, alike in groups.items()}
    vary = len({one.training.preset for each in firsts.values() for one in each}) > 1
    contenders = [
        Contender(name, tuple(sorted((one.seeded for one in members), key=lambda one: one.seed)))
        for algorithm, alike in groups.items()
        for name, members in zip(_names(algorithm, firsts[algorithm], by_preset=vary), alike.values(), strict=True)
    ]
    return as_far_as_all(contenders)


def _slot(history: History) -> _Slot | None:
    """None where nothing was evaluated. Errors: ConfigError."""
    training = training_in(history)
    if training is None:
        raise ConfigError("compare.no-training", folder=history.folder)
    if not history.evaluations:
        return None
    at, steps, in_group = array("d"), 0, False
    with told_where(history.folder):
        for row in history.rows:
            at.append(row["at"])
            steps = int(row["to"])
            in_group = in_group or learned_from_others(row)
    evaluations = tuple(evaluated(row) for row in history.evaluations)
    seeded = Seeded(training.seed, evaluations, steps, seconds_of(at), training.num_envs)
    return _Slot(training, learned_with(training, history), seeded, history.folder, history.slot, in_group)


def _samples(found: Sequence[_Slot]) -> list[_Slot]:
    """Each training that was made apart, and each group of slots as one."""
    groups: dict[tuple[Path, str, bool], list[_Slot]] = {}
    for one in found:
        gives = bool(one.training.group.ways)  # who gives nothing is not of the group of those who do
        groups.setdefault((one.folder, group_identity(one.training), gives), []).append(one)
    samples = []
    for slots in groups.values():
        if any(one.in_group for one in slots):
            samples.append(slots[0]._replace(seeded=together([one.seeded for one in slots])))
        else:
            samples += slots
    return samples


def must_share_environment(named: Sequence[tuple[str, Training]]) -> None:
    """Scores of different problems say nothing of each other. Errors: ConfigError, which names two."""
    (first, reference), *others = named
    for name, training in others:
        if told := differences_in(["env"], reference.model_dump(mode="json"), training):
            what = told[0] if len(told[0]) <= _LONGEST else f"{told[0][:_LONGEST]}…"
            raise ConfigError("compare.other-env", first=first, second=name, what=what)


def _names(algorithm: str, slots: Sequence[_Slot], *, by_preset: bool) -> list[str]:
    """What contenders of one algorithm are called, whose settings are not the same. `by_preset`: over all."""
    presets = [one.training.preset for one in slots]
    if len(slots) == 1 and not by_preset:
        return [algorithm]
    if len(set(presets)) == len(presets):
        return [f"{algorithm} ({preset})" for preset in presets]
    settings = [one.learned for one in slots]
    known = dict.fromkeys(name for one in settings for name in one)
    differing = [name for name in known if len({json.dumps(one.get(name)) for one in settings}) > 1]
    return [
        " ".join([algorithm, *(f"{name}={_said(one[name])}" for name in differing if name in one)]) for one in settings
    ]


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def seconds_of(at: Sequence[float]) -> float:
    """What a training took whose rows were written `at` (unix seconds): a row that came late or early by far, as behind
    the time between two jobs or a clock that was set, took the usual time.
    """
    apart = np.diff(np.array(at, np.float64))
    if not (apart >= 0).any():
        return 0.0
    usual = float(np.median(apart[apart >= 0]))
    is_told = (apart >= 0) & (apart <= _PAUSE * max(usual, 1.0))
    return float(np.where(is_told, apart, usual).sum() + usual)
