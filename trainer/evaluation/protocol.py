"""How good a policy is: every task from fixed goals, deterministic, on environments of its own.

Protocol (Meta-World's): each of the goals once, not a sample of them; success = solved at any step of the episode, so
an episode ends at its first success; observations and rewards untouched. Where a suite says that the last step counts
(`EnvSettings.SUCCESS_AT`), episodes are played to their end. Nothing is shared with the training
environments, their workers or their random streams. The goals are those that were trained on; how a policy does on
goals that it has never seen is said beside it (`unseen`).

Where a suite does not tell of success the score is the mean return, and success is 0 (`score` says which it is).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from anchorleg.words import counted, wilson
from trainer.config.settings import GOALS_PER_TASK
from trainer.envs.collector import Collector
from trainer.envs.spaces import F64, I32, Actions, Obs, picked
from trainer.envs.step import NO_TASK, Script, VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.history.read import RETURN, SUCCESS

#: Observations and tasks [n] → deterministic actions [n, …].
Act = Callable[[Obs, I32], Actions]

#: Environments stepped together at least, so that inference is batched for short task lists too.
MIN_LANES = 10
#: A quarter cut at either end: the inter-quartile mean of Agarwal et al. 2021 (arXiv 2108.13264).
IQM_CUT = 0.25
#: Bootstrap resamples: the 95 % bounds of a 50-task evaluation move by less than 0.002 between seeds.
RESAMPLES = 2000
#: How many of the worst tasks are named: a mean near 1 hides a floor.
WORST = 5


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`; rates in [0, 1]. `as_json` is what goes into files."""

    success: Mapping[str, float]
    """Share of the goals that were solved, by task, in index order."""
    returns: Mapping[str, float]
    """Mean undiscounted return by task, up to the first success or the horizon."""
    steps_to_success: Mapping[str, float]
    """Mean over the goals that were solved, by task; without tasks of which none was."""
    mean_success: float
    iqm_success: float
    """Inter-quartile mean over tasks."""
    iqm_low: float
    """Lower end of its 95 % interval: `iqm_interval`."""
    iqm_high: float
    worst: tuple[str, ...]
    """The five worst tasks, worst first."""
    goals_per_task: int
    horizon: int
    seed: int
    steps: int
    """Environment steps taken."""
    wall_s: float
    score: Literal["success", "return"] = "success"
    """What it is judged by: the share that was solved, or the mean return."""
    return_error: float = 0.0
    """The standard error of the mean return over tasks; 0 for one episode a task, which tells of none."""
    unseen: Self | None = None
    """The same on goals that were not trained on, where that was asked for."""
    averaged: Self | None = None
    """The moving average's on the same goals, where that was asked for."""
    measures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Name (`EnvSettings.MEASURES`) → its mean by task, over the episodes that have it."""

    @property
    def is_small(self) -> bool:
        """Whether fewer goals than Meta-World's protocol were used."""
        return self.goals_per_task < GOALS_PER_TASK

    def summary(self) -> str:
        """One line, which says so where the evaluation is a small one."""
        if self.score == RETURN:
            return self._returns()
        size = f"{counted(self.goals_per_task, 'goal')} a task"
        if self.is_small:
            size += f": a small evaluation; the full one has {GOALS_PER_TASK}"
        unseen = "" if self.unseen is None else f"; unseen goals {100 * self.unseen.mean_success:.1f} %"
        if self.averaged is not None:
            unseen += f"; averaged {100 * self.averaged.mean_success:.1f} %"
        return (
            f"success {100 * self.mean_success:.1f} % (IQM {100 * self.iqm_success:.1f} %, "
            f"95 % interval {100 * self.iqm_low:.1f} to {100 * self.iqm_high:.1f} %; {size}{unseen})"
        )

    def _returns(self) -> str:
        found = list(self.returns.values())
        unseen = "" if self.unseen is None else f"; others {np.mean(list(self.unseen.returns.values())):,.1f}"
        if self.averaged is not None:
            unseen += f"; averaged {np.mean(list(self.averaged.returns.values())):,.1f}"
        error = f" ± {self.return_error:,.1f}" if self.return_error else ""
        return f"return {np.mean(found):,.1f}{error} ({counted(self.goals_per_task, 'episode')} a task{unseen})"

    def as_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts only."""
        beside = {"unseen": self.unseen, "averaged": self.averaged}
        more = {name: each.as_json() for name, each in beside.items() if each is not None}
        value = {**asdict(self), "worst": list(self.worst), "is_small": self.is_small, **more}
        return {name: number for name, number in value.items() if number is not None and (number or name != "measures")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` was made of."""
        fields = {name: number for name, number in value.items() if name != "is_small"}
        beside = {name: cls.from_json(value[name]) for name in ("unseen", "averaged") if name in value}
        return cls(**{**fields, "worst": tuple(value["worst"]), **beside})


def evaluate(
    act: Act,
    suite: SuiteRef,
    goals_per_task: int = GOALS_PER_TASK,
    num_workers: int = 0,
    *,
    progress: Callable[[int, int], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Evaluation | None:
    """Play the first `goals_per_task` goals of each task of `suite` (index order: task k is the policy's task k); where
    it has no fixed starts, as many episodes whose seeds the suite's decides; all, where it has fewer than that.

    The suite's seed names the goals: the training run's for its training goals, another for unseen ones.
    `progress(done, total)` is called when episodes end. None where `interrupted()` became true: it is asked first and
    before every step, so that a hand-over is not delayed. Errors: ValueError, EnvError, whatever `act` raises.
    """
    began = time.monotonic()
    opened = suite.open()
    spaces = opened.spaces
    if not 1 <= goals_per_task <= GOALS_PER_TASK:
        raise ValueError(f"goals_per_task is {goals_per_task}; an evaluation has 1 to {GOALS_PER_TASK} goals a task")
    if interrupted():
        return None
    tasks, seed = spaces.tasks, suite.seed
    if opened.starts is not None:
        goals_per_task = min(goals_per_task, opened.starts)
    lanes = _lanes(len(tasks), goals_per_task)
    once_is_enough = suite.settings.SUCCESS_AT == "any step"
    stops = once_is_enough and opened.tells_success  # else a return would be cut where the better ones end
    spec = VectorSpec(suite, len(lanes), seed, stop_at_success=stops, scripts=lanes)
    solved = np.zeros((len(tasks), goals_per_task), dtype=np.bool_)
    returns = np.zeros((len(tasks), goals_per_task))
    lengths = np.zeros((len(tasks), goals_per_task))
    measured = np.zeros((len(tasks), goals_per_task, len(suite.settings.MEASURES)))
    ages = np.zeros(len(lanes), np.int64)
    played = [0] * len(lanes)
    done = steps = 0
    with VectorEnv(spec, num_workers) as envs:
        collector = Collector(envs)
        while (active := np.flatnonzero(collector.task != NO_TASK)).size:
            if interrupted():
                return None
            actions = spaces.no_actions(len(lanes))
            actions[active] = act(picked(collector.obs, active), collector.task[active])
            step = collector.step(actions).step
            steps += active.size
            ages[active] += 1
            for lane in np.flatnonzero(step.finished):
                at = lanes[lane].episodes[played[lane]]
                solved[at], returns[at] = step.episode_success[lane], step.episode_return[lane]
                lengths[at], ages[lane] = ages[lane], 0
                if suite.settings.MEASURES:
                    measured[at] = step.episode_measures[lane]
                played[lane] += 1
                done += 1
            if progress is not None and step.finished.any():
                progress(done, solved.size)
    wall_s = time.monotonic() - began
    found = summarise(tasks, solved, returns, lengths, horizon=spaces.horizon, seed=seed, steps=steps, wall_s=wall_s)
    ends_there = stops or getattr(suite.settings, "end_on_success", False)
    return replace(
        found,
        steps_to_success=found.steps_to_success if ends_there else {},
        score=SUCCESS if opened.tells_success else RETURN,
        measures=_means(suite.settings.MEASURES, tasks, measured),
    )


def _means(names: Sequence[str], tasks: Sequence[str], measured: F64) -> dict[str, dict[str, float]]:
    """Of `measured` [tasks, goals, names]; a task whose episodes have none of it is left out."""
    return {
        name: {
            task: float(values[~np.isnan(values)].mean())
            for task, values in zip(tasks, measured[:, :, number], strict=True)
            if not np.isnan(values).all()
        }
        for number, name in enumerate(names)
    }


def summarise(
    tasks: Sequence[str],
    solved: npt.NDArray[np.bool_],
    returns: F64,
    lengths: F64,
    *,
    horizon: int,
    seed: int,
    steps: int,
    wall_s: float,
) -> Evaluation:
    """The `Evaluation` of episodes `solved`, `returns` and `lengths` (steps), each [tasks, goals]."""
    rates = solved.mean(axis=1)
    low, high = iqm_interval(solved)
    order = np.argsort(rates, kind="stable")[:WORST]
    return Evaluation(
        success={name: float(rate) for name, rate in zip(tasks, rates, strict=True)},
        returns={name: float(value) for name, value in zip(tasks, returns.mean(axis=1), strict=True)},
        steps_to_success={
            name: float(of_task[hit].mean())
            for name, of_task, hit in zip(tasks, lengths, solved, strict=True)
            if hit.any()
        },
        mean_success=float(rates.mean()),
        iqm_success=iqm(rates),
        iqm_low=low,
        iqm_high=high,
        worst=tuple(tasks[k] for k in order),
        goals_per_task=solved.shape[1],
        horizon=horizon,
        seed=seed,
        steps=steps,
        wall_s=wall_s,
        return_error=_error_of_mean(returns),
    )


def _error_of_mean(returns: F64) -> float:
    """Of the mean over tasks of the mean over episodes, [tasks, episodes]."""
    tasks, episodes = returns.shape
    return float(np.sqrt(returns.var(axis=1, ddof=1).sum() / episodes) / tasks) if episodes > 1 else 0.0


def unseen_seed(seed: int) -> int:
    """A seed of goals for a policy that was trained on those of `seed`; no slot of the run has it."""
    return (seed + 2**31) % 2**32


def iqm(values: F64) -> float:
    """Inter-quartile mean of `values` [n]: the mean without the floor(n/4) smallest and largest."""
    return float(middle(values).mean())


def middle(values: F64) -> F64:
    """What the IQM of `values` [n] is the mean of, ascending: n - 2 floor(n/4) of them, all where n is below four."""
    cut = int(IQM_CUT * len(values))
    return np.sort(values)[cut : len(values) - cut]


def iqm_interval(solved: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """95 % interval of the IQM over tasks of `solved` [tasks, goals]; the same for the same episodes, in any order.

    The percentile interval of the stratified bootstrap: goals are resampled within each task. Wilson's over the
    episodes that the IQM is the mean of, where resampling cannot tell: of one task, which has its own interval
    everywhere, and where all of them came out alike, so that each resample is what was seen.
    It speaks about these tasks and this one policy; how much training seeds differ it cannot know.
    """
    rates, goals = np.sort(solved.mean(axis=1)), solved.shape[1]
    if len(rates) > 1:
        # Resampling n yes-or-no outcomes with replacement is a binomial draw.
        samples = np.random.default_rng(0).binomial(goals, rates, size=(RESAMPLES, len(rates))) / goals
        low, high = np.percentile([iqm(row) for row in samples], [2.5, 97.5])
        if low < high:
            return float(low), float(high)
    return wilson(iqm(rates), goals * len(middle(rates)))


def lanes_a_task(num_tasks: int, goals: int) -> int:
    """How many environments play a task's goals at once."""
    return min(goals, -(-MIN_LANES // num_tasks))


def _lanes(num_tasks: int, goals: int) -> tuple[Script, ...]:
    """Each task's goals dealt out to lanes of its own, so that a lane needs one instance."""
    each = lanes_a_task(num_tasks, goals)
    return tuple(
        Script(tuple((task, goal) for goal in range(lane, goals, each)))
        for lane in range(each)
        for task in range(num_tasks)
    )
