"""Going on in mid-episode: which way is taken, that it holds, and what is said where none does."""

from __future__ import annotations

import errno
import io
import json
import logging

import numpy as np
import pytest
from needs import need_package

pytest.importorskip("gymnasium")

import gymnasium
import odd_envs
from refused import refused
from safetensors.numpy import load, save
from vector_bytes import through_files

from trainer.config.suites import Gymnasium
from trainer.envs.exact import (
    ANEW,
    REPLAY,
    ExactEnv,
    Exactness,
    StepError,
    choose_exactness,
)
from trainer.envs.spaces import Box, drawn_actions
from trainer.envs.step import VectorSpec
from trainer.envs.suite import EpisodeLostError, SuiteRef
from trainer.envs.suites.gymnasium.arrays import ActionMap, Observations
from trainer.envs.suites.gymnasium.env import GymnasiumEnv
from trainer.envs.suites.gymnasium.sight import Sight
from trainer.envs.vector import VectorEnv
from trainer.state import State

pytestmark = pytest.mark.trainer


def player(make):
    """What makes environments for the trainer, of what makes Gymnasium's."""

    def made():
        env = make()
        sight = Sight(Gymnasium(id="X"), Observations(env.observation_space, "X"))
        return GymnasiumEnv(env, sight, ActionMap(env.action_space, "X"))

    return made


def chosen(make):
    return choose_exactness(player(make), ActionMap(make().action_space, "X").space)


def kept(state):
    """`state`, after files."""
    return State(load(save(dict(state.tensors))), json.loads(json.dumps(state.numbers, allow_nan=False)))


def bits(env, actions):
    seen = []
    for action in actions:
        outcome = env.step(action)
        obs = {key: array.tobytes() for key, array in outcome.obs.items()}
        seen.append((obs, np.float64(outcome.reward).tobytes(), outcome.terminated, outcome.truncated, outcome.success))
        if outcome.terminated or outcome.truncated:
            break
    return seen


def made(env_id, **kwargs):
    return lambda: gymnasium.make(env_id, max_episode_steps=-1, disable_env_checker=True, **kwargs)


# Which way


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (odd_envs.Keeper, "own"),
        (odd_envs.Handheld, "pyboy"),
        (made("Hopper-v5"), "mujoco"),
        (made("CartPole-v1"), REPLAY),
        (odd_envs.Stacked, REPLAY),
        (lambda: odd_envs.Handheld(extra=True), REPLAY),
    ],
)
def test_a_state_is_put_back_where_all_of_it_is_known_else_the_episode_is_played_again(make, way):
    assert chosen(make) == Exactness(way)


def test_a_snapshot_that_forgets_something_is_found_out_and_said():
    found = chosen(odd_envs.Forgetful)
    assert found.way == REPLAY
    assert found.told == (
        "its own state is not exact (the same actions give different steps); a resume replays its episodes"
    )


def test_what_nobody_can_repeat_is_found_out_and_said():
    found = chosen(odd_envs.Clock)
    assert found.way == ANEW
    assert found.told == (
        "it cannot be restored in mid-episode (a replayed episode differs): a resume restarts its episodes"
    )


def test_an_environment_that_remembers_its_last_episode_is_found_out():
    class Tired(odd_envs.Line):
        def __init__(self):
            super().__init__()
            self.age = 0

        def move(self, by):
            self.age += 1
            super().move(by / (1 + self.age))

    assert chosen(Tired).way == ANEW


@pytest.mark.long
def test_atari_is_put_back_unless_it_repeats_actions_by_chance():
    need_package("ale_py")
    plain, sticky = (made("ALE/Pong-v5", repeat_action_probability=chance) for chance in (0.0, 0.25))
    assert chosen(plain) == Exactness("ale")
    assert chosen(sticky) == Exactness(REPLAY)


# Where it does not hold


def test_an_episode_that_does_not_come_out_as_it_was_is_lost():
    env = ExactEnv(player(odd_envs.Line)(), Exactness(REPLAY))
    env.reset(0, 1)
    bits(env, drawn_actions(np.random.default_rng(0), Box(1), 5))
    state = env.snapshot()
    for name in ("last.obs.state", "last.reward"):
        other = dict(state.tensors)
        other[name] = np.nextafter(other[name], other[name].dtype.type(9))
        with pytest.raises(EpisodeLostError, match="replayed from seed 1, differs after 5 steps"):
            env.restore(State(other, state.numbers))
    env.restore(state)


def test_a_state_of_a_way_that_is_not_possible_here_is_lost():
    one, other = ExactEnv(player(odd_envs.Keeper)(), Exactness("own")), player(odd_envs.Line)()
    one.reset(0, 1)
    with pytest.raises(EpisodeLostError, match="taken by 'own', which is not possible here"):
        ExactEnv(other, Exactness(REPLAY)).restore(one.snapshot())


def test_an_episode_whose_beginning_is_not_known_here_is_not_played_again_from_there():
    """Its state was put back; the check of this process found that states are not exact, so it takes none."""
    told = "its own state is not exact (it forgets); a resume replays its episodes"
    one, other = (ExactEnv(player(odd_envs.Keeper)(), choice) for choice in (Exactness("own"), Exactness(REPLAY, told)))
    one.reset(0, 1)
    bits(one, drawn_actions(np.random.default_rng(0), Box(1), 5))
    other.restore(one.snapshot())
    bits(other, drawn_actions(np.random.default_rng(1), Box(1), 5))
    state = other.snapshot()
    assert (state.numbers["way"], state.numbers["steps"]) == (ANEW, 10)
    with pytest.raises(EpisodeLostError, match="changed in mid-episode"):
        other.restore(state)


def vector(env_id, workers=0, count=2, **settings):
    return VectorEnv(VectorSpec(SuiteRef(Gymnasium(id=env_id, **settings)), count, 3), workers)


def stepped(envs, count, seed):
    """Pushes to both sides: the masses of `odd_envs` stay within their line."""
    rng = np.random.default_rng(seed)
    return [envs.step(rng.uniform(-1, 0, (envs.num_envs, 1)).astype(np.float32)) for _ in range(count)]


@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_said_once_when_a_state_is_taken_that_a_resume_begins_anew(workers, caplog):
    with caplog.at_level(logging.WARNING), vector("odd_envs:Entropy", workers) as envs:
        envs.reset()
        stepped(envs, 5, 0)
        state = through_files(envs.snapshot())
        envs.snapshot()
    said = [line for line in caplog.messages if "cannot be restored in mid-episode" in line]
    assert len(said) == 1
    assert said[0].startswith("Entropy: ")
    with vector("odd_envs:Entropy", workers) as envs:
        observed = envs.restore(state)
        assert (observed.obs["state"][:, 1] == 0).all()  # the first observation of an episode
        steps = stepped(envs, 50, 1)
    lengths = np.array([step.episode_length for step in steps])
    assert set(lengths[lengths > 0].tolist()) == {50}  # counted from there


@pytest.mark.parametrize("what", odd_envs.Hoarder.KINDS)
def test_a_snapshot_that_fails_late_ends_nothing_and_a_resume_begins_that_episode_anew(what, caplog):
    hoarder = {"env_id": "odd_envs:Hoarder", "kwargs": {"what": what}}
    with caplog.at_level(logging.WARNING), vector(**hoarder) as envs:
        envs.reset()
        stepped(envs, 20, 0)
        assert {one["env"]["way"] for one in envs.snapshot().numbers["envs"].values()} == {"own"}
        stepped(envs, 20, 1)
        state = through_files(envs.snapshot())
        envs.snapshot()
    assert {one["env"]["way"] for one in state.numbers["envs"].values()} == {ANEW}
    said = [line for line in caplog.messages if "could not be taken" in line]
    assert len(said) == 1
    assert said[0].startswith("Hoarder: its state could not be taken (")
    assert said[0].endswith("), so a resume restarts this episode")
    with caplog.at_level(logging.WARNING), vector(**hoarder) as envs:
        assert (envs.restore(state).obs["state"][:, 1] == 0).all()  # the first observation of an episode
        stepped(envs, 5, 2)


def failing(monkeypatch, name, error, times=99):
    """The environment's method `name` raises `error` so often; the list of how often it did."""
    real, raised = getattr(odd_envs.Keeper, name), []

    def method(*args, **more):
        if len(raised) == times:
            return real(*args, **more)
        raised.append(name)
        raise error

    monkeypatch.setattr(odd_envs.Keeper, name, method)
    return raised


PASSING = [
    OSError(errno.ESTALE, "Stale file handle"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
]


@pytest.mark.parametrize("error", PASSING)
def test_what_fails_for_a_moment_ends_the_job_and_says_nothing_of_a_way_or_an_episode(error, monkeypatch):
    with vector("odd_envs:Keeper") as envs:
        envs.reset()
        stepped(envs, 5, 0)
        failing(monkeypatch, "snapshot", error)
        with pytest.raises(type(error)):
            choose_exactness(player(odd_envs.Keeper), Box(1))
        with refused("env.failed", number=0, task="Keeper"):
            envs.snapshot()


@pytest.mark.parametrize("error", PASSING)
@pytest.mark.parametrize(("way", "name"), [("own", "restore"), ("own", "reset"), (REPLAY, "reset"), (REPLAY, "step")])
def test_an_episode_that_cannot_be_put_back_for_a_moment_is_not_lost(error, way, name, monkeypatch):
    env = ExactEnv(player(odd_envs.Keeper)(), Exactness(way))
    env.reset(0, 1)
    bits(env, drawn_actions(np.random.default_rng(0), Box(1), 5))
    state = kept(env.snapshot())
    with monkeypatch.context() as patch:
        failing(patch, name, error)
        with pytest.raises((type(error), StepError)):
            env.restore(state)
    env.restore(state)
    assert env.snapshot().numbers == state.numbers


@pytest.mark.parametrize(
    "error",
    [io.UnsupportedOperation("fileno"), FileNotFoundError(errno.ENOENT, "gone"), PermissionError(errno.EACCES, "no")],
)
def test_a_snapshot_that_another_try_would_not_make_either_ends_nothing(error, monkeypatch):
    env = ExactEnv(player(odd_envs.Keeper)(), Exactness("own"))
    env.reset(0, 1)
    failing(monkeypatch, "snapshot", error, 1)
    assert env.snapshot().numbers["way"] == ANEW
