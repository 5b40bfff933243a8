"""Arms stepped in C: bit for bit what Python does, whatever is asked of them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from needs import is_missing

pytest.importorskip("mujoco")

from refused import refused
from vector_bytes import as_bytes

from trainer.config.suites import Arm
from trainer.envs.group import EnvGroup
from trainer.envs.shared import SharedBuffers
from trainer.envs.spaces import STATE
from trainer.envs.step import VectorSpec
from trainer.envs.suite import EpisodeStats, StepperUnavailableError, SuiteRef
from trainer.envs.suites.arm.env import Reacher
from trainer.envs.suites.arm.native import library
from trainer.envs.vector import VectorEnv
from trainer.evaluation.protocol import evaluate

try:
    library.load()
except StepperUnavailableError as error:
    is_missing(str(error))

pytestmark = pytest.mark.trainer
OPTIONS = [
    {"reward": reward, "observation": observation, "end_on_success": ends, "randomize": randomize}
    for reward, observation, ends, randomize in (
        ("dense", "state", False, False), ("dense", "legacy", True, True), ("tanh", "state", True, True),
        ("tanh", "legacy", False, True), ("sparse", "state", True, False), ("sparse", "legacy", False, False),
        ("dense", "state", True, True), ("sparse", "state", False, True),
    )
]  # fmt: skip


def spec_of(num_envs=4, seed=3, **settings):
    return VectorSpec(SuiteRef(Arm(**settings)), num_envs, seed)


def reaching(reacher, obs):
    return np.stack([reacher(row) for row in obs])


class Actor:
    """Random actions, far ones held for a while, and ones that reach, in turns of 25 steps."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.reacher = Reacher()
        self.held = None

    def act(self, obs, step):
        shape = (len(obs), 7)
        if step % 25 == 0:
            self.held = np.sign(self.rng.uniform(-1, 1, shape)).astype(np.float32) * 3
        if step % 100 >= 50 and obs.shape[1] == 25:
            return reaching(self.reacher, obs)
        if step % 50 < 25:
            return self.rng.uniform(-1.2, 1.2, shape).astype(np.float32)
        return self.held


def played(spec, steps, stepper, workers=0):
    """The bytes of so many steps, how many episodes ended and how many of these did at the goal."""
    actor = Actor()
    with VectorEnv(spec, workers, stepper) as envs:
        assert envs.stepping == {"reach": stepper}
        observed = envs.reset()
        obs, seen, ended, solved = observed.obs[STATE], [as_bytes(observed)], 0, 0
        for step in range(steps):
            told = envs.step(actor.act(obs, step))
            obs = told.obs[STATE]
            seen.append(as_bytes(told))
            ended += int(told.finished.sum())
            solved += int(told.episode_success.sum())
        return seen, ended, solved


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(str(value) for value in options.values()))
def test_every_bit_of_twenty_episodes_is_pythons(options):
    spec = spec_of(**options)
    theirs, ended, solved = played(spec, 500, "python")
    ours, _, _ = played(spec, 500, "native")
    assert ours == theirs
    assert ended >= 20
    assert solved or options["observation"] == "legacy"  # what happens at the goal was compared


def test_an_evaluation_plays_to_the_end_and_says_what_the_page_promises():
    reacher = Reacher()
    seen = []
    for stops in (False, True):
        suite = SuiteRef(Arm(end_on_success=stops), seed=5)
        result = evaluate(lambda obs, task: reaching(reacher, obs[STATE]), suite, 10)
        seen.append(result)
        assert result.success == {"reach": 1.0}
        assert result.measures["reached"] == result.measures["triggered"] == {"reach": 1.0}
        assert result.measures["distance"]["reach"] < 0.05
    held, stopped = seen
    assert held.steps_to_success == {}  # the last step says it
    assert held.measures["steps_to_reach"] == stopped.measures["steps_to_reach"] == stopped.steps_to_success
    assert held.steps == 1000
    assert stopped.steps < 500


def test_a_hand_that_left_the_goal_has_not_succeeded():
    """At any step, as Meta-World has it, it would have."""
    reacher = Reacher()
    for stepper in ("python", "native"):
        with VectorEnv(spec_of(horizon=60), 0, stepper) as envs:
            obs = envs.reset().obs[STATE]
            for step in range(60):
                told = envs.step(reaching(reacher, obs) if step < 45 else np.ones((4, 7), np.float32))
                obs = told.obs[STATE]
        assert told.finished.all()
        assert not told.episode_success.any()
        assert (told.episode_measures[:, :2] == 1).all()
        assert (told.episode_measures[:, 3] < 45).all()


def group_of(spec, threads=1):
    suite = spec.suite.open()
    buffers = SharedBuffers(suite.spaces, spec.num_envs, measures=len(spec.suite.settings.MEASURES))
    group = EnvGroup(spec, suite, range(spec.num_envs), buffers, frozenset({0}), threads)
    group.start(range(spec.num_envs), 0)
    return group


def test_a_place_steps_the_environment_that_it_has_now():
    group = group_of(spec_of(num_envs=2))
    one, other = (slot._env for slot in group._slots)
    binding = group.stepper.bind(0, 0)
    group._slots[1]._binding.leave()
    for env, resting in ((one, other), (other, one)):
        before = [each.data.time for each in (env, resting)]
        binding.take(env, 0, EpisodeStats())
        group.stepper.step()
        assert [each.data.time - then for each, then in zip((env, resting), before, strict=True)] == pytest.approx(
            [0.05, 0]
        )
        binding.leave()
    group.close()


def test_an_error_of_the_simulator_names_the_environment():
    group = group_of(spec_of(), 2)
    group._slots[2]._env.model.opt.integrator = 99
    with refused("env.failed", number=2, task="reach", why=re.compile("integrator")):
        group.step()
    group.close()


def test_what_differs_in_a_bit_is_stepped_by_python(tmp_path, caplog, monkeypatch):
    wrong = library.ArmLibrary(tmp_path / "native")
    monkeypatch.setattr(library, "load", lambda: wrong)
    for bits, names in ((1, frozenset()), (0, {"dense state"})):
        numbers = np.array(library.NUMBERS)
        numbers[6:7].view(np.int64)[:] += bits  # what an effort costs
        wrong.held.configure(library.ctypes.c_void_p(numbers.ctypes.data))
        assert library.approved(Arm()) == names
        for path in wrong.folder.glob("checked-*"):
            path.unlink()
    assert "differs from Python here for dense state" in caplog.text


@pytest.mark.parametrize("observation", ["state", "legacy"])
@pytest.mark.parametrize("options", [{}, {"randomize": True}, {"end_on_success": True}], ids=str)
def test_honest_experience_is_within_the_bounds(options, observation):
    spec = spec_of(observation=observation, **options)
    bounds, actor = spec.suite.open().bounds, Actor(1)
    with VectorEnv(spec) as envs:
        obs = envs.reset().obs[STATE]
        rows = [[row] for row in obs]
        for step in range(300):
            told = envs.step(actor.act(obs, step))
            obs = told.obs[STATE]
            assert bounds.reward[0] <= told.reward.min() <= told.reward.max() <= bounds.reward[1]
            assert bounds.terminates or not told.terminated.any()
            for i, row in enumerate(rows):
                row.append(told.next_obs[STATE][i])
                if told.finished[i]:
                    assert np.abs(row).max() <= bounds.obs
                    assert bounds.gap(np.array(row), "") is None
                    rows[i] = [obs[i]]


def test_rows_that_do_not_join_are_seen():
    bounds, actor = spec_of().suite.open().bounds, Actor(1)
    with VectorEnv(spec_of()) as envs:
        obs = [envs.reset().obs[STATE]]
        for step in range(99):
            obs.append(envs.step(actor.act(obs[-1], step)).obs[STATE])
    rows = np.array(obs)[:, 0]
    assert bounds.gap(rows, "") is None
    assert "jumps at step 9" in bounds.gap(np.concatenate([rows[:10], rows[60:]]), "")
    other = rows.copy()
    other[50:, 17:20] += 0.01
    assert "goal moves" in bounds.gap(other, "")
    other = rows.copy()
    other[:, 17:20] += 0.01
    assert "vector to the goal" in bounds.gap(other, "")
