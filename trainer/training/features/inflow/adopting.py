"""A slot that is far behind takes another's learner over: the decision is made beside the training, and waits for a
barrier. What it is, and when, `trainer.sharing.adoption` says; journal and barrier are those of `intake.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from anchorleg.job import Job
from trainer.algorithms.common.adoption import adopt
from trainer.config.training import Training
from trainer.history.read import read_evaluations
from trainer.sharing.adoption import (
    Leader,
    OtherLearner,
    find_learner,
    furthest_first,
    is_allowed,
    tensors_in,
    whom_to_follow,
)
from trainer.sharing.episodes import keep_taken, peers_of
from trainer.sharing.journal import Adopted, Entry, of_line
from trainer.sharing.segment import name_of
from trainer.training.features.inflow.looking import Looks
from trainer.training.run import TrainingRun


class Adoptions(Looks):
    """For the loop's thread. `found`: a learner to take over, copied, and how far its slot led; None: none. `kept`: the
    newest copy, by its sha256; it may be about to be taken over.
    """

    def __init__(self, job: Job, training: Training, ahead: Iterable[Entry]) -> None:
        super().__init__("adopting", "whether {} is better cannot be told now")
        self.found: tuple[OtherLearner, Leader] | None = None
        self.kept = ""
        self._job, self._training = job, training
        before = [entry for entry in (*of_line(job.slot_dir), *ahead) if isinstance(entry, Adopted)]
        self._steps = {entry.step for entry in before}
        self._known = {entry.adopt: (entry.attempt, entry.of) for entry in before}
        self._new: dict[int, Mapping[str, Any]] = {}

    def evaluated(self, row: Mapping[str, Any], step: int) -> None:
        """A row of `evaluations.jsonl` was made, and the training is at `step`: look whom to follow."""
        self._new[int(row["step"])] = row
        is_ending = step >= self._training.total_steps or self._job.hand_over_reason() is not None
        if self.is_idle() and not is_ending and self.found is None and self.may(step):
            self.begin_look(self._look)

    def may(self, step: int) -> bool:
        """Whether a learner may be taken over at `step`."""
        return is_allowed(self._job.slot, step, self._training.total_steps, self._last)

    @property
    def _last(self) -> int | None:
        return max(self._steps, default=None)

    def enter(self, state: TrainingRun, write: Callable[[list[Entry]], bool]) -> Adopted | None:
        """At a barrier: take over what was found. `write` journals it, or says False; then it waits."""
        if self.found is None or not self.may(state.step):
            return None
        learner, leader = self.found
        entry = _entry_of(learner, leader, state.step)
        if not write([entry]):
            return None
        self._steps.add(entry.step)
        self._known[entry.adopt] = (entry.attempt, entry.of)
        self.found, self.kept = None, ""  # from now on the entry says that the copy is needed
        self.say(put_in(state, entry, learner.data))
        return entry

    def lost(self, entry: Adopted) -> None:
        """It was to be done again, and cannot be: it keeps the slot from nothing."""
        self._steps.discard(entry.step)
        self._known.pop(entry.adopt, None)

    def _look(self) -> None:
        job, rows, folders = self._job, list[Mapping[str, Any]](), dict[int, Path]()
        with self.at("another slot"):
            own = {row["step"]: row for row in read_evaluations(job.slot_dir)} | self._new
            rows = [own[step] for step in sorted(own) if step > (self._last or 0)]
            folders = {slot: job.run_dir / "slots" / str(slot) for slot in peers_of(job)}
        leaders: list[Leader] = []
        for slot, folder in folders.items():
            with self.at(f"slot {slot}"):
                leaders += whom_to_follow(rows, {slot: read_evaluations(folder)})
        for leader in furthest_first(leaders):  # some are of another group
            with self.at(f"slot {leader.slot}"):
                learner = find_learner(
                    folders[leader.slot], leader.slot, self._training, known=self._known.get(leader.slot)
                )
                if learner is not None:
                    self.kept = name_of(learner.data)
                    keep_taken(job, self.kept, learner.data)
                    self.found = (learner, leader)
                    return


def _entry_of(learner: OtherLearner, leader: Leader, step: int) -> Adopted:
    return Adopted(step, learner.slot, learner.attempt, learner.step, name_of(learner.data), round(leader.lead, 4))


def put_in(state: TrainingRun, entry: Adopted, data: bytes) -> str:
    """Do what the journal says, and begin the average of the actor anew; a sentence. Where it comes to nothing it
    comes to the same again on a resume.
    """
    algorithm, why = state.algorithm, "this algorithm cannot"
    if algorithm.weights():
        try:
            adopt(algorithm, tensors_in(data))
        except ValueError as error:
            why = str(error)
        else:
            state.adopted += 1
            if state.average is not None:
                state.average.begin_anew()
            return (
                f"step {entry.step:,}: goes on with what slot {entry.adopt} had learned by its step {entry.of:,}, "
                f"which solved {entry.lead:.0%} more; its own rows and counters stay"
            )
    return f"what slot {entry.adopt} has learned is not taken over: {why}"
