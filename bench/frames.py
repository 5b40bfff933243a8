"""Pictures in the replay: drawing a batch, memory, bytes on disk and what a save costs.

`python bench/frames.py [ROUNDS]`:

- a batch of 256 transitions of stacks and clips, ours and stable-baselines3's ReplayBuffer (NStepReplayBuffer) with
  stacks as its VecFrameStack makes them, of equal shapes, over the same steps, to torch tensors, by turns; CPU time on
  one thread, the median over rounds, and the median of the ratios within a round; and the bytes that both keep of a
  step (episodes of 100 steps, so ours has a row in a hundred more), in bytes of its frames once;
- row files as a checkpoint writes them, of films of the arm (three cameras, random motion) and of Meta-World's
  pick-place (corner2, its scripted policy, some noise), 64 x 64, from four environments by turns;
- a save of so many new rows, with a ring that holds no more and one that holds ten times as many: what the loop waits
  for the copy, the CPU time in the background, and the file.

Writes frames.csv, frames_disk.csv and frames_saving.csv.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("MUJOCO_GL", "osmesa")

import figures
import gymnasium as gym
import metaworld
import mujoco
import numpy as np
import torch
from metaworld.policies import SawyerPickPlaceV3Policy
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer

from trainer.buffers.frames import POINTER_BYTES, FrameReplay
from trainer.buffers.replay import Ring
from trainer.checkpoints.rows import write_rows_file
from trainer.config.suites import Arm
from trainer.envs.collector import Transition
from trainer.envs.frames import FrameStacks
from trainer.envs.spaces import IMAGE, ArraySpec, Box, Spaces
from trainer.envs.step import Step
from trainer.envs.suite import SuiteRef

BATCH, ENVS, STEPS, EPISODE, GAMMA = 256, 4, 4_000, 100, 0.99
Look = tuple[int, int, int, int, bool]
#: What is seen → channels of a frame, its side, frames, steps between them, a clip.
LOOKS: dict[str, Look] = {
    "three cameras, 64², 3 frames": (9, 64, 3, 1, False),
    "the same, rewards of 3 steps": (9, 64, 3, 1, False),
    "three cameras, 64², 4 frames": (9, 64, 4, 1, False),
    "one camera, 84², 3 frames": (3, 84, 3, 1, False),
    "one camera, 64², clips of 8": (3, 64, 8, 1, True),
    "one camera, 64², clips of 8, every 4th": (3, 64, 8, 4, True),
}
SIDE, FILM_STEPS = 64, 100
SAVED_ROWS = 2_000
FLAGS = mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX


def spaces_of(look: Look) -> Spaces:
    channels, side, stack, stride, is_clip = look
    shape = (stack, channels, side, side) if is_clip else (stack * channels, side, side)
    return Spaces({IMAGE: ArraySpec(shape, "uint8", 0, 255, stack, stride)}, Box(4), ("one",), EPISODE)


def transitions(spaces: Spaces, frames: Iterator[np.ndarray], steps: int) -> Iterator[Transition]:
    """So many vector steps of ENVS environments whose frames [N, *frame] come one after another, 100 an episode."""
    stacks, rng = FrameStacks(spaces, ENVS), np.random.default_rng(0)
    obs = stacks.begin({IMAGE: next(frames)})
    nothing, task = np.zeros(ENVS), np.zeros(ENVS, np.int32)
    for step in range(1, steps + 1):
        finished = np.full(ENVS, step % EPISODE == 0)
        shown = next(frames)
        next_obs, following = stacks.push({IMAGE: shown}, {IMAGE: next(frames) if finished.all() else shown}, finished)
        action = rng.uniform(-1, 1, (ENVS, 4)).astype(np.float32)
        done = Step(
            obs=following, next_obs=next_obs, reward=rng.standard_normal(ENVS, np.float32),
            terminated=np.zeros(ENVS, np.bool_), truncated=finished, success=finished, task=task, next_task=task,
            finished=finished, episode_return=nothing, episode_length=task, episode_success=finished,
        )  # fmt: skip
        yield Transition(obs, action, done)
        obs = following


def noise(shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(1)
    while True:
        yield rng.integers(0, 256, (ENVS, *shape), np.uint8)


def filled(look: Look, sums: int) -> tuple[FrameReplay, ReplayBuffer]:
    """Both with the same STEPS transitions of so many steps, and no room for more."""
    spaces = spaces_of(look)
    spec = spaces.obs[IMAGE]
    ours = FrameReplay(STEPS + STEPS // EPISODE, 1, spaces, sums, GAMMA)
    shown = gym.spaces.Box(0, 255, spec.shape, np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the memory that it takes
        kind, more = (NStepReplayBuffer, {"n_steps": sums, "gamma": GAMMA}) if sums > 1 else (ReplayBuffer, {})
        theirs = kind(STEPS, shown, gym.spaces.Box(-1, 1, (4,)), "cpu", n_envs=ENVS, **more)
    for made in transitions(spaces, noise(spec.frame), STEPS // ENVS):
        ours.add(made)
        done, infos = made.step, [{"TimeLimit.truncated": bool(cut)} for cut in made.step.truncated]
        theirs.add(made.obs[IMAGE], done.next_obs[IMAGE], made.action, done.reward, done.finished, infos)  # type: ignore[arg-type]
    return ours, theirs


def drawn(ours: FrameReplay, rng: np.random.Generator) -> list[torch.Tensor]:
    batch = ours.pick(ours.deal(BATCH), rng)
    arrays = (batch.obs[IMAGE], batch.next_obs[IMAGE], batch.action, batch.reward, batch.terminated)
    return [torch.from_numpy(array) for array in arrays]


def cpu_s(call: Callable[[], object], times: int = 5) -> float:
    began = time.thread_time()
    for _ in range(times):
        call()
    return (time.thread_time() - began) / times


def sampling(rounds: int) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, look in LOOKS.items():
        ours, theirs = filled(look, 3 if "3 steps" in name else 1)
        rng = np.random.default_rng(2)
        ways: list[Callable[[], object]] = [lambda: drawn(ours, rng), lambda: theirs.sample(BATCH)]  # noqa: B023 - called here
        taken = [[cpu_s(way) for way in ways] for _ in range(rounds + 1)][1:]
        mine, other = (statistics.median(column) for column in zip(*taken, strict=True))
        ratio = statistics.median(b / a for a, b in taken)
        frame = ours.arrays()[f"obs.{IMAGE}"][0].nbytes
        row = POINTER_BYTES + sum(array[0].nbytes for array in ours.arrays().values())
        kept = row * ours.capacity / STEPS
        theirs_kept = sum(value.nbytes for value in vars(theirs).values() if isinstance(value, np.ndarray)) / STEPS
        rows.append(
            [name, round(1000 * mine, 2), round(1000 * other, 2), round(ratio, 1), round(kept), round(kept / frame, 2),
             round(theirs_kept / frame, 2)]
        )  # fmt: skip
        print(*rows[-1], sep=",", flush=True)
    return rows


def renderer(model: Any) -> mujoco.Renderer:
    """As fast as software draws: no multisampling, shadows, reflections and sky."""
    model.vis.quality.offsamples, model.vis.quality.shadowsize = 0, 0
    made = mujoco.Renderer(model, SIDE, SIDE)
    for flag in FLAGS:
        made.scene.flags[flag] = 0
    return made


def picture(drawing: mujoco.Renderer, data: Any, cameras: tuple[str, ...]) -> np.ndarray:
    """[3 cameras, SIDE, SIDE]."""
    found = []
    for camera in cameras:
        drawing.update_scene(data, camera=camera)
        found.append(drawing.render().transpose(2, 0, 1).copy())
    return np.concatenate(found)


def arm_film() -> np.ndarray:
    """[ENVS, FILM_STEPS, 9, SIDE, SIDE]: a drift and noise in each episode."""
    suite, rng, drawing, film = SuiteRef(Arm()).open(), np.random.default_rng(0), None, []
    env = suite.make(0)
    for episode in range(ENVS):
        env.reset(0, episode)
        drift = rng.uniform(-0.5, 0.5, suite.spaces.action.shape)
        for _ in range(FILM_STEPS):
            model, data = env.simulation  # type: ignore[attr-defined]
            drawing = drawing or renderer(model)
            film.append(picture(drawing, data, Arm.USUAL_CAMERAS))
            env.step(np.clip(drift + rng.normal(0, 0.5, drift.shape), -1, 1).astype(np.float32))
    return np.stack(film).reshape(ENVS, FILM_STEPS, *film[0].shape)


def metaworld_film() -> np.ndarray:
    """[ENVS, FILM_STEPS, 3, SIDE, SIDE]: the scripted policy and some noise."""
    tasks, rng, policy = metaworld.MT1("pick-place-v3", seed=0), np.random.default_rng(0), SawyerPickPlaceV3Policy()
    env, drawing, film = tasks.train_classes["pick-place-v3"](), None, []
    for episode in range(ENVS):
        env.set_task(tasks.train_tasks[episode])
        obs, _ = env.reset(seed=episode)
        drawing = drawing or renderer(env.model)
        for _ in range(FILM_STEPS):
            film.append(picture(drawing, env.data, ("corner2",)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of actions that are clipped
                wanted = policy.get_action(obs)
            obs, *_ = env.step(np.clip(wanted + rng.normal(0, 0.3, 4), -1, 1))
    return np.stack(film).reshape(ENVS, FILM_STEPS, *film[0].shape)


def of_film(film: np.ndarray) -> Iterator[np.ndarray]:
    """[N, *frame], again and again; an episode's last frame comes twice."""
    while True:
        yield from film.swapaxes(0, 1)
        yield film[:, -1]


def ring_of(film: np.ndarray, rows: int) -> FrameReplay:
    """One that is filled with it, rows of the environments by turns."""
    channels = film.shape[2]
    spaces = spaces_of((channels, SIDE, 3, 1, False))
    ring = FrameReplay(rows, 1, spaces)
    steps = -(-rows // ENVS)
    for made in transitions(spaces, of_film(film), steps):
        ring.add(made)
    return ring


def saved(ring: Ring, new: int) -> tuple[float, float, int]:
    """Of the newest rows: (seconds that the loop waits, CPU seconds in the background, bytes)."""
    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        block = ring.block_since((int(ring.counts[0]) - new,))
        waited, before = time.perf_counter() - began, time.thread_time()
        file = write_rows_file(Path(name), Path(name) / "attempts/0", 1, block)
        assert file is not None
        return waited, time.thread_time() - before, file.bytes


def main(rounds: int) -> None:
    """Measure, print, write the CSVs."""
    torch.set_num_threads(1)
    head = ["seen", "ours_ms", "sb3_ms", "times_as_fast", "bytes_a_step", "of_frames_once", "sb3_of_frames_once"]
    figures.save("frames", head, sampling(rounds))
    films = {"the arm, three cameras": arm_film(), "pick-place, corner2": metaworld_film()}
    disk = []
    for name, film in films.items():
        rows, pictures = ENVS * FILM_STEPS, film.shape[2] // 3
        _, cpu, size = saved(ring_of(film, rows), rows)
        each = size / (rows * pictures)
        disk.append([name, rows * pictures, round(each), round(3 * SIDE * SIDE / each, 1), round(1e6 * cpu / rows)])
        print(*disk[-1], sep=",", flush=True)
    figures.save("frames_disk", ["film", "frames", "bytes_a_frame", "times_smaller", "cpu_us_a_row"], disk)
    saving = []
    for held in (SAVED_ROWS, 10 * SAVED_ROWS):
        ring = ring_of(films["the arm, three cameras"], held)
        found = [saved(ring, SAVED_ROWS) for _ in range(rounds)]
        waited, cpu = (statistics.median(column) for column in list(zip(*found, strict=True))[:2])
        saving.append([f"{held:,}", f"{SAVED_ROWS:,}", round(waited, 3), round(cpu, 3), round(found[0][2] / 1e6, 2)])
        print(*saving[-1], sep=",", flush=True)
    figures.save("frames_saving", ["rows_in_the_ring", "new_rows", "loop_waits_s", "cpu_beside_s", "mb"], saving)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
