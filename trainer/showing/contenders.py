"""Who is compared: trainings on the disk, grouped by the algorithm and the preset that each was trained with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.config.find import ALGORITHMS, find
from trainer.config.training import Training
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError
from trainer.history.slots import History, find_histories
from trainer.showing.comparison import Contender, Seeded
from trainer.showing.learning import evaluated

#: A row that came so much later than others do was another job's first: nobody trained in between.
_PAUSE = 5.0


def contenders_at(paths: Iterable[Path]) -> list[Contender]:
    """Those of run folders and slots, by algorithm; with the preset's name where an algorithm was trained with several.

    Errors: ConfigError, also where no evaluation was made.
    """
    groups: dict[tuple[str, str], list[Seeded]] = {}
    for path in paths:
        for history in find_histories(path):
            training = _training_of(history)
            if history.evaluations:
                groups.setdefault((training.algorithm.name, training.preset), []).append(_seeded(history, training))
    if not groups:
        raise ConfigError("nothing was evaluated yet: a comparison needs evaluations (evaluation_interval)")
    algorithms = [algorithm for algorithm, _ in groups]
    return [
        Contender(
            algorithm if algorithms.count(algorithm) == 1 else f"{algorithm} ({preset})",
            tuple(sorted(seeds, key=lambda one: one.seed)),
        )
        for (algorithm, preset), seeds in groups.items()
    ]


def seconds_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """What the training behind `rows` took, without the time between its jobs."""
    at = np.array([row["at"] for row in rows], np.float64)
    apart = np.diff(at)
    if not apart.size:
        return 0.0
    usual = float(np.median(apart))
    return float(np.where(apart > _PAUSE * max(usual, 1.0), usual, apart).sum() + usual)


def _training_of(history: History) -> Training:
    try:
        return Training.model_validate(dict(history.training))
    except ValueError:
        raise ConfigError(
            f"{history.folder} does not say what was trained in it: give a run of the orchestrator, or one of "
            "`trainer compare`"
        ) from None


def _seeded(history: History, training: Training) -> Seeded:
    algorithm = find(ALGORITHMS, training.algorithm.name)
    actor = algorithm.sizes(training, spaces_of(training))[0]
    return Seeded(
        seed=training.seed,
        evaluations=tuple(evaluated(row) for row in history.evaluations),
        returns=tuple(float(np.mean(list(row["returns"].values()))) for row in history.evaluations),
        steps=int(history.rows[-1]["to"]),
        seconds=seconds_of(history.rows),
        parameters=actor.parameters,
    )
