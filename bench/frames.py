"""Pictures in the replay: drawing a batch, and memory.

`python bench/frames.py [ROUNDS]`: a batch of 256 transitions of stacks and clips, ours and stable-baselines3's
ReplayBuffer (NStepReplayBuffer) with stacks as its VecFrameStack makes them, of equal shapes, over the same steps, to
torch tensors, by turns; CPU time on one thread, the median over rounds, and the median of the ratios within a round;
and the bytes that both keep of a step (episodes of 100 steps, so ours has a row in a hundred more), in bytes of its
frames once. Writes frames.csv.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator
from functools import partial

import figures
import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer

from trainer.buffers.frames import POINTER_BYTES, FrameReplay
from trainer.envs.collector import Transition
from trainer.envs.frames import FrameStacks
from trainer.envs.spaces import IMAGE, ArraySpec, Box, Spaces
from trainer.envs.step import Step

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


def sampling(rounds: int) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, look in LOOKS.items():
        ours, theirs = filled(look, 3 if "3 steps" in name else 1)
        rng = np.random.default_rng(2)
        ways = {
            "ours": partial(figures.timed, partial(drawn, ours, rng), 5),
            "theirs": partial(figures.timed, partial(theirs.sample, BATCH), 5),
        }
        found = figures.by_turns(ways, rounds)
        mine, other = (statistics.median(times) for times in found.values())
        ratio = figures.ratio(found["theirs"], found["ours"])
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


def main(rounds: int) -> None:
    """Measure, print, write the CSVs."""
    torch.set_num_threads(1)
    head = ["seen", "ours_ms", "sb3_ms", "times_as_fast", "bytes_a_step", "of_frames_once", "sb3_of_frames_once"]
    figures.save("frames", head, sampling(rounds))


if __name__ == "__main__":
    main(figures.number(1, 9))
