"""What multi-task SAC changes: nets, their targets, temperatures, optimizers and noise; how it acts, and its state.

Shapes: B transitions, K tasks, O observation numbers, A action numbers; x = [obs, one-hot task] is [B, O + K].
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.algorithms.common import categorical
from trainer.algorithms.common.tensors import copied, load_moments, moments_of, named, torch_generator, under
from trainer.config.algorithms import Mtsac
from trainer.config.training import Training
from trainer.envs.spaces import F32, I32, STATE, Box, Obs, Spaces
from trainer.errors import ConfigError
from trainer.machine.device import to_device
from trainer.nets.critic import Critic
from trainer.nets.distributions import usual_entropy
from trainer.nets.fused import Stacked
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.nets.residual import ResidualCritic
from trainer.streams import RandomStream

#: torch's Adam as one kernel: exists where these are (2.10); elsewhere the plain loop.
_FUSED_DEVICES = ("cpu", "cuda")


@dataclass
class Learner:
    """Everything that an update changes. `noise` is the stream of all sampling, on the CPU whatever the device."""

    settings: Mtsac
    seed: int
    spaces: Spaces
    device: torch.device
    actor: PolicyNet
    critics: nn.ModuleList  # two: x and action → [B, 1], or [B, bins] where they are categorical
    targets: nn.ModuleList
    log_temperature: nn.Parameter  # [K]
    largest_reward: Tensor  # [K], the largest |reward| of any batch so far: what categorical critics scale by
    values: Tensor | None  # [bins], the grid of categorical critics
    stacks: dict[str, Stacked]  # actor and, where they are plain, critics and targets: the same numbers once more
    optimizers: dict[str, torch.optim.AdamW]  # actor, critics, temperature
    noise: torch.Generator

    @property
    def num_tasks(self) -> int:
        """K."""
        return len(self.spaces.tasks)

    @property
    def target_entropy(self) -> float:
        """In nats: what is asked for, or what is usual for these actions."""
        wanted = self.settings.target_entropy
        return usual_entropy(self.spaces.action) if wanted is None else wanted


def settings_in(training: Training) -> Mtsac:
    """Those of this algorithm. Errors: TypeError where `training` is another's."""
    if not isinstance(training.algorithm, Mtsac):
        raise TypeError(f"{training.algorithm.name} is not mtsac")
    return training.algorithm


def create(training: Training, spaces: Spaces, device: torch.device) -> Learner:
    """A fresh learner. Parameters depend on the seed alone, not on the device."""
    settings = settings_in(training)
    init = torch_generator(training.seed_of_nets, RandomStream.NETS)
    noise = torch_generator(training.seed, RandomStream.NOISE)
    actor, critics = actor_and_critics(training, spaces, init)
    actor.to(device)
    critics.to(device)
    targets = copy.deepcopy(critics).requires_grad_(requires_grad=False)
    start = torch.full((len(spaces.tasks),), settings.init_temperature, device=device).log()
    log_temperature = nn.Parameter(start)

    stacks = {"actor": Stacked([actor.body])}
    if training.network.critic_net != "residual":
        stacks |= {"critics": Stacked(cast("list[Critic]", critics)), "targets": Stacked(cast("list[Critic]", targets))}

    def adam(parameters: Iterable[nn.Parameter], weight_decay: float = settings.weight_decay) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            eps=settings.adam_eps,
            weight_decay=weight_decay,
            fused=device.type in _FUSED_DEVICES,
            capturable=device.type == "cuda",
        )

    optimizers = {
        "actor": adam([stacks["actor"].flat]),
        "critics": adam([stacks["critics"].flat] if "critics" in stacks else critics.parameters()),
        "temperature": adam([log_temperature], weight_decay=0.0),
    }
    largest_reward = torch.zeros(len(spaces.tasks), device=device)
    values = (
        categorical.grid(settings.value_limit, settings.value_bins, device)
        if settings.critic_loss == "categorical"
        else None
    )
    return Learner(
        settings, training.seed, spaces, device, actor, critics, targets, log_temperature, largest_reward, values,
        stacks, optimizers, noise,
    )  # fmt: skip


def actor_and_critics(
    training: Training, spaces: Spaces, init: torch.Generator | None
) -> tuple[PolicyNet, nn.ModuleList]:
    """The nets of `training`, their weights drawn from `init`; None: on torch's `meta` device, to be counted."""
    is_row = set(spaces.obs) == {STATE} and len(spaces.obs[STATE].shape) == 1
    if not is_row or not isinstance(spaces.action, Box):
        raise ConfigError(
            f"mtsac reads one row of numbers and gives real ones, and {training.env.name} has other spaces: use ppo, "
            "a2c or sac (training.algorithm)"
        )
    inputs, actions = spaces.obs[STATE].shape[0] + len(spaces.tasks), spaces.action.size
    actor = PolicyNet(PolicySpec(spaces, training.network, "squashed-normal"), init)
    settings, network, tasks = settings_in(training), training.network, len(spaces.tasks)

    def critic() -> nn.Module:
        widths = network.critic_hidden
        if network.critic_net == "residual":
            outputs = settings.value_bins if settings.critic_loss == "categorical" else 1
            return ResidualCritic(inputs, tasks, actions, widths[0], len(widths), outputs, init)
        return Critic(inputs, actions, widths, init, heads=tasks if network.critic_net == "heads" else 1)

    return actor, nn.ModuleList(critic() for _ in range(2))


def act(learner: Learner, obs: Obs, task: I32) -> F32:
    """Sampled actions [N, A] for `obs` of tasks [N]; takes from the learner's noise."""
    with torch.no_grad():
        outputs = learner.actor(*_observed(learner, obs, task))
        noise = learner.actor.distribution.noise(len(outputs), learner.noise)
        action = learner.actor.distribution.draw(outputs, to_device(noise, learner.device))
    actions: F32 = action.cpu().numpy()
    return actions


def act_deterministic(learner: Learner, obs: Obs, task: I32) -> F32:
    """The deterministic actions tanh(mean), [N, A]; changes nothing in the learner."""
    with torch.no_grad():
        outputs = learner.actor(*_observed(learner, obs, task))
    actions: F32 = learner.actor.distribution.mode(outputs).cpu().numpy()
    return actions


def tensors_of(learner: Learner) -> dict[str, Tensor]:
    """All that an exact resume needs, copied to the CPU: `policy.…` is what plays; nets, targets, Adam, noise."""
    learned = {**weights_of(learner), "largest_reward": learner.largest_reward}
    for name, optimizer in learner.optimizers.items():
        learned |= moments_of(name, optimizer)
    return {**copied(learned), "noise": learner.noise.get_state()}


def weights_of(learner: Learner) -> dict[str, Tensor]:
    """Nets, targets and temperatures themselves, not copied."""
    return {
        **named("policy", learner.actor.state_dict()),
        **named("critics", learner.critics.state_dict()),
        "log_temperature": learner.log_temperature.data,
        **named("targets", learner.targets.state_dict()),
    }


def load(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    """Put `tensors_of` another learner in place. Errors: KeyError, RuntimeError where names or shapes differ."""
    learner.actor.load_state_dict(under("policy", tensors))
    learner.critics.load_state_dict(under("critics", tensors))
    learner.log_temperature.data.copy_(tensors["log_temperature"])
    learner.targets.load_state_dict(under("targets", tensors))
    for name, optimizer in learner.optimizers.items():
        load_moments(name, optimizer, tensors)
    learner.largest_reward.copy_(tensors["largest_reward"])
    learner.noise.set_state(tensors["noise"])


def _observed(learner: Learner, obs: Obs, task: I32) -> tuple[dict[str, Tensor], Tensor]:
    tasks = to_device(torch.from_numpy(task.astype(np.int64)), learner.device)
    return {STATE: to_device(torch.from_numpy(obs[STATE]), learner.device)}, tasks
