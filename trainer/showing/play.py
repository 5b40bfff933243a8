"""Policies at play: single episodes to look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import mujoco
import numpy as np

from trainer.config.settings import GOALS_PER_TASK
from trainer.config.suites import Metaworld
from trainer.envs.cameras import Picture, camera_number, hangs_upside_down
from trainer.envs.episodes import seed_of
from trainer.envs.frames import OneEpisode
from trainer.envs.spaces import ArraySpec, Obs, Spaces
from trainer.envs.suite import Outcome
from trainer.envs.suites.metaworld import shapes
from trainer.envs.suites.metaworld.env import MetaworldEnv, TaskEnv
from trainer.envs.suites.metaworld.goals import goal_table
from trainer.errors import ConfigError, EnvironmentFailedError
from trainer.showing.film import FRAMES_A_SECOND, with_words

if TYPE_CHECKING:
    from trainer.evaluation.playable import Playable

#: Every second step of Meta-World's 12.5 ms is as fast as the simulation really is, at 40 pictures a second.
STEPS_A_FRAME = 2
#: Where an environment does not say how many steps it makes a second.
USUAL_FPS = 30
#: H.264 halves the colour planes, so a side must be even; beyond 4K nobody's player follows.
MIN_SIZE, MAX_SIZE = 64, 2160
#: Pixels between two pictures, and what they are.
_GAP, _GREY = 4, 90

Show = Callable[[Picture], None]


@dataclass(frozen=True)
class PlayedEpisode:
    """How one episode went. `number` is that of an evaluation's episode, or of a goal. `success` None: nothing was said
    of it. `episode_return` is undiscounted, as in evaluations.
    """

    number: int
    episode_return: float
    steps: int
    success: bool | None = None

    def words(self) -> str:
        """One line."""
        how = "" if self.success is None else ", solved" if self.success else ", not solved"
        return f"episode {self.number}: return {self.episode_return:,.1f} in {self.steps:,} steps{how}"


class EpisodePlayer(ABC):
    """One task of `policy`, and an environment in which it is played; a context, or to be closed. `fps`: pictures a
    second of a film of it, one of `steps_a_frame` steps.
    """

    env: Any
    fps, steps_a_frame = FRAMES_A_SECOND, 1
    #: Whether an episode ends at its first success, and whether that is told.
    ends_solved, tells_success = False, True
    #: Of the episode so far; None: nothing is told.
    success: bool | None = None

    def __init__(self, policy: Playable, task: str | None, spaces: Spaces) -> None:
        self._policy, self._index = policy, policy.task_index(task)
        self.task = policy.tasks[self._index]
        self._frames, self._specs, self._horizon = OneEpisode(spaces), spaces.obs, spaces.horizon
        self._obs: Obs = spaces.zeros(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @abstractmethod
    def begun(self, number: int) -> Obs:
        """What is seen where an evaluation's episode of this number, or goal, begins."""

    @abstractmethod
    def drawn(self) -> Picture:
        """The scene as it looks now, both sides even. Errors: ConfigError where it cannot be drawn."""

    @property
    def views(self) -> list[Picture]:
        """What the policy sees now, of each camera [H, W, 3]; none where it sees numbers alone."""
        return newest_frames(self._specs, self._obs)

    def picture(self) -> Picture:
        """The scene, and what the policy sees beside it. Errors: ConfigError."""
        return with_views(self.drawn(), self.views)

    def reset(self, number: int) -> None:
        """Begin that episode. Errors: EnvironmentFailedError."""
        with self._told(number):
            self._obs = self._frames.begin(self.begun(number))

    def play(self, number: int, on_step: Callable[[int], None]) -> PlayedEpisode:
        """One episode; `on_step(n)` is called at its start (0) and after each step. Errors: EnvironmentFailedError."""
        self.reset(number)
        self.success = None
        on_step(0)
        total, solved, is_over = 0.0, list[bool](), False
        while len(solved) < self._horizon and not is_over:
            with self._told(number):
                action = self._policy.act(self._obs, np.array([self._index], np.int32))[0]
                outcome: Outcome = self.env.step(action)
                self._obs = self._frames.push(outcome.obs)
            total += float(outcome.reward)
            solved.append(bool(outcome.success))
            is_over = outcome.terminated or outcome.truncated or (self.ends_solved and solved[-1])
            self.success = self._policy.env.succeeded(solved) if self.tells_success else None
            on_step(len(solved))
        return PlayedEpisode(number, total, len(solved), self.success)

    def film(self, number: int, show: Show) -> PlayedEpisode:
        """As `play`; pictures of it are shown, with task, step and success in them, and its end for a second. Errors:
        ConfigError, too.
        """

        def told(step: int) -> Picture:
            success = f"   success: {'yes' if self.success else 'no'}" if self.tells_success else ""
            return with_words(self.picture(), f"{self.task}   step {step:,}{success}")

        episode = self.play(number, lambda step: None if step % self.steps_a_frame else show(told(step)))
        for _ in range(self.fps):  # how it ended is what one wants to see
            show(told(episode.steps))
        return episode

    def close(self) -> None:
        """Free the environment."""
        self.env.close()

    def _seed(self, number: int) -> int:
        return seed_of(self._policy.goal_seed, self._index, number)

    @contextmanager
    def _told(self, number: int) -> Iterator[None]:
        """Whatever an environment raises becomes a sentence."""
        try:
            yield
        except Exception as error:
            raise EnvironmentFailedError("play.episode-failed", task=self.task, episode=number, why=error) from error


class PlayedTask(EpisodePlayer):
    """One task of Meta-World at its fixed goals, seen by a `camera`, `size` pixels a side."""

    steps_a_frame, ends_solved = STEPS_A_FRAME, True

    def __init__(self, policy: Playable, task: str | None, camera: str = "corner2", size: int = 480) -> None:
        settings = cast("Metaworld", policy.env)
        super().__init__(policy, task, shapes.spaces(settings))
        self.env = MetaworldEnv(TaskEnv(self.task), goal_table(self.task, policy.goal_seed), settings)
        self._camera, self._eye = (camera, size), cast("Camera | None", None)
        self.reset(0)  # before it nothing has a place that could be drawn

    @property
    def simulation(self) -> tuple[Any, Any]:
        """MuJoCo's model and data, to draw from."""
        found: tuple[Any, Any] = self.env.upstream.simulation
        return found

    def begun(self, number: int) -> Obs:
        """At that goal."""
        start = number % GOALS_PER_TASK
        found: Obs = self.env.reset(start, self._seed(start))
        return found

    def drawn(self) -> Picture:
        """Errors: ConfigError for another camera, or size."""
        if self._eye is None:
            self._eye = Camera(self.simulation, *self._camera)
        return self._eye.picture()

    def close(self) -> None:
        """Free the simulation, and the drawing context."""
        if self._eye is not None:
            self._eye.close()
        super().close()


class WatchedTask(EpisodePlayer):
    """One task of a suite that has `watched`, whose environments draw themselves, in their own size and speed."""

    def __init__(self, policy: Playable, task: str | None) -> None:
        suite: Any = policy.suite(policy.goal_seed).open()
        if not hasattr(suite, "watched"):
            raise ConfigError("play.no-pictures", suite=policy.env.name)
        super().__init__(policy, task, suite.spaces)
        self.tells_success = suite.tells_success
        self.env = suite.watched(self._index)
        self.fps = int(self.env.upstream.metadata.get("render_fps") or USUAL_FPS)

    def begun(self, number: int) -> Obs:
        """As an evaluation begins it."""
        found: Obs = self.env.reset(self._seed(number))
        return found

    def drawn(self) -> Picture:
        """Errors: ConfigError where it cannot be drawn."""
        try:
            drawn = self.env.picture()
        except Exception as error:
            raise ConfigError("play.not-drawn", task=self.task, why=error) from error
        return np.ascontiguousarray(drawn[: drawn.shape[0] // 2 * 2, : drawn.shape[1] // 2 * 2])


class Camera:
    """A camera of `model` by name, drawing `size` x `size` pixels of `data`."""

    def __init__(self, simulation: tuple[Any, Any], name: str, size: int) -> None:
        """Errors: ConfigError for a camera that is not there, or an impossible size."""
        self._model, self._data = simulation
        self._id = camera_number(self._model, name)
        if not MIN_SIZE <= size <= MAX_SIZE or size % 2:
            raise ConfigError("play.size", size=size, least=MIN_SIZE, most=MAX_SIZE)
        buffer = self._model.vis.global_
        buffer.offwidth, buffer.offheight = max(size, buffer.offwidth), max(size, buffer.offheight)
        self.renderer = mujoco.Renderer(self._model, size, size)
        mujoco.mj_camlight(self._model, self._data)
        self.is_upside_down = hangs_upside_down(self._data, self._id)

    def picture(self) -> Picture:
        """What it sees now, [size, size, 3], top row first."""
        self.renderer.update_scene(self._data, camera=self._id)
        pixels: Picture = self.renderer.render()
        # Turned by half a circle, not mirrored: left stays left.
        return np.ascontiguousarray(pixels[::-1, ::-1]) if self.is_upside_down else pixels

    def close(self) -> None:
        """Free the drawing context."""
        self.renderer.close()


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
