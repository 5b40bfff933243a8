"""What every net is given beside the observation."""

from __future__ import annotations

import torch
from torch import Tensor


def with_task(obs: Tensor, task: Tensor, num_tasks: int) -> Tensor:
    """[B, O] and [B] → [B, O + K]: the observation and the one-hot task."""
    # Not by `one_hot`, which reads the smallest and the largest task back.
    one_hot = task.unsqueeze(-1) == torch.arange(num_tasks, device=task.device)
    return torch.cat([obs, one_hot.to(obs.dtype)], dim=-1)
