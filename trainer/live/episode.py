"""One episode at play in real time, cut into strips."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from trainer.envs.spaces import Actions, Obs
from trainer.live.folder import LiveFolder
from trainer.live.stage import ShownTask
from trainer.live.strips import BATCH_S, FACTS_S, Strip

#: Pictures a second, where pictures it must be: each is some 15 kB.
MOST_PICTURES_FPS = 10
#: Still shown after the first success, where that is enough.
_ENCORE_S = 0.5
#: Later than this behind real time, the rest is not made up for.
_MOST_BEHIND_S = 0.5


def play(
    stage: ShownTask,
    obs: Obs,
    act: Callable[[Obs], Actions | None],
    reel: Reel,
    write: Callable[[Strip], None],
    stop: threading.Event,
    *,
    once_is_enough: bool = False,
) -> None:
    """From `obs` on, until the episode is over, `act` has no action any more, or `stop` is set.

    Errors: whatever the environment raises.
    """
    began_s, began_at = stage.at_s, time.monotonic()
    last_s = float("inf")
    is_over = False
    while not (is_over or stop.is_set()):
        action = act(obs)
        if action is None:
            break
        was_solved = stage.stats.solved
        outcome = stage.step(action)
        obs = outcome.obs
        step_s = stage.step_s
        played_s = stage.at_s - began_s if step_s is None else stage.stats.length * step_s
        began_at = _wait_until(began_at, played_s, stop)
        if stage.stats.solved and not was_solved and once_is_enough:
            last_s = played_s + _ENCORE_S
        is_over = outcome.terminated or outcome.truncated or played_s >= last_s
        if reel.takes(stage, played_s):
            write(reel.cut())
    if reel.strip.glimpses:
        write(reel.cut())


def put(folder: LiveFolder, lane: str, strip: Strip, stage: ShownTask) -> None:
    """Into the ring of `lane`, with the stage's picture where it draws itself. Errors: OSError; ValueError where it
    cannot be shown; whatever the environment raises.
    """
    strip.at = time.time()
    if stage.draws_itself:
        folder.write_picture(lane, strip, stage.jpeg())
    else:
        folder.write(lane, strip)


def _wait_until(began_at: float, played_s: float, stop: threading.Event) -> float:
    """Wait for the moment that is `played_s` after `began_at`; when it began, made later where it is far behind."""
    left_s = began_at + played_s - time.monotonic()
    if left_s > 0:
        stop.wait(left_s)
    return began_at if left_s > -_MOST_BEHIND_S else time.monotonic() - played_s


class Reel:
    """Cuts episode number `episode` into strips: `fps` pictures a second where they are poses, fewer of what draws
    itself; where there is nothing to see a word a second.
    """

    def __init__(self, new: Callable[[], Strip], stage: ShownTask, episode: int, fps: int) -> None:
        self._new, self._episode = new, episode
        if stage.parts is not None:
            self._apart_s, self._batch_s = 1 / fps, BATCH_S
        else:
            self._apart_s, self._batch_s = 1 / min(fps, MOST_PICTURES_FPS) if stage.draws_itself else FACTS_S, 0.0
        self._began_s = 0.0
        self.strip = new()

    def takes(self, stage: ShownTask, played_s: float) -> bool:
        """After a step, look where it is time to; whether the strip is to be cut now."""
        steps = stage.stats.length
        every = max(1, round(self._apart_s * steps / played_s)) if played_s > 0 else 1
        if (steps - 1) % every:
            return False
        if not self.strip.glimpses:
            self._began_s = played_s
        self.strip.glimpses.append(stage.glimpse(self._episode))
        return played_s - self._began_s >= self._batch_s - self._apart_s / 2 or self.strip.is_full

    def cut(self) -> Strip:
        """The strip so far; the next one is empty."""
        strip, self.strip = self.strip, self._new()
        return strip
