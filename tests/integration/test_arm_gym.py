"""The arm as an environment of Gymnasium's: its checks, its rewards, its pictures, and another library's training."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from daemons import PATIENCE_S
from needs import is_missing

pytest.importorskip("mujoco")
gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from trainer.config.suites import Arm  # noqa: E402
from trainer.envs.spaces import STATE  # noqa: E402
from trainer.envs.suites.arm.env import ArmEnv  # noqa: E402
from trainer.machine import drawing  # noqa: E402

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).parents[2]
NAME = "trainer.envs.suites.arm.gym:anchorleg/ArmReach-v0"


def arm(**settings):
    return gymnasium.make(NAME, **settings)


@pytest.mark.parametrize("observation", ["state", "legacy", "dict"])
def test_gymnasiums_own_check_finds_nothing(observation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(arm(observation=observation, randomize=True).unwrapped, skip_render_check=True)


def test_it_is_the_suites_arm_bit_by_bit():
    theirs, ours = arm(), ArmEnv(Arm())
    seen, info = theirs.reset(seed=5)
    seed = int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(5))).integers(2**32))
    assert seen.tobytes() == ours.reset(0, seed)[STATE].tobytes()
    assert info["distance"] == pytest.approx(float(np.linalg.norm(seen[20:23])), abs=1e-6)
    for action in np.random.default_rng(0).uniform(-1, 1, (100, 7)).astype(np.float32):
        seen, reward, terminated, truncated, info = theirs.step(action)
        outcome = ours.step(action)
        assert seen.tobytes() == outcome.obs[STATE].tobytes()
        assert (reward, terminated, info["is_success"]) == (outcome.reward, outcome.terminated, outcome.success)
    assert truncated
    assert info["distance"] == outcome.measures[2]
    assert ("steps_to_reach" in info) == bool(outcome.measures[0])


@pytest.mark.parametrize("reward", ["dense", "tanh", "sparse"])
def test_a_reward_can_be_computed_again_for_one_and_for_many(reward):
    env = arm(observation="dict", reward=reward)
    env.reset(seed=1)
    shown, paid, infos = [], [], []
    for action in np.random.default_rng(1).uniform(-1.2, 1.2, (50, 7)):
        obs, value, _, _, info = env.step(action)
        shown.append(obs)
        paid.append(value)
        infos.append(info)
        again = env.unwrapped.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
        assert again == value
    hands, goals = (np.array([obs[name] for obs in shown]) for name in ("achieved_goal", "desired_goal"))
    assert env.unwrapped.compute_reward(hands, goals, infos).tolist() == paid
    reached = env.unwrapped.compute_reward(hands, hands, None)
    assert (reached == {"dense": 1.0, "tanh": 1.0, "sparse": 0.0}[reward]).all()


def test_what_is_shown_for_hindsight_does_not_depend_on_the_goal():
    env = arm(observation="dict", horizon=30)
    obs, _ = env.reset(seed=2)
    arm_of = env.unwrapped.arm
    state = arm_of.snapshot()
    arm_of.data.mocap_pos[0] = obs["achieved_goal"]  # so near that the gripper is to be shut from now on
    one = env.step(np.full(7, 0.3))[0]
    assert arm_of.triggered
    arm_of.restore(state)
    assert not arm_of.triggered
    arm_of.data.mocap_pos[0] = [0.3, -0.5, 0.7]
    other = env.step(np.full(7, 0.3))[0]
    assert one["observation"].tobytes() == other["observation"].tobytes()
    assert obs["observation"].shape == (18,)
    assert not hasattr(arm().unwrapped, "compute_reward")  # it would be taken for an environment with goals
    assert one["desired_goal"].tolist() != other["desired_goal"].tolist()


DRAW = f"""
import gymnasium, numpy as np
pictures = []
for camera in ("front", "side", "top"):
    env = gymnasium.make("{NAME}", render_mode="rgb_array", camera=camera, width=96, height=64)
    env.reset(seed=1)
    env.step(np.zeros(7, np.float32))
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((64, 96, 3), np.uint8)
    red, green, blue = picture.astype(int).transpose(2, 0, 1)
    assert ((green > 1.5 * red) & (green > 1.5 * blue)).sum() >= 9, camera  # the goal
    assert ((red > 1.5 * blue) & (red > 100)).sum() >= 9, camera  # the joints
    env.close()
    pictures.append(picture.tobytes())
assert len(set(pictures)) == 3
"""


def test_its_three_cameras_see_arm_and_goal():
    if not drawing.driver_of("osmesa"):
        is_missing("MuJoCo cannot draw with OSMesa here")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MUJOCO_GL": "osmesa"}
    done = subprocess.run(
        [sys.executable, "-c", DRAW], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_stable_baselines3_trains_on_it():
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env as their_check
    from stable_baselines3.common.env_util import make_vec_env

    for observation in ("state", "dict"):
        their_check(arm(observation=observation).unwrapped, warn=True)
    model = sb3.PPO("MlpPolicy", make_vec_env(NAME, 2, seed=1), n_steps=64, batch_size=32, n_epochs=2, device="cpu")
    before = [tensor.clone() for tensor in model.policy.parameters()]
    model.learn(256)
    assert any((one != other).any() for one, other in zip(before, model.policy.parameters(), strict=True))
    hindsight = sb3.SAC(
        "MultiInputPolicy",
        make_vec_env(NAME, 1, seed=1, env_kwargs={"observation": "dict", "reward": "sparse", "horizon": 20}),
        replay_buffer_class=sb3.HerReplayBuffer,
        learning_starts=40,
        batch_size=32,
        policy_kwargs={"net_arch": [16]},
        device="cpu",
    )
    hindsight.learn(80)
    assert hindsight.replay_buffer.size() == 80
