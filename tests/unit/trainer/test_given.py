"""What the environments of somebody else's suite give: what is wrong is told, and trained on by nobody."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from odd_suites import OddPointsSettings
from refused import refused

from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.state import State

pytestmark = pytest.mark.trainer
STILL = np.zeros((2, 1), np.float32)


def odd(fault, workers=0):
    settings = OddPointsSettings(name="odd_suites:OddPoints", fault=fault)
    return VectorEnv(VectorSpec(SuiteRef(settings), 2, 3), workers)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no key", "the observation's keys are []; its suite's spaces say ['state']"),
        ("no dict", "the observation's keys are none: it is a ndarray; its suite's spaces say ['state']"),
        ("shape", "the observation 'state' has shape (1,); its suite's spaces say (2,)"),
        ("list", "the observation 'state' is a list, not a NumPy array"),
        ("text", "the observation 'state' has type <U1; its suite's spaces say float32"),
        ("too large", "the observation 'state' contains NaN or infinity"),
        ("nan reward", "the reward is nan"),
        ("no reward", "the reward is None, not a number"),
        ("flag", "truncated is 'no', neither true nor false"),
        ("measures", "it has 1 measures; its settings name 0"),
        ("at its end", "the observation 'state' has shape (1,); its suite's spaces say (2,)"),
    ],
)
def test_a_step_of_an_own_suite_that_is_not_as_it_says_is_told_with_its_environment(fault, words):
    with odd(fault, 1 if fault == "no key" else 0) as envs:
        envs.reset()
        envs.step(STILL)
        envs.step(STILL)
        with pytest.raises(EnvError) as found:
            envs.step(STILL)
    assert str(found.value) == f"environment 0 (left) failed: at step 3 of its episode: {words}"


def test_a_reset_of_an_own_suite_that_is_not_as_it_says_is_told():
    with odd("reset") as envs, pytest.raises(EnvError) as found:
        envs.reset()
    assert str(found.value) == (
        "environment 0 (left) failed: at its reset: the observation 'state' has shape (1,); its suite's spaces say (2,)"
    )


def test_a_state_of_other_observations_is_told():
    with odd("none") as envs:
        envs.reset()
        state = envs.snapshot()
    other = State({**state.tensors, "envs.1.obs.state": np.zeros(1, np.float32)}, state.numbers)
    with odd("none") as envs, refused("env.failed", number=1, task="middle"):
        envs.restore(other)


@pytest.mark.parametrize("fault", ["numpy success", "numpy arrays"])
def test_flags_and_rewards_of_numpys_become_a_state_that_a_file_can_keep(fault):
    with odd(fault) as envs:
        envs.reset()
        steps = [envs.step(STILL) for _ in range(3)]
        json.dumps(envs.snapshot().numbers)
    assert steps[-1].success.tolist() == [True] * 2
