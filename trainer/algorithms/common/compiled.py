"""Whether a training's updates are made by the engine, and what PPO and A2C compute by it: the nets' outputs, their way
back, and the optimizer's steps.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer.algorithms.common.cuda_graph import ENGINE, KERNELS
from trainer.config.training import Training
from trainer.errors import ConfigError, UndecidedError
from trainer.machine.building import NoLibraryError, UnreadLibraryError
from trainer.nets.critics import NetInputs
from trainer.nets.distributions import Normal
from trainer.nets.engine.library import load
from trainer.nets.engine.plan import EnginePlan, PlainNet, doubles, optimizer_steps
from trainer.nets.mlp import MLP
from trainer.nets.policy import PolicyNet

#: Ways whose numbers no version makes any more.
_GONE = frozenset({"native"})


def choose_engine(training: Training, recorded: str | None, *, is_plain: bool) -> tuple[str, str | None]:
    """(the way for `numeric`, a sentence for the user or None): as it was `recorded`; else, at a run's beginning, by
    the engine where nets are plain, torch has one thread, and a library can be had.

    Errors: ConfigError where a run was begun by the engine, and there is no library: its bits are nowhere else;
    UndecidedError where it is not known whether there is one.
    """
    is_meant = is_plain and training.threads == 1
    if recorded not in {None, ENGINE, *_GONE} or (recorded != ENGINE and not is_meant):
        return KERNELS, None
    try:
        load()
    except UnreadLibraryError as error:
        raise UndecidedError("library.updates-unread", why=error) from error
    except NoLibraryError as error:
        if recorded == ENGINE:
            raise ConfigError("library.updates-gone", why=error) from error
        return KERNELS, f"updates run without the faster C library ({error})"
    if recorded in _GONE:
        return ENGINE, "updates were made by an earlier version's library: bits may differ from here on"
    return ENGINE, None


class PlannedSteps(NamedTuple):
    """What a plan says of B rows, [B] each, and of the action's distribution what its way back needs."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor
    actor_values: Sequence[Tensor]
    critic_values: Sequence[Tensor]
    action: Tensor
    kept: Tensor


class CompiledActorCritic:
    """The body of `actor`, and `critic`. Whatever else changes their weights sets `are_packed` to False."""

    def __init__(self, actor: PolicyNet, critic: MLP) -> None:
        self._policy = actor
        self.actor, self.critic = PlainNet(actor.body), PlainNet(critic)
        self._is_normal = isinstance(actor.distribution, Normal)
        if actor.distribution.free:
            actor.free.grad = torch.zeros_like(actor.free)
        self.are_packed = False
        self._pack = EnginePlan()
        for net in (self.actor, self.critic):
            net.pack(self._pack)
        self._outputs: dict[tuple[PlainNet, int], tuple[Tensor, Tensor, EnginePlan]] = {}
        self._step: EnginePlan | None = None
        self._rates: list[Tensor] = []

    def outputs(self, net: PlainNet, x: Tensor) -> Tensor:
        """Of the actor's body or the critic for `x` [B, inputs]: [B, outputs], until the next ones of as many rows."""
        if (net, len(x)) not in self._outputs:
            plan, rows = EnginePlan(), torch.zeros_like(x, memory_format=torch.contiguous_format)
            self._outputs[net, len(x)] = rows, net.forward(plan, rows)[-1], plan
        self._pack_weights()
        rows, found, plan = self._outputs[net, len(x)]
        rows.copy_(x)
        plan.run()
        return found

    def evaluate(self, plan: EnginePlan, inputs: NetInputs, action: Tensor) -> PlannedSteps:
        """As `ActorCritic.evaluate`; `action` [B, numbers]."""
        actor_values, critic_values = (
            net.forward(plan, x) for net, x in ((self.actor, inputs.policy), (self.critic, inputs.critics))
        )
        outputs, rows = actor_values[-1], len(action)
        log_prob, entropy = torch.zeros(rows), torch.zeros(rows)
        kept = torch.zeros_like(outputs)
        if self._is_normal:
            done = plan.rows(action)
            plan.add("normal", outputs.shape, outputs, self._policy.free, done, log_prob, kept, entropy)
        else:
            done = plan.integers(action)
            plan.add("categorical", outputs.shape, outputs, done, kept, log_prob, entropy)
        return PlannedSteps(log_prob, entropy, critic_values[-1][:, 0], actor_values, critic_values, done, kept)

    def backward(
        self, plan: EnginePlan, now: PlannedSteps, by_log_prob: Tensor, by_value: Tensor, bonus: float
    ) -> None:
        """Leave the gradients of a loss with these derivatives [B], less `bonus` times the mean entropy of `now`."""
        by_outputs, sizes = torch.zeros_like(now.kept), now.kept.shape
        if self._is_normal:
            free = self._policy.free
            plan.add("normal_back", sizes, now.kept, free, by_log_prob, doubles(bonus), by_outputs, free.grad)
        else:
            back = now.kept, now.action, by_log_prob, now.entropy, doubles(bonus), by_outputs
            plan.add("categorical_back", sizes, *back)
        self.actor.backward(plan, now.actor_values, by_outputs)
        self.critic.backward(plan, now.critic_values, by_value.unsqueeze(-1))

    def run(self, plan: EnginePlan) -> None:
        """With the weights as they are now."""
        self._pack_weights()
        plan.run()

    def step(self, optimizer: torch.optim.Optimizer, learned: Sequence[nn.Parameter], grad_clip: float) -> None:
        """One optimizer step of all that is `learned`."""
        if self._step is None:
            self._step = EnginePlan()
            self._step.clip_norm([each.grad for each in learned if each.grad is not None], grad_clip)
            self._rates = optimizer_steps(self._step, optimizer)
        for rate, group in zip(self._rates, optimizer.param_groups, strict=True):
            rate[0] = group["lr"]
        self._step.run()
        self.are_packed = False

    def forget(self) -> None:
        """Weights, and what the optimizer remembers, were loaded."""
        self._step, self.are_packed = None, False

    def _pack_weights(self) -> None:
        if not self.are_packed:
            self._pack.run()
            self.are_packed = True
