"""An actor, two critics and their targets, differentiated by torch: the nets of SAC, TD3 and DrQ-v2.

An encoder learns from the critics' loss alone, and the actor uses what it makes of pictures (Yarats et al. 2021, arXiv
2107.09645). Where critics see the state itself it learns from the actor's loss.

Shapes: B transitions, I numbers that the policy reads, C that the critics read, A of an action.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.observations import FeatureCache
from trainer.algorithms.common.optimizers import optimizers_of, step_along
from trainer.algorithms.common.parts import count, named, torch_generator
from trainer.algorithms.common.sharding import OptimizerStep
from trainer.buffers.rows import Batch, Numbers
from trainer.config.algorithms import PlainOffPolicy
from trainer.config.network import Network
from trainer.config.training import Training
from trainer.envs.spaces import I32, Box, Obs, Spaces
from trainer.errors import ConfigError
from trainer.machine.device import on_device
from trainer.nets.critics import NetInputs, StateReader, TwinCritics
from trainer.nets.encoders.common import drawn_moves, shifted
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.streams import RandomStream


class TwinNets:
    """The nets of `context.training`, and the optimizers of all that is learned. `outputs`: of each critic; `draw`:
    draws weights that are to be drawn otherwise than usual.
    """

    def __init__(
        self,
        context: Context,
        distribution: str,
        outputs: int = 1,
        draw: Callable[[Sequence[nn.Module], torch.Generator], None] | None = None,
    ) -> None:
        training, self.device = context.training, context.device
        self._settings: PlainOffPolicy = training.algorithm  # type: ignore[assignment]
        init = torch_generator(training.seed_of_nets, RandomStream.NETS)
        self.policy, self._reader, self.critics = nets_of(training, context.spaces, distribution, outputs, init)
        if draw is not None:
            draw([*self.policy.modules(), *self.critics.modules()], init)
        self.policy.to(self.device)
        self.critics.to(self.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(requires_grad=False)
        self.features = FeatureCache(self.policy, self.device)
        self._encoders, self._encoder_rate = list(self.policy.encoders.parameters()), training.network.encoder.lr_scale
        by_actor = self._reader.is_apart
        self._learned: dict[str, list[nn.Parameter]] = {
            "actor": [*self.policy.head, *(self._encoders if by_actor else ())],
            "critics": [*self.critics.parameters(), *(() if by_actor else self._encoders)],
        }
        self.optimizers: dict[str, torch.optim.Optimizer] = {}

    def create_optimizers(
        self,
        kind: Callable[..., torch.optim.Optimizer],
        *,
        also: Mapping[str, list[nn.Parameter]] | None = None,
        **rates: float,
    ) -> None:
        """One optimizer for actor, critics and what is `also` learned: `kind` with `rates`."""
        self._learned |= also or {}
        slowed = self._encoders, self._encoder_rate
        self.optimizers = optimizers_of(self._learned, self.device, kind, slowed=slowed, **rates)

    def step_down(self, losses: Mapping[str, Tensor], **measured: Tensor) -> OptimizerStep:
        """The step down `losses`, each by the optimizer that is called so; nothing else gets a gradient of it."""
        gradients = {name: torch.autograd.grad(loss, self._learned[name]) for name, loss in losses.items()}
        return OptimizerStep(gradients, {name: value.detach() for name, value in measured.items()})

    def step_optimizer(self, name: str, gradients: Sequence[Tensor]) -> None:
        """One step of the optimizer that is called so. Only nets' gradients are clipped."""
        clip = self._settings.grad_clip if name in {"actor", "critics"} else 0.0
        step_along(self.optimizers[name], self._learned[name], gradients, clip)

    @torch.no_grad()
    def act(self, obs: Obs, task: I32) -> Tensor:
        """[N, P] the policy's parameters of a distribution."""
        seen, tasks = self._read(self.features.of(obs), task)
        return self.policy.of_inputs(self.policy.inputs(seen, tasks))

    def actor(self, inputs: Tensor) -> Tensor:
        """[B, P] the policy's parameters of a distribution, in single precision."""
        return self.policy.of_inputs(inputs).float()

    def inputs(
        self, obs: Mapping[str, Numbers], task: npt.NDArray[np.integer], moves: Mapping[str, Tensor] | None = None
    ) -> tuple[NetInputs, Tensor]:
        """What nets read of a batch, whose pictures are moved by `moves` (key → [B, 2]), and the tasks [B]."""
        seen, tasks = self._read(obs, task)
        for key, by in (moves or {}).items():
            seen[key] = shifted(seen[key], by)
        return self._reader.inputs(seen, tasks, self.policy.inputs(seen, tasks)), tasks

    def for_actor(self, inputs: NetInputs) -> NetInputs:
        """What the actor's loss is taken at: an encoder learns from it only where critics do not read pictures."""
        return inputs if self._reader.is_apart else NetInputs(inputs.policy.detach(), inputs.critics.detach())

    def drawn_moves(self, obs: Mapping[str, Numbers], noise: torch.Generator) -> dict[str, Tensor]:
        """By how much each picture of `obs` is to be moved that something learns to read: key → [B, 2]."""
        most = self._settings.random_shift
        moved = [key for key, seen in obs.items() if most and key in self.policy.encoders and seen.ndim > 3]
        return {key: drawn_moves(len(obs[key]), most, noise) for key in moved}

    def n_step_returns(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(the reward of as many steps as each row is of, what counts of what follows), [B] each: nothing after a true
        end.
        """
        reward, terminated = (on_device(numbers, self.device) for numbers in (batch.reward, batch.terminated))
        steps = torch.ones_like(reward) if batch.steps is None else on_device(batch.steps, self.device)
        return reward, self._settings.gamma**steps * (1 - terminated)

    def weights(self) -> dict[str, Tensor]:
        """Actor, encoders, critics and targets: parameters alone. What is frozen, or set and not learned, is the same
        in all slots.
        """
        learned = {name: each.data for name, each in self.policy.named_parameters() if each.requires_grad}
        return {
            **named("policy", learned),
            **named("critics", {name: each.data for name, each in self.critics.named_parameters()}),
            **named("targets", {name: each.data for name, each in self.target_critics.named_parameters()}),
        }

    def parts(self) -> dict[str, Any]:
        """By the names of a checkpoint."""
        nets = {"policy": self.policy, "critics": self.critics, "targets": self.target_critics}
        return {**nets, **{f"adam.{name}": optimizer for name, optimizer in self.optimizers.items()}}

    def _read(self, obs: Mapping[str, Numbers], task: npt.NDArray[np.integer]) -> tuple[dict[str, Tensor], Tensor]:
        """Observations by key and tasks [B] (int64) as tensors on the device."""
        seen = {key: on_device(numbers, self.device) for key, numbers in obs.items()}
        return seen, on_device(task.astype(np.int64), self.device)


def nets_of(
    training: Training, spaces: Spaces, distribution: str, outputs: int, init: torch.Generator | None
) -> tuple[PolicyNet, StateReader, TwinCritics]:
    """The nets of `training`, their weights drawn from `init`; None: on torch's `meta` device, to be counted."""
    policy = PolicyNet(PolicySpec(spaces.of_policy, training.network, distribution), init)
    reader = StateReader(spaces, policy)
    actions = spaces.action.size if isinstance(spaces.action, Box) else 0
    return policy, reader, TwinCritics(reader.width, actions, training.network, outputs, init)


def sizes_of(training: Training, spaces: Spaces, distribution: str, outputs: int = 1) -> tuple[NetSize, NetSize]:
    """The actor with what reads pictures, and both critics together."""
    actor, _, critics = nets_of(training, spaces, distribution, outputs, None)
    return twin_sizes(training.network, actor, critics)


def twin_sizes(network: Network, actor: nn.Module, critics: nn.Module) -> tuple[NetSize, NetSize]:
    """Of the `actor` and both `critics`, which have targets."""
    hidden = network.critic_hidden
    return (
        NetSize("the actor", "network.actor_hidden", network.actor_hidden, count(actor)),
        NetSize("the critics", "network.critic_hidden", hidden, count(critics), 1, values=2 * sum(hidden)),
    )


def must_be_numbers(training: Training, spaces: Spaces) -> None:
    """Errors: ConfigError for actions that are one of several."""
    if not isinstance(spaces.action, Box):
        names = {"algorithm": training.algorithm.name, "env": training.env.name}
        raise ConfigError("algorithm.needs-real-actions", **names, choices=spaces.action.n)
