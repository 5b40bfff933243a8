"""The native stepper, bit for bit: against upstream's `env.step`, and against the Python path through the vector."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import numpy as np
import pytest
from needs import is_missing
from suites import metaworld

pytest.importorskip("metaworld")

import metaworld as upstream
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP
from refused import refused
from vector_bytes import as_bytes, info_bytes

from trainer.config.suites import MT10
from trainer.envs.group import EnvGroup
from trainer.envs.native.verdicts import are_same
from trainer.envs.shared import SharedBuffers
from trainer.envs.step import Script, VectorSpec
from trainer.envs.suite import StepperUnavailableError
from trainer.envs.suites.metaworld.goals import goal_table
from trainer.envs.suites.metaworld.native import library
from trainer.envs.suites.metaworld.native.library import load as load_stepper
from trainer.envs.suites.metaworld.native.ports import PORTS
from trainer.envs.vector import VectorEnv

try:
    load_stepper()
except StepperUnavailableError as error:
    is_missing(str(error))

pytestmark = pytest.mark.trainer
SEED = 5
GOALS = (0, 7, 21)
NATIVE = frozenset(range(10))


def upstream_env(task, goal):
    cls = ALL_V3_ENVIRONMENTS[task]
    env = cls(reward_function_version="v2")
    env.set_task(upstream._encode_task(task, {"rand_vec": goal.copy(), "env_cls": cls, "partially_observable": False}))
    return env


#: At and beside the limits of what the rewards call closed.
GRIPPERS = np.array([-1, -0.0, 1e-30, 0.1, 0.4, 0.7, 0.8, 1, np.nextafter(np.float32(1), 2), 1.5], np.float32)


class Actor:
    """Random and scripted actions in turns, then what is hardest to follow, then the script alone, which succeeds."""

    def __init__(self, task, episode):
        self.policy = ENV_POLICY_MAP[task]()
        self.rng = np.random.default_rng(episode)
        self.act = (self.mixed, self.adverse, self.scripted)[episode]

    def scripted(self, obs, step):
        return np.clip(self.policy.get_action(obs), -1, 1).astype(np.float32)

    def mixed(self, obs, step):
        if step % 40 < 20:
            return self.rng.uniform(-1.2, 1.2, 4).astype(np.float32)
        return self.scripted(obs, step) + self.rng.normal(0, 0.1, 4).astype(np.float32)

    def adverse(self, obs, step):
        """The script with any grip, then 25 steps into a corner: fingers in the table, the wall, the object."""
        if step % 100 < 75:
            return np.append(self.scripted(obs, step)[:3], self.rng.choice(GRIPPERS))
        if step % 25 == 0:
            self.corner = np.append(self.rng.choice([-3, 3], 3), self.rng.choice(GRIPPERS)).astype(np.float32)
        return self.corner


#: One or two of a family of rewards, and every kind of observation.
QUICKLY = {
    *("push-back-v3", "soccer-v3", "coffee-pull-v3", "bin-picking-v3", "basketball-v3", "peg-insert-side-v3"),
    *("stick-push-v3", "box-close-v3", "door-close-v3", "coffee-button-v3", "dial-turn-v3"),
}
ALL = [task if task in QUICKLY else pytest.param(task, marks=pytest.mark.long) for task in PORTS]


@pytest.mark.filterwarnings("ignore:Constant")
@pytest.mark.parametrize("task", ALL)
def test_every_bit_of_whole_episodes_is_upstreams(task):
    goals = goal_table(task, SEED)
    script = Script(tuple((0, goal) for goal in GOALS))
    spec = VectorSpec(metaworld((task,), 500, SEED), num_envs=1, seed=0, scripts=(script,))
    suite = spec.suite.open()
    buffers = SharedBuffers(suite.spaces, 1)
    group = EnvGroup(spec, suite, [0], buffers, frozenset({0}))
    group.start([0], 0)
    shown, row = buffers.fields, group.stepper.rows[0]
    solved, fractions = 0, 0
    for episode, goal in enumerate(GOALS):
        theirs, actor = upstream_env(task, goals[goal]), Actor(task, episode)
        obs = theirs.reset()[0]
        assert shown["obs.state"].tobytes() == obs.astype(np.float32).tobytes()
        for step in range(500):
            action = actor.act(obs, step)
            obs, reward, _, _, info = theirs.step(action)
            shown["actions"][0] = action
            assert group.stepper.step() == ([0] if step == 499 else [])
            assert row["last"].tobytes() == obs.tobytes(), step
            assert row["reward"].tobytes() == np.float64(reward).tobytes(), step
            # What the stepper leaves out, made of its simulation: also contacts and forces are upstream's.
            assert info_bytes(
                group._slots[0]._env.upstream.upstream.evaluate_state(row["last"], action)[1]
            ) == info_bytes(info)
            assert shown["next_obs.state"].tobytes() == obs.astype(np.float32).tobytes()
            assert shown["reward"][0] == np.float32(reward)
            assert bool(shown["success"][0]) == bool(info["success"])
            solved += bool(info["success"])
            fractions += 0 < action[3] < 1
        group._slots[0].end()
        group._show(group._slots[0])
        theirs.close()
    assert solved  # so the branches of success were compared
    assert fractions
    group.close()


@pytest.fixture(scope="module")
def spec():
    """Five environments for ten tasks, so that each plays another task after every episode."""
    return VectorSpec(metaworld(MT10, 60), num_envs=5, seed=11)


def actions_at(step, num_envs):
    return np.random.default_rng(step).uniform(-1.1, 1.1, (num_envs, 4)).astype(np.float32)


def played(envs, steps):
    return [as_bytes(envs.step(actions_at(step, envs.num_envs))) for step in steps]


@pytest.fixture(scope="module")
def by_python(spec):
    with VectorEnv(spec, stepper="python") as envs:
        return [as_bytes(envs.reset()), *played(envs, range(150))]


@pytest.mark.parametrize("num_workers", [0, 3])
def test_any_number_of_threads_gives_what_python_gives(spec, by_python, num_workers):
    with VectorEnv(spec, num_workers, "native") as envs:
        assert set(envs.stepping.values()) == {"native"}
        assert envs.worker_pids == []
        assert [as_bytes(envs.reset()), *played(envs, range(150))] == by_python


def asynchronously(envs, steps):
    for step in steps:
        envs.step_async(actions_at(step, envs.num_envs))
        yield as_bytes(envs.step_wait())


@pytest.mark.long
@pytest.mark.parametrize(("num_workers", "stepper"), [(2, "python"), (2, "native")])
def test_stepping_beside_the_caller_gives_what_stepping_gives(spec, by_python, num_workers, stepper):
    with VectorEnv(spec, num_workers, stepper) as envs:
        assert [as_bytes(envs.reset()), *asynchronously(envs, range(150))] == by_python


@pytest.mark.parametrize("stop_at_success", [False, True])
def test_evaluations_end_alike(stop_at_success):
    tasks = ("reach-v3", "drawer-close-v3")
    scripts = (Script(((0, 1), (1, 2))), Script(((1, 3),)), Script(()))
    spec = VectorSpec(metaworld(tasks, 30), 3, 0, stop_at_success=stop_at_success, scripts=scripts)
    results = []
    for stepper in ("python", "native"):
        with VectorEnv(spec, stepper=stepper) as envs:
            seen = [as_bytes(envs.reset())]
            for _ in range(70):
                obs, task = envs._buffers.observed()
                rows = [
                    np.zeros(4) if k < 0 else ENV_POLICY_MAP[tasks[k]]().get_action(row.astype(np.float64))
                    for row, k in zip(obs["state"], task, strict=True)
                ]
                seen.append(as_bytes(envs.step(np.clip(rows, -1, 1).astype(np.float32))))
            results.append(seen)
    assert results[0] == results[1]


#: With attributes that move with the simulation, or that the first step sets.
MOVING = ("bin-picking-v3", "basketball-v3", "door-lock-v3", "door-unlock-v3", "dial-turn-v3")


@pytest.mark.long
def test_a_snapshot_is_the_one_that_python_would_have_taken(spec):
    spec = replace(spec, suite=metaworld(MOVING, 60))
    with VectorEnv(spec, stepper="python") as theirs, VectorEnv(spec, 2, "native") as ours:
        theirs.reset()
        ours.reset()
        at = 0
        for until in (0, 1, 37, 60, 61, 140):
            assert played(theirs, range(at, until)) == played(ours, range(at, until))
            assert are_same(theirs.snapshot(), ours.snapshot())
            assert are_same(ours.snapshot(), ours.snapshot())
            at = until


def group_of(spec, native, threads=1):
    suite = spec.suite.open()
    buffers = SharedBuffers(suite.spaces, spec.num_envs)
    group = EnvGroup(spec, suite, range(spec.num_envs), buffers, native, threads)
    group.start(range(spec.num_envs), 0)
    return group, buffers.fields


def test_an_unstable_simulation_is_the_same_and_is_logged(spec, caplog):
    """NaN never gets past the vector; here it makes MuJoCo warn, from threads that Python does not know."""
    spec = replace(spec, suite=metaworld(MT10[:1]))
    seen = []
    for native, threads in ((frozenset(), 1), (frozenset({0}), 3)):
        caplog.clear()
        group, shown = group_of(spec, native, threads)
        shown["actions"][:] = np.nan
        with caplog.at_level(logging.WARNING):
            group.step()
        assert caplog.text.count("The simulation is unstable") >= spec.num_envs
        seen.append({name: shown[name].tobytes() for name in ("next_obs.state", "success", "finished")})
        group.close()
    assert seen[0] == seen[1]


def test_an_error_of_the_simulator_names_the_environment(spec):
    group, _ = group_of(replace(spec, num_envs=4), NATIVE, 2)
    group._slots[2]._env.upstream.upstream.model.opt.integrator = 99
    with refused("env.failed", number=2, task="pick-place-v3", why=re.compile("integrator")):
        group.step()
    group.close()


def test_a_step_after_upstreams_last_one_is_an_error(spec):
    group, _ = group_of(replace(spec, num_envs=1), NATIVE)
    group.stepper.rows["path_length"] = 500
    with refused("env.failed", number=0, task="reach-v3", why=re.compile("the episode is over")):
        group.step()
    group.close()


def test_a_function_that_numpy_does_not_have_for_doubles_is_no_stepper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "FUNCTIONS", (np.invert,))
    with pytest.raises(StepperUnavailableError, match="has no invert of doubles"):
        library.loops()
