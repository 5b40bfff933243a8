"""A published policy, ready to act: the actor rebuilt from a manifest's architecture and a blob's tensors.

Who publishes uses `architecture_of` and `actor_tensors`; who reads uses `load`, which believes nothing that it has not
checked: bytes (the store does), architecture, tasks, and that the golden actions come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from syncd import store
from trainer.config.settings import EnvSettings
from trainer.config.suites import Metaworld
from trainer.config.tasknames import MAX_HORIZON, MT50
from trainer.config.training import SEEDS, Training
from trainer.envs.spaces import STATE, Obs
from trainer.envs.suites.metaworld.shapes import ACT_DIM, OBS_DIM
from trainer.nets.distributions import GaussianActor, sample
from trainer.nets.inputs import with_task

F32 = npt.NDArray[np.float32]

KIND = "gaussian-mlp"
REWARD = "v2"
#: Nets wider or deeper than this are no policy of ours: a config allows no more.
_MAX_WIDTH, _MAX_LAYERS = 65_536, 16


class UnusablePolicyError(Exception):
    """This policy cannot be played here, and why. It does not mean that others of its slot cannot."""


class IncompatiblePolicyError(UnusablePolicyError):
    """It is whole, and made for something else; the sentence names the field."""


class GoldenMismatchError(UnusablePolicyError):
    """It is whole, and acts otherwise here than where it was published: `deviation` is the largest difference."""

    def __init__(self, deviation: float, tolerance: float) -> None:
        super().__init__(
            f"its golden actions come out up to {deviation:.3g} off (at most {tolerance:g}): this machine computes "
            "otherwise than the publisher; try another torch version, or --device cpu"
        )
        self.deviation = deviation


def architecture_of(training: Training) -> store.Architecture:
    """The architecture of the actor that `training` trains."""
    return store.Architecture(
        kind=KIND, obs_dim=OBS_DIM, act_dim=ACT_DIM, hidden=training.network.actor_hidden, tasks=training.env.tasks
    )


def env_of(manifest: store.Manifest) -> EnvSettings:
    """What the policy of `manifest` was trained in."""
    return Metaworld(tasks=manifest.architecture.tasks, horizon=manifest.spec.horizon)


def actor_tensors(actor: nn.Module) -> dict[str, F32]:
    """The weights of a learner's actor, named as `Policy` wants them; float32 copies on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True).numpy() for name, tensor in actor.state_dict().items()}


class Policy:
    """The actor of `architecture` with `tensors`, on `device`. Thread-safe for reading; changes nothing outside.

    Errors of the constructor: IncompatiblePolicyError that names the field.
    """

    def __init__(
        self, architecture: store.Architecture, tensors: Mapping[str, F32], device: torch.device | None = None
    ) -> None:
        _must_be_ours(architecture)
        inputs = architecture.obs_dim + len(architecture.tasks)
        self.actor = GaussianActor(inputs, architecture.hidden, architecture.act_dim, None)
        shapes = {name: tuple(tensor.shape) for name, tensor in self.actor.state_dict().items()}
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if found != shapes:
            wrong = next(name for name in sorted({*shapes, *found}) if shapes.get(name) != found.get(name))
            raise IncompatiblePolicyError(
                f"tensor {wrong} is {found.get(wrong, 'missing')}, its architecture.hidden says "
                f"{shapes.get(wrong, 'that there is none')}"
            )
        self.architecture = architecture
        self.device = device or torch.device("cpu")
        copies = {name: torch.from_numpy(np.array(tensor, np.float32)) for name, tensor in tensors.items()}
        self.actor.load_state_dict(copies, assign=True)
        self.actor.to(self.device).requires_grad_(requires_grad=False)

    @torch.no_grad()
    def act_greedily(self, obs: Obs, task: npt.NDArray[np.integer]) -> F32:
        """The deterministic actions tanh(mean), [N, A], for `obs` of task indices [N]."""
        mean, _ = self.actor(self._inputs(obs, task))
        actions: F32 = torch.tanh(mean).cpu().numpy()
        return actions

    @torch.no_grad()
    def act(self, obs: Obs, task: npt.NDArray[np.integer], generator: torch.Generator) -> F32:
        """Sampled actions [N, A]; takes N·A normal numbers from `generator` (on the CPU)."""
        mean, log_std = self.actor(self._inputs(obs, task))
        noise = torch.randn(mean.shape, generator=generator).to(self.device)
        actions: F32 = sample(mean, log_std, noise)[0].cpu().numpy()
        return actions

    def check_golden(self, golden: store.Golden) -> float:
        """The largest deviation from the golden actions. Errors: GoldenMismatchError, IncompatiblePolicyError."""
        obs, task = np.array(golden.obs, np.float32), np.array(golden.task, np.int64)
        wanted = np.array(golden.action, np.float64)
        count = len(golden.task)
        if obs.shape != (count, OBS_DIM) or wanted.shape != (count, ACT_DIM) or count == 0:
            raise IncompatiblePolicyError(f"golden has obs {obs.shape} and action {wanted.shape} for {count} tasks")
        if task.min() < 0 or task.max() >= len(self.architecture.tasks):
            raise IncompatiblePolicyError("golden.task names a task that architecture.tasks does not have")
        deviation = float(np.abs(self.act_greedily({STATE: obs}, task) - wanted).max())
        if not deviation <= golden.tolerance:  # NaN is a mismatch too
            raise GoldenMismatchError(deviation, golden.tolerance)
        return deviation

    def _inputs(self, obs: Obs, task: npt.NDArray[np.integer]) -> Tensor:
        tasks = torch.from_numpy(task.astype(np.int64)).to(self.device)
        return with_task(torch.from_numpy(obs[STATE]).to(self.device), tasks, len(self.architecture.tasks))


def load(place: store.SlotPlace, manifest: store.Manifest, device: torch.device | None = None) -> Policy:
    """The policy of `manifest`, verified to the last: bytes, architecture, spec, golden actions.

    Errors: UnusablePolicyError, store.DamagedPolicyError, OSError.
    """
    must_fit(manifest)
    policy = Policy(manifest.architecture, store.read(place, manifest), device)
    policy.check_golden(manifest.golden)
    return policy


def must_fit(manifest: store.Manifest) -> None:
    """Whether this installation can play what `manifest.spec` says. Errors: IncompatiblePolicyError with the field."""
    spec = manifest.spec
    if spec.reward != REWARD:
        raise IncompatiblePolicyError(f"spec.reward is {spec.reward!r}; this version plays {REWARD!r}")
    if not 1 <= spec.horizon <= MAX_HORIZON:
        raise IncompatiblePolicyError(f"spec.horizon is {spec.horizon}; Meta-World allows 1 to {MAX_HORIZON}")
    if not 0 <= spec.goal_seed < SEEDS:
        raise IncompatiblePolicyError(f"spec.goal_seed is {spec.goal_seed}; seeds are 0 to {SEEDS - 1}")
    here = version("metaworld")
    if _series(spec.metaworld) != _series(here):
        raise IncompatiblePolicyError(
            f"spec.metaworld is {spec.metaworld}, here is {here}: other rewards and observations; "
            "it plays where Meta-World of its series is installed"
        )


def differences(spec: store.Spec) -> str | None:
    """What a user should know of another simulator version that is still compatible, one sentence; else None."""
    pairs = (("metaworld", spec.metaworld), ("mujoco", spec.mujoco))
    told = [f"{name} {there} (here {version(name)})" for name, there in pairs if there != version(name)]
    return f"the policy was trained with {' and '.join(told)}: physics may differ a little" if told else None


def _series(release: str) -> tuple[str, ...]:
    """`3.1` of 3.1.1: patch releases keep rewards and observations."""
    return tuple(release.split(".")[:2])


def _must_be_ours(architecture: store.Architecture) -> None:
    if architecture.kind != KIND:
        raise IncompatiblePolicyError(f"architecture.kind is {architecture.kind!r}; this version plays {KIND!r}")
    for name, there, here in (("obs_dim", architecture.obs_dim, OBS_DIM), ("act_dim", architecture.act_dim, ACT_DIM)):
        if there != here:
            raise IncompatiblePolicyError(f"architecture.{name} is {there}; Meta-World v3 has {here}")
    unknown = [task for task in architecture.tasks if task not in MT50]
    if unknown or not architecture.tasks:
        raise IncompatiblePolicyError(
            f"architecture.tasks has {unknown[0]!r}, which Meta-World here does not know"
            if unknown
            else "architecture.tasks is empty"
        )
    if not all(1 <= width <= _MAX_WIDTH for width in architecture.hidden) or len(architecture.hidden) > _MAX_LAYERS:
        raise IncompatiblePolicyError(
            f"architecture.hidden is {architecture.hidden}; at most {_MAX_LAYERS} layers of {_MAX_WIDTH} are read"
        )
