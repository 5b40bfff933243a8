"""Learning from films alone: frames that are near in time are to be near as features (R3M).

Nair et al. 2022, "R3M: A Universal Visual Representation for Robot Manipulation", arXiv 2203.12601; the loss is of
Sermanet et al. 2018, arXiv 1704.06888. Upstream: facebookresearch/r3m, r3m/trainer.py and cfgs/config_rep.yaml: three
frames i < j < k of each film, similarity the negative L2 distance, three negatives of other films, L1 and L2 norms
weighted 1e-5, Adam 1e-4. Left out: language, and the crops that upstream's best model was trained with. Upstream's
negatives are any film of the batch, its own too; here they are others'. Upstream's frames are any of a film; here they
are drawn by how much is new in them: where nothing moves there is no order to learn, and a hand that has arrived may
rest for most of a film.

Shapes: B films of a batch, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.demos.footage import Footage
from trainer.envs.spaces import I64, IMAGE, ArraySpec
from trainer.errors import ConfigError

NEGATIVES = 3
L1_WEIGHT = L2_WEIGHT = 1e-5
#: Frames of each film in a batch: earlier, middle, later.
FRAMES = 3
#: Held-out triples, drawn once.
_MEASURED = 128
#: Triples that are read at once there.
_AT_ONCE = 16


class TimeContrast:
    """Teaches the encoder of pictures by films. `chosen`: the episodes to learn from; `held`: to measure by."""

    name = "time"
    measures = "time-contrastive loss"

    def __init__(
        self, encoder: nn.Module, spec: ArraySpec, footage: Footage, chosen: list[int], held: list[int], seed: int
    ) -> None:
        """Errors: ConfigError where there are too few films with three frames that differ."""
        self.encoder = self.module = encoder
        self._spec, self._footage = spec, footage
        self._news = {e: _news(footage.film(e)) for e in (*chosen, *held)}
        self._chosen, self._held = (
            [e for e in part if np.count_nonzero(self._news[e]) >= FRAMES] for part in (chosen, held)
        )
        if len(self._chosen) < 2 or not self._held:
            raise ConfigError(
                f"in {len(self._chosen) + len(self._held)} of {len(self._news)} films something moves from frame to "
                f"frame, {FRAMES} frames long; without actions three are needed: two to tell apart, and one that is "
                "held out"
            )
        self._measured = self._draw(np.random.default_rng([seed, 1]), _MEASURED, self._held)

    def loss(self, rng: np.random.Generator, rows: int) -> Tensor:
        """Of `rows` films that `rng` chooses."""
        return self._loss(*self._draw(rng, rows, self._chosen))

    @torch.no_grad()
    def measure(self) -> float:
        """The loss of the films that are held out, without the norms' part: always the same triples."""
        films, places, negatives = self._measured
        parts = [self._features(places[i : i + _AT_ONCE]) for i in range(0, len(places), _AT_ONCE)]
        return float(contrast(torch.cat(parts), films, negatives))

    def leave(self, folder: Path, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Nothing: an encoder alone does not act."""

    def _draw(self, rng: np.random.Generator, rows: int, chosen: list[int]) -> tuple[Tensor, I64, Tensor]:
        """(the film of each row [B], places [B, 3], and for each row NEGATIVES others [NEGATIVES, B])."""
        films = np.array(chosen)[rng.integers(len(chosen), size=rows)]
        places = np.empty((rows, FRAMES), np.int64)
        for row, film in enumerate(films.tolist()):
            news = self._news[film]
            drawn = rng.choice(len(news), FRAMES, replace=False, p=news)
            places[row] = self._footage.begins[film] + np.sort(drawn)
        negatives = np.stack([rng.permutation(rows) for _ in range(NEGATIVES)])
        return torch.from_numpy(films), places, torch.from_numpy(negatives)

    def _loss(self, films: Tensor, places: I64, negatives: Tensor) -> Tensor:
        features = self._features(places)
        norms = [torch.linalg.vector_norm(features, order, dim=-1).mean() for order in (1, 2)]
        loss: Tensor = contrast(features, films, negatives) + L1_WEIGHT * norms[0] + L2_WEIGHT * norms[1]
        return loss

    def _features(self, places: I64) -> Tensor:
        """[B, 3, F]."""
        device = next(self.encoder.parameters()).device
        seen = torch.from_numpy(self._footage.seen(IMAGE, self._spec, places.reshape(-1))).to(device)
        read: Tensor = self.encoder(seen)
        return read.reshape(*places.shape, -1)


def contrast(features: Tensor, films: Tensor, negatives: Tensor) -> Tensor:
    """The mean over films of the two halves of upstream's loss, for features [B, 3, F] of earlier, middle and later
    frames: the middle one is nearer to the later one than the earlier one is, and than others' later frames are to it;
    and the same with the earlier ones. `negatives` [n, B]: rows; those of the same film do not count.
    """
    early, middle, late = features.unbind(1)
    is_other = (films[negatives] != films).to(features.device)  # [n, B]
    near_late, near_early, far = _alike(middle, late), _alike(middle, early), _alike(early, late)
    losses = []
    for near, anchor in ((near_late, late), (near_early, early)):
        others = _alike(anchor, anchor[negatives.to(features.device)]).masked_fill(~is_other, -torch.inf)
        losses.append(torch.logsumexp(torch.cat([near[None], far[None], others]), 0) - near)
    return torch.stack(losses).mean()


def _news(film: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """[F]: each frame's part of all changes from one frame of `film` [F, C, H, W] to the next; the first one has the
    second one's. All 0 where nothing changes.
    """
    changes = np.zeros(len(film))
    for number in range(1, len(film)):
        changes[number] = np.abs(film[number].astype(np.int16) - film[number - 1]).sum()
    if len(film) > 1:
        changes[0] = changes[1]
    news: npt.NDArray[np.float64] = changes / max(float(changes.sum()), 1.0)
    return news


def _alike(one: Tensor, other: Tensor) -> Tensor:
    distance: Tensor = torch.linalg.vector_norm(one - other, dim=-1)
    return -distance
