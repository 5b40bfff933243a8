"""One environment after some steps: its scene, each body in a colour of its own, its poses, and which body MuJoCo's own
renderer shows in each pixel.

`python mujoco_bodies.py arm|TASK OUT.npz`, with MUJOCO_GL set: a process of its own, as mujoco reads that when loaded.
"""

from __future__ import annotations

import colorsys
import sys
from dataclasses import replace
from typing import Any

import numpy as np

#: Of the canvas, where a tile is told to have 550 x 400: it has a border.
WIDTH, HEIGHT = 528, 384
#: Told apart by hue and by saturation, which no shade changes; neighbours are far from each other.
_HUES, _SATURATIONS, _NEXT_HUE = 12, (1.0, 0.55), 5
CODES = _HUES * len(_SATURATIONS)
#: Below it a pixel is the floor, the table or the sky: those are grey.
_GREY = 0.25


def hue_of(code: int) -> tuple[float, float]:
    """(hue, saturation) of a body's code, each 0 to 1."""
    return code * _NEXT_HUE % _HUES / _HUES, _SATURATIONS[code // _HUES]


def read_codes(picture: Any) -> Any:
    """Of an RGB picture, uint8 [H, W, 3]: in each pixel the code of the body that has this colour, -1: none [H, W]."""
    pixels = picture.astype(np.float64) / 255
    top, low = pixels.max(axis=-1), pixels.min(axis=-1)
    spread = np.where(top > low, top - low, 1)
    r, g, b = np.moveaxis(pixels, -1, 0)
    sides = [(g - b) / spread % 6, (b - r) / spread + 2, (r - g) / spread + 4]
    hue = np.select([top == r, top == g], sides[:2], sides[2]) / 6
    saturation = (top - low) / np.maximum(top, 1e-9)
    hues, saturations = np.array([hue_of(code) for code in range(CODES)]).T
    turn = np.abs(hue[..., None] - hues)
    apart = np.minimum(turn, 1 - turn) * _HUES + np.abs(saturation[..., None] - saturations)
    return np.where(saturation < _GREY, -1, apart.argmin(axis=-1))


def _played(name: str) -> Any:
    """An environment in the middle of an episode."""
    if name == "arm":
        from trainer.config.suites import Arm
        from trainer.envs.suites.arm.env import ArmEnv

        env: Any = ArmEnv(Arm())
        actions = 7
    else:
        from trainer.envs.suites.metaworld.env import MetaworldEnv, TaskEnv
        from trainer.envs.suites.metaworld.goals import goal_table

        env = MetaworldEnv(TaskEnv(name), goal_table(name, 0))
        actions = 4
    env.reset(3, 3)
    rng = np.random.default_rng(3)
    for _ in range(20):
        env.step(rng.uniform(-1, 1, actions).astype(np.float32))
    return env


def _seen(env: Any, camera: Any, bodies: Any) -> Any:
    """In each pixel the place in `bodies` of what MuJoCo draws there, -1: something else [H, W]."""
    import mujoco

    model, data = env.simulation
    look, option = mujoco.MjvCamera(), mujoco.MjvOption()
    look.lookat[:] = camera["lookat"]
    look.distance, look.azimuth, look.elevation = (camera[one] for one in ("distance", "azimuth", "elevation"))
    option.sitegroup[:] = 0
    with mujoco.Renderer(model, HEIGHT, WIDTH) as renderer:
        renderer.enable_segmentation_rendering()
        renderer.update_scene(data, look, option)
        number, kind = np.moveaxis(renderer.render().copy(), -1, 0)
    place = np.full(model.nbody, -1)
    place[bodies] = np.arange(len(bodies))
    body = place[model.geom_bodyid[np.maximum(number, 0)]]
    return np.where(kind == mujoco.mjtObj.mjOBJ_GEOM, body, -1)


def main(name: str, out: str) -> int:
    """Write OUT.npz: `scene` (bytes), `poses` [B, 7], `right` and `turned` (from a camera 25 degrees to the side)."""
    from trainer.envs.shown import bodies_shown, parts_of, poses_of
    from trainer.live.scene import packed_scene

    env = _played(name)
    parts = parts_of(env)
    assert parts is not None
    model, data = env.simulation
    bodies = bodies_shown(model)
    rgba = np.full((len(parts.arrays["type"]), 4), (0.6, 0.6, 0.6, 1.0), np.float32)
    for number, body in enumerate(parts.arrays["body"]):
        if body >= 0:
            rgba[number, :3] = colorsys.hsv_to_rgb(*hue_of(int(body) % CODES), 0.75)
    scene = packed_scene(replace(parts, arrays={**parts.arrays, "rgba": rgba}))
    turned = {**parts.camera, "azimuth": parts.camera["azimuth"] + 25}
    np.savez(
        out, scene=np.frombuffer(scene, np.uint8), poses=poses_of(data, bodies),
        right=_seen(env, parts.camera, bodies), turned=_seen(env, turned, bodies),
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
