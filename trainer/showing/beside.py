"""What a policy sees, set beside the scene in a film."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainer.envs.cameras import Picture
from trainer.envs.spaces import ArraySpec, Obs

#: Pixels between two pictures, and what they are.
_GAP, _GREY = 4, 90


def newest_frames(specs: Mapping[str, ArraySpec], obs: Obs) -> list[Picture]:
    """Of each camera, or channel that is no colour, the newest picture [H, W, 3] in `obs` [1, …] of a policy."""
    found: list[Picture] = []
    for key, spec in sorted(specs.items()):
        if spec.dtype != "uint8" or len(spec.shape) < 3 or spec.privileged:
            continue
        channels = spec.frame[0]
        frame = obs[key][0].reshape(-1, *spec.frame[1:])[-channels:]
        for first in range(0, channels, 3 if channels % 3 == 0 else 1):
            one = frame[first : first + 3] if channels % 3 == 0 else frame[[first] * 3]
            found.append(np.ascontiguousarray(one.transpose(1, 2, 0)))
    return found


def with_views(scene: Picture, views: list[Picture]) -> Picture:
    """`scene` [H, W, 3] and `views` right of it, enlarged by whole numbers as far as the height allows, in as many
    columns as that needs. Both sides of the result are even; it is `scene` itself where there are no views.
    """
    if not views:
        return scene
    height = scene.shape[0]
    tall = max(view.shape[0] for view in views)
    rows = max(1, min(len(views), (height + _GAP) // (tall + _GAP)))
    columns = -(-len(views) // rows)
    times = max(1, (height - _GAP * (rows - 1)) // rows // tall)
    shown = [view.repeat(times, 0).repeat(times, 1) for view in views]
    wide, tall = max(view.shape[1] for view in shown), tall * times
    width = scene.shape[1] + columns * (_GAP + wide)
    high = max(height, rows * (tall + _GAP) - _GAP)
    film = np.full((high + high % 2, width + width % 2, 3), _GREY, np.uint8)
    film[:height, : scene.shape[1]] = scene
    for number, view in enumerate(shown):
        row, column = number % rows, number // rows
        top, left = row * (tall + _GAP), scene.shape[1] + _GAP + column * (wide + _GAP)
        film[top : top + view.shape[0], left : left + view.shape[1]] = view
    return film
