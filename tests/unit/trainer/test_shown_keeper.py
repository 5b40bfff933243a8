"""Which episodes are kept to be played again: whole ones, as they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.envs.shown import NO_SEED, Glimpse
from trainer.live import keeper as keeper_module
from trainer.live.keeper import EpisodeKeeper

pytestmark = pytest.mark.trainer
NO_POSES = np.zeros((0, 7), np.float32)


def glimpses(lengths, seeds):
    """After each step of episodes of those lengths; an action is the number of its step."""
    found, number = [], 0
    for episode, length in enumerate(lengths):
        for step in range(1, length + 1):
            number += 1
            is_last = step == length
            standing = (episode + 1, 0, 0.0) if is_last else (episode, step, float(step))
            seed = seeds[episode + is_last] if episode + is_last < len(seeds) else NO_SEED
            found.append(Glimpse(*standing, False, 0.0, NO_POSES, None, seed, np.array([number], np.float32)))
    return found


@given(st.lists(st.integers(2, 6), min_size=1, max_size=5), st.data())
def test_whole_episodes_alone_are_kept_whatever_was_missed(lengths, data):
    seeds = data.draw(st.lists(st.integers(NO_SEED, 2**31 - 1), min_size=len(lengths), max_size=len(lengths)))
    whole = glimpses(lengths, seeds)
    missed = data.draw(st.sets(st.integers(0, len(whole) - 1)))
    keeper = EpisodeKeeper()
    kept = [found for n, one in enumerate(whole) if n not in missed and (found := keeper.add(one, n))]
    ends = np.cumsum(lengths)
    expected = [
        (seed, list(range(end - length + 1, end + 1)), float(length - 1))
        for seed, length, end in zip(seeds, lengths, ends.tolist(), strict=True)
        if seed != NO_SEED and missed.isdisjoint(range(end - length, end))
    ]
    assert [(one.seed, one.actions.ravel().tolist(), one.total) for one in kept] == expected


def test_a_very_long_episode_is_kept_up_to_there(monkeypatch):
    monkeypatch.setattr(keeper_module, "MOST_BYTES", 40)
    keeper = EpisodeKeeper()
    kept = [found for n, one in enumerate(glimpses([25], [7])) if (found := keeper.add(one, n))]
    assert [(one.seed, one.actions.ravel().tolist(), one.total) for one in kept] == [(7, [*range(1, 11)], 9.0)]
