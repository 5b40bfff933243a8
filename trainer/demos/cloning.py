"""Learning from what was done: the policy's most likely action is to be the demonstrated one (behaviour cloning,
Pomerleau 1988). Encoder and actor learn together; both are kept, the encoder for a training, the actor to be played.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.checkpoints.checkpoint import write_policy
from trainer.config.training import Training
from trainer.demos.footage import Footage
from trainer.demos.matching import bounded, names_of
from trainer.demos.store import ACTION
from trainer.envs.spaces import I64, IMAGE, Box, Spaces
from trainer.errors import ConfigError
from trainer.nets.normalise import Normaliser, RunningMoments
from trainer.nets.policy import PolicyNet, PolicySpec

#: Held-out rows, evenly spaced; of encoders that are slow more would take longer than learning does.
_MEASURED = 512
#: Rows that are read at once there.
_AT_ONCE = 64


class Cloning:
    """Teaches a policy with the nets of `training`, whose encoder learns. `chosen`: the episodes to learn from; `held`:
    to measure by. `encoder`: of the pictures called `image`, where the policy sees them; pictures of other names are
    learned to be read as well.

    The error is the mean square over the numbers of an action, or the cross entropy where an action is one of several.
    """

    name = "actions"

    def __init__(
        self,
        training: Training,
        spaces: Spaces,
        footage: Footage,
        tasks: list[int],
        chosen: list[int],
        held: list[int],
        generator: torch.Generator,
    ) -> None:
        """`tasks`: of each episode its number. Errors: ConfigError where the actions do not fit."""
        self._training = training
        self._footage, self._spaces = footage, spaces.of_policy
        self._is_box = isinstance(spaces.action, Box)
        self.measures = "mean square error of the action" if self._is_box else "cross entropy of the action"
        spec = PolicySpec(
            self._spaces, training.network, "squashed-normal" if self._is_box else "categorical", normalises=True
        )
        try:
            net = PolicyNet(spec, generator)
        except ValueError as error:
            raise ConfigError(f"network: {error}") from None
        self.module: nn.Module = net
        self.encoder: nn.Module | None = None
        if IMAGE in net.encoders:
            self.encoder = net.encoders[IMAGE]
        self._spec, self._distribution = spec, net.distribution
        self._names = names_of(footage.told, self._spaces)
        self._learned, held_places = (footage.places(part, of_actions=True) for part in (chosen, held))
        if not len(self._learned) or not len(held_places):
            raise ConfigError("no action is left to learn from: episodes that failed are not imitated")
        self._measured = held_places[np.linspace(0, len(held_places) - 1, min(_MEASURED, len(held_places))).astype(int)]
        self._task = np.repeat(np.array(tasks, np.int64), [episode.frames for episode in footage.episodes])
        bounded(footage.arrays[ACTION][self._learned], spaces.action, "learn without them (--without-actions)")
        for key, name in self._names.items():
            if key in net.scales:
                rows = footage.arrays[name]
                moments = RunningMoments(rows.shape[1])
                moments.add(rows[self._learned])
                cast("Normaliser", net.scales[key]).follow(moments)

    def loss(self, rng: np.random.Generator, rows: int) -> Tensor:
        """Of `rows` actions that `rng` chooses."""
        return self._errors(self._learned[rng.integers(len(self._learned), size=rows)]).mean()

    @torch.no_grad()
    def measure(self) -> float:
        """The mean error of the actions that are held out: always the same ones."""
        parts = [self._errors(self._measured[i : i + _AT_ONCE]) for i in range(0, len(self._measured), _AT_ONCE)]
        return float(torch.cat(parts).double().mean())

    def leave(self, folder: Path, step: int, tensors: Mapping[str, Tensor]) -> None:
        """What `module` was, as a policy that can be played: beside what else is in `folder`. Errors: OSError."""
        write_policy(folder, step, self._training, self._spec.as_json(), tensors)

    def _errors(self, places: I64) -> Tensor:
        """[B]."""
        device = next(self.module.parameters()).device
        obs = {key: self._footage.seen(self._names[key], spec, places) for key, spec in self._spaces.obs.items()}
        read = {key: torch.from_numpy(array).to(device) for key, array in obs.items()}
        outputs = self.module(read, torch.from_numpy(self._task[places]).to(device))
        wanted = torch.from_numpy(self._footage.arrays[ACTION][places]).to(device)
        if self._is_box:
            return (self._distribution.mode(outputs) - wanted).square().mean(-1)
        return -self._distribution.log_prob(outputs, wanted)
