"""Pictures for policies: CPU time of a frame, beside MuJoCo as it comes, and beside drawing and reading alone.

`python bench/rendering.py [--rounds N]` draws Meta-World's reach-v3 through corner2 by `mujoco.Renderer` with its
defaults, by the same without shadows, reflections, sky and multisampling, and as policies here see it (`ours`: also
without a driver's threads); and the arm's three cameras by `ours` and by `mjr_render` and `mjr_readPixels` alone, of
scenes that were made before. Each is a process of its own, in turns; CPU time of the whole process with the driver's
threads; medians and ranges over the rounds. Writes rendering.csv.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import figures
import mujoco
import numpy as np

from trainer.config.suites import Arm, Metaworld
from trainer.envs import cameras as drawn
from trainer.envs.cameras import Cameras
from trainer.envs.suite import SuiteRef
from trainer.envs.suites.arm.draws import CAMERAS
from trainer.machine import drawing

SIZES = (64, 84, 112)
DEFAULTS, FOUR, OURS, ALONE = "MuJoCo's defaults", "four settings", "ours", "render and read alone"
TASK, CAMERA = "reach-v3", "corner2"
#: Frames of one look, after as many that are not timed; of the slowest rival fewer.
FRAMES = {DEFAULTS: 6}
USUAL_FRAMES = 60
LIMIT_S = 300.0


def of_metaworld(rival: str, size: int) -> Callable[[], object]:
    """What draws one frame."""
    env = SuiteRef(Metaworld(tasks=(TASK,))).open().make(0)
    env.reset(0, 0)
    model, data = env.simulation
    if rival == OURS:
        cameras = Cameras(TASK, model, (CAMERA,), size)
        return lambda: cameras.picture(data, tuple(env.goal))

    if rival == FOUR:
        model.vis.quality.offsamples = 0
    renderer = mujoco.Renderer(model, size, size)
    if rival == FOUR:
        for flag in ("SHADOW", "REFLECTION", "SKYBOX"):
            renderer.scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{flag}")] = 0

    def frame() -> object:
        renderer.update_scene(data, CAMERA)
        return renderer.render()

    return frame


def of_arm(rival: str, size: int) -> Callable[[], object]:
    """What draws one frame of all three cameras."""
    env = SuiteRef(Arm()).open().make(0)
    env.reset(0, 1)
    model, data = env.simulation
    cameras = Cameras("arm", model, CAMERAS, size)
    if rival == OURS:
        return lambda: cameras.picture(data)
    drawn._make_current()  # noqa: SLF001 - the same context, without what stands around it
    uploaded, _ = drawn._upload(model, size)  # noqa: SLF001
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, uploaded)
    rect, pixels, scenes = mujoco.MjrRect(0, 0, size, size), np.empty((size, size, 3), np.uint8), []
    for number in range(model.ncam):
        camera = mujoco.MjvCamera()
        camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, number
        scene = mujoco.MjvScene(model, 1000)
        for flag in drawn._LEFT_OUT:  # noqa: SLF001
            scene.flags[flag] = 0
        mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, mujoco.mjtCatBit.mjCAT_ALL, scene)
        scenes.append(scene)

    def frame() -> None:
        for scene in scenes:
            mujoco.mjr_render(rect, scene, uploaded)
            mujoco.mjr_readPixels(pixels, None, rect, uploaded)

    return frame


def look(what: str, rival: str, size: int) -> float:
    """Milliseconds of CPU time a frame, in this process."""
    frame = (of_metaworld if what == TASK else of_arm)(rival, size)
    frames = FRAMES.get(rival, USUAL_FRAMES)
    figures.timed(frame, frames)
    return 1000 * figures.timed(frame, frames)


def looked(what: str, rival: str, size: int) -> float:
    """The same, in a process of its own."""
    env = dict(os.environ)
    if rival in {DEFAULTS, FOUR}:
        env.pop(drawing.THREADS, None)
    command = [sys.executable, __file__, "--look", what, rival, str(size)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--look", nargs=3)
    told = parser.parse_args()
    if told.look:
        what, rival, size = told.look
        print(look(what, rival, int(size)))
        return
    print(f"drawn by {drawing.prepare().driver}", flush=True)
    cases = [(TASK, rival, size) for size in SIZES for rival in (DEFAULTS, FOUR, OURS)]
    cases += [("arm, three cameras", rival, size) for size in SIZES[:2] for rival in (ALONE, OURS)]
    found = figures.by_turns({case: partial(looked, *case) for case in cases}, told.rounds, warm=0)
    rows = []
    for (what, rival, size), times in found.items():
        beside = found[what, DEFAULTS if what == TASK else ALONE, size]
        share = figures.ratio(beside, times)
        numbers = [f"{number:.2f}" for number in (statistics.median(times), min(times), max(times), share)]
        rows.append([what, size, rival, *numbers, len(times)])
        print(*rows[-1], sep=", ", flush=True)
    head = ["what", "pixels", "drawn by", "CPU ms a frame", "lowest", "highest", "speed beside the first", "rounds"]
    figures.save("rendering", head, rows)


if __name__ == "__main__":
    main()
