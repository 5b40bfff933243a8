"""Whether a training's updates are made by the engine, and what PPO and A2C compute by it: the nets' outputs, their way
back, and the optimizer's steps.

Shapes: B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Generic, NamedTuple, TypeVar, cast

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

#: A dataclass of tensors: whatever an update works on.
Inputs = TypeVar("Inputs", bound=Any)
#: Of each critic: which rows are its own [B] (int64), and how many.
Picked = Sequence[tuple[Tensor, Tensor]]


def choose_engine(
    training: Training, recorded: str | None, *, is_plain: bool, loads: Callable[[], object] = load
) -> tuple[str, str | None]:
    """(the way for `numeric`, a sentence for the user or None): as it was `recorded`; else, at a run's beginning, by
    the engine where nets are plain, torch has one thread, and a library can be had.

    Errors: ConfigError where a run was begun by the engine, and there is no library: its bits are nowhere else;
    UndecidedError where it is not known whether there is one.
    """
    is_meant = is_plain and training.threads == 1
    if recorded not in {None, ENGINE} or (recorded != ENGINE and not is_meant):
        return KERNELS, None
    try:
        loads()
    except UnreadLibraryError as error:
        raise UndecidedError("library.updates-unread", why=error) from error
    except NoLibraryError as error:
        if recorded == ENGINE:
            raise ConfigError("library.updates-gone", why=error) from error
        return KERNELS, f"updates run without the faster C library ({error})"
    return ENGINE, None


def is_plain(training: Training, policy: PolicyNet) -> bool:
    """Whether an update of off-policy nets is of plain ones alone, whole and not rounded."""
    settings = training.off_policy
    return settings.shards == 1 and settings.precision == "float32" and not policy.encoders and policy.trunk is None


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


class PlannedUpdates(Generic[Inputs]):
    """Makes updates by a plan: `planned` adds the update of inputs to it, and says where its metrics [M] will be.

    What it changes stays where it is: load a state before the first update.
    """

    def __init__(self, planned: Callable[[EnginePlan, Inputs], Tensor]) -> None:
        self._planned = planned
        self._made: tuple[Inputs, Tensor, EnginePlan] | None = None

    def update(self, inputs: Inputs) -> Tensor:
        """One update; its metrics."""
        given = {one.name: getattr(inputs, one.name) for one in fields(inputs)}
        if self._made is None or any(getattr(self._made[0], name).shape != x.shape for name, x in given.items()):
            places, plan = type(inputs)(**{name: x.clone() for name, x in given.items()}), EnginePlan()
            self._made = places, self._planned(plan, places), plan
        places, measured, plan = self._made
        for name, x in given.items():
            getattr(places, name).copy_(x)
        plan.run()
        return measured.float()


class CompiledTwins:
    """An actor's body, two critics and their targets in plans of an update."""

    def __init__(self, policy: PolicyNet, critics: Iterable[nn.Module], targets: Iterable[nn.Module]) -> None:
        self.actor = PlainNet(policy.body)
        self.critics, self.targets = ([PlainNet(cast("MLP", net)) for net in nets] for nets in (critics, targets))

    def pack(self, plan: EnginePlan) -> None:
        """All weights, as they are before an update."""
        for net in (self.actor, *self.critics):
            net.pack(plan)
        for net in self.targets:
            net.pack(plan, backward=False)

    def q(self, plan: EnginePlan, net: PlainNet, x: Tensor, chosen: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(the output of each row that is `chosen` [B], or the only one; the values of all layers)."""
        values, q = net.forward(plan, x), torch.zeros(len(x))
        plan.add("choose", values[-1].shape, values[-1], chosen, q)
        return q, values

    def step_critics(
        self,
        plan: EnginePlan,
        optimizer: torch.optim.Optimizer,
        grad_clip: float,
        x: Tensor,
        chosen: Tensor,
        target: Tensor,
        loss: Tensor,
        q_mean: Tensor,
    ) -> None:
        """Both critics towards `target` [B] in the outputs that are `chosen`; their `loss` and mean Q are added."""
        rows = len(target)
        for net in self.critics:
            q, values = self.q(plan, net, x, chosen)
            by_q, by_outputs = torch.zeros(rows), torch.zeros_like(values[-1])
            plan.add("squared_error", (rows,), q, target, doubles(1.0), by_q, loss)
            plan.add("mean", (rows, 2), q, q_mean)
            plan.add("choose_back", by_outputs.shape, by_q, chosen, by_outputs)
            net.backward(plan, values, by_outputs)
        self.step(plan, optimizer, grad_clip)
        for net in self.critics:
            net.pack(plan)

    def smaller(self, plan: EnginePlan, one: Tensor, other: Tensor) -> tuple[Tensor, Picked]:
        """(the smaller number of both, [B]; of each which rows are its own, and how many)."""
        rows = one.numel()
        found, first, second = torch.zeros_like(one), *torch.zeros((2, rows), dtype=torch.int64)
        counts = torch.zeros(2, dtype=torch.int64)
        plan.add("smaller", (rows,), one, other, found, first, second, counts)
        return found, [(first, counts[:1]), (second, counts[1:])]

    def step(self, plan: EnginePlan, optimizer: torch.optim.Optimizer, grad_clip: float) -> None:
        """One optimizer step down the gradients that are there; 0 does not clip."""
        learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        plan.clip_norm([each.grad for each in learned], grad_clip)
        optimizer_steps(plan, optimizer)

    def climb(
        self, plan: EnginePlan, values: Sequence[Sequence[Tensor]], by_q: Tensor, picked: Picked, first: int
    ) -> Tensor:
        """The derivative by the actions, which are the inputs from number `first` on, [B, A]: each row by the critic
        whose Q counts. `values`: of both critics; `by_q`: the derivative by their outputs [B, outputs].
        """
        found = torch.zeros(len(by_q), values[0][0].shape[1] - first)
        for net, of_net, (which, count) in zip(self.critics, values, picked, strict=False):
            part = net.by_inputs(plan, of_net, by_q, first, (which, count))
            plan.add("put_rows", found.shape, part, found, count, which)
        return found
