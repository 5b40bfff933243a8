"""Critics that say how likely each return is: N probabilities over a fixed grid of values. Pure functions.

Bellemare et al. 2017 (C51, arXiv 1707.06887) with SAC's entropy term, as in Nauman et al. 2025 (BRC): a critic gives
logits, learns by cross-entropy, and its Q is the mean of its distribution.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def grid(limit: float, bins: int, device: torch.device) -> Tensor:
    """The values that returns are spread over, [N]: from -limit to limit."""
    return torch.linspace(-limit, limit, bins, device=device)


def mean(logits: Tensor, values: Tensor) -> Tensor:
    """Q of [..., N] logits: [...]; in single precision, also where products are rounded."""
    with _exact(logits):
        return torch.softmax(logits.float(), dim=-1) @ values


def smaller(logits: Tensor, values: Tensor) -> Tensor:
    """Of two distributions over `values`, logits [2, B, N], the one whose mean is smaller: its probabilities [B, N]."""
    with _exact(logits):
        probabilities = torch.softmax(logits.float(), dim=-1)
        means = probabilities @ values
        is_first = (means[0] <= means[1]) | means[0].isnan()  # NaN is to come out as the loss
        return torch.where(is_first.unsqueeze(-1), probabilities[0], probabilities[1])


def _exact(logits: Tensor) -> AbstractContextManager[object]:
    device = logits.device.type
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def target(probabilities: Tensor, shift: Tensor, scale: Tensor, values: Tensor) -> Tensor:
    """The distribution of shift + scale·Z, laid onto the grid again, where Z has `probabilities` [B, N] over `values`.

    Each value that falls between two places of the grid is shared by them by nearness, so that the mean is kept;
    beyond the ends it falls on the end. `shift`, `scale` [B] → [B, N].
    """
    bins = values.shape[0]
    moved = (shift.unsqueeze(-1) + scale.unsqueeze(-1) * values).clamp(values[0], values[-1])
    step = (values[-1] - values[0]) / (bins - 1)  # two neighbours are rounded, and would be nearer or farther
    place = ((moved - values[0]) / step).clamp(max=bins - 1)
    below = place.floor().clamp(max=bins - 2)
    above = probabilities * (place - below)  # the part that goes one place up
    index = below.long().clamp_(0, bins - 2)  # NaN is to come out as the loss, and not as an index out of bounds
    if values.device.type == "cpu":
        found = torch.zeros_like(probabilities).scatter_add_(1, index, probabilities - above)
        return found.scatter_add_(1, index + 1, above)
    first = torch.arange(probabilities.shape[0], device=values.device).unsqueeze(-1) * bins + index
    found = torch.zeros_like(probabilities).view(-1)
    # Accumulating so adds in a fixed order on a GPU, where `deterministic` is set; scatter_add_ does not.
    found.index_put_((first.view(-1),), (probabilities - above).view(-1), accumulate=True)
    found.index_put_((first.view(-1) + 1,), above.view(-1), accumulate=True)
    return found.view_as(probabilities)


def cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    """- Σ wanted · log softmax(logits), over the last dimension; `wanted` is a constant."""
    return -(wanted * torch.log_softmax(logits, dim=-1)).sum(-1)
