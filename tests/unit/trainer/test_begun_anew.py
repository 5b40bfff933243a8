"""An algorithm of others is told which episodes a resume could not bring back."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import torch
from anchorleg_toys.drift import Drift

from trainer.config.section import TrainingSection, resolve
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.training.run import advance, capture, fresh, resumed

pytestmark = pytest.mark.trainer


class Remembering(Drift):
    """Notes what it is told, and when."""

    told = ()

    def load(self, state):
        super().load(state)
        self.told = (*self.told, "load")

    def begin_anew(self, anew):
        self.told = (*self.told, anew.tolist())

    def act(self, obs, task, step):
        self.told = (*self.told, "act")
        return super().act(obs, task, step)


def training_of(env_id, num_envs, name=f"{__name__}:Remembering"):
    env = {"name": "gymnasium", "id": env_id}
    return resolve(
        TrainingSection(preset="debug", env=env, algorithm=name, num_envs=num_envs, network={"actor_hidden": [8]})
    )


@pytest.mark.parametrize(
    ("env_id", "num_envs", "told"),
    [
        ("odd_envs:Line", 2, ("load", "act")),
        ("odd_envs:Entropy", 2, ("load", [True, True], "act")),
        ("odd_envs:Line", 3, ("load", [False, False, True], "act")),
    ],
)
def test_an_algorithm_is_told_which_episodes_begin_anew(env_id, num_envs, told):
    training = training_of(env_id, 2)
    with VectorEnv(VectorSpec(suite_of(training), 2, 0)) as envs:
        run = fresh(training, torch.device("cpu"), envs)
        advance(run)
        contents = capture(run, {})
    more = training_of(env_id, num_envs)
    with VectorEnv(VectorSpec(suite_of(more), num_envs, 0, attempt=1)) as envs:
        again = resumed(more, torch.device("cpu"), envs, contents, None)
        advance(again)
    assert again.algorithm.told == told
    assert np.isfinite(again.collector.obs["state"]).all()
