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
from vector_bytes import as_bytes, through_files

from trainer.config.suites import Gymnasium
from trainer.envs.exact import (
    ANEW,
    CHECK_S,
    CHECKED_STEPS,
    FIRST_S,
    REPLAY,
    ExactEnv,
    Exactness,
    StepError,
    choose_exactness,
)
from trainer.envs.snapshots import way_of
from trainer.envs.spaces import Box, drawn_actions
from trainer.envs.step import VectorSpec
from trainer.envs.suite import EpisodeLostError, SuiteRef
from trainer.envs.suites.gymnasium.arrays import ActionMap, Observations
from trainer.envs.suites.gymnasium.env import GymnasiumEnv
from trainer.envs.suites.gymnasium.sight import Sight
from trainer.envs.vector import VectorEnv
from trainer.envs.workers import BEGIN_S
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
        (made("Humanoid-v5"), "mujoco"),
        (made("Pusher-v5"), "mujoco"),
        (made("Ant-v4"), "mujoco"),
        (made("CartPole-v1"), REPLAY),
        (odd_envs.Line, REPLAY),
        (odd_envs.Stacked, REPLAY),
        (lambda: odd_envs.Handheld(extra=True), REPLAY),
    ],
)
def test_a_state_is_put_back_where_all_of_it_is_known_else_the_episode_is_played_again(make, way):
    assert chosen(make) == Exactness(way)


@pytest.mark.parametrize("kind", ["OrderEnforcing", "PassiveEnvChecker", "TimeLimit"])
def test_wrappers_that_are_known_are_no_obstacle_and_others_are(kind):
    wrap = getattr(gymnasium.wrappers, kind)
    more = (20,) if kind == "TimeLimit" else ()
    assert way_of(wrap(odd_envs.Keeper(), *more)).name == "own"
    assert way_of(gymnasium.wrappers.ClipAction(odd_envs.Keeper())) is None


def test_a_snapshot_that_forgets_something_is_found_out_and_said():
    found = chosen(odd_envs.Forgetful)
    assert found.way == REPLAY
    assert found.told == (
        "its own state is not exact (the same actions do not give the same steps twice); a resume plays its episodes "
        "again"
    )


def test_a_snapshot_that_no_file_can_keep_is_found_out_and_said():
    class Odd(odd_envs.Keeper):
        def snapshot(self):
            return {**super().snapshot(), "lambda": len}

    found = chosen(Odd)
    assert found.way == REPLAY
    assert "not JSON serializable" in found.told


def test_a_snapshot_that_no_file_can_keep_at_an_episodes_beginning_is_found_out_too():
    class Odd(odd_envs.Keeper):
        best = 0.0

        def reset(self, **more):
            self.best = float("inf")
            return super().reset(**more)

        def step(self, action):
            self.best = min(self.best, float(self.place[0]))
            return super().step(action)

        def snapshot(self):
            return {**super().snapshot(), "best": self.best}

        def restore(self, state):
            self.best = state["best"]
            super().restore(state)

    found = chosen(Odd)
    assert found.way == REPLAY
    assert "not JSON compliant" in found.told


@pytest.mark.parametrize("make", [odd_envs.Clock, odd_envs.Entropy])
def test_what_nobody_can_repeat_is_found_out_and_said(make):
    found = chosen(make)
    assert found.way == ANEW
    assert found.told == (
        "it cannot be put back in mid-episode (an episode that is played again does not come out as it was): a resume "
        "begins its episodes anew"
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


UNTRIED = "its states could not be tried in 150 s: a resume plays its episodes again"


class SlowOnes:
    """Tells the time, which passes only where one of its environments is made, reset or stepped."""

    def __init__(self, kind, *, make_s=0.0, reset_s=0.0, step_s=0.0):
        self.now = 0.0
        self.choice = choose_exactness(
            player(lambda: self.made(kind, make_s, reset_s, step_s)), Box(1), lambda: self.now
        )

    def made(self, kind, make_s, reset_s, step_s):
        env = kind()
        reset, step = env.reset, env.step
        env.reset = lambda **more: self.takes(reset_s) or reset(**more)
        env.step = lambda action: self.takes(step_s) or step(action)
        self.takes(make_s)
        return env

    def takes(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(
    ("kind", "slow", "way", "ends_at"),
    [
        (odd_envs.Keeper, {"step_s": 1.0}, "own", CHECK_S),  # it has held once by then
        (odd_envs.Keeper, {"step_s": 1.25}, "own", 66.25),  # by then, which is too late for another check
        (odd_envs.Keeper, {"reset_s": 15.0}, "own", CHECK_S),
        (odd_envs.Keeper, {"make_s": 20.0, "step_s": 1.0}, "own", 3 * 20 + CHECK_S),
        (odd_envs.Line, {"step_s": 0.5}, REPLAY, CHECK_S),
        (odd_envs.Keeper, {"step_s": 5.0}, UNTRIED, FIRST_S),
        (odd_envs.Line, {"step_s": 5.0}, UNTRIED, FIRST_S),
    ],
)
def test_a_slow_one_is_tried_for_a_minute_and_until_it_has_held_once(kind, slow, way, ends_at):
    found = SlowOnes(kind, **slow)
    is_tried = way != UNTRIED
    assert found.choice == Exactness(way if is_tried else REPLAY, None if is_tried else UNTRIED, is_tried=is_tried)
    assert found.now == ends_at
    assert ends_at <= BEGIN_S / 2


@pytest.mark.parametrize(
    ("kind", "way", "told"),
    [
        (odd_envs.Forgetful, REPLAY, "its own state is not exact (the same actions do not give the same steps twice)"),
        (odd_envs.Entropy, ANEW, "an episode that is played again does not come out as it was"),
    ],
)
def test_what_was_found_out_late_counts_too(kind, way, told):
    found = SlowOnes(kind, step_s=2.5)
    assert found.now > CHECK_S
    assert (found.choice.way, found.choice.is_tried) == (way, True)
    assert told in found.choice.told


def test_an_error_of_the_environment_is_not_taken_for_lack_of_time():
    """At its first further check it takes more than a minute, and then fails."""
    now, restored = [0.0], [0]

    class Odd(odd_envs.Keeper):
        def restore(self, state):
            restored[0] += 1
            if restored[0] > 2:
                now[0] += CHECK_S
                raise ValueError("too much")
            super().restore(state)

    found = choose_exactness(player(Odd), Box(1), lambda: now[0])
    assert (found.way, found.is_tried) == (REPLAY, True)
    assert "too much" in found.told


# That it holds, at every step of longer episodes


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (odd_envs.Keeper, "own"),
        (odd_envs.Handheld, "pyboy"),
        (odd_envs.Line, REPLAY),
        (made("Hopper-v5"), "mujoco"),
        (made("Ant-v5"), "mujoco"),
        (made("Humanoid-v5"), "mujoco"),
        (made("Pusher-v5"), "mujoco"),
        (lambda: gymnasium.wrappers.TimeLimit(odd_envs.Keeper(length=99), 14), "own"),
    ],
)
def test_every_state_of_an_episode_goes_on_in_another_instance(make, way):
    one, other = (ExactEnv(player(make)(), Exactness(way)) for _ in range(2))
    space = ActionMap(make().action_space, "X").space
    rng = np.random.default_rng(5)
    one.reset(0, 11)
    other.reset(0, 12)
    for _ in range(6):
        for action in drawn_actions(rng, space, 4):
            outcome = one.step(action)
            if outcome.terminated or outcome.truncated:
                one.reset(0, 13)
        state = kept(one.snapshot())
        assert state.numbers["way"] == way
        ahead = drawn_actions(rng, space, CHECKED_STEPS)
        other.restore(state)
        there = bits(other, ahead)
        assert bits(one, ahead) == there
        one.restore(state)


@pytest.mark.long
def test_atari_is_put_back_unless_it_repeats_actions_by_chance():
    need_package("ale_py")
    plain, sticky = (made("ALE/Pong-v5", repeat_action_probability=chance) for chance in (0.0, 0.25))
    assert chosen(plain) == Exactness("ale")
    assert chosen(sticky) == Exactness(REPLAY)
    for make, way in ((plain, "ale"), (sticky, REPLAY)):
        one, other = (ExactEnv(player(make)(), Exactness(way)) for _ in range(2))
        space, rng = ActionMap(make().action_space, "X").space, np.random.default_rng(5)
        one.reset(0, 3)
        for _ in range(12):
            bits(one, drawn_actions(rng, space, 7))
            state, ahead = kept(one.snapshot()), drawn_actions(rng, space, 12)
            other.restore(state)
            assert bits(one, ahead) == bits(other, ahead)
            one.restore(state)


def test_a_state_before_the_first_step_is_one_too():
    for make, way in ((odd_envs.Keeper, "own"), (odd_envs.Line, REPLAY)):
        one, other = (ExactEnv(player(make)(), Exactness(way)) for _ in range(2))
        one.reset(0, 4)
        other.restore(kept(one.snapshot()))
        ahead = drawn_actions(np.random.default_rng(0), Box(1), 5)
        assert bits(one, ahead) == bits(other, ahead)


@pytest.mark.parametrize(
    ("make", "way"), [(odd_envs.Keeper, "own"), (odd_envs.Handheld, "pyboy"), (made("Hopper-v5"), "mujoco")]
)
def test_a_state_owns_its_memory(make, way):
    env = ExactEnv(player(make)(), Exactness(way))
    env.reset(0, 1)
    state = env.snapshot()
    then = drawn_actions(np.random.default_rng(0), ActionMap(make().action_space, "X").space, 5)

    def owned():
        return {name: array.tobytes() for name, array in state.tensors.items()}, json.dumps(state.numbers)

    before = owned()
    bits(env, then)
    assert owned() == before
    env.restore(state)
    bits(env, then)
    assert owned() == before


# Where it does not hold


def test_an_episode_that_does_not_come_out_as_it_was_is_lost():
    env = ExactEnv(player(odd_envs.Line)(), Exactness(REPLAY))
    env.reset(0, 1)
    bits(env, drawn_actions(np.random.default_rng(0), Box(1), 5))
    state = env.snapshot()
    for name in ("last.obs.state", "last.reward"):
        other = dict(state.tensors)
        other[name] = np.nextafter(other[name], other[name].dtype.type(9))
        with pytest.raises(EpisodeLostError, match="played again from seed 1, is not what it was after 5 steps"):
            env.restore(State(other, state.numbers))
    env.restore(state)


def test_a_state_of_a_way_that_is_not_possible_here_is_lost():
    one, other = ExactEnv(player(odd_envs.Keeper)(), Exactness("own")), player(odd_envs.Line)()
    one.reset(0, 1)
    with pytest.raises(EpisodeLostError, match="taken by 'own', which is not possible here"):
        ExactEnv(other, Exactness(REPLAY)).restore(one.snapshot())


def test_an_episode_whose_beginning_is_not_known_here_is_not_played_again_from_there():
    """Its state was put back; the check of this process found that states are not exact, so it takes none."""
    told = "its own state is not exact (it forgets); a resume plays its episodes again"
    one, other = (ExactEnv(player(odd_envs.Keeper)(), choice) for choice in (Exactness("own"), Exactness(REPLAY, told)))
    one.reset(0, 1)
    bits(one, drawn_actions(np.random.default_rng(0), Box(1), 5))
    other.restore(one.snapshot())
    bits(other, drawn_actions(np.random.default_rng(1), Box(1), 5))
    state = other.snapshot()
    assert (state.numbers["way"], state.numbers["steps"]) == (ANEW, 10)
    with pytest.raises(EpisodeLostError, match="has changed in mid-episode"):
        other.restore(state)


def test_an_episode_that_was_put_back_stays_so_where_there_was_no_time_to_try():
    busy = SlowOnes(odd_envs.Keeper, step_s=5.0).choice
    one, then, last = (
        ExactEnv(player(odd_envs.Keeper)(), choice) for choice in (Exactness("own"), busy, Exactness("own"))
    )
    one.reset(0, 1)
    bits(one, drawn_actions(np.random.default_rng(0), Box(1), 5))
    then.restore(kept(one.snapshot()))
    bits(then, drawn_actions(np.random.default_rng(1), Box(1), 5))
    state = kept(then.snapshot())
    assert (state.numbers["way"], state.numbers["steps"], state.numbers["told"]) == ("own", 10, None)
    last.restore(state)
    ahead = drawn_actions(np.random.default_rng(2), Box(1), 5)
    assert bits(last, ahead) == bits(then, ahead)
    then.reset(0, 2)
    assert (then.snapshot().numbers["way"], then.snapshot().numbers["told"]) == (REPLAY, UNTRIED)


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
    said = [line for line in caplog.messages if "cannot be put back in mid-episode" in line]
    assert len(said) == 1
    assert said[0].startswith("Entropy: ")
    with vector("odd_envs:Entropy", workers) as envs:
        observed = envs.restore(state)
        assert (observed.obs["state"][:, 1] == 0).all()  # the first observation of an episode
        steps = stepped(envs, 50, 1)
    lengths = np.array([step.episode_length for step in steps])
    assert set(lengths[lengths > 0].tolist()) == {50}  # counted from there


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("what", odd_envs.Hoarder.KINDS)
def test_a_snapshot_that_fails_late_ends_nothing_and_a_resume_begins_that_episode_anew(what, workers, caplog):
    hoarder = {"env_id": "odd_envs:Hoarder", "kwargs": {"what": what}}
    with caplog.at_level(logging.WARNING), vector(**hoarder, workers=workers) as envs:
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
    assert said[0].endswith("), so a resume begins this episode anew")
    with caplog.at_level(logging.WARNING), vector(**hoarder, workers=workers) as envs:
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
    MemoryError(), OSError(errno.ESTALE, "Stale file handle"), TimeoutError("timed out"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
]  # fmt: skip


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


def test_a_state_that_is_not_exact_makes_no_episode_repeat():
    one = ExactEnv(player(odd_envs.Forgetful)(), Exactness("own"))
    one.reset(0, 1)
    then = ExactEnv(player(odd_envs.Forgetful)(), Exactness(ANEW, "it is not exact"))
    then.restore(kept(one.snapshot()))
    assert not then.repeats


@pytest.mark.parametrize(("kind", "begins_alike"), [(odd_envs.Keeper, True), (odd_envs.Strewn, False)])
def test_what_begins_otherwise_each_time_repeats_an_episode_that_was_put_back_alone(kind, begins_alike):
    choice = choose_exactness(player(kind), Box(1))
    assert choice == Exactness("own", begins_alike=begins_alike)
    env = ExactEnv(player(kind)(), choice)
    env.reset(0, 1)
    assert (env.repeats, env.begins_alike) == (begins_alike, begins_alike)
    env.restore(kept(env.snapshot()))
    assert (env.repeats, env.begins_alike) == (True, begins_alike)
    env.reset(0, 2)
    assert env.repeats is begins_alike


@pytest.mark.parametrize(
    "error",
    [io.UnsupportedOperation("fileno"), FileNotFoundError(errno.ENOENT, "gone"), PermissionError(errno.EACCES, "no")],
)
def test_a_snapshot_that_another_try_would_not_make_either_ends_nothing(error, monkeypatch):
    env = ExactEnv(player(odd_envs.Keeper)(), Exactness("own"))
    env.reset(0, 1)
    failing(monkeypatch, "snapshot", error, 1)
    assert env.snapshot().numbers["way"] == ANEW


def test_an_attribute_that_becomes_something_else_in_mid_episode_does_so_too():
    player_of = player(odd_envs.Handheld)()
    env = ExactEnv(player_of, Exactness("pyboy"))
    env.reset(0, 1)
    bits(env, [np.int64(1)] * 5)
    assert env.snapshot().numbers["way"] == "pyboy"
    player_of.upstream.visited = {1}
    state = kept(env.snapshot())
    assert state.numbers["way"] == ANEW
    with pytest.raises(EpisodeLostError, match="its attribute 'visited' is a set"):
        env.restore(state)


def test_one_that_shows_only_at_a_resume_begins_anew_and_is_named(caplog):
    with vector("odd_envs:Late", count=1) as envs:
        envs.reset()
        stepped(envs, 45, 0)
        state = through_files(envs.snapshot())
    with caplog.at_level(logging.WARNING), vector("odd_envs:Late", count=1) as envs:
        assert envs.restore(state).obs["state"][0, 1] == 0
    assert "environment 0 (Late) begins an episode anew, 45 steps are lost: its episode, played again" in caplog.text


@pytest.mark.parametrize("env_id", ["odd_envs:Keeper", "odd_envs:Line", "Pendulum-v1", "InvertedPendulum-v5"])
def test_a_vector_goes_on_with_the_same_bits_and_again_from_there(env_id):
    """The second state is of an episode that did not begin in its process."""
    with vector(env_id) as envs:
        envs.reset()
        whole = [as_bytes(step) for step in stepped(envs, 13, 0) + stepped(envs, 13, 1) + stepped(envs, 13, 2)]
    with vector(env_id) as envs:
        envs.reset()
        broken = [as_bytes(step) for step in stepped(envs, 13, 0)]
        state = through_files(envs.snapshot())
    for seed in (1, 2):
        with vector(env_id) as envs:
            envs.restore(state)
            broken += [as_bytes(step) for step in stepped(envs, 13, seed)]
            state = through_files(envs.snapshot())
    assert broken == whole
