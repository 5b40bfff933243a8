"""Weights of the other slots, mixed into the own ones at fixed updates: an average, a small step at a time.

Elastic averaging without a centre (EASGD, Zhang et al. 2015, arXiv 1412.6651): a learner with the weights θ goes a part
s of the way to the mean m of the others, θ + s (m - θ). A peer that is behind in updates counts less (FedAsync, Xie et
al. 2019, arXiv 1903.03934), and the step is no longer than what the learner itself has moved in an interval. Sums are
made on the CPU, in the order of the peers: they give the same bits again.
What is mixed: `Algorithm.weights`. A part is a net (`policy`, `critics`, …); the temperatures go with `policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from anchorleg.job import Job
from trainer.algorithms.base import Algorithm
from trainer.algorithms.common.parts import copied
from trainer.config.training import Training
from trainer.sharing.copies import Copies, OtherLearner, find_learner, is_finite, tensors_in
from trainer.sharing.journal import Entry, Mixed, MixedPeer, copies_of, of_line
from trainer.sharing.peers import peers_of
from trainer.sharing.reader import InflowSource
from trainer.sharing.segment import name_of
from trainer.training.run import TrainingRun, crossed

#: The part of the way that a learner goes where peers count without end; to one peer as new as itself half of it.
RATE = 0.25
#: A peer whose weights are so many intervals behind counts no more.
OLDEST = 3
#: The critics' loss on own rows may become so many times as large.
LOSS = 1.1
#: The Q of what the actor does may fall by this part of its deviation over own rows.
FALL = 0.05

Weights = Mapping[str, Tensor]
#: The weights of other learners, and what each counts.
Peers = Sequence[tuple[Weights, float]]


class Mixes(InflowSource):
    """`found`: the others' weights that wait for the barrier at which they are mixed in, in the order of their slots.
    The other slots are looked at from the middle of an interval on, unless something waits, and each of their
    checkpoints counts once: one that is away pulls nobody. `ahead`: what is still to be taken again; `drop`: is told
    which copies nobody needs.
    """

    def __init__(
        self, job: Job, training: Training, copies: Copies, ahead: Iterable[Entry], drop: Callable[[set[str]], None]
    ) -> None:
        super().__init__()
        self.found: list[OtherLearner] = []
        self._job, self._training, self._copies, self._drop = job, training, copies, drop
        self._every = training.group.mix_every
        before = [entry for entry in (*of_line(job.slot_dir), *ahead) if isinstance(entry, Mixed)]
        self._known = {peer.slot: (peer.attempt, peer.of) for entry in before for peer in entry.mix}
        self._since: Weights = {}
        self._at = 0
        self._asked: Collection[str] | None = None

    @property
    def is_idle(self) -> bool:
        return self._asked is None or self.is_ending

    def enter(self, state: TrainingRun, write: Callable[[list[Entry]], bool]) -> Mixed | None:
        """At a barrier: mix in what was found, where it is due. `write` journals it, or says False; what was not
        journaled, or does harm, leaves every weight as it was.
        """
        learner = state.algorithm
        before, self._at = self._at, state.updates
        if not self._since:
            self._since = copied(learner.weights())  # empty: it has none to be mixed
            return None
        half = self._every // 2
        if crossed(before + half, self._at + half, self._every):
            self.ask()
        if not crossed(before, self._at, self._every):
            return None
        found, self.found = self.found, []
        entry = self._mix(state, found, write)
        names = {name_of(one.data) for one in found}
        self._copies.entered(names)
        self._drop(names - {*copies_of([entry] if entry is not None else [])})
        return entry

    def ask(self) -> None:
        """Look at the other slots, unless something waits."""
        if not self.found and self._asked is None and self._job.hand_over_reason() is None:
            self._asked = self._since.keys()

    def begin_anew(self) -> None:
        """The learner was replaced: what it moved until now is not its own."""
        self._since = {}

    def look(self) -> None:
        if self._asked is None:
            return
        wanted, found = self._asked, list[OtherLearner]()
        for slot in peers_of(self._job):
            with self.at(f"the weights of slot {slot}"):
                folder = self._job.run_dir / "slots" / str(slot)
                one = find_learner(folder, slot, self._training, wanted.__contains__, self._known.get(slot))
                if one is not None:
                    self._known[slot] = one.version
                    self._copies.keep(one.data)
                    found.append(one)
        self.found, self._asked = found, None

    def _mix(
        self, state: TrainingRun, found: Sequence[OtherLearner], write: Callable[[list[Entry]], bool]
    ) -> Mixed | None:
        learner = state.algorithm
        own = copied(learner.weights())
        since, self._since = self._since, own
        peers: list[tuple[Weights, float]] = []
        mix: list[MixedPeer] = []
        for one in found:
            weights, counts = tensors_in(one.data), counted(self._at, one.updates, self._every)
            if counts and not fits(own, weights):
                self.say_once(f"slot {one.slot} has other nets or non-finite numbers: not mixed in", one.slot)
            elif counts:
                peers.append((weights, counts))
                mix.append(MixedPeer(one.slot, *one.version, name_of(one.data), counts))
        share = share_of(own, since, peers)
        if not share:
            return None
        before, entry = learner.probe(state.step), Mixed(state.step, tuple(mix), share)
        _put(learner, mixed(own, peers, share))
        is_taken = is_harmless(before, learner.probe(state.step))
        if not is_taken:
            words = f"the mean with {entry.whom} at step {state.step:,} was undone: it did worse on this slot's rows"
            self.say_once(words, "refused")
        if not is_taken or not write([entry]):
            _put(learner, own)
            return None
        self._since = copied(learner.weights())
        state.mixed += 1
        self.say_once(f"the weights of {entry.whom} are mixed in from step {state.step:,} on", "first")
        return entry


def mix_in(state: TrainingRun, entry: Mixed, data: Sequence[bytes]) -> str:
    """Do what the journal says, without judging it again; a sentence where it comes to nothing, which it then does on
    every resume, else an empty one.
    """
    own = copied(state.algorithm.weights())  # on the CPU, as it was judged
    peers = [(tensors_in(one), peer.counts) for one, peer in zip(data, entry.mix, strict=True)]
    if not own or not all(fits(own, weights) for weights, _ in peers):
        return f"the weights of {entry.whom} are not mixed in: they belong to another algorithm"
    _put(state.algorithm, mixed(own, peers, entry.share))
    state.mixed += 1
    return ""


@torch.no_grad()
def _put(learner: Algorithm, weights: Weights) -> None:
    for name, tensor in learner.weights().items():
        tensor.copy_(weights[name])


def counted(updates: int, its: int, every: int) -> float:
    """What a peer counts that stood at `its` updates when this learner is at `updates`; 0: it is too old."""
    behind = max(0, updates - its)
    return float((1 + behind / every) ** -0.5) if behind <= OLDEST * every else 0.0


def fits(own: Weights, other: Weights) -> bool:
    """Whether `other` has an average with `own`."""
    mine, its = ({name: (it.shape, it.dtype) for name, it in nets.items()} for nets in (own, other))
    return mine == its and is_finite(other)


def share_of(own: Weights, since: Weights, peers: Peers) -> float:
    """The part s of the way to the peers' mean: by what they count, and such that no net is moved further than it has
    moved itself since `since`. One for all nets, because critics know no other actor than their own.
    """
    total = sum(counts for _, counts in peers)
    share = RATE * total / (1 + total)
    mean = _mean(own, peers)
    for names in _parts(own).values():
        way = _distance(names, mean, own)
        if way > 0:
            share = min(share, _distance(names, own, since) / way)
    return share


def mixed(own: Weights, peers: Peers, share: float) -> dict[str, Tensor]:
    """`own` moved the part `share` of the way to the mean of `peers`, which must fit; `own` itself stays."""
    mean = _mean(own, peers)
    return {name: tensor + share * (mean[name] - tensor) for name, tensor in own.items()}


def is_harmless(before: tuple[float, Tensor], after: tuple[float, Tensor]) -> bool:
    """Whether a learner is about as good on own rows as before: (the critics' loss, Q of what the actor does [B])."""
    loss, q = after
    if not bool(torch.isfinite(torch.cat([q.flatten(), torch.tensor([loss])])).all()):
        return False
    spread = float(before[1].std(correction=0))
    return loss <= LOSS * before[0] and float(q.mean()) >= float(before[1].mean()) - FALL * spread


def _mean(own: Weights, peers: Peers) -> dict[str, Tensor]:
    total = sum(counts for _, counts in peers)
    mean = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
    for weights, counts in peers:
        for name, sums in mean.items():
            sums.add_(weights[name], alpha=counts / total)
    return mean


def _parts(own: Weights) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for name in own:
        parts.setdefault(name.partition(".")[0] if "." in name else "policy", []).append(name)
    return parts


def _distance(names: Iterable[str], one: Weights, other: Weights) -> float:
    return float(torch.stack([(one[name] - other[name]).double().norm() for name in names]).norm())
