"""What the evaluations of a run's slots say together, for tables, bars and machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.showing.certainty import MIN_SEEDS, Estimate, iqm_of, mean_of, share_of
from trainer.showing.learning import F64, Curves, Evaluated

#: A run is judged by the mean of its last evaluations, not by its best one, which is chosen by its luck.
FINAL_EVALUATIONS = 5


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
        return share_of(self.by_slot(name), self.goals_per_task, are_seeds=self.are_seeds)

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
