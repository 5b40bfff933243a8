"""Stacks of frames are what a list of an episode's frames says they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.envs.frames import FrameStacks
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, ArraySpec, Box, Spaces

pytestmark = pytest.mark.trainer
C, H, W = 2, 2, 3


def spaces_of(stack, stride, is_clip):
    shape = (stack, C, H, W) if is_clip else (stack * C, H, W)
    seen = {
        IMAGE: ArraySpec(shape, "uint8", 0.0, 255.0, stack, stride),
        STATE: ArraySpec((2,)),
        PRIVILEGED: ArraySpec((3,), privileged=True),
    }
    return Spaces(seen, Box(1), ("a",), 50)


class Lists:
    """The oracle: every environment's frames since its episode began, and what those make a policy see."""

    def __init__(self, spaces, num_envs):
        self.spec, self.frames = spaces.obs[IMAGE], [[] for _ in range(num_envs)]

    def seen(self):
        rows = []
        for frames in self.frames:
            last = len(frames) - 1
            places = [max(0, last - back * self.spec.stride) for back in range(self.spec.stack)][::-1]
            rows.append(np.stack([frames[place] for place in places]).reshape(self.spec.shape))
        return np.stack(rows)


def drawn(rng, num_envs):
    return {
        IMAGE: rng.integers(0, 256, (num_envs, C, H, W)).astype(np.uint8),
        STATE: rng.normal(size=(num_envs, 2)).astype(np.float32),
        PRIVILEGED: rng.normal(size=(num_envs, 3)).astype(np.float32),
    }


shapes = st.tuples(st.integers(1, 4), st.integers(1, 3), st.booleans()).filter(lambda s: s[0] > 1 or not s[2])
ends = st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=20)


def begun(shape, rng):
    spaces = spaces_of(*shape)
    stacks, lists = FrameStacks(spaces, 3), Lists(spaces, 3)
    first = drawn(rng, 3)
    lists.frames = [[frame] for frame in first[IMAGE]]
    assert stacks.begin(first)[IMAGE].tobytes() == lists.seen().tobytes()
    return spaces, stacks, lists, first


def pushed(stacks, lists, rng, ended):
    """One step of both; the frames that are acted in next."""
    ended = np.array(ended)
    led_to, after = drawn(rng, len(ended)), drawn(rng, len(ended))
    after = {key: np.where(ended.reshape(-1, *[1] * (led_to[key].ndim - 1)), after[key], led_to[key]) for key in after}
    for frames, frame in zip(lists.frames, led_to[IMAGE], strict=True):
        frames.append(frame)
    expected = lists.seen()
    for number in np.flatnonzero(ended):
        lists.frames[number] = [after[IMAGE][number]]
    next_obs, obs = stacks.push(led_to, after, ended)
    assert next_obs[IMAGE].tobytes() == expected.tobytes()
    assert obs[IMAGE].tobytes() == lists.seen().tobytes()
    assert next_obs[STATE].tobytes() == led_to[STATE].tobytes()
    assert obs[STATE].tobytes() == after[STATE].tobytes()
    return after


@settings(max_examples=60, deadline=None)
@given(shapes, ends, st.integers(0, 5))
def test_what_is_seen_is_the_last_frames_of_the_episode(shape, steps, seed):
    rng = np.random.default_rng(seed)
    _, stacks, lists, _ = begun(shape, rng)
    for ended in steps:
        pushed(stacks, lists, rng, ended)


@settings(max_examples=60, deadline=None)
@given(shapes, ends, ends, st.integers(1, 5), st.integers(0, 5))
def test_stacks_go_on_from_their_arrays_with_more_or_fewer_environments(shape, before, after, num_envs, seed):
    rng = np.random.default_rng(seed)
    spaces, stacks, lists, frames = begun(shape, rng)
    for ended in before:
        frames = pushed(stacks, lists, rng, ended)
    kept = {key: array.copy() for key, array in stacks.arrays().items()}
    new = drawn(rng, num_envs)
    common = min(3, num_envs)
    for key in new:
        new[key][:common] = frames[key][:common]
    again, more = FrameStacks(spaces, num_envs), Lists(spaces, num_envs)
    more.frames = [*lists.frames[:common], *([frame] for frame in new[IMAGE][common:])]
    assert again.load(kept, new)[IMAGE].tobytes() == more.seen().tobytes()
    for ended in after:
        pushed(again, more, rng, (ended * 2)[:num_envs])


def test_an_environment_that_began_anew_is_at_its_first_frame():
    rng = np.random.default_rng(0)
    spaces, stacks, lists, _ = begun((3, 1, False), rng)
    frames = pushed(stacks, lists, rng, [False, False, False])
    kept = stacks.arrays()
    frames = {key: array.copy() for key, array in frames.items()}
    frames[IMAGE][1] = rng.integers(0, 256, (C, H, W))  # its episode was lost
    lists.frames[1] = [frames[IMAGE][1]]
    assert FrameStacks(spaces, 3).load(kept, frames)[IMAGE].tobytes() == lists.seen().tobytes()
