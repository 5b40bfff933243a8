from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from suites import metaworld

pytest.importorskip("metaworld")

from segments_of import TASKS, beginning, honest

from trainer.envs.suites.metaworld.env import MetaworldEnv
from trainer.sharing.spotcheck import (
    FIRST,
    IN_DOUBT,
    TOLERANCE,
    Redone,
    Resimulator,
    SpotChecks,
    share,
)

pytestmark = pytest.mark.trainer
#: Long enough that everything has moved.
HORIZON = 40
#: So many rows have passed that the share has fallen as far as it does.
PROVEN = 10 * FIRST * 500


@pytest.fixture(scope="module")
def referee():
    made = Resimulator(metaworld(TASKS, seed=42))  # the goals that `honest` plays
    yield made
    made.close()


def played():
    return honest(12, horizon=HORIZON)


def test_honest_segments_come_out_the_same_to_the_last_bit(referee):
    for one in played():
        assert referee.redo(one) == Redone(0.0, HORIZON)


def _paid(one):
    return replace(one, reward=np.full_like(one.reward, 10))


def _other_frames(one):
    obs = one.obs.copy()
    obs[1:, 0] += 0.05
    return replace(one, obs=obs)


def _other_goal(one):
    obs = one.obs.copy()
    obs[:, 36:] += 0.03
    return replace(one, obs=obs)


#: Each keeps to the form, range and order that `judge` looks at, or could be made to.
LIES = {
    "the same reward for anything": _paid,
    "rewards upside down": lambda one: replace(one, reward=10 - one.reward),
    "rewards a little too high": lambda one: replace(one, reward=one.reward + np.float32(0.02)),
    "other actions": lambda one: replace(one, action=-one.action),
    "actions of the step before": lambda one: replace(one, action=np.roll(one.action, 1, axis=0)),
    "frames that nobody saw": _other_frames,
    "a goal of its own": _other_goal,
    "another task's name": lambda one: replace(one, task=TASKS[1 - TASKS.index(one.task)]),
    "one reward of many": lambda one: replace(one, reward=np.append(one.reward[:-1], np.float32(10))),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_out_and_the_sentence_says_where(referee, lie):
    for one in played():
        done = referee.redo(LIES[lie](one))
        assert done.wrong, lie
        assert done.wrong.isprintable()
        assert done.gap > TOLERANCE


def test_an_end_that_came_and_was_not_sent_is_a_lie(monkeypatch):
    step = MetaworldEnv.step
    monkeypatch.setattr(MetaworldEnv, "step", lambda env, action: replace(step(env, action), terminated=True))
    referee = Resimulator(metaworld(TASKS, seed=42), "python")
    one = played()[0]
    assert referee.redo(one).wrong == "repeated step 0 ends the episode, but the segment continues it"
    first = replace(beginning(one, 1), terminated=np.ones(1, np.uint8))
    assert referee.redo(first) == Redone(0.0, 1)
    referee.close()


def test_what_another_processor_rounds_otherwise_is_no_lie(referee):
    rng = np.random.default_rng(0)
    for one in played():
        noise = rng.uniform(-1.3e-3, 1.3e-3, one.obs.shape).astype(np.float32)
        done = referee.redo(replace(one, obs=one.obs + noise))
        assert not done.wrong
        assert 0 < done.gap < TOLERANCE


@given(st.floats(0, 1), st.floats(0, 10**6), st.booleans())
def test_the_share_falls_to_what_was_asked_for(wanted, passed, in_doubt):
    found = share(wanted, passed, in_doubt=in_doubt)
    unproven = FIRST / max(passed, FIRST) if wanted > 0 else 0.0
    assert wanted <= found <= min(1.0, max(wanted * (IN_DOUBT if in_doubt else 1), unproven))
    assert found <= share(wanted, passed, in_doubt=True)
    assert found >= share(wanted, passed + 1, in_doubt=in_doubt)


class Fake:
    """Finds wrong what is sent with a reward of 10."""

    def __init__(self):
        self.done = []

    def redo(self, segment):
        self.done.append(segment)
        return Redone(0.0, segment.steps, "no" if segment.reward[0] == 10 else "")

    def close(self):
        self.done.append("closed")


class TestWhoIsChecked:
    def checks(self, chance=lambda: 0.999, **more):
        fake = Fake()
        return fake, SpotChecks(lambda: fake, 0.1, chance=chance, **more)

    def test_the_first_ones_of_each_are_all_checked_and_then_a_share(self):
        draws = iter([0.5, 0.09, 0.11])
        fake, checks = self.checks(lambda: next(draws))
        one = honest(6)[0]
        for who in ("alice", "bob"):
            assert all(checks.check(who, one, in_doubt=False) for _ in range(FIRST))
            checks._passed[who] = PROVEN
        assert [checks.check("alice", one, in_doubt=False) is not None for _ in range(3)] == [False, True, False]
        assert len(fake.done) == 2 * FIRST + 1

    def test_a_row_earns_a_rows_trust(self):
        fake, checks = self.checks()
        one = honest(6)[0]
        while checks.check("eve", beginning(one, 1), in_doubt=False):
            assert len(fake.done) <= 2 * FIRST * one.horizon
        assert len(fake.done) > FIRST * one.horizon

    def test_who_fails_begins_anew(self):
        _, checks = self.checks()
        one = honest(6)[0]
        checks._passed["eve"] = PROVEN
        assert checks.check("eve", one, in_doubt=False) is None
        checks._passed["eve"] = FIRST * one.horizon - 1
        assert checks.check("eve", _paid(one), in_doubt=False).wrong == "no"
        assert checks.check("eve", one, in_doubt=False) is not None

    def test_what_cannot_be_repeated_is_not_checked(self):
        checks = SpotChecks(lambda: None, 0.1)
        assert not checks.can_repeat
        assert checks.check("alice", honest(6)[0], in_doubt=False) is None
        checks.close()
