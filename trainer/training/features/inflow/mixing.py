"""Weights of the other slots, mixed into the own ones at fixed updates: read and copied beside the training, mixed and
judged at a barrier. By how much, `trainer.sharing.mixing` says; the journal is that of `intake.py`.

What is mixed: all weights that are learned, with their targets and the temperatures. An actor without its critics would
be one that they do not know; targets follow critics, and go along. Adam's moments, scales, rows, streams and counters
stay the own ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from anchorleg.job import Job
from trainer.algorithms.base import Algorithm
from trainer.algorithms.common.parts import copied
from trainer.config.training import Training
from trainer.history.read import read_evaluations
from trainer.sharing.adoption import OtherLearner, find_learner, tensors_in
from trainer.sharing.episodes import keep_taken, peers_of
from trainer.sharing.journal import Entry, Mixed, MixedPeer, copies_of, of_line
from trainer.sharing.mixing import WeighedPeer, Weights, counted, is_harmless, is_worse, misfit, mixed, share_of
from trainer.sharing.segment import name_of
from trainer.training.features.inflow.looking import Looks
from trainer.training.run import TrainingRun, crossed

#: After so many means in a row that own rows spoke against, the slot keeps to itself for so many intervals.
REFUSALS, REST = 3, 10


class Mixes(Looks):
    """For the loop's thread. `found`: the others' weights that wait for the next barrier at which they are mixed in, in
    the order of their slots; `kept`: the names of their copies. The other slots are looked at from the middle of an
    interval on, unless something waits, and each of their checkpoints counts once: one that is away pulls nobody.
    `ahead`: what is still to be taken again; `drop`: is told which copies nobody needs.
    """

    def __init__(
        self, job: Job, training: Training, ahead: Iterable[Entry], drop: Callable[[Iterable[str]], None]
    ) -> None:
        super().__init__("mixing", "the weights of {} cannot be read now")
        self.found: list[OtherLearner] = []
        self.kept: set[str] = set()
        self._drop = drop
        self._job, self._training = job, training
        self._every = training.group.mix_every
        before = [entry for entry in (*of_line(job.slot_dir), *ahead) if isinstance(entry, Mixed)]
        self._known = {peer.slot: (peer.attempt, peer.of) for entry in before for peer in entry.mix}
        self._since: Weights = {}
        self._at = 0
        self._refusals = 0
        self._rests_until = 0

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
            self._begin_looking()
        if not crossed(before, self._at, self._every):
            return None
        own = copied(learner.weights())
        since, self._since = self._since, own
        found, self.found = self.found, []
        if found:
            self.kept = set()
        is_free = found and self._at >= self._rests_until
        entry = self._mix(state, learner, own, since, found, write) if is_free else None
        used = set(copies_of([entry])) if entry is not None else set()
        self._drop(name for one in found if (name := name_of(one.data)) not in used)
        return entry

    def begin_anew(self) -> None:
        """The learner was replaced: what it moved until now is not its own."""
        self._since = {}

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
        entry = Mixed(state.step, tuple(_entry_of(one, peer) for one, peer in pairs), share)
        if not is_taken or not write([entry]):
            _put(learner, own)
            return None
        self._refusals = 0
        self._since = copied(learner.weights())
        state.mixed += 1
        self.say_once(f"the weights of {whom} are mixed in from step {state.step:,} on", cause="first")
        return entry

    def _weighed(self, own: Weights, one: OtherLearner) -> WeighedPeer | None:
        weights = tensors_in(one.data)
        counts = counted(self._at, one.updates, self._every)
        why = misfit(own, weights) if counts else None
        if why is not None:
            self.say_once(f"the weights of slot {one.slot} are not mixed in: {why}", cause=f"{one.slot} {why}")
        return WeighedPeer(weights, counts) if counts and why is None else None

    def _refuse(self, words: str) -> None:
        self._refusals += 1
        self.say_once(words, cause="refused")
        if self._refusals == REFUSALS:
            self._refusals, self._rests_until = 0, self._at + REST * self._every
            self.say_once(
                f"own rows spoke against {REFUSALS} means in a row: no weights are mixed in until update "
                f"{self._rests_until:,}",
                cause="rests",
            )

    def _begin_looking(self) -> None:
        if not self.found and self.is_idle() and self._job.hand_over_reason() is None:
            self.begin_look(partial(self._look, self._at, self._since.keys()))

    def _look(self, updates: int, names: Collection[str]) -> None:
        slots: list[int] = []
        own: Sequence[Mapping[str, Any]] = ()
        found: list[OtherLearner] = []
        with self.at("the other slots"):
            slots, own = peers_of(self._job), read_evaluations(self._job.slot_dir)
        for slot in slots:
            with self.at(f"slot {slot}"):
                folder = self._job.run_dir / "slots" / str(slot)
                one = find_learner(folder, slot, self._training, names.__contains__, self._known.get(slot))
                if one is None:
                    continue
                self._known[slot] = (one.attempt, one.step)
                if counted(updates, one.updates, self._every) and not is_worse(own, read_evaluations(folder)):
                    name = name_of(one.data)
                    self.kept.add(name)
                    keep_taken(self._job, name, one.data)
                    found.append(one)
        self.found = found


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


def _entry_of(one: OtherLearner, peer: WeighedPeer) -> MixedPeer:
    return MixedPeer(one.slot, one.attempt, one.step, name_of(one.data), peer.counts)


def named(slots: Sequence[int]) -> str:
    """In words."""
    *others, last = map(str, slots)
    return f"slots {', '.join(others)} and {last}" if others else f"slot {last}"


@torch.no_grad()
def _put(learner: Algorithm, weights: Weights) -> None:
    for name, tensor in learner.weights().items():
        tensor.copy_(weights[name])
