"""Behaviour cloning (Pomerleau 1988): the policy's most likely action is to be the demonstrated one.

It learns from demonstrations alone: what its policy does in the environments is counted, and earns updates. Of each
task every tenth episode is held out; the policy is the one that imitated these best, which is asked with each row of
metrics. The error is the mean square over the numbers of an action, or the cross entropy of one choice of several.

Shapes: K tasks, B demonstrated actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.base import Algorithm, Context, NetSize
from trainer.algorithms.common.optimizers import optimizers_of, step_along
from trainer.algorithms.common.parts import count, torch_generator
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
from trainer.streams import RandomStream, generator

#: Of each task the second of each ten episodes is held out.
_TENTH, _HELD_OUT = 10, 1
#: Held-out actions that are asked for, of each task, evenly spaced; of encoders that are slow more would take longer
#: than learning does. So many at a time.
_MEASURED, _AT_ONCE = 512, 64


class BehaviourCloning(Algorithm):
    """The net that learns, what is demonstrated, and the best policy so far."""

    METRICS: ClassVar[tuple[str, ...]] = ("imitation_loss",)

    def __init__(self, context: Context) -> None:
        training, device = context.training, context.device
        self.settings = cast("Cloning", training.algorithm)
        spec = _spec(training, context.spaces)
        self._is_box = isinstance(spec.spaces.action, Box)
        first = torch_generator(training.seed_of_nets, RandomStream.NETS)
        self.net = PolicyNet(spec, first).to(device)
        self.policy = PolicyNet(spec, torch_generator(0, RandomStream.NETS)).to(device)
        self.policy.load_state_dict(self.net.state_dict())
        self._learned = [each for each in self.net.parameters() if each.requires_grad]
        slowed = list(self.net.encoders.parameters()), training.network.encoder.lr_scale
        rate = self.settings.learning_rate
        (self.optimizer,) = optimizers_of(
            {"net": self._learned}, device, torch.optim.Adam, slowed=slowed, lr=rate
        ).values()
        self.sampling = generator(training.seed, RandomStream.DEMOS_SAMPLING)
        self.steps = self.updates = 0
        self.best: float | None = None

    def lay(self, spaces: Spaces, episodes: Iterable[ShownEpisode], rows: I64) -> None:
        """Take demonstrations, of each task two at least, which have `rows` [K] frames; `spaces`: of what is kept."""
        tasks = len(spaces.tasks)
        self._shown, self._held_out = (FrameReplay(int(rows.max()) * tasks, tasks, spaces) for _ in range(2))
        moments = {key: RunningMoments(spaces.obs[key].shape[0]) for key in self.net.scales}
        seen = np.zeros(tasks, np.int64)
        for task, frames, steps in episodes:
            is_held_out = seen[task] % _TENTH == _HELD_OUT
            (self._held_out if is_held_out else self._shown).add_episode(task, frames, steps)
            for key in moments if not is_held_out else ():
                moments[key].add(frames[key][:-1])
            seen[task] += 1
        for key, of_key in moments.items():
            for net in (self.net, self.policy):
                cast("Normaliser", net.scales[key]).copy_scale(of_key)
        steps_of = np.array([len(self._shown.whole(task)) for task in range(tasks)], np.float64)
        self._task_shares = steps_of / steps_of.sum()

    @torch.no_grad()
    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """The policy's most likely action: nothing is tried."""
        outputs = self.policy.outputs(obs, task)
        if not torch.isfinite(outputs).all():
            raise NotFiniteError("actor.not-finite", what=["actor"], step=step)
        actions: Actions = self.policy.distribution.mode(outputs).cpu().numpy()
        return actions

    def observe(self, transition: Transition, step: int) -> None:  # noqa: ARG002 - a step earns updates, no more
        self.steps += len(transition.step.reward)

    @property
    def owed(self) -> int:
        return int(self.steps * self.settings.updates_per_step) - self.updates

    def update(self) -> Tensor:
        """Towards B demonstrated actions, each as likely as the others."""
        batch = self._shown.pick(self.sampling.multinomial(self.settings.batch_size, self._task_shares), self.sampling)
        loss = self._errors(batch).mean()
        step_along(self.optimizer, self._learned, torch.autograd.grad(loss, self._learned))
        self.updates += 1
        return loss.detach().reshape(1)

    @torch.no_grad()
    def measures(self) -> Mapping[str, Sequence[float]]:
        """The error of what is held out, always the same actions. The net becomes the policy where it is the best."""
        held_out = []
        for task in range(self._held_out.num_tasks):
            whole = self._held_out.whole(task)
            chosen = whole[np.linspace(0, len(whole) - 1, min(_MEASURED, len(whole))).astype(int)]
            parts = [chosen[i : i + _AT_ONCE] for i in range(0, len(chosen), _AT_ONCE)]
            errors = torch.cat([self._errors(self._held_out.transitions(task, part)) for part in parts])
            held_out.append(float(errors.double().mean()))
        mean = sum(held_out) / len(held_out)
        if self.best is None or mean < self.best:
            self.best = mean
            self.policy.load_state_dict(self.net.state_dict())
        return {"held_out": held_out}

    def _errors(self, batch: Batch) -> Tensor:
        """[B]."""
        device = self.device
        read = {key: torch.from_numpy(np.ascontiguousarray(array)).to(device) for key, array in batch.obs.items()}
        ready = {key: self.net.scales[key](seen) if key in self.net.scales else seen for key, seen in read.items()}
        outputs = self.net.of_inputs(self.net.inputs(ready, torch.from_numpy(batch.task).to(device)))
        wanted = torch.from_numpy(batch.action).to(device)
        if self._is_box:
            return (self.net.distribution.mode(outputs) - wanted).square().mean(-1)
        return -self.net.distribution.log_prob(outputs, wanted)

    def parts(self) -> Mapping[str, Any]:
        """All but the demonstrations, which lie in the slot's folder."""
        nets = {"policy": self.policy, "net": self.net, "adam.net": self.optimizer}
        return {**nets, "steps": self.steps, "updates": self.updates, "best": self.best, "sampling": self.sampling}

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """The policy, and the best one."""
        widths = training.network.actor_hidden
        parameters = count(PolicyNet(_spec(training, spaces), None))
        return [NetSize("the actor", "network.actor_hidden", widths, parameters, targets=1, values=sum(widths))]


def _spec(training: Training, spaces: Spaces) -> PolicySpec:
    distribution = "squashed-normal" if isinstance(spaces.action, Box) else "categorical"
    return PolicySpec(spaces.of_policy, training.network, distribution, normalises=True)
