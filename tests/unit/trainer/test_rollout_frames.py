"""Stacks and clips of a rollout, whose frames are kept once, against stacks that are kept as they came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from played_frames import Played, spaces_of_frames

from trainer.buffers.rollout import Rollout
from trainer.envs.spaces import IMAGE
from trainer.state import State

LOOKS = [(1, 1, False), (3, 1, False), (2, 3, False), (3, 1, True), (3, 2, True)]


def values_of(transition):
    done = transition.step
    numbers = {"reward": done.reward, "terminated": done.terminated, "ended": done.finished, "bootstrap": done.reward}
    obs = {f"obs.{key}": array for key, array in transition.obs.items()}
    return {**obs, **numbers, "task": done.task, "action": transition.action}


@given(
    look=st.sampled_from(LOOKS),
    steps=st.integers(1, 12),
    num_envs=st.integers(1, 3),
    ending=st.sampled_from([0.0, 0.2, 1.0]),
    seed=st.integers(0, 2**32),
    events=st.lists(st.sampled_from(["step", "step", "step", "step", "lose", "resume"]), min_size=1, max_size=40),
)
def test_what_is_learned_from_is_what_was_seen(look, steps, num_envs, ending, seed, events):
    """Over several rollouts, saved and loaded in the middle, and where an episode could not be brought back."""
    stack, stride, clip = look
    spaces = spaces_of_frames(2, stack, stride, clip=clip)
    played, rollout, seen = Played(spaces, num_envs, seed), Rollout(spaces, steps, num_envs), []
    for event in events:
        if event == "lose":
            played.lose(num_envs - 1)
        elif event == "resume":
            state, rollout = rollout.state(), Rollout(spaces, steps, num_envs)
            rollout.load(State({name: array.copy() for name, array in state.tensors.items()}, state.numbers))
        else:
            transition = played.step(ending)
            rollout.add(values_of(transition))
            seen.append(transition.obs)
        rows = np.random.default_rng(seed).permutation(rollout.steps * num_envs)
        for key, found in rollout.obs(rows).items():
            wanted = np.concatenate([obs[key] for obs in seen]) if seen else found
            assert np.array_equal(found, wanted[rows]), key
        if rollout.full:
            rollout.clear()
            seen.clear()


@pytest.mark.parametrize("began", range(6))
@pytest.mark.parametrize("look", LOOKS[1:], ids=str)
def test_an_episode_that_begins_anywhere_in_it_shows_its_own_frames_alone(look, began):
    """Its first frame is the only one until others have come; nobody says so."""
    stack, stride, clip = look
    spaces = spaces_of_frames(1, stack, stride, clip=clip)
    played, rollout, seen = Played(spaces, 2), Rollout(spaces, 12, 2), []
    for step in range(12):
        if step == began:
            played.lose(1)
        transition = played.step(0.0)
        rollout.add(values_of(transition))
        seen.append(transition.obs[IMAGE])
    assert np.array_equal(rollout.obs(np.arange(24))[IMAGE], np.concatenate(seen))


def test_a_stack_that_is_made_of_other_frames_is_refused():
    spaces = spaces_of_frames(1, 3)
    played, rollout = Played(spaces, 2), Rollout(spaces, 4, 2)
    rollout.add(values_of(played.step(0.0)))
    values = values_of(played.step(0.0))
    wrong = values[f"obs.{IMAGE}"].copy()
    wrong[1, 2] += 1  # the frame before
    with pytest.raises(ValueError, match="does not follow"):
        rollout.add({**values, f"obs.{IMAGE}": wrong})
