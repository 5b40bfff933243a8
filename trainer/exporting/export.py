"""One policy into one file: made, written beside its place, read back, compared, and only then put there."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anchorleg.files import make_folder, write_bytes
from trainer.errors import ConfigError, NoGoodCheckpointError, SaveError
from trainer.evaluation.playable import Found
from trainer.exporting.card import Card
from trainer.exporting.files import kind_of
from trainer.exporting.module import of_policy


@dataclass(frozen=True)
class Exported:
    """A file that is there. `deviation`: how far its golden actions came out from the policy's, at most."""

    path: Path
    card: Card
    deviation: float


def export(found: Found, out: Path) -> Exported:
    """Write the deterministic policy `found` to `out`, whose name says the kind. Whole or not at all; replaces.

    Errors: ConfigError (an unknown kind, a folder); NoGoodCheckpointError (its weights are not finite); SaveError (the
    file cannot be written, or does not do what the policy does); ModuleNotFoundError.
    """
    kind = kind_of(out)
    if os.path.isdir(out):  # `Path.is_dir` raises for a name that is too long
        raise ConfigError("export.out-is-folder", out=out)
    module = of_policy(found.policy)
    if not all(tensor.isfinite().all() for tensor in module.state_dict().values()):
        raise NoGoodCheckpointError("export.not-finite", policy=found.name)
    card = Card.of(found)
    data = kind.make(module, card)
    observation, task = np.array(card.golden.observation, np.float32), np.array(card.golden.task, np.int64)
    deviation = math.inf

    def check(temporary: Path) -> None:
        nonlocal deviation
        text, actions = kind.play(temporary, module, observation, task)
        deviation = Card.model_validate_json(text).deviation(actions)
        if not deviation <= card.golden.tolerance:
            raise SaveError("export.acts-otherwise", out=out, deviation=deviation, tolerance=card.golden.tolerance)

    try:
        make_folder(out.absolute().parent)
        write_bytes(out, data, check=check)
    except OSError as error:
        raise SaveError("output.unwritable-file", path=out, why=error.strerror or error) from None
    return Exported(out, card, deviation)
