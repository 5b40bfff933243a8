"""What algorithms have in common that learn two critics by torch's own derivatives: SAC, TD3 and DrQ-v2.

An encoder learns from the critics' loss alone, and the actor uses what it makes of pictures (Yarats et al. 2021, arXiv
2107.09645). Where critics see the state itself it learns from the actor's loss.

Shapes: B transitions, I numbers that the policy reads, C that the critics read, A of an action.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.autograd import descend, optimizers_of
from trainer.algorithms.common.descents import Descent
from trainer.algorithms.common.offpolicy import OffPolicy
from trainer.algorithms.common.prepared import Preparation
from trainer.algorithms.common.sample import Sample
from trainer.algorithms.common.tensors import copied, count, load_moments, moments_of, named, torch_generator, under
from trainer.buffers.nstep import NStep
from trainer.buffers.rows import Batch, Numbers, Rows
from trainer.config.algorithms import PlainOffPolicy
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Box, Obs, Spaces
from trainer.errors import ConfigError, NotFiniteError
from trainer.machine.device import on_device
from trainer.nets.encoders.base import kept_spaces
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.nets.shift import drawn_moves, shifted
from trainer.nets.twins import NetInputs, StateReader, TwinCritics
from trainer.state import State
from trainer.streams import RandomStream


class TwinOffPolicy(OffPolicy):
    """The actor, two critics and their targets, the optimizers of both, and the noise."""

    settings: PlainOffPolicy

    def __init__(self, context: Context, distribution: str, outputs: int) -> None:
        """`outputs`: of each critic."""
        super().__init__(context)
        training, spaces = context.training, context.spaces
        self.device = context.device
        init = torch_generator(training.seed_of_nets, RandomStream.NETS)
        self._noise = torch_generator(training.seed, RandomStream.NOISE)
        self.policy, self._reader, self.critics = nets_of(training, spaces, distribution, outputs, init)
        self.begin_nets(init)
        self.policy.to(self.device)
        self.critics.to(self.device)
        self.targets = copy.deepcopy(self.critics).requires_grad_(requires_grad=False)
        self._preparation = Preparation(self.policy, self.device)
        encoders = list(self.policy.encoders.parameters())
        by_actor = self._reader.is_apart
        self._learned: dict[str, list[nn.Parameter]] = {
            "actor": [*self.policy.head, *(encoders if by_actor else ())],
            "critics": [*self.critics.parameters(), *(() if by_actor else encoders)],
        }
        self._slowed = encoders, training.network.encoder.lr_scale
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        settings = self.settings
        self._sums = (
            NStep(kept_spaces(spaces, training.network), settings.steps_summed, context.num_envs, settings.gamma)
            if settings.sums_steps and not self.keeps_frames
            else None
        )

    # --- what an algorithm has of its own ---------------------------------------------------------------------------

    def begin_nets(self, init: torch.Generator) -> None:
        """Draw what is to be drawn otherwise than usual; nothing."""

    def loss_and_worth(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """(the critics' loss, Q of what the actor does [B]) of `sample`; changes nothing."""
        raise NotImplementedError

    # --- what all have in common ------------------------------------------------------------------------------------

    def make_optimizers(self, kind: Callable[..., torch.optim.Optimizer], **rates: float) -> None:
        """One of `kind` for each of what is learned, with `rates` as it calls them."""
        self._optimizers = optimizers_of(self._learned, self.device, kind, slowed=self._slowed, **rates)

    @classmethod
    def sizes_for(cls, training: Training, spaces: Spaces, distribution: str, outputs: int) -> Sequence[NetSize]:
        """The actor with what reads pictures, and both critics together."""
        actor, _, critics = nets_of(training, spaces, distribution, outputs, None)
        network = training.network
        hidden = network.critic_hidden
        return [
            NetSize("the actor", "network.actor_hidden", network.actor_hidden, count(actor)),
            NetSize("the critics", "network.critic_hidden", hidden, count(critics), 1, values=2 * sum(hidden)),
        ]

    def kept(self, transition: Transition) -> Iterable[tuple[I32, Rows]]:
        """The step, or the rows of several that it makes whole."""
        return super().kept(transition) if self._sums is None else self._sums.add(transition)

    def prepared(self, transition: Transition) -> Transition:
        """As it is kept."""
        return self._preparation.transition(transition)

    @torch.no_grad()
    def sampled(self, obs: Obs, task: I32) -> Actions:
        """Of the actor."""
        seen, tasks = self.read(self._preparation.of(obs), task)
        return self.tried(self.policy.of_inputs(self.policy.inputs(seen, tasks)))

    def tried(self, outputs: Tensor) -> Actions:
        """Actions drawn from the distribution's parameters [N, P]."""
        distribution = self.policy.distribution
        noise = distribution.noise(len(outputs), self._noise).to(self.device)
        actions: Actions = distribution.draw(outputs, noise).cpu().numpy()
        # One of several is finite, whatever it was drawn from.
        if actions.dtype.kind == "i" and not torch.isfinite(outputs).all():
            raise NotFiniteError("the actor's outputs are not finite", what=["actor"])
        return actions

    def read(self, obs: Mapping[str, Numbers], task: npt.NDArray[np.integer]) -> tuple[dict[str, Tensor], Tensor]:
        """Observations by key and tasks [B] (int64) as tensors on the device."""
        seen = {key: on_device(numbers, self.device) for key, numbers in obs.items()}
        return seen, on_device(task.astype(np.int64), self.device)

    def acted(self, inputs: Tensor) -> Tensor:
        """[B, P] the actor's parameters of a distribution, in single precision."""
        return self.policy.of_inputs(inputs).float()

    def drawn_moves(self, obs: Mapping[str, Numbers]) -> dict[str, Tensor]:
        """By how much each picture of `obs` is to be moved that something learns to read: key → [B, 2]."""
        most = self.settings.random_shift
        moved = [key for key, seen in obs.items() if most and key in self.policy.encoders and seen.ndim > 3]
        return {key: drawn_moves(len(obs[key]), most, self._noise) for key in moved}

    def inputs(
        self, obs: Mapping[str, Numbers], task: npt.NDArray[np.integer], moves: Mapping[str, Tensor] | None = None
    ) -> tuple[NetInputs, Tensor]:
        """What nets read of a batch, whose pictures are moved by `moves` (key → [B, 2]), and the tasks [B]."""
        seen, tasks = self.read(obs, task)
        for key, by in (moves or {}).items():
            seen[key] = shifted(seen[key], by)
        of_policy = self.policy.inputs(seen, tasks)
        return self._reader.inputs(seen, tasks, of_policy), tasks

    def rewards(self, batch: Batch, gamma: float) -> tuple[Tensor, Tensor]:
        """(the reward of as many steps as each row is of, what counts of what follows), [B] each: nothing after a true
        end.
        """
        reward, terminated = (on_device(numbers, self.device) for numbers in (batch.reward, batch.terminated))
        steps = torch.ones_like(reward) if batch.steps is None else on_device(batch.steps, self.device)
        return reward, gamma**steps * (1 - terminated)

    def for_actor(self, inputs: NetInputs) -> NetInputs:
        """What its loss is taken at: an encoder learns from it only where critics do not read pictures."""
        return inputs if self._reader.is_apart else NetInputs(inputs.policy.detach(), inputs.critics.detach())

    def down(self, losses: Mapping[str, Tensor], **measured: Tensor) -> Descent:
        """The step down `losses`, each for what is called so; nothing else gets a gradient of it."""
        gradients = {name: torch.autograd.grad(loss, self._learned[name]) for name, loss in losses.items()}
        return Descent(gradients, {name: value.detach() for name, value in measured.items()})

    def descend(self, name: str, gradients: Sequence[Tensor]) -> None:
        """One step of what is called so. Only nets' gradients are clipped."""
        clip = self.settings.grad_clip if name in {"actor", "critics"} else 0.0
        descend(self._optimizers[name], self._learned[name], gradients, clip)

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Nothing of a task."""
        return {}

    def diagnose(self, step: int) -> None:
        """Nothing yet."""

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:  # noqa: ARG002 - as the protocol has it
        """Nothing yet."""
        return {}

    def weights(self) -> Mapping[str, Tensor]:
        """Actor, encoders, critics and targets: parameters alone. What is frozen, or set and not learned, is the same
        in all slots.
        """
        learned = {name: each.data for name, each in self.policy.named_parameters() if each.requires_grad}
        return {
            **named("policy", learned),
            **named("critics", {name: each.data for name, each in self.critics.named_parameters()}),
            **named("targets", {name: each.data for name, each in self.targets.named_parameters()}),
        }

    def judged(self, batch: Batch, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """As above."""
        own, self._noise = self._noise, noise
        try:
            return self.loss_and_worth(Sample(batch, self.draw(batch)))
        finally:
            self._noise = own

    def tensors(self) -> Mapping[str, Tensor]:
        """Nets, targets, optimizers, noise; what is frozen is kept apart."""
        learned = {
            **named("policy", self.policy.learned_state()),
            **named("critics", self.critics.state_dict()),
            **named("targets", self.targets.state_dict()),
        }
        for name, optimizer in self._optimizers.items():
            learned |= moments_of(name, optimizer)
        return {**copied(learned), "noise": self._noise.get_state()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put them back."""
        self.policy.load_learned(under("policy", tensors))
        self.critics.load_state_dict(under("critics", tensors))
        self.targets.load_state_dict(under("targets", tensors))
        for name, optimizer in self._optimizers.items():
            load_moments(name, optimizer, tensors)
        self._noise.set_state(tensors["noise"])

    def state(self) -> State:
        """As all, with the rows that are not whole."""
        common = super().state()
        if self._sums is None:
            return common
        begun = self._sums.state()
        tensors = named("sums", {name: torch.from_numpy(x) for name, x in begun.tensors.items()})
        return State({**common.tensors, **tensors}, {**common.numbers, "sums": dict(begun.numbers)})

    def load(self, state: State) -> None:
        """Go on from there."""
        super().load(state)
        if self._sums is not None:
            begun = {name: tensor.numpy() for name, tensor in under("sums", state.tensors).items()}
            self._sums.load(State(begun, state.numbers["sums"]))


def nets_of(
    training: Training, spaces: Spaces, distribution: str, outputs: int, init: torch.Generator | None
) -> tuple[PolicyNet, StateReader, TwinCritics]:
    """The nets of `training`, their weights drawn from `init`; None: on torch's `meta` device, to be counted."""
    policy = PolicyNet(PolicySpec(spaces.of_policy, training.network, distribution), init)
    reader = StateReader(spaces, policy)
    actions = spaces.action.size if isinstance(spaces.action, Box) else 0
    return policy, reader, TwinCritics(reader.width, actions, training.network, outputs, init)


def must_be_numbers(training: Training, spaces: Spaces) -> None:
    """Errors: ConfigError for actions that are one of several."""
    if not isinstance(spaces.action, Box):
        raise ConfigError(
            f"{training.algorithm.name} gives actions of real numbers, and those of {training.env.name} are one of "
            f"{spaces.action.n}: use sac, ppo or a2c (training.algorithm)"
        )
