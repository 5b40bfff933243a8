"""The moving average of an actor's weights (Polyak and Juditsky 1992), beside the learner, which never reads it.

Weights jump about while they are learned; their mean over the last updates acts more evenly than each of them (Nikishin
et al. 2018). It is averaged what is learned: the parameters. What an actor only carries (the scale of observations,
counters of a pretrained net) is taken as it is now, because it is a mean over all that was seen already; a frozen
encoder is the same at all times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.nets.policy import FROZEN, PolicyNet
from trainer.state import State


class MovingAverage:
    """Of the parameters of `net`, each time that it is told to `follow`: `keep` of what it was, the rest of what they
    are. It begins with what they are now, and stays on the net's device.
    """

    def __init__(self, net: PolicyNet, keep: float) -> None:
        self._share = 1 - keep
        found = {name: each.detach() for name, each in net.named_parameters() if not name.startswith(FROZEN)}
        self._names = list(found)
        self._now = list(found.values())
        self._means = [tensor.clone() for tensor in self._now]

    @torch.no_grad()
    def follow(self) -> None:
        """After an update. Changes nothing of the net."""
        torch._foreach_lerp_(self._means, self._now, self._share)

    @torch.no_grad()
    def begin_anew(self) -> None:
        """From what the parameters are now: they are another learner's, and no mean with the old ones plays."""
        for mean, now in zip(self._means, self._now, strict=True):
            mean.copy_(now)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """By the names of the net's `state_dict`, as they are now: to be copied before the next `follow`."""
        return dict(zip(self._names, self._means, strict=True))

    def state(self) -> State:
        """All of it, copied to the CPU."""
        return State({name: tensor.to("cpu", copy=True) for name, tensor in self.tensors.items()}, {})

    def load(self, state: State) -> None:
        """Go on from there. Errors: KeyError, RuntimeError where names or shapes differ."""
        for name, mean in self.tensors.items():
            mean.copy_(state.tensors[name])
