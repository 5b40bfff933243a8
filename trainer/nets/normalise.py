"""Observations on one scale: what they were like so far, and what a policy carries of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.envs.spaces import F32, F64
from trainer.state import State

#: Larger normalised numbers are cut, and what never changes is not blown up (stable-baselines3's `VecNormalize`).
CLIP, EPSILON = 10.0, 1e-8
#: The weight of mean 0 and deviation 1, which a scale begins with.
_FIRST = 1e-4


class RunningMoments:
    """Mean and variance of the rows [n] that were seen so far, in float64 (Chan, Golub and LeVeque 1979)."""

    def __init__(self, numbers: int) -> None:
        self.mean: F64 = np.zeros(numbers)
        self.variance: F64 = np.ones(numbers)
        self.count = _FIRST

    def add(self, rows: npt.NDArray[np.floating]) -> None:
        """See rows [B, n]."""
        self.merge(*summed_up(rows))

    def merge(self, mean: F64, squares: F64, count: float) -> None:
        """See `count` rows of this `mean` [n], from which they are `squares` [n] apart in sum."""
        apart, total = mean - self.mean, self.count + count
        squares = squares + apart * apart * (self.count * count / total)
        self.variance = (self.variance * self.count + squares) / total
        self.mean = self.mean + apart * (count / total)
        self.count = total

    def scaled(self, rows: F32) -> F32:
        """[B, n] rows, to the bit what a `Normaliser` with this scale makes of them."""
        found = (rows - self.mean.astype(np.float32)) * self.scale.astype(np.float32)
        return np.minimum(np.maximum(found, -CLIP), CLIP, dtype=np.float32)

    @property
    def scale(self) -> F64:
        """What brings the deviation to 1, [n]."""
        return 1 / np.sqrt(self.variance + EPSILON)

    def state(self) -> State:
        """All of it."""
        return State({"mean": self.mean.copy(), "variance": self.variance.copy()}, {"count": self.count})

    def load(self, state: State) -> None:
        """Go on from there."""
        self.mean, self.variance = (np.array(state.tensors[name], np.float64) for name in ("mean", "variance"))
        self.count = float(state.numbers["count"])


def summed_up(rows: npt.NDArray[np.floating]) -> tuple[F64, F64, int]:
    """Of rows [B, n]: their mean [n], the sum of the squares of what they are apart from it [n], B."""
    values, count = rows.astype(np.float64), len(rows)
    mean = values.sum(0) / count
    values -= mean
    return mean, (values * values).sum(0), count


class Normaliser(nn.Module):
    """(x - shift) · scale, within ±`CLIP`: [B, n] → [B, n] float32.

    Each float32 number stands there as three that add up to it and have 8 digits (bits) each: published weights are
    rounded to bfloat16, which would leave nothing of a small change in a large number.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, numbers: int, generator: torch.Generator | None) -> None:
        super().__init__()
        device = "meta" if generator is None else "cpu"
        self.register_buffer("shift", torch.zeros(3, numbers, device=device))
        self.register_buffer("scale", torch.zeros(3, numbers, device=device))
        if generator is not None:
            self.scale[0] = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.shift.sum(0)) * self.scale.sum(0)).clamp(-CLIP, CLIP)

    def copy_scale(self, moments: RunningMoments) -> None:
        """Take over what was seen so far."""
        for ours, now in ((self.shift, moments.mean), (self.scale, moments.scale)):
            ours.copy_(torch.from_numpy(in_three(now.astype(np.float32))))


def in_three(values: F32) -> F32:
    """[n] → [3, n]: the first 8 bits of each number's digits, the next, and the rest."""
    parts = np.empty((3, len(values)), np.float32)
    rest = values
    for part in parts[:2]:
        part[:] = (rest.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        rest = rest - part
    parts[2] = rest
    return parts
