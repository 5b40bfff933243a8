"""An update of multi-task SAC beside one of stable-baselines3's SAC: same nets, batches and noise, same numbers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from suites import learner_of, state_of

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import SAC
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from trainer.algorithms.common.cuda_graph import KERNELS, NATIVE
from trainer.algorithms.common.multitask import inputs_of
from trainer.algorithms.common.native.update import NativeUpdates
from trainer.algorithms.common.sharding import Sample
from trainer.buffers.rows import Batch
from trainer.config.section import TrainingSection, resolve

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3", "door-open-v3")
ROWS, WIDTHS, SEEN = 64, (32, 24), 39 + len(TASKS)


class Nothing(gymnasium.Env[Any, Any]):
    """Its spaces alone are asked for."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SEEN,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)


class Given:
    """Gives what it was given: in the place of a replay."""

    def sample(self, _rows: int, env: object = None) -> Any:
        del env
        return self.batch

    batch: ReplayBufferSamples


def theirs(learner: Any, training: Any) -> Any:
    """stable-baselines3's with the weights of `learner`."""
    settings = training.algorithm
    model = SAC(
        "MlpPolicy", Nothing(), learning_rate=settings.learning_rate, gamma=settings.gamma, tau=settings.tau,
        ent_coef=f"auto_{settings.init_temperature}", target_entropy=learner.target_entropy, batch_size=ROWS,
        policy_kwargs={"net_arch": {"pi": list(WIDTHS), "qf": list(WIDTHS)}}, device="cpu",
    )  # fmt: skip
    model.set_logger(configure(None, []))
    for own, other in pairs(learner, model):
        other.data.copy_(own)
    for own, other in zip(model.critic.parameters(), model.critic_target.parameters(), strict=True):
        other.data.copy_(own)
    return model


def pairs(learner: Any, model: Any) -> list[tuple[Any, Any]]:
    """(ours, theirs): the weights and biases of the actor, the critics and the targets."""
    first, second, last = learner.policy.body.layers
    actor = model.actor
    found = [(first, actor.latent_pi[0]), (second, actor.latent_pi[2])]
    both = [(own, other) for a, b in found for own, other in ((a.weight, b.weight), (a.bias, b.bias))]
    for head, rows in ((actor.mu, slice(0, 4)), (actor.log_std, slice(4, 8))):
        both += [(last.weight[rows], head.weight), (last.bias[rows], head.bias)]
    for nets, critic in ((learner.critics, model.critic), (learner.target_critics, model.critic_target)):
        for net, other in zip(nets, (critic.qf0, critic.qf1), strict=True):
            both += list(zip(net.parameters(), other.parameters(), strict=True))
    return [(own.detach(), other.detach()) for own, other in both]


@pytest.mark.parametrize("way", [KERNELS, NATIVE])
def test_updates_leave_the_numbers_of_stable_baselines3(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"tasks": TASKS, "actor_hidden": WIDTHS, "critic_hidden": WIDTHS, "shared_temperature": True}
    # A step of Adam is the sign of a gradient, and that of one which is nothing but rounding is anything.
    training = resolve(TrainingSection(preset="debug", **values, adam_eps=1e-3, learning_rate=1e-2))
    learner = learner_of(training)
    model = theirs(learner, training)
    # It halves the loss of critics.
    for optimizer, share in ((model.actor.optimizer, 1), (model.critic.optimizer, 0.5), (model.ent_coef_optimizer, 1)):
        optimizer.param_groups[0]["eps"] = share * training.algorithm.adam_eps
    model.replay_buffer, rng = Given(), np.random.default_rng(0)
    noise: list[torch.Tensor] = []
    monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *_shape, **_kind: noise.pop(0))
    native = NativeUpdates(learner) if way == NATIVE else None
    for _ in range(5):
        obs, next_obs = rng.standard_normal((2, ROWS, 39), np.float32)
        action, reward = rng.uniform(-1, 1, (ROWS, 4)).astype(np.float32), 10 * rng.random(ROWS, np.float32)
        ended, task = (rng.random(ROWS) < 0.2).astype(np.float32), np.arange(ROWS) % len(TASKS)
        batch = Batch(state_of(obs), action, reward, state_of(next_obs), ended, task)
        inputs = inputs_of(Sample(batch, learner.draw(batch, learner.noise)), learner.device)
        noise[:] = [inputs.current_noise, inputs.next_noise]
        one_hot = np.eye(len(TASKS), dtype=np.float32)[task]
        rows = (
            np.concatenate([obs, one_hot], 1), action, np.concatenate([next_obs, one_hot], 1), ended[:, None],
            reward[:, None],
        )  # fmt: skip
        model.replay_buffer.batch = ReplayBufferSamples(*map(torch.from_numpy, rows))
        model.train(1, ROWS)
        if native is None:
            learner.update_of(inputs)
        else:
            native.learn(inputs)
    for own, other in pairs(learner, model):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-5)
    assert learner.log_temperature.tolist() == pytest.approx([float(model.log_ent_coef.detach())] * 3, abs=1e-5)
