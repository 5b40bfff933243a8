"""The arm that reaches: goals, gripper, rewards, what it shows, what its seed decides. Its bits: test_arm_native.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mujoco")

import mujoco
from refused import refused

from trainer.config.suites import Arm
from trainer.envs.spaces import STATE
from trainer.envs.suites.arm.draws import (
    HIGHEST,
    LOWEST,
    NEAREST_X,
    allowed,
    hand_at,
    new_model,
)
from trainer.envs.suites.arm.env import ArmEnv
from trainer.envs.suites.arm.shapes import HOME, JOINTS, LEAD, REWARDS, SHUTS, SOLVED, distance

pytestmark = pytest.mark.trainer
STILL = np.zeros(JOINTS, np.float32)


def arm(**settings):
    return ArmEnv(Arm(**settings))


@pytest.fixture(scope="module")
def plain():
    return arm()


def hand_of(env):
    return env.data.site_xpos[env.grip].copy()


def put_goal(env, away):
    """The goal so many metres above the hand."""
    env.data.mocap_pos[0] = hand_of(env) + np.array([0, 0, away])


def angles_to(env, place, start=HOME):
    """Angles that put the hand at `place`: damped least squares, from `start`."""
    model, data, low, high = env.model, env.data, np.array(env.low), np.array(env.high)
    angles, slopes = np.array(start), np.zeros((3, model.nv))
    for _ in range(200):
        off = place - hand_at(model, data, env.grip, angles)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, slopes, None, env.grip)
        j = slopes[:, :JOINTS]
        angles = np.clip(angles + j.T @ np.linalg.solve(j @ j.T + 1e-3 * np.eye(3), off), low, high)
    return angles


def test_the_arm_has_the_dimensions_that_its_page_says():
    model = new_model()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)  # straight up
    heights = [data.body(name).xpos[2] for name in ("shoulder", "elbow", "wrist")] + [data.site("grip").xpos[2]]
    assert heights == pytest.approx([0.34, 0.70, 1.06, 1.28])
    assert model.jnt_axis[:JOINTS, 2].tolist() == [1, 0, 1, 0, 1, 0, 1]  # z y z y z y z
    assert model.jnt_axis[:JOINTS, 1].tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert (model.opt.timestep, model.opt.integrator) == (0.01, mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
    assert (model.vis.quality.shadowsize, model.vis.quality.offsamples) == (0, 0)
    assert (model.body_gravcomp[2:] == 1).all()  # but the world's and the goal's


def test_goals_of_the_workspace_lie_where_the_hand_can_be(plain):
    for seed in range(40):
        plain.reset(0, seed)
        goal, hand = plain.data.mocap_pos[0].copy(), hand_of(plain)
        assert LOWEST <= goal[2] <= HIGHEST
        assert goal[0] >= NEAREST_X
        assert np.linalg.norm(goal - hand) >= SHUTS
        reached = min(
            distance(hand_at(plain.model, plain.data, plain.grip, angles_to(plain, goal, start)), goal)
            for start in (HOME, (goal[1], 0.9, 0.0, 0.9, 0.0, 0.3, 0.0), (goal[1], -0.2, 0.0, 2.3, 0.0, 1.0, 0.0))
        )
        assert reached < SOLVED


@pytest.mark.parametrize(
    ("goal", "is_allowed"),
    [
        ((0.5, 0.0, 0.5), True),
        ((0.5, 0.0, LOWEST - 0.01), False),
        ((0.5, 0.0, HIGHEST + 0.01), False),
        ((NEAREST_X - 0.01, 0.0, 0.5), False),
        ((0.5, 0.0, 0.3), False),  # 10 cm from the hand
    ],
)
def test_goals_out_of_place_are_rejected(goal, is_allowed):
    assert allowed(np.array(goal), np.array([0.5, 0.0, 0.2])) is is_allowed


def test_the_gripper_shuts_near_the_goal_and_opens_only_farther_away(plain):
    plain.reset(0, 0)
    seen = []
    for away in (0.2, 0.16, 0.14, 0.16, 0.169, 0.18, 0.16):
        put_goal(plain, away)
        outcome = plain.step(STILL)
        assert outcome.obs[STATE][24] == plain.triggered
        seen.append(plain.triggered)
    assert seen == [0, 0, 1, 1, 1, 0, 0]
    assert outcome.measures[1] == 1  # it was shut once
    for away, opening in ((0.5, 1), (0.1, 0)):
        put_goal(plain, away)
        openings = [float(plain.step(STILL).obs[STATE][23]) for _ in range(20)]
        assert openings[-1] == pytest.approx(opening, abs=0.02)


@given(st.floats(0, 3), st.lists(st.floats(-1, 1), min_size=7, max_size=7))
def test_rewards_are_those_of_the_books(away, action):
    effort = float(np.dot(action, action))
    near = away < 0.05
    assert REWARDS["dense"](away, effort) == pytest.approx(-away + near - 0.01 * effort)
    e = math.exp(-10 * away)
    assert REWARDS["tanh"](away, effort) == pytest.approx(1 - (1 - e) / (1 + e))
    assert REWARDS["sparse"](away, effort) == (0 if near else -1)


@pytest.mark.parametrize("reward", ["dense", "tanh", "sparse"])
def test_a_step_is_paid_for_where_the_hand_is_after_it(reward):
    env = arm(reward=reward)
    env.reset(0, 3)
    action = np.linspace(-1.5, 1.5, JOINTS).astype(np.float32)  # beyond [-1, 1], too
    outcome = env.step(action)
    away = float(np.linalg.norm(hand_of(env) - env.data.mocap_pos[0]))
    assert outcome.reward == pytest.approx(REWARDS[reward](away, float((np.clip(action, -1, 1) ** 2).sum())))
    assert outcome.measures[2] == pytest.approx(away)


def test_the_observation_says_where_arm_and_goal_are(plain):
    plain.reset(0, 5)
    seen = plain.step(np.ones(JOINTS, np.float32)).obs[STATE]
    data, hand, goal = plain.data, hand_of(plain), plain.data.mocap_pos[0]
    expected = [*data.qpos[:7], *data.qvel[:7], *hand, *goal, *(goal - hand), data.qpos[7:].sum() / 0.08, 0]
    assert seen == pytest.approx(np.array(expected, np.float32), abs=1e-6)
    fresh = mujoco.MjData(plain.model)  # the hand is where these angles put it, not where it was 10 ms before
    fresh.qpos[:] = data.qpos
    mujoco.mj_kinematics(plain.model, fresh)
    assert (fresh.site_xpos[plain.grip] == hand).all()


def test_the_legacy_observation_is_distance_and_angles():
    env = arm(observation="legacy")
    env.reset(0, 5)
    seen = env.step(np.ones(JOINTS, np.float32)).obs[STATE]
    away = np.linalg.norm(hand_of(env) - env.data.mocap_pos[0])
    assert seen == pytest.approx(np.array([away, *env.data.qpos[:7]], np.float32))


def test_targets_run_ahead_of_the_arm_by_no_more_than_they_may_and_stay_within_the_limits(plain):
    plain.reset(0, 1)
    hands = []
    for _ in range(60):  # down, into the table
        plain.step(np.array([0, 1, 0, 0, 0, 0, 0], np.float32))
        hands.append(hand_of(plain)[2])
        angles = plain.data.qpos[:JOINTS]
        assert np.abs(np.array(plain.target) - angles).max() < LEAD + 0.2  # measured before the step that moved it
        assert (np.array(plain.target) <= plain.high).all()
    assert plain.data.ncon > 0
    assert min(hands) > -0.02


def test_an_episode_ends_at_the_goal_only_where_that_is_asked_for_and_pays_for_the_rest():
    for ends in (False, True):
        env = arm(end_on_success=ends, horizon=10)
        env.reset(0, 0)
        put_goal(env, 0.5)
        env.step(STILL)
        put_goal(env, 0.0)
        outcome = env.step(STILL)
        one = 1 - outcome.measures[2]
        assert outcome.success
        assert outcome.terminated is ends
        assert outcome.reward == pytest.approx(9 * one if ends else one)  # step 2 of 10
        assert outcome.measures[0] == 1
        assert outcome.measures[3] == 2


def of_model(env):
    model = env.model
    return {
        "mass": model.body_mass,
        "inertia": model.body_inertia,
        "gain": model.actuator_gainprm[:, 0],
        "stiffness": model.actuator_biasprm[:, 1],
        "damping": model.actuator_biasprm[:, 2],
        "joints": model.dof_damping,
        "derived": model.body_subtreemass,
    }


def test_what_is_randomised_depends_on_the_episodes_seed_alone():
    used, fresh, nominal = arm(randomize=True), arm(randomize=True), arm()
    used.reset(0, 1)
    for action in np.random.default_rng(0).uniform(-1, 1, (9, 7)):
        used.step(action)
    other = {name: values.copy() for name, values in of_model(used).items()}
    assert used.reset(0, 2)[STATE].tobytes() == fresh.reset(0, 2)[STATE].tobytes()
    for name, values in of_model(used).items():
        assert (values == of_model(fresh)[name]).all(), name
        assert (values != other[name]).any(), name
    for name, spread in (("mass", 0.2), ("gain", 0.1), ("damping", 0.2), ("joints", 0.2)):
        real, usual = of_model(used)[name], of_model(nominal)[name]
        there = usual != 0
        factors = real[there] / usual[there]
        assert (np.abs(factors - 1) <= spread).all(), name
        assert factors.std() > 0, name


def test_randomised_actions_come_a_step_late_in_some_episodes():
    env, delays = arm(randomize=True), set()
    for seed in range(12):
        env.reset(0, seed)
        delays.add(env.delay)
        before = list(env.target)
        env.step(np.ones(JOINTS, np.float32))
        assert (env.target == before) is bool(env.delay)
        env.step(STILL)
        assert env.target != before
    assert delays == {0, 1}


def test_a_state_of_other_settings_is_refused(plain):
    other = arm(randomize=True)
    other.reset(0, 0)
    with refused("env.state-of-other-arm"):
        plain.restore(other.snapshot())


def test_contacts_do_not_spoil_a_snapshot():
    one, other = arm(), arm()
    one.reset(0, 1)
    down = np.array([0, 1, 0, 0, 0, 0, 0], np.float32)
    for _ in range(40):
        one.step(down)
    assert one.data.ncon > 0
    other.restore(one.snapshot())
    for _ in range(20):
        assert one.step(down).obs[STATE].tobytes() == other.step(down).obs[STATE].tobytes()
