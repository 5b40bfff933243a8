"""Any environment of Gymnasium's interface, shown to those who watch the job: one wrapper around it (docs/programs.md).

While nobody watches, a step costs one comparison more. While somebody does, the environment draws itself at most ten
times a second; that costs time, and changes no number where drawing draws no random numbers. Needs Pillow.
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from anchorleg.job import Job

MOST_FPS = 10
#: A picture's longer side, and what a batch may hold: a larger one is made smaller.
MOST_PIXELS = 480
MOST_BYTES = 60_000
_MOST_FACTS = 16


class Watched(gymnasium.Wrapper):
    """`env` as it is. `task`: what it is called on the page, by default its id. `clock`: monotonic s.

    Of `info` the numbers and short words are shown beside the picture. Of several environments wrap one.
    """

    def __init__(
        self, env: gymnasium.Env, job: Job, *, task: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(env)
        self._job, self._clock = job, clock
        self._task = task or (env.spec.id if env.spec is not None else type(env.unwrapped).__name__)
        self._episode = self._step = 0
        self._return = 0.0
        self._next_at = float("-inf")

    def reset(self, **more: Any) -> Any:
        """As the environment's."""
        outcome = self.env.reset(**more)
        self._episode, self._step, self._return = self._episode + 1, 0, 0.0
        self._show(outcome[1], is_over=False)
        return outcome

    def step(self, action: Any) -> Any:
        """As the environment's."""
        outcome = self.env.step(action)
        _, reward, terminated, truncated, info = outcome
        self._step += 1
        self._return += float(reward)
        self._show(info, is_over=bool(terminated or truncated))
        return outcome

    def _show(self, info: Mapping[str, Any], *, is_over: bool) -> None:
        fps = min(self._job.watched(), MOST_FPS)
        now = self._clock()
        if not fps or now < self._next_at:
            return
        self._next_at = max(self._next_at + 1 / fps, now)
        success = info.get("is_success", info.get("success"))
        try:
            self._job.show(
                _facts(info),
                jpeg=as_jpeg(np.asarray(self.env.render())),
                task=self._task,
                episode=self._episode,
                step=self._step,
                score=self._return,
                success=bool(success) if is_over and success is not None else None,
            )
        except Exception as error:  # noqa: BLE001 - whatever drawing does, the training goes on
            self._next_at = float("inf")
            warnings.warn(f"{self._task} cannot be shown: {error}", stacklevel=3)


def as_jpeg(pixels: np.ndarray) -> bytes:
    """A picture [H, W, 3 or 1] or [H, W], uint8, small enough for a batch. Errors: ValueError, TypeError."""
    pixels = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    if pixels.ndim not in (2, 3) or pixels.dtype != np.uint8:
        raise ValueError('it renders no picture: create it with render_mode="rgb_array"')
    image = Image.fromarray(np.ascontiguousarray(pixels[..., :3] if pixels.ndim == 3 else pixels))
    side = min(MOST_PIXELS, max(image.size))
    while True:
        image.thumbnail((side, side))
        kept = io.BytesIO()
        image.save(kept, "JPEG", quality=75)
        if kept.tell() <= MOST_BYTES:
            return kept.getvalue()
        side = side * 3 // 4


def _facts(info: Mapping[str, Any]) -> dict[str, Any]:
    """What of `info` a page can show: numbers that are finite, short words."""
    found: dict[str, Any] = {}
    for name, told in info.items():
        value = told.item() if isinstance(told, np.generic) else told
        is_number = isinstance(value, int | float) and bool(np.isfinite(value))
        if len(found) < _MOST_FACTS and isinstance(name, str) and (is_number or isinstance(value, str)):
            found[name] = value
    return found
