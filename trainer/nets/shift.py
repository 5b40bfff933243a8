"""Pictures moved by a few pixels at random, which keeps critics from learning them by heart.

DrQ and DrQ-v2 (Kostrikov et al. 2021, arXiv 2004.13649; Yarats et al. 2021, arXiv 2107.09645), there by bilinear
sampling; whole pixels need no interpolation, whose backward has no fixed order on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor


def drawn_moves(count: int, most: int, generator: torch.Generator) -> Tensor:
    """[count, 2] whole pixels (down, right), up to `most` either way. `generator`: on the CPU."""
    return torch.randint(-most, most + 1, (2, count), generator=generator).T.contiguous()


def shifted(pictures: Tensor, moves: Tensor) -> Tensor:
    """[B, …, H, W], each row moved by its `moves` [B, 2], which are on the CPU; its border is repeated. All frames of a
    row are moved alike.
    """
    count, (height, width) = len(pictures), pictures.shape[-2:]
    if pictures.device.type == "cpu":  # one by one, which is quicker there than a look-up of each pixel
        moved = torch.empty_like(pictures)
        for row, (down, right) in enumerate(moves.tolist()):
            rows = torch.arange(down, down + height).clamp_(0, height - 1)
            columns = torch.arange(right, right + width).clamp_(0, width - 1)
            torch.index_select(pictures[row].index_select(-2, rows), -1, columns, out=moved[row])
        return moved
    rows, columns = (
        (torch.arange(size) + move[:, None]).clamp_(0, size - 1).to(pictures.device)
        for size, move in zip((height, width), moves.T, strict=True)
    )
    row_of = torch.arange(count, device=pictures.device)
    flat = pictures.reshape(count, -1, height, width).permute(0, 2, 3, 1)
    moved = flat[row_of[:, None, None], rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2).reshape(pictures.shape)
