"""Which slots are seeds of one training: those that learned with the same, but for the seed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trainer.config.group import GroupSettings
from trainer.config.training import Training
from trainer.history.slots import History

#: sha256, and as many of its digits as a file goes by.
_SUM, _DIGITS = re.compile("[0-9a-f]{64}"), 12


def training_in(history: History) -> Training | None:
    """What was trained there; None where that is not at hand, or nobody here understands it."""
    try:
        return Training.model_validate(dict(history.training))
    except ValueError:
        return None


def key_of(history: History) -> str:
    """Equal for the seeds of one training, and for nothing else; empty where nobody says what was trained."""
    training = training_in(history)
    if training is None:
        return ""
    return json.dumps([training.env.model_dump(mode="json"), learned_with(training, history)], sort_keys=True)


def learned_with(training: Training, history: History) -> dict[str, Any]:
    """What decides what is learned, but for the environment and the seed, by its short name."""
    sections = training.model_dump(mode="json", include={"algorithm", "network", "num_envs", "total_steps"})
    algorithm, network = sections.pop("algorithm"), sections.pop("network")
    slot_dir = history.folder / "slots" / str(history.slot)  # with copies as trainer.training keeps them
    _by_its_sum(algorithm, "demos", slot_dir)
    _by_its_sum(network["encoder"], "weights", slot_dir)
    found = {**algorithm, **network, **sections}
    if training.group.ways:
        found["group"] = _given_by(training.group)
    if training.init_seed is not None:
        found["init_seed"] = training.init_seed
    return found


def _by_its_sum(settings: dict[str, Any], name: str, slot_dir: Path) -> None:
    """Where a file lies teaches nothing: it goes by its sum, as the settings or the slot's only copy tell it."""
    sha256 = settings.pop(f"{name}_sha256", None)
    if settings.get(name) is None:
        return
    copies = [path.stem for path in (slot_dir / name).glob("*") if _SUM.fullmatch(path.stem)]
    if sha256 is None and len(copies) == 1:
        sha256 = copies[0]
    if sha256 is not None:
        settings[name] = sha256[:_DIGITS]


def _given_by(group: GroupSettings) -> dict[str, Any]:
    """What slots give each other, without what that does not need."""
    unused = {*(() if group.rows else ("share", "every")), *(() if group.mix else ("mix_every",))}
    found: dict[str, Any] = group.model_dump(mode="json", exclude_defaults=True, exclude=unused)
    return found
