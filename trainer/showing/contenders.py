"""Who is compared: trainings on the disk, grouped by what each was trained with."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainer.config.find import ALGORITHMS, find
from trainer.config.training import Training, differences_in, group_identity
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError
from trainer.history.slots import History, find_histories, told_where
from trainer.showing.alike import learned_with, training_in
from trainer.showing.comparison import Contender, Seeded, as_far_as_all, together
from trainer.showing.learning import evaluated, learned_from_others

#: A row that came so much later than others do was another job's first: nobody trained in between.
_PAUSE = 5.0
#: As much of a difference as a sentence can bear: fifty tasks are more.
_LONGEST = 80


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
    contenders = [
        Contender(name, tuple(sorted((one.seeded for one in members), key=lambda one: one.seed)))
        for algorithm, alike in groups.items()
        for name, members in zip(_names(algorithm, [one[0] for one in alike.values()]), alike.values(), strict=True)
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
    seeded = _seeded(history, training, steps, seconds_of(at))
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


def _names(algorithm: str, slots: Sequence[_Slot]) -> list[str]:
    """What contenders of one algorithm are called, whose settings are not the same."""
    presets = [one.training.preset for one in slots]
    if len(slots) == 1:
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
    """What a training took whose rows were written `at` (unix seconds), without the time between its jobs. Where a
    clock was set back, a row took the usual time.
    """
    apart = np.diff(np.array(at, np.float64))
    forward = apart[apart >= 0]
    if not forward.size:
        return 0.0
    usual = float(np.median(forward))
    is_told = (apart >= 0) & (apart <= _PAUSE * max(usual, 1.0))
    return float(np.where(is_told, apart, usual).sum() + usual)


def _seeded(history: History, training: Training, steps: int, seconds: float) -> Seeded:
    algorithm = find(ALGORITHMS, training.algorithm.name)
    actor = algorithm.sizes(training, spaces_of(training))[0]
    return Seeded(
        seed=training.seed,
        evaluations=tuple(evaluated(row) for row in history.evaluations),
        returns=tuple(float(np.mean(list(row["returns"].values()))) for row in history.evaluations),
        steps=steps,
        seconds=seconds,
        parameters=actor.parameters,
        num_envs=training.num_envs,
    )
