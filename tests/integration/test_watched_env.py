"""The Gymnasium wrapper, with the real library: a picture while somebody looks, and the same training either way."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from live_rings import ring_of, wish_in
from PIL import Image

from anchorleg.job import Job
from anchorleg.live.batches import checked
from anchorleg.live.ring import MAX_PAYLOAD_BYTES, RingReader
from anchorleg.live.showing import Showing
from anchorleg.live.wanted import LOOK_EVERY_S, Wish
from orchestrator.integrations.gymnasium import MOST_BYTES, MOST_FPS, MOST_PIXELS, Watched, as_jpeg

RUN = "mine-0123abcd"


class Drawn(CartPoleEnv):
    """CartPole, which draws itself without pygame, and counts how often."""

    def __init__(self) -> None:
        super().__init__(render_mode="rgb_array")
        self.drawn = 0
        self.fails = False

    def render(self) -> Any:
        if self.fails:
            raise RuntimeError("no display")
        self.drawn += 1
        picture = np.zeros((40, 60, 3), np.uint8)
        picture[:, 30] = 255
        return picture

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, info | {"angle": np.float32(self.state[2]), "nan": float("nan"), "way": "left", "list": [1]}


class World:
    """An environment in a job whose clock is the test's."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.now, self.folder = 1000.0, folder
        self.job = Job(folder / "run", 0, 3, run_id=RUN, shared_dir=folder)
        self.job._showing = Showing(folder, RUN, 0, 3, clock=lambda: self.now)
        self.inner = Drawn()
        self.env = Watched(self.inner, self.job, clock=lambda: self.now, **more)
        self.env.reset(seed=1)

    def is_watched(self, fps: int = 30) -> None:
        self.viewer = wish_in(self.folder, RUN, Wish(0, "any", fps), clock=lambda: self.now)
        self.now += LOOK_EVERY_S

    def steps(self, count: int, every_s: float = 0.01) -> None:
        for number in range(count):
            self.now += every_s
            if hasattr(self, "viewer"):
                self.viewer.renew((Wish(0, "any", 30),))
            _, _, terminated, truncated, _ = self.env.step(number % 2)
            if terminated or truncated:
                self.env.reset()

    def shown(self) -> list[tuple[dict[str, Any], bytes]]:
        return [checked(cell.kind, cell.payload) for cell in RingReader(ring_of(self.folder, RUN)).newer()]


def test_who_looks_sees_pictures_of_the_episode(tmp_path):
    world = World(tmp_path, task="pole")
    world.is_watched()
    world.steps(3)
    ((header, picture),) = world.shown()
    assert Image.open(io.BytesIO(picture)).size == (60, 40)
    assert (header["task"], header["episode"], header["attempt"]) == ("pole", 1, 3)
    assert header["return"] == header["step"] > 0
    assert set(header["facts"]) == {"angle", "way"}


def test_ten_pictures_a_second_at_most_are_drawn(tmp_path):
    world = World(tmp_path)
    world.is_watched(fps=30)
    world.steps(1000)
    assert 8 * MOST_FPS <= world.inner.drawn <= 10 * MOST_FPS + 2


def test_an_environment_that_cannot_be_drawn_trains_on_and_says_so_once(tmp_path):
    world = World(tmp_path)
    world.is_watched()
    world.inner.fails = True
    with pytest.warns(UserWarning, match="cannot be shown: no display"):
        world.steps(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world.steps(100)


@pytest.mark.parametrize("shape", [(2000, 3000, 3), (10, 10, 4), (5, 7), (5, 7, 1), (480, 480, 3)])
def test_any_picture_becomes_one_that_fits(shape):
    noise = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    data = as_jpeg(noise)
    assert len(data) <= MOST_BYTES < MAX_PAYLOAD_BYTES
    assert max(Image.open(io.BytesIO(data)).size) <= MOST_PIXELS


def test_a_training_is_the_same_whether_somebody_looks_or_not(tmp_path):
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    trained = []
    for name in ("watched", "unwatched"):
        world = World(tmp_path / name)
        if name == "watched":
            world.is_watched()
        ticking = world.env.step

        def step(action: Any, world: World = world, ticking: Any = ticking) -> Any:
            world.now += 0.01
            if hasattr(world, "viewer"):
                world.viewer.renew((Wish(0, "any", 30),))
            return ticking(action)

        world.env.step = step
        model = PPO("MlpPolicy", world.env, n_steps=128, seed=5, device="cpu").learn(256)
        trained.append([tensor.numpy().tobytes() for tensor in model.policy.state_dict().values()])
        assert bool(world.inner.drawn) == (name == "watched")
        assert bool(ring_of(world.folder, RUN).exists()) == (name == "watched")
    assert trained[0] == trained[1]
