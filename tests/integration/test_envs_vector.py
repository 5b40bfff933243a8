"""The vector: the same whatever the number of workers, restorable, honest about where episodes end."""

from __future__ import annotations

import json
import logging
from dataclasses import fields, replace

import numpy as np
import pytest
from suites import metaworld

pytest.importorskip("metaworld")

from refused import refused
from vector_bytes import as_bytes, through_files, to_bytes

from trainer.envs.spaces import picked
from trainer.envs.step import EnvError, Step, VectorSpec
from trainer.envs.suites.metaworld import suite
from trainer.envs.suites.metaworld.env import TaskEnv
from trainer.envs.suites.metaworld.goals import goal_table
from trainer.envs.suites.metaworld.native.ports import PORTS
from trainer.envs.vector import VectorEnv
from trainer.evaluation.protocol import evaluate

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3", "door-unlock-v3")


@pytest.fixture(autouse=True)
def one_task_is_stepped_by_python(monkeypatch):
    """So that threads and workers have something to do."""
    monkeypatch.delitem(PORTS, "door-unlock-v3")


@pytest.fixture(scope="module")
def spec():
    """Five environments for three tasks, so that each changes its task at every episode's end."""
    return VectorSpec(metaworld(TASKS, 12), num_envs=5, seed=11)


def actions_at(step, num_envs):
    return np.random.default_rng(step).uniform(-1, 1, (num_envs, 4)).astype(np.float32)


def played(envs, steps):
    return [as_bytes(envs.step(actions_at(step, envs.num_envs))) for step in steps]


@pytest.fixture(scope="module")
def undisturbed(spec):
    with VectorEnv(spec, stepper="python") as envs:
        return [as_bytes(envs.reset()), *played(envs, range(40))]


@pytest.mark.long
@pytest.mark.parametrize("num_workers", [2, 9])
def test_any_number_of_workers_gives_the_same(spec, undisturbed, num_workers):
    with VectorEnv(spec, num_workers) as envs:
        assert [as_bytes(envs.reset()), *played(envs, range(40))] == undisturbed


@pytest.mark.parametrize("stepper", ["auto", "python"])
def test_a_state_at_the_start_of_an_episode_holds_nothing_of_the_one_before(spec, stepper, monkeypatch):
    """A remembered reset and one that is made anew, after a restore, leave the same."""
    monkeypatch.setattr(suite, "GOALS_PER_TASK", 1)
    same = replace(spec, num_envs=3)
    states = []
    with VectorEnv(same, stepper=stepper) as envs:
        envs.reset()
        played(envs, range(17))
        half = through_files(envs.snapshot())
        played(envs, range(17, 24))
        states.append(envs.snapshot())
    with VectorEnv(same, stepper=stepper) as envs:
        envs.restore(half)
        played(envs, range(17, 24))
        states.append(envs.snapshot())
    first, second = ({name: array.tobytes() for name, array in state.tensors.items()} for state in states)
    assert first == second
    assert json.dumps(states[0].numbers) == json.dumps(states[1].numbers)


def test_episodes_end_at_the_horizon_and_every_task_is_visited(spec):
    with VectorEnv(spec) as envs:
        observed = envs.reset()
        obs, task, order = observed.obs, observed.task, [observed.task.tolist()]
        returns = np.zeros(5)
        for number in range(1, 37):
            step = envs.step(actions_at(number, 5))
            assert step.task.tolist() == task.tolist()
            returns += step.reward
            ended = number % 12 == 0
            assert step.truncated.tolist() == step.finished.tolist() == [ended] * 5
            assert not step.terminated.any()
            assert (step.obs["state"] != step.next_obs["state"]).any(axis=1).tolist() == [ended] * 5
            older = step.next_obs["state"][:, 18:36]  # of the two stacked frames
            assert older.tobytes() == obs["state"][:, :18].tobytes()
            if ended:
                assert step.episode_length.tolist() == [12] * 5
                assert step.episode_return == pytest.approx(returns, rel=1e-6)
                returns[:] = 0
                order.append(step.next_task.tolist())
            else:
                assert step.next_task.tolist() == step.task.tolist()
            obs, task = step.obs, step.next_task
    assert order == [[0, 1, 2, 0, 1], [2, 0, 1, 2, 0], [1, 2, 0, 1, 2], [0, 1, 2, 0, 1]]


def test_each_environment_has_its_own_goals_and_the_seed_decides_them(spec):
    same_task = replace(spec, suite=metaworld(TASKS[:1]), num_envs=4)

    def goals_of(seed):
        with VectorEnv(replace(same_task, seed=seed)) as envs:
            return envs.reset().obs["state"][:, 36:]

    assert len(np.unique(goals_of(1), axis=0)) > 1
    assert goals_of(1).tobytes() == goals_of(1).tobytes()
    assert goals_of(1).tobytes() != goals_of(2).tobytes()


def per_env(step: Step, count):
    own = {field.name: getattr(step, field.name) for field in fields(step)}
    return {name: to_bytes(picked(v, slice(count)) if isinstance(v, dict) else v[:count]) for name, v in own.items()}


@pytest.mark.long
def test_added_environments_start_and_kept_ones_go_on(spec):
    # Multiples of the task count, so that the schedule of the kept ones is the same for both sizes.
    small, large = replace(spec, num_envs=3), replace(spec, num_envs=6, attempt=4)
    with VectorEnv(small) as envs:
        envs.reset()
        played(envs, range(17))
        state = through_files(envs.snapshot())
        expected = [per_env(envs.step(actions_at(step, 6)[:3]), 3) for step in range(17, 40)]
    added = []
    for num_workers in (0, 2):
        with VectorEnv(large, num_workers) as envs:
            observed = envs.restore(state)
            assert observed.task.tolist() == [0, 1, 2, 0, 1, 2]
            steps = [envs.step(actions_at(step, 6)) for step in range(17, 40)]
        assert [per_env(step, 3) for step in steps] == expected
        assert steps[11].finished[3:].all()  # a new environment's episode began at the restore
        added.append([to_bytes(observed.obs), *map(as_bytes, steps)])
    assert added[0] == added[1]
    with VectorEnv(replace(large, attempt=5)) as envs:
        assert envs.restore(state).obs["state"][:3].tobytes() == state.tensors["obs.state"].tobytes()
        other = envs.step(actions_at(17, 6))
        assert other.obs["state"][3:].tobytes() != steps[0].obs["state"][3:].tobytes()


def test_dropped_environments_are_named(spec, caplog):
    with VectorEnv(spec) as envs:
        envs.reset()
        state = envs.snapshot()
    with caplog.at_level(logging.WARNING), VectorEnv(replace(spec, num_envs=2)) as envs:
        observed = envs.restore(state)
    assert observed.obs["state"].tobytes() == state.tensors["obs.state"][:2].tobytes()
    assert "environments 2-4 are dropped" in caplog.text


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_of_other_tasks_or_goals_is_refused(spec, num_workers):
    with VectorEnv(spec) as envs:
        envs.reset()
        state = envs.snapshot()
    with (
        VectorEnv(replace(spec, suite=metaworld(TASKS, 12, 1)), num_workers) as envs,
        pytest.raises(EnvError, match="other goals of reach"),
    ):
        envs.restore(state)
    others = replace(spec, suite=metaworld(TASKS[:2], 12))
    with VectorEnv(others, num_workers) as envs, refused("env.state-of-other-tasks"):
        envs.restore(state)


def test_stepping_before_the_start_or_with_a_wrong_shape_is_refused(spec):
    with VectorEnv(spec) as envs:
        with pytest.raises(RuntimeError, match="reset"):
            envs.step(actions_at(0, 5))
        envs.reset()
        with pytest.raises(ValueError, match=r"expected \(5, 4\)"):
            envs.step(actions_at(0, 4))


def test_actions_that_are_not_finite_never_reach_the_simulation(spec):
    actions = actions_at(0, 5)
    actions[3, 1] = np.nan
    with VectorEnv(spec) as envs:
        envs.reset()
        with pytest.raises(ValueError, match="NaN or infinity"):
            envs.step(actions)


def test_the_simulators_warnings_are_logged_and_leave_no_file(spec, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    env = TaskEnv("reach-v3")
    env.reset(goal_table("reach-v3", 0)[0])
    env.step(np.full(4, np.nan, np.float32))
    assert "The simulation is unstable" in caplog.text
    assert not list(tmp_path.iterdir())


def scripted(obs, task):
    """Meta-World's own hand-written policies."""
    from metaworld.policies import ENV_POLICY_MAP

    rows = [
        ENV_POLICY_MAP[TASKS[k]]().get_action(row.astype(np.float64)) for row, k in zip(obs["state"], task, strict=True)
    ]
    return np.clip(rows, -1, 1).astype(np.float32)


def still(obs, task):
    return np.zeros((len(task), 4), np.float32)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Constant")
def test_an_evaluation_tells_a_good_policy_from_a_bad_one_whatever_the_workers():
    good = [evaluate(scripted, metaworld(TASKS), 3, num_workers=workers) for workers in (0, 2)]
    assert good[0].mean_success == 1.0
    assert replace(good[0], wall_s=0.0) == replace(good[1], wall_s=0.0)
    bad = evaluate(still, metaworld(TASKS, 40), 3)
    assert bad.mean_success == 0.0
    assert bad.steps == 3 * 3 * 40
    assert set(bad.worst) == set(TASKS)


def test_an_interrupted_evaluation_is_no_evaluation():
    asked = []

    def after_five():
        asked.append(None)
        return len(asked) > 5

    assert evaluate(still, metaworld(TASKS[:1]), 1, interrupted=after_five) is None
    assert len(asked) == 6
    assert evaluate(still, metaworld(TASKS[:1]), 1, interrupted=lambda: True) is None
