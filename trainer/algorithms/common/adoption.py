"""Another learner's tensors in the place of the own ones, and what must be the same on all ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from anchorleg.errors import NamedError
from trainer.algorithms.base import Algorithm
from trainer.nets.policy import FROZEN
from trainer.state import State

#: Tensors of a state that another learner's do not replace: streams, what each environment drew, what a row repeats,
#: and what goes by the steps that were made.
_OWN = {"noise", "deviations", "actor_loss", "policy.free"}
#: Rows that are not whole yet.
_OWN_ROWS = "sums."
#: What Adam remembers of a parameter.
_ADAM = ("step", "exp_avg", "exp_avg_sq")


class UnfitLearnerError(NamedError, ValueError):
    """What another learner came to cannot take the place of what is learned here."""


def adopt(algorithm: Algorithm, tensors: Mapping[str, Tensor]) -> None:
    """Go on with what another learner of the same shape came to (the tensors of its `state`): nets, targets, moments,
    temperatures, scales. Random streams, counters and rows stay the own ones. Errors: UnfitLearnerError, and then
    nothing is changed.
    """
    own = algorithm.state()
    learned = {name: tensor for name, tensor in tensors.items() if not _is_own(name)}
    for name, tensor in own.tensors.items():
        may_be_missing = _is_own(name) or _is_moment(name)
        if learned[name].shape != tensor.shape if name in learned else not may_be_missing:
            raise UnfitLearnerError("learner.tensor", tensor=name)
    if unknown := sorted(name for name in learned.keys() - own.tensors.keys() if not _is_moment(name)):
        raise UnfitLearnerError("learner.unknown", tensor=unknown[0])
    for name, tensor in learned.items():  # a moment that is not here yet is Adam's
        if tensor.dtype != (own.tensors[name].dtype if name in own.tensors else torch.float32):
            raise UnfitLearnerError("learner.type", tensor=name)
    for name in learned.keys() & own.tensors.keys():
        # What the replay has was made by the own one.
        if name.startswith(f"policy.{FROZEN}") and not torch.equal(learned[name], own.tensors[name]):
            raise UnfitLearnerError("learner.other-frozen-encoder")
    _check_moments(learned, own.tensors)
    kept = {name: tensor for name, tensor in own.tensors.items() if _is_own(name)}
    try:
        algorithm.load(State({**learned, **kept}, own.numbers))
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        algorithm.load(own)
        raise UnfitLearnerError("learner.not-loaded", why=error) from error


def learned_of(state: State) -> State:
    """What must be the same on all ranks: without what rank 0 alone has."""
    return State({name: tensor for name, tensor in state.tensors.items() if not _is_own(name)})


def _check_moments(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Whether the moments among `given` can take the place of `own` ones: for each optimizer, of the same parameters
    the same, or none at all; where it has made no step, Adam's, of each parameter from the first on. Counts and mean
    squares are not below 0. Errors: UnfitLearnerError.
    """
    theirs, ours = ({name for name in tensors if _is_moment(name)} for tensors in (given, own))
    for optimizer in {name.split(".")[1] for name in theirs}:
        prefix = f"adam.{optimizer}."
        names, had = ({name for name in these if name.startswith(prefix)} for these in (theirs, ours))
        count = len({name.removeprefix(prefix).partition(".")[0] for name in names})
        if names != (had or {f"{prefix}{index}.{kind}" for index in range(count) for kind in _ADAM}):
            raise UnfitLearnerError("learner.moments", optimizer=optimizer)
    for name in theirs:
        if name.endswith((".step", "_sq", ".square_avg")) and bool((given[name] < 0).any()):
            raise UnfitLearnerError("learner.negative", tensor=name)


def _is_own(name: str) -> bool:
    """Whether a tensor of a state is of this training's own course, not of what it learned."""
    return name in _OWN or name.startswith(_OWN_ROWS)


def _is_moment(name: str) -> bool:
    """Whether a tensor is what an optimizer remembers: there is none before its first update."""
    return name.startswith("adam.")
