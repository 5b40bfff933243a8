"""What a config asks for and does not get: told, and done."""

from __future__ import annotations

from orchestrator.config import RunConfig
from orchestrator.decisions.halving import rung_steps
from trainer.config.section import resolve
from trainer.config.training import ALL_THE_TIME, BY_EVALUATIONS


def idle_gpus(config: RunConfig) -> str:
    """What to know where each job asks for more GPUs than our trainer uses; empty where it does not."""
    if config.role == "actors" and config.slurm.gpus:
        return f"slurm.gpus: {config.slurm.gpus}: actors play on the CPU, and it stays idle. Set it to 0."
    used = config.slurm.ranks // config.slurm.nodes
    if config.command is not None or config.slurm.gpus <= max(1, used):
        return ""
    idle = config.slurm.gpus - used
    others = "the other one stays idle" if idle == 1 else "the others stay idle"
    uses = f"{used} ranks use {used} GPUs" if used > 1 else "the trainer uses one GPU of a job"
    return (
        f"slurm.gpus: {config.slurm.gpus}: {uses}, and {others}. Set it to {used}, and slots to the number of GPUs "
        "that you want to use; docs/ranks.md says when one slot on several GPUs is faster."
    )


def _unmeasured(config: RunConfig) -> str:
    """What to know where our trainer is evaluated too seldom for its rungs; empty where it is not."""
    halving = config.queue.halving
    metric = config.queue.metric
    if halving is None or not config.trains or metric not in BY_EVALUATIONS:
        return ""
    training = resolve(config.training)
    every, most = training.evaluation_interval, rung_steps(1, halving)
    if training.evaluation_goals and 0 < every < most:
        return ""
    seldom = f"each {every:,} steps" if training.evaluation_goals and every else "at no step before the end"
    return (
        f"queue.halving: the trainer reports {metric} {seldom} (training.evaluation_interval), and an experiment "
        f"without one goes no further than {most:,} steps: set it to first_steps ({halving.first_steps:,}) at most."
    )


def _never_told(config: RunConfig) -> str:
    """What to know where our trainer reports nothing by the metric's name; empty where it does."""
    metric, there_are = config.queue.metric, (*BY_EVALUATIONS, *ALL_THE_TIME)
    if metric is None or not config.trains or metric in there_are:
        return ""
    names = ", ".join(there_are)
    return f'queue.metric: the trainer reports no "{metric}", and no experiment has one: what it reports is {names}.'


def warnings_of(config: RunConfig) -> list[str]:
    """What the config asks for and does not get, one sentence each."""
    warnings = []
    if config.trains:
        warnings += [f"training.{name}: {words}" for name, words in resolve(config.training).warnings_of()]
    return [*warnings, *filter(None, (idle_gpus(config), _unmeasured(config), _never_told(config)))]
