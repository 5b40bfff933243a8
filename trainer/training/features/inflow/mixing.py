"""Weights of the other slots, mixed into the own ones at fixed updates: an average, a small step at a time.

Elastic averaging without a centre (EASGD, Zhang et al. 2015, arXiv 1412.6651): a learner with the weights θ goes a part
s of the way to the mean m of the others, θ + s (m - θ). A peer that is behind in updates counts less (FedAsync, Xie et
al. 2019, arXiv 1903.03934), the step is no longer than what the learner itself has moved in an interval, and nets that
are too far apart have no average. Sums are made on the CPU, in the order of the peers: they give the same bits again.

Mixed are all weights that are learned, with their targets and the temperatures: an actor without its critics would be
one that they do not know. Adam's moments, scales, rows, streams and counters stay. Weights are tensors by name,
`<part>.…`; a part is a net (`policy`, `critics`, …), with which what has no dot in its name (the temperatures of
`policy`) goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anchorleg.job import Job
from trainer.algorithms.base import Algorithm
from trainer.algorithms.common.parts import copied
from trainer.config.training import Training
from trainer.history.read import read_evaluations, score_of
from trainer.sharing.copies import Copies
from trainer.sharing.episodes import peers_of
from trainer.sharing.journal import Entry, Mixed, MixedPeer, copies_of, of_line
from trainer.sharing.learners import OtherLearner, find_learner, is_comparable, is_finite, tensors_in
from trainer.sharing.reader import InflowSource
from trainer.sharing.segment import name_of
from trainer.training.run import TrainingRun, crossed

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
#: After so many means in a row that own rows spoke against, the slot keeps to itself for so many intervals.
REFUSALS, REST = 3, 10

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class WeighedPeer:
    """The weights of another learner, and what they count beside own ones."""

    weights: Weights
    counts: float


class Mixes(InflowSource):
    """`found`: the others' weights that wait for the barrier at which they are mixed in, in the order of their slots.
    The other slots are looked at from the middle of an interval on, unless something waits, and each of their
    checkpoints counts once: one that is away pulls nobody. `ahead`: what is still to be taken again; `drop`: is told
    which copies nobody needs.
    """

    def __init__(
        self,
        job: Job,
        training: Training,
        copies: Copies,
        ahead: Iterable[Entry],
        drop: Callable[[Iterable[str]], None],
    ) -> None:
        super().__init__()
        self.found: list[OtherLearner] = []
        self._job, self._training, self._copies, self._drop = job, training, copies, drop
        self._every = training.group.mix_every
        before = [entry for entry in (*of_line(job.slot_dir), *ahead) if isinstance(entry, Mixed)]
        self._known = {peer.slot: (peer.attempt, peer.of) for entry in before for peer in entry.mix}
        self._since: Weights = {}
        self._at = 0
        self._refusals = 0
        self._rests_until = 0
        self._asked: tuple[int, Collection[str]] | None = None

    @property
    def is_idle(self) -> bool:
        return self._asked is None or self.is_ending

    def enter(self, state: TrainingRun, write: Callable[[list[Entry]], bool]) -> Mixed | None:
        """At a barrier: mix in what was found, where it is due. `write` journals it, or says False; what was not
        journaled, or does harm, leaves every weight as it was.
        """
        learner = state.algorithm
        if not learner.weights():
            return None
        before, self._at = self._at, state.updates
        if not self._since:
            self._since = copied(learner.weights())
            return None
        half = self._every // 2
        if crossed(before + half, self._at + half, self._every) and self._at + half >= self._rests_until:
            self.ask()
        if not crossed(before, self._at, self._every):
            return None
        own = copied(learner.weights())
        since, self._since = self._since, own
        found, self.found = self.found, []
        is_free = found and self._at >= self._rests_until
        entry = self._mix(state, learner, own, since, found, write) if is_free else None
        names = {name_of(one.data) for one in found}
        self._copies.entered(names)
        self._drop(names - {*copies_of([entry] if entry is not None else [])})
        return entry

    def ask(self) -> None:
        """Look at the other slots, unless something waits."""
        if not self.found and self._asked is None and self._job.hand_over_reason() is None:
            self._asked = self._at, self._since.keys()

    def begin_anew(self) -> None:
        """The learner was replaced: what it moved until now is not its own."""
        self._since = {}

    def look(self) -> None:
        if self._asked is not None:
            self.found = self._look(*self._asked)
            self._asked = None

    def _look(self, updates: int, names: Collection[str]) -> list[OtherLearner]:
        slots: list[int] = []
        own: Sequence[Mapping[str, Any]] = ()
        found: list[OtherLearner] = []
        with self.at("the weights of the other slots"):
            slots, own = peers_of(self._job), read_evaluations(self._job.slot_dir)
        for slot in slots:
            with self.at(f"the weights of slot {slot}"):
                folder = self._job.run_dir / "slots" / str(slot)
                one = find_learner(folder, slot, self._training, names.__contains__, self._known.get(slot))
                if one is None:
                    continue
                self._known[slot] = one.version
                if counted(updates, one.updates, self._every) and not is_worse(own, read_evaluations(folder)):
                    self._copies.keep(one.data)
                    found.append(one)
        return found

    def _mix(
        self,
        state: TrainingRun,
        learner: Algorithm,
        own: Weights,
        since: Weights,
        found: Sequence[OtherLearner],
        write: Callable[[list[Entry]], bool],
    ) -> Mixed | None:
        pairs = [(one, peer) for one in found if (peer := self._weighed(own, one)) is not None]
        peers = [peer for _, peer in pairs]
        share = share_of(own, since, peers)
        if not share:
            return None
        whom = named([one.slot for one, _ in pairs])
        before = learner.probe(state.step)
        _put(learner, mixed(own, peers, share))
        is_taken = is_harmless(before, learner.probe(state.step))
        if not is_taken:
            self._refuse(f"own rows spoke against the mean with {whom} at step {state.step:,}: it was not taken")
        mix = tuple(MixedPeer(one.slot, *one.version, name_of(one.data), peer.counts) for one, peer in pairs)
        entry = Mixed(state.step, mix, share)
        if not is_taken or not write([entry]):
            _put(learner, own)
            return None
        self._refusals = 0
        self._since = copied(learner.weights())
        state.mixed += 1
        self.say_once(f"the weights of {whom} are mixed in from step {state.step:,} on", "first")
        return entry

    def _weighed(self, own: Weights, one: OtherLearner) -> WeighedPeer | None:
        weights = tensors_in(one.data)
        counts = counted(self._at, one.updates, self._every)
        why = misfit(own, weights) if counts else None
        if why is not None:
            self.say_once(f"the weights of slot {one.slot} are not mixed in: {why}", one.slot, why)
        return WeighedPeer(weights, counts) if counts and why is None else None

    def _refuse(self, words: str) -> None:
        self._refusals += 1
        self.say_once(words, "refused")
        if self._refusals == REFUSALS:
            self._refusals, self._rests_until = 0, self._at + REST * self._every
            self.say_once(
                f"own rows spoke against {REFUSALS} means in a row: no weights are mixed in until update "
                f"{self._rests_until:,}",
                "rests",
            )


def mix_in(state: TrainingRun, entry: Mixed, data: Sequence[bytes]) -> str:
    """Do what the journal says, without judging it again; a sentence where it comes to nothing, which it then does on
    every resume, else an empty one.
    """
    learner, slots = state.algorithm, named([peer.slot for peer in entry.mix])
    if not learner.weights():
        return f"the weights of {slots} are not mixed in: this algorithm cannot"
    try:
        peers = [WeighedPeer(tensors_in(one), peer.counts) for one, peer in zip(data, entry.mix, strict=True)]
        _put(learner, mixed(copied(learner.weights()), peers, entry.share))  # on the CPU, as it was judged
    except (KeyError, ValueError) as error:
        return f"the weights of {slots} are not mixed in: {error}"
    state.mixed += 1
    return ""


def named(slots: Sequence[int]) -> str:
    """In words."""
    *others, last = map(str, slots)
    return f"slots {', '.join(others)} and {last}" if others else f"slot {last}"


@torch.no_grad()
def _put(learner: Algorithm, weights: Weights) -> None:
    for name, tensor in learner.weights().items():
        tensor.copy_(weights[name])


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
    if not is_finite(other):
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
