"""A published policy, ready to act: the net rebuilt from what its manifest says, with a blob's tensors.

Who publishes uses `actor_tensors`, `suite_fields` and `golden_of`; who reads uses `load`, which believes nothing that
it has not checked: bytes (the store does), suite, spaces, net, and that the golden actions come out.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from anchorleg.errors import NamedError
from syncd import store
from trainer.config.find import SUITES, names, settings_of
from trainer.config.settings import EnvSettings
from trainer.config.training import SEEDS
from trainer.envs.spaces import I32, Actions, ArraySpec, Discrete, Obs, Spaces
from trainer.envs.suite import SuiteRef
from trainer.errors import ConfigError
from trainer.history.read import mean_return, tells_success
from trainer.machine.device import is_of_the_gpu
from trainer.machine.shortage import words_of_shortage
from trainer.nets.policy import PolicyNet, PolicySpec

F32 = npt.NDArray[np.float32]

#: Nets wider or deeper than this are no policy of ours: a config allows no more.
_MAX_WIDTH, _MAX_LAYERS = 65_536, 16
#: Numbers of an observation or an action, and of all golden observations together: a camera of a thousand by a
#: thousand has three millions.
_MAX_NUMBERS = 2**24
#: A bound further from 0 than this is none: environments write the largest float32 for "no bound", which no net bears.
_FAR = 100.0
#: Rows of golden actions, at least one a task where there are no more tasks than `store.Golden` has room for, and
#: observations are no larger than `_most_rows` allows.
GOLDEN_ROWS, _MOST_GOLDEN = 8, 64


class UnusablePolicyError(NamedError):
    """This policy cannot be played here, and why. It does not mean that others of its slot cannot."""


class IncompatiblePolicyError(UnusablePolicyError):
    """It is whole, and made for something else; the sentence names the field."""


class GoldenMismatchError(UnusablePolicyError):
    """It is whole, and acts otherwise here than where it was published: `deviation` is the largest difference."""


@contextmanager
def _odd(what: str) -> Iterator[None]:
    """What `what` of a manifest fails with, as IncompatiblePolicyError: its numbers and rows may be any. That this
    machine lacks memory now (OSError), or its GPU fails (RuntimeError), is no fault of its.
    """
    try:
        yield
    except (ArithmeticError, ConfigError, RuntimeError, ValueError) as error:
        if (words := words_of_shortage(error)) is not None:
            raise OSError(errno.ENOMEM, f"out of memory: {words}") from error
        if is_of_the_gpu(error):
            raise
        raise IncompatiblePolicyError("policy.part-odd", what=what, why=" ".join(str(error).split())[:300]) from None


def actor_tensors(net: nn.Module) -> dict[str, F32]:
    """The weights of a learner's policy, named as `Policy` wants them; float32 copies on the CPU."""
    return floats_of(net.state_dict())


def floats_of(tensors: Mapping[str, Tensor]) -> dict[str, F32]:
    """Copies, float32, on the CPU; counters of a pretrained net too, which nothing reads."""
    return {
        name: tensor.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()
        for name, tensor in tensors.items()
    }


class Policy:
    """The policy of `spec` with `tensors`, on `device`. Thread-safe for reading; changes nothing outside.

    Errors of the constructor: IncompatiblePolicyError that names what is wrong.
    """

    def __init__(self, spec: PolicySpec, tensors: Mapping[str, F32], device: torch.device | None = None) -> None:
        try:
            self.net = PolicyNet(spec, None)
        except (ValueError, OverflowError) as error:
            raise IncompatiblePolicyError("policy.net-not-built", why=error) from None
        shapes = {name: tuple(tensor.shape) for name, tensor in self.net.state_dict().items()}
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if found != shapes:
            wrong = next(name for name in sorted({*shapes, *found}) if shapes.get(name) != found.get(name))
            raise IncompatiblePolicyError(
                "policy.tensor",
                tensor=wrong,
                found=str(found.get(wrong, "missing")),
                wanted=str(shapes.get(wrong, "that there is none")),
            )
        self.spec = spec
        self.device = device or torch.device("cpu")
        copies = {name: torch.from_numpy(np.array(tensor, np.float32)) for name, tensor in tensors.items()}
        self.net.load_state_dict(copies, assign=True)
        self.net.to(self.device).requires_grad_(requires_grad=False).eval()

    @torch.no_grad()
    def act_deterministic(self, obs: Obs, task: npt.NDArray[np.integer]) -> Actions:
        """The actions that are taken where nothing is to be tried, [N, …], for `obs` of task indices [N]."""
        actions: Actions = self.net.distribution.mode(self._outputs(obs, task)).cpu().numpy()
        return actions

    @torch.no_grad()
    def compared(self, obs: Obs, task: npt.NDArray[np.integer]) -> F32:
        """The numbers that decide `act_deterministic`, [N, C], see `trainer.nets.distributions`."""
        numbers: F32 = self.net.distribution.compared(self._outputs(obs, task)).cpu().numpy()
        return numbers

    @torch.no_grad()
    def act(self, obs: Obs, task: npt.NDArray[np.integer], generator: torch.Generator) -> Actions:
        """Sampled actions [N, …]; takes its noise from `generator` (on the CPU)."""
        outputs = self._outputs(obs, task)
        noise = self.net.distribution.noise(len(task), generator).to(self.device)
        distribution = self.net.distribution
        actions: Actions = distribution.clip(distribution.draw(outputs, noise)).cpu().numpy()
        return actions

    def check_golden(self, golden: store.Golden) -> float:
        """The largest deviation from the golden actions. Errors: GoldenMismatchError, IncompatiblePolicyError."""
        spaces, wanted = self.spec.spaces, np.array(golden.action, np.float64)
        count = len(golden.action)
        if wanted.shape != (count, *_row_of(spaces)) or count == 0:
            raise IncompatiblePolicyError(
                "policy.golden-shape", found=str(wanted.shape), count=count, row=str(_row_of(spaces))
            )
        if count > (most := _most_rows(spaces)):  # before they are drawn
            raise IncompatiblePolicyError("policy.golden-rows", rows=count, most=most)
        obs, task = golden_rows(spaces, golden.seed, count)
        deviation = float(np.abs(self.compared(obs, task) - wanted).max())
        if not deviation <= golden.tolerance:  # NaN is a mismatch too
            raise GoldenMismatchError("policy.golden-mismatch", deviation=deviation, tolerance=golden.tolerance)
        return deviation

    def _outputs(self, obs: Obs, task: npt.NDArray[np.integer]) -> Tensor:
        tasks = torch.from_numpy(task.astype(np.int64)).to(self.device)
        out: Tensor = self.net({key: torch.from_numpy(array).to(self.device) for key, array in obs.items()}, tasks)
        return out


def golden_of(policy: Policy, seed: int, tolerance: float) -> store.Golden:
    """What decides `policy`'s actions for observations that `seed` decides: those of `golden_rows`."""
    spaces = policy.spec.spaces
    count = min(max(GOLDEN_ROWS, len(spaces.tasks)), _MOST_GOLDEN, _most_rows(spaces))
    rows = tuple(tuple(map(float, row)) for row in policy.compared(*golden_rows(spaces, seed, count)))
    return store.Golden(seed=seed, action=rows, tolerance=tolerance)


def _most_rows(spaces: Spaces) -> int:
    """How many golden observations are drawn and acted on at once: `_MAX_NUMBERS` numbers, one observation at least."""
    return max(1, _MAX_NUMBERS // sum(_sizes(spaces)))


def _sizes(spaces: Spaces) -> list[int]:
    """Numbers of each part of an observation."""
    return [math.prod(array.shape) for array in spaces.obs.values()]


def golden_rows(spaces: Spaces, seed: int, count: int) -> tuple[dict[str, npt.NDArray[Any]], I32]:
    """`count` observations and tasks, the same on every machine: uniform between an observation's bounds, in [-1, 1]
    where it has none, and near the bound where it has one (`_drawn_between`); row g is of task g modulo K. Drawn by
    PCG64, key by key in the order of their names.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    obs = {key: _drawn(rng, array, count) for key, array in sorted(spaces.obs.items())}
    return obs, np.arange(count, dtype=np.int32) % len(spaces.tasks)


def _drawn(rng: np.random.Generator, array: ArraySpec, count: int) -> npt.NDArray[Any]:
    shape = (count, *array.shape)
    if array.dtype == "uint8":
        darkest, brightest = (int(np.clip(bound, 0, 255)) for bound in (np.ceil(array.low), np.floor(array.high)))
        return rng.integers(darkest, brightest, shape, np.uint8, endpoint=True)
    return rng.uniform(*_drawn_between(array.low, array.high), shape).astype(np.float32)


def _drawn_between(low: float, high: float) -> tuple[float, float]:
    """Two finite numbers within [`low`, `high`]: -1 and 1 in place of bounds that are none, or 1 from the other bound
    where that is not beyond them.
    """
    near_low = low if abs(low) <= _FAR else float(np.clip(min(-1.0, high - 1), low, high))
    near_high = high if abs(high) <= _FAR else float(np.clip(max(1.0, low + 1), low, high))
    return near_low, near_high


def _row_of(spaces: Spaces) -> tuple[int]:
    """The shape of what is compared of one action: its numbers, or one for each choice."""
    return (spaces.action.n,) if isinstance(spaces.action, Discrete) else (spaces.action.size,)


def score_of(evaluation: Mapping[str, Any]) -> store.Score:
    """A row of `evaluations.jsonl` as a manifest says it. Errors: KeyError."""
    where = {"step": evaluation["step"], "goals_per_task": evaluation["goals_per_task"]}
    if tells_success(evaluation):
        return store.Score(mean_success=evaluation["mean_success"], **where)
    return store.Score(mean_return=mean_return(evaluation), return_error=evaluation.get("return_error", 0.0), **where)


def suite_fields(env: EnvSettings, seed: int) -> store.SuiteFields:
    """Where a policy was trained, as a manifest says it."""
    return store.SuiteFields(
        name=env.name,
        version=env.VERSION,
        settings=env.model_dump(mode="json"),
        seed=seed,
        packages=dict(SuiteRef(env, seed).open().versions),
    )


def suite_of_manifest(manifest: store.Manifest, cache: Path | None = None) -> SuiteRef:
    """Where a published policy plays. Errors: IncompatiblePolicyError with the field.

    Only a suite of this program, or of an installed package that has an entry point for it, is opened: a manifest comes
    from outside, and `package.module:Name` in it would import what its writer likes.
    """
    told = manifest.suite
    if told.name not in names(SUITES):
        raise IncompatiblePolicyError("policy.suite-unknown", suite=told.name)
    if told.settings.get("name") != told.name:
        raise IncompatiblePolicyError("policy.suite-of-others", found=told.settings.get("name"), suite=told.name)
    with _odd("suite.name"):
        kind = cast("type[EnvSettings]", settings_of(SUITES, told.name))
    if told.version != kind.VERSION:
        raise IncompatiblePolicyError("policy.suite-version", found=told.version, wanted=kind.VERSION)
    if told.seed >= SEEDS:
        raise IncompatiblePolicyError("policy.suite-seed", seed=told.seed, largest=SEEDS - 1)
    try:
        settings = kind.model_validate(dict(told.settings))
    except ValueError as error:
        raise IncompatiblePolicyError("policy.suite-settings", why=" ".join(str(error).split())[:300]) from None
    if (why := settings.distrusted()) is not None:
        raise IncompatiblePolicyError("policy.suite-settings", why=why)
    return SuiteRef(settings, told.seed, cache)


def policy_spec(manifest: store.Manifest) -> PolicySpec:
    """What a published policy is built from, checked. Errors: IncompatiblePolicyError with the field."""
    told = manifest.policy
    try:
        spec = PolicySpec.from_json(told.model_dump(mode="json"))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise IncompatiblePolicyError("policy.unreadable", why=" ".join(str(error).split())[:300]) from None
    hidden, sizes = spec.network.actor_hidden, _sizes(spec.spaces)
    encoder = spec.network.encoder
    if any(":" in name for name in (encoder.arch, *spec.network.encoders.values())):  # as for suites
        raise IncompatiblePolicyError("policy.encoder-unknown")
    if encoder.weights is not None:  # a file of this machine, named by a stranger
        raise IncompatiblePolicyError("policy.encoder-file")
    if not all(1 <= width <= _MAX_WIDTH for width in hidden) or len(hidden) > _MAX_LAYERS:
        raise IncompatiblePolicyError("policy.widths", widths=str(hidden), layers=_MAX_LAYERS, width=_MAX_WIDTH)
    numbers = [*sizes, sum(sizes), *_row_of(spec.spaces)]
    if not all(0 < number <= _MAX_NUMBERS for number in numbers) or not sizes or not spec.spaces.tasks:
        raise IncompatiblePolicyError("policy.spaces-bad")
    return spec


def load(place: store.SlotPlace, manifest: store.Manifest, device: torch.device | None = None) -> Policy:
    """The policy of `manifest`, verified to the last: bytes, net, suite, golden actions.

    Errors: UnusablePolicyError, store.DamagedPolicyError, OSError.
    """
    must_fit(manifest)
    tensors = store.read(place, manifest)
    with _odd("its net cannot be built here"):
        policy = Policy(policy_spec(manifest), tensors, device)
    with _odd("golden"):
        policy.check_golden(manifest.golden)
    return policy


def must_fit(manifest: store.Manifest) -> None:
    """Whether this installation can play what `manifest` says. Errors: IncompatiblePolicyError with the field."""
    suite, spec = suite_of_manifest(manifest), policy_spec(manifest)
    for package in suite.settings.SERIES:
        there, here = manifest.suite.packages.get(package, "unknown"), _installed(package)
        if _series(there) != _series(here):
            raise IncompatiblePolicyError("policy.package", package=package, there=there, here=here)
    with _odd("its environments cannot be made here"):
        opened = suite.open().spaces.of_policy
    if spec.spaces.digest != opened.digest:
        raise IncompatiblePolicyError("policy.spaces-differ", suite=suite.settings.name)


def differences(suite: store.SuiteFields) -> str | None:
    """What a user should know of another simulator version that is still compatible, one sentence; else None."""
    told = [
        f"{name} {there} (here {_installed(name)})"
        for name, there in suite.packages.items()
        if there != _installed(name)
    ]
    return f"the policy was trained with {' and '.join(told)}: physics may differ slightly" if told else None


def _installed(package: str) -> str:
    try:
        return version(package)
    except (PackageNotFoundError, ValueError):  # a manifest may name one that no package can have
        return "not installed"


def _series(release: str) -> tuple[str, ...]:
    """`3.1` of 3.1.1: patch releases keep rewards and observations."""
    return tuple(release.split(".")[:2])
