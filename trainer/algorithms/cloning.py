"""Behaviour cloning (Pomerleau 1988): the policy's most likely action is to be the demonstrated one.

It learns from demonstrations alone: what its policy does in the environments is counted, and earns updates. Of each
task every tenth episode is held out; the policy is the one that imitated these best, which is asked with each row of
metrics. The error is the mean square over the numbers of an action, or the cross entropy of one choice of several.

Shapes: K tasks, B demonstrated actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.autograd import descend, optimizers_of
from trainer.algorithms.common.cuda_graph import not_recorded
from trainer.algorithms.common.tensors import copied, count, load_moments, moments_of, named, torch_generator, under
from trainer.buffers.demonstrated import ShownEpisode
from trainer.buffers.frames import FrameReplay
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Cloning
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, I64, Actions, Box, Obs, Spaces
from trainer.errors import NotFiniteError
from trainer.nets.normalise import Normaliser, RunningMoments
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.state import State
from trainer.streams import RandomStream, generator

#: Of each task the second of each ten episodes is held out.
_TENTH, _HELD_OUT = 10, 1
#: Held-out actions that are asked for, of each task, evenly spaced; of encoders that are slow more would take longer
#: than learning does. So many at a time.
_MEASURED, _AT_ONCE = 512, 64


class Algorithm:
    """The net that learns, what is demonstrated, and the best policy so far."""

    METRICS: ClassVar[tuple[str, ...]] = ("imitation_loss",)

    def __init__(self, context: Context) -> None:
        training = context.training
        self.settings, self.device = cast("Cloning", training.algorithm), context.device
        spec = _spec(training, context.spaces)
        self._is_box = isinstance(spec.spaces.action, Box)
        first = torch_generator(training.seed_of_nets, RandomStream.NETS)
        self.net = PolicyNet(spec, first).to(self.device)
        self.policy = PolicyNet(spec, torch_generator(0, RandomStream.NETS)).to(self.device)
        self.policy.load_state_dict(self.net.state_dict())
        self._learned = [each for each in self.net.parameters() if each.requires_grad]
        slowed = list(self.net.encoders.parameters()), training.network.encoder.lr_scale
        rate = self.settings.learning_rate
        self._optimizer = optimizers_of({"net": self._learned}, self.device, torch.optim.Adam, slowed=slowed, lr=rate)[
            "net"
        ]
        self._sampling = generator(training.seed, RandomStream.DEMOS_SAMPLING)
        self._steps = self._updates = 0
        self._best: float | None = None

    @classmethod
    def choose_launch_mode(
        cls,
        training: Training,
        spaces: Spaces,  # noqa: ARG003 - as the protocol has it
        device: torch.device,
        recorded: str | None,  # noqa: ARG003
    ) -> tuple[str, str | None]:
        """One by one."""
        return not_recorded(training, device, "cloning")

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """The policy, and the best one."""
        widths = training.network.actor_hidden
        parameters = count(PolicyNet(_spec(training, spaces), None))
        return [NetSize("the actor", "network.actor_hidden", widths, parameters, targets=1, values=sum(widths))]

    def lay(self, spaces: Spaces, episodes: Iterable[ShownEpisode], rows: I64) -> None:
        """Take demonstrations, of each task two at least, which have `rows` [K] frames; `spaces`: of what is kept."""
        tasks = len(spaces.tasks)
        self._shown, self._held = (FrameReplay(int(rows.max()) * tasks, tasks, spaces) for _ in range(2))
        moments = {key: RunningMoments(spaces.obs[key].shape[0]) for key in self.net.scales}
        seen = np.zeros(tasks, np.int64)
        for task, frames, steps in episodes:
            is_held = seen[task] % _TENTH == _HELD_OUT
            (self._held if is_held else self._shown).add_episode(task, frames, steps)
            for key in moments if not is_held else ():
                moments[key].add(frames[key][:-1])
            seen[task] += 1
        for key, of_key in moments.items():
            for net in (self.net, self.policy):
                cast("Normaliser", net.scales[key]).follow(of_key)
        steps_of = np.array([len(self._shown.whole(task)) for task in range(tasks)], np.float64)
        self._parts = steps_of / steps_of.sum()

    @torch.no_grad()
    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """The policy's most likely action: nothing is tried."""
        read = {key: torch.from_numpy(obs[key]).to(self.device) for key in self.policy.spec.spaces.obs}
        outputs = self.policy(read, torch.from_numpy(task.astype(np.int64)).to(self.device))
        if not torch.isfinite(outputs).all():
            raise NotFiniteError(f"the policy's actions are not finite at step {step}", what=["actor"])
        actions: Actions = self.policy.distribution.mode(outputs).cpu().numpy()
        return actions

    def observe(self, transition: Transition, step: int) -> None:  # noqa: ARG002 - as the protocol has it
        """A step earns updates."""
        self._steps += len(transition.step.reward)

    @property
    def owed(self) -> int:
        """Those that the steps so far have earned."""
        return int(self._steps * self.settings.updates_per_step) - self._updates

    @property
    def must_learn(self) -> bool:
        """It learns beside the stepping."""
        return False

    def update(self) -> Tensor:
        """Towards B demonstrated actions, each as likely as the others."""
        batch = self._shown.pick(self._sampling.multinomial(self.settings.batch_size, self._parts), self._sampling)
        loss = self._errors(batch).mean()
        descend(self._optimizer, self._learned, torch.autograd.grad(loss, self._learned), 0.0)
        self._updates += 1
        return loss.detach().reshape(1)

    @torch.no_grad()
    def measures(self) -> Mapping[str, Sequence[float]]:
        """The error of what is held out, always the same actions. The net becomes the policy where it is the best."""
        held_out = []
        for task in range(self._held.num_tasks):
            whole = self._held.whole(task)
            chosen = whole[np.linspace(0, len(whole) - 1, min(_MEASURED, len(whole))).astype(int)]
            parts = [chosen[i : i + _AT_ONCE] for i in range(0, len(chosen), _AT_ONCE)]
            errors = torch.cat([self._errors(self._held.transitions(task, part)) for part in parts])
            held_out.append(float(errors.double().mean()))
        mean = sum(held_out) / len(held_out)
        if self._best is None or mean < self._best:
            self._best = mean
            self.policy.load_state_dict(self.net.state_dict())
        return {"held_out": held_out}

    def diagnose(self, step: int) -> None:
        """The curves say it."""

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:  # noqa: ARG002 - as the protocol has it
        """It learns from nobody's steps."""
        return {}

    def state(self) -> State:
        """All but the demonstrations, which lie in the slot's folder."""
        tensors = {
            **named("policy", self.policy.learned_state()),
            **named("net", self.net.learned_state()),
            **moments_of("net", self._optimizer),
        }
        sampling = self._sampling.bit_generator.state
        numbers = {"steps": self._steps, "updates": self._updates, "best": self._best, "sampling": sampling}
        return State(copied(tensors), numbers)

    def load(self, state: State) -> None:
        """Go on from there."""
        self.policy.load_learned(under("policy", state.tensors))
        self.net.load_learned(under("net", state.tensors))
        load_moments("net", self._optimizer, state.tensors)
        numbers = state.numbers
        self._steps, self._updates, self._best = numbers["steps"], numbers["updates"], numbers["best"]
        self._sampling.bit_generator.state = numbers["sampling"]

    def _errors(self, batch: Batch) -> Tensor:
        """[B]."""
        read = {key: torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for key, array in batch.obs.items()}
        ready = {key: self.net.scales[key](seen) if key in self.net.scales else seen for key, seen in read.items()}
        outputs = self.net.of_inputs(self.net.inputs(ready, torch.from_numpy(batch.task).to(self.device)))
        wanted = torch.from_numpy(batch.action).to(self.device)
        if self._is_box:
            return (self.net.distribution.mode(outputs) - wanted).square().mean(-1)
        return -self.net.distribution.log_prob(outputs, wanted)


def _spec(training: Training, spaces: Spaces) -> PolicySpec:
    distribution = "squashed-normal" if isinstance(spaces.action, Box) else "categorical"
    return PolicySpec(spaces.of_policy, training.network, distribution, normalises=True)
