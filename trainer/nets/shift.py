"""Pictures moved by a few pixels at random, which keeps critics from learning them by heart.

DrQ and DrQ-v2 (Kostrikov et al. 2021, arXiv 2004.13649; Yarats et al. 2021, arXiv 2107.09645), there by bilinear
sampling; whole pixels need no interpolation, whose backward has no fixed order on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor


def shifted(pictures: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """[B, …, H, W], each row moved by up to `most` pixels either way; its border is repeated. All frames of a row are
    moved alike. `generator`: on the CPU.
    """
    if not most:
        return pictures
    count, (height, width) = len(pictures), pictures.shape[-2:]
    moves = torch.randint(-most, most + 1, (2, count), generator=generator)
    if pictures.device.type == "cpu":  # one by one, which is quicker there than a look-up of each pixel
        moved = torch.empty_like(pictures)
        for row, (down, right) in enumerate(moves.T.tolist()):
            rows = torch.arange(down, down + height).clamp_(0, height - 1)
            columns = torch.arange(right, right + width).clamp_(0, width - 1)
            torch.index_select(pictures[row].index_select(-2, rows), -1, columns, out=moved[row])
        return moved
    rows, columns = (
        (torch.arange(size) + move[:, None]).clamp_(0, size - 1).to(pictures.device)
        for size, move in zip((height, width), moves, strict=True)
    )
    row_of = torch.arange(count, device=pictures.device)
    flat = pictures.reshape(count, -1, height, width).permute(0, 2, 3, 1)
    moved = flat[row_of[:, None, None], rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2).reshape(pictures.shape)
