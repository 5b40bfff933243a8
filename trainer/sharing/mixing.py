"""How the weights of several learners of a group become one's own: an average, a small step at a time.

Elastic averaging without a centre (EASGD, Zhang et al. 2015, arXiv 1412.6651): a learner with the weights θ goes a part
s of the way to the mean m of the others, θ + s (m - θ). Whoever is behind in updates counts less (FedAsync, Xie et al.
2019, arXiv 1903.03934), the step is no longer than what the learner itself has moved in an interval, and nets that are
too far apart have no average. All of it is pure, on the CPU, and adds in the order of the peers, so it gives the same
bits again.

Weights are tensors by name, `<part>.…`; a part is a net (`policy`, `critics`, `targets`, …), with which what has no dot
in its name (the temperatures of `policy`) goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.history.read import score_of
from trainer.sharing.adoption import is_comparable

#: The part of the way that a learner goes where peers count without end; to one peer as new as itself half of it.
RATE = 0.25
#: A peer whose weights are so many intervals behind counts no more.
OLDEST = 3
#: How much less success a peer may have: two evaluations of 500 episodes differ by it in one of ten cases by chance.
WORSE = 0.05
#: The critics' loss on own rows may become so many times as large.
LOSS = 1.1
#: The Q of what the actor does may fall by this part of its deviation over own rows.
FALL = 0.05

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class WeighedPeer:
    """The weights of another learner, and what they count beside own ones."""

    weights: Weights
    counts: float


def counted(updates: int, its: int, every: int) -> float:
    """What a peer counts that stood at `its` updates when this learner is at `updates`; 0: it is too old."""
    behind = max(0, updates - its)
    return float((1 + behind / every) ** -0.5) if behind <= OLDEST * every else 0.0


def is_worse(own: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a peer's last evaluation says that it has less success. Rows as of `evaluations.jsonl`, oldest first."""
    if not own or not other or not is_comparable(own[-1], other[-1]):
        return False
    return score_of(other[-1]) < score_of(own[-1]) - WORSE


def misfit(own: Weights, other: Weights) -> str | None:
    """Why `other` has no average with `own`; None: it has one. A net that is further away than it is large (60 degrees
    between two that are equally large) has gone another way, or diverged, or is made up.
    """
    if own.keys() != other.keys() or any(own[name].shape != other[name].shape for name in own):
        return "it has other nets"
    if any(own[name].dtype != other[name].dtype for name in own):
        return "it has numbers of another kind"
    if not all(bool(torch.isfinite(tensor).all()) for tensor in other.values()):
        return "not all of it is finite"
    for part, names in _parts(own).items():
        if _distance(names, other, own) > _norm(own[name] for name in names):
            return f"its {part} is too far from here"
    return None


def share_of(own: Weights, since: Weights, peers: Sequence[WeighedPeer]) -> float:
    """The part s of the way to the peers' mean: by what they count, and such that no net is moved further than it has
    moved itself since `since`. One for all nets, because critics know no other actor than their own.
    """
    total = sum(peer.counts for peer in peers)
    share = RATE * total / (1 + total) if peers else 0.0
    mean = _mean(own, peers) if peers else own
    for names in _parts(own).values():
        way = _distance(names, mean, own)
        if way > 0:
            share = min(share, _distance(names, own, since) / way)
    return share


def mixed(own: Weights, peers: Sequence[WeighedPeer], share: float) -> dict[str, Tensor]:
    """`own` moved the part `share` of the way to the mean of `peers`, which must fit; `own` itself stays."""
    if not peers or share == 0:
        return {name: tensor.clone() for name, tensor in own.items()}
    mean = _mean(own, peers)
    return {name: tensor + share * (mean[name] - tensor) for name, tensor in own.items()}


def is_harmless(before: tuple[float, Tensor], after: tuple[float, Tensor]) -> bool:
    """Whether a learner is about as good on own rows as before: (the critics' loss, Q of what the actor does [B])."""
    loss, q = after
    if not bool(torch.isfinite(torch.cat([q.flatten(), torch.tensor([loss])])).all()):
        return False
    spread = float(before[1].std(correction=0))
    return loss <= LOSS * before[0] and float(q.mean()) >= float(before[1].mean()) - FALL * spread


def _mean(own: Weights, peers: Sequence[WeighedPeer]) -> dict[str, Tensor]:
    total = sum(peer.counts for peer in peers)
    mean = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
    for peer in peers:
        for name, sums in mean.items():
            sums.add_(peer.weights[name], alpha=peer.counts / total)
    return mean


def _parts(own: Weights) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for name in own:
        parts.setdefault(name.partition(".")[0] if "." in name else "policy", []).append(name)
    return parts


def _distance(names: Iterable[str], one: Weights, other: Weights) -> float:
    return _norm(one[name] - other[name] for name in names)


def _norm(tensors: Iterable[Tensor]) -> float:
    return float(torch.stack([tensor.double().norm() for tensor in tensors]).norm())
