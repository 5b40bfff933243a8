"""Bit for bit: our environment against upstream's, and a restored one against one that was never interrupted."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("metaworld")

import metaworld as upstream
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP
from mujoco import MjModel
from refused import refused
from safetensors.numpy import load, save
from suites import metaworld
from vector_bytes import info_bytes

from trainer.config.suites import MT10, MT50, Metaworld
from trainer.envs.episodes import EnvInstances
from trainer.envs.suites.metaworld.env import MetaworldEnv, TaskEnv
from trainer.envs.suites.metaworld.goals import goal_table
from trainer.state import State

pytestmark = pytest.mark.trainer
SEED = 5
#: Whose environments move cameras and lights, too.
VIEWED = Metaworld(observation="cameras", randomize_view=True)


def upstream_env(task, goal):
    """A fresh upstream environment that was given its goal through upstream's own door."""
    cls = ALL_V3_ENVIRONMENTS[task]
    env = cls(reward_function_version="v2")
    data = {"rand_vec": goal.copy(), "env_cls": cls, "partially_observable": False}
    env.set_task(upstream._encode_task(task, data))
    return env


def some_actions(count, seed=0):
    """Now and then beyond the limits and with the gripper closing, as a learner's are."""
    return np.random.default_rng(seed).uniform(-1.2, 1.2, (count, 4)).astype(np.float32)


def as_bytes(observation, reward):
    return observation.dtype, observation.tobytes(), type(reward), np.asarray(reward).tobytes()


def infos_of(env):
    """Every `info` that the upstream environment below `env` will answer with; `TaskEnv` keeps the success only."""
    infos, step = [], env.upstream.step

    def told(action):
        answer = step(action)
        infos.append(answer[4])
        return answer

    env.upstream.step = told
    return infos


def follows_upstream(task, goals_played, steps_an_episode):
    """Episodes on one borrowed instance: real resets, and remembered ones where a goal comes again.

    Random actions and upstream's scripted ones take turns of 20 steps.
    """
    goals = goal_table(task, SEED)
    instances = EnvInstances(metaworld((task,), seed=SEED).open())
    borrowed = instances.borrow(0)
    ours = borrowed.upstream
    infos, policy = infos_of(ours), ENV_POLICY_MAP[task]()
    for episode, goal in enumerate(goals_played):
        theirs = upstream_env(task, goals[goal])
        expected = theirs.reset()[0]
        assert instances.reset(borrowed, 0, goal)["state"].tobytes() == expected.astype(np.float32).tobytes()
        for step, action in enumerate(some_actions(steps_an_episode, seed=episode)):
            if step % 40 >= 20:
                action = np.clip(policy.get_action(expected), -1, 1).astype(np.float32)  # noqa: PLW2901
            observation, reward, terminated, success = ours.step(action)
            expected, expected_reward, _, _, info = theirs.step(action)
            assert as_bytes(observation, reward) == as_bytes(expected, expected_reward)
            assert (terminated, success) == (False, bool(info["success"]))
            assert info_bytes(infos[-1]) == info_bytes(info)
        theirs.close()


#: Five stand for the other forty: two whose goal or object is a window into the simulation, and three with other
#: objects. `long` has them all.
QUICK = (*MT10, "basketball-v3", "door-lock-v3", "coffee-pull-v3", "hammer-v3", "stick-pull-v3")
EVERY = [pytest.param(task, marks=() if task in QUICK else pytest.mark.long) for task in MT50]


@pytest.mark.parametrize("task", QUICK)
def test_observations_and_rewards_are_upstreams(task):
    follows_upstream(task, (0, 1, 0), steps_an_episode=20)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Constant")
@pytest.mark.parametrize("task", MT50)
def test_observations_and_rewards_are_upstreams_until_the_script_is_done(task):
    follows_upstream(task, (0, 1, 0), steps_an_episode=150)


@pytest.mark.parametrize("task", EVERY)
def test_a_state_goes_through_files_into_a_fresh_instance_in_mid_episode(task):
    goals = goal_table(task, SEED)
    ours = TaskEnv(task)
    ours.reset(goals[0])
    for action in some_actions(45):
        ours.step(action)
    state = ours.snapshot()
    blob, text = save(dict(state.tensors)), json.dumps(state.numbers, allow_nan=False)
    fresh = TaskEnv(task)
    fresh.reset(goals[9])
    fresh.restore(State(load(blob), json.loads(text)))
    assert fresh.snapshot().numbers == state.numbers  # which says of each attribute whether it is NumPy's or Python's
    for action in some_actions(45, seed=1):
        observation, reward, _, success = ours.step(action)
        again = fresh.step(action)
        assert as_bytes(observation, reward) == as_bytes(*again[:2])
        assert success == again[3]
    assert ours.reset(goals[3]).tobytes() == fresh.reset(goals[3]).tobytes()
    for action in some_actions(10, seed=2):
        assert as_bytes(*ours.step(action)[:2]) == as_bytes(*fresh.step(action)[:2])
    one, other = ours.snapshot(), fresh.snapshot()
    assert one.numbers == other.numbers
    assert {name: a.tobytes() for name, a in one.tensors.items()} == {
        name: a.tobytes() for name, a in other.tensors.items()
    }


@pytest.mark.parametrize("task", EVERY)
def test_a_copied_model_is_the_compiled_one_whatever_has_happened_to_the_one_that_it_was_copied_from(task):
    env = MetaworldEnv(TaskEnv(task), goal_table(task, SEED), VIEWED)
    for goal in (0, 1):
        env.reset(goal, goal)
        for action in some_actions(20, goal):
            env.step(action)
    another = TaskEnv(task)
    copied, compiled = another.simulation[0], MjModel.from_xml_path(another.upstream.fullpath)
    fields = [name for name in dir(compiled) if isinstance(getattr(compiled, name), np.ndarray)]
    assert len(fields) > 300
    # What upstream writes at each beginning lies in eq_data.
    differ = [name for name in fields if getattr(copied, name).tobytes() != getattr(compiled, name).tobytes()]
    assert differ in ([], ["eq_data"])
    assert copied.vis.headlight.diffuse.tobytes() == compiled.vis.headlight.diffuse.tobytes()
    assert (copied.vis.global_.offwidth, copied.stat.extent) == (compiled.vis.global_.offwidth, compiled.stat.extent)
    env.close()
    another.close()


def test_a_state_of_another_task_is_refused():
    reach = TaskEnv("reach-v3")
    reach.reset(goal_table("reach-v3", SEED)[0])
    with refused("env.state-of-other-task", found="reach-v3"):
        TaskEnv("push-v3").restore(reach.snapshot())


def test_a_state_of_another_size_is_refused():
    reach = TaskEnv("reach-v3")
    reach.reset(goal_table("reach-v3", SEED)[0])
    state = reach.snapshot()
    with refused("env.state-of-other-version"):
        reach.restore(State({**state.tensors, "physics": state.tensors["physics"][:-1]}, state.numbers))


def goals_are_upstreams(task):
    import pickle

    before = np.random.get_state()[1].tobytes()  # noqa: NPY002 - upstream draws from it
    ours = goal_table(task, SEED)
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002
    theirs = np.array([pickle.loads(t.data)["rand_vec"] for t in upstream.MT1(task, seed=SEED).train_tasks])
    assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


@pytest.mark.parametrize("task", ["reach-v3", "peg-insert-side-v3", "basketball-v3", "coffee-pull-v3"])
def test_goals_are_upstreams_and_global_randomness_is_left_alone(task):
    goals_are_upstreams(task)


@pytest.mark.long
@pytest.mark.parametrize("task", MT50)
def test_goals_are_upstreams_for_every_task(task):
    goals_are_upstreams(task)
