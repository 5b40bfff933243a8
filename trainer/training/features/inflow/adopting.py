"""A slot that is far behind takes another's learner over: decided beside the training, put in at a barrier.

Population-based training has laggards take better weights (Jaderberg et al. 2017, arXiv 1711.09846); too often is
greedy. So the lead must be large and seen twice, the first slot of a run never follows, and each does so once in a
tenth of its training at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorleg.job import Job
from trainer.algorithms.common.adoption import adopt
from trainer.config.settings import GOALS_PER_TASK
from trainer.config.training import Training
from trainer.history.read import read_evaluations, score_of, tells_success
from trainer.sharing.copies import Copies, OtherLearner, find_learner, is_comparable, tensors_in
from trainer.sharing.journal import Adopted, Entry, of_line
from trainer.sharing.peers import peers_of
from trainer.sharing.reader import InflowSource
from trainer.sharing.segment import name_of
from trainer.training.run import TrainingRun

#: Of success: two evaluations of 200 episodes differ so much by chance in 2 of 100 cases, twice in a row in 5 of 10,000
#: at most.
LEAD = 0.10
#: Evaluations of fewer episodes say too little, unless there are no more goals.
LEAST_EPISODES = 200
#: At most once in this part of `total_steps`.
PART_OF_BUDGET = 0.10
#: The slot that never takes another's learner: one line of a run goes on undisturbed.
NEVER = 0
#: Evaluations in a row at which the other must have led.
_TWICE = 2

Rows = Sequence[Mapping[str, Any]]


class Adoptions(InflowSource):
    """`found`: a learner to take over, copied, and how far its slot led; None: none. `ahead`: what is still to be taken
    again.
    """

    def __init__(self, job: Job, training: Training, copies: Copies, ahead: Iterable[Entry]) -> None:
        super().__init__()
        self.found: tuple[OtherLearner, float] | None = None
        self._job, self._training, self._copies = job, training, copies
        before = [entry for entry in (*of_line(job.slot_dir), *ahead) if isinstance(entry, Adopted)]
        self._steps = {entry.step for entry in before}
        self._known = {entry.adopt: (entry.attempt, entry.of) for entry in before}
        self._new: dict[int, Mapping[str, Any]] = {}
        self._is_asked = False

    @property
    def is_idle(self) -> bool:
        return not self._is_asked or self.is_ending

    def evaluated(self, row: Mapping[str, Any], step: int) -> None:
        """A row of `evaluations.jsonl` was made, and the training is at `step`: look whom to follow."""
        self._new[int(row["step"])] = row
        is_ending = step >= self._training.total_steps or self._job.hand_over_reason() is not None
        if not is_ending and self.found is None and self.may(step):
            self._is_asked = True

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
        learner, lead = self.found
        sha256 = name_of(learner.data)
        entry = Adopted(state.step, learner.slot, *learner.version, sha256, round(lead, 4))
        if not write([entry]):
            return None
        self._steps.add(entry.step)
        self._known[entry.adopt] = learner.version
        self.found = None
        self._copies.entered([sha256])
        self.notices.note(put_in(state, entry, learner.data))
        return entry

    def lost(self, entry: Adopted) -> None:
        """It was to be done again, and cannot be: it keeps the slot from nothing."""
        self._steps.discard(entry.step)
        self._known.pop(entry.adopt, None)

    def look(self) -> None:
        self.found = self._look()
        self._is_asked = False

    def _look(self) -> tuple[OtherLearner, float] | None:
        job, rows, folders = self._job, list[Mapping[str, Any]](), dict[int, Path]()
        with self.at("the slots' learners"):
            own = {row["step"]: row for row in read_evaluations(job.slot_dir)} | self._new
            rows = [own[step] for step in sorted(own) if step > (self._last or 0)]
            folders = {slot: job.run_dir / "slots" / str(slot) for slot in peers_of(job)}
        others: dict[int, Rows] = {}
        for slot, folder in folders.items():
            with self.at(f"the learner of slot {slot}"):
                its = read_evaluations(folder)
                others |= {slot: its} if whom_to_follow(rows, {slot: its}) else {}
        for slot, lead in whom_to_follow(rows, others):  # some are of another group
            with self.at(f"the learner of slot {slot}"):
                learner = find_learner(folders[slot], slot, self._training, known=self._known.get(slot))
                if learner is not None:
                    self._copies.keep(learner.data)
                    return learner, lead
        return None


def is_allowed(slot: int, step: int, total_steps: int, last: int | None) -> bool:
    """Whether `slot` may take a learner over at `step`; `last`: the step at which it did so before. Pure."""
    return slot != NEVER and (last is None or step - last >= PART_OF_BUDGET * total_steps)


def whom_to_follow(own: Rows, others: Mapping[int, Rows]) -> list[tuple[int, float]]:
    """The slots that were better than this one by more than `LEAD` at the last two evaluations of each, furthest first,
    and by how much at the last. Rows as of `evaluations.jsonl`, oldest first. Pure.
    """
    leads = {slot: _lead(own, rows) for slot, rows in others.items()}
    found = [(slot, lead) for slot, lead in leads.items() if lead is not None]
    return sorted(found, key=lambda one: (-one[1], one[0]))


def _lead(own: Rows, other: Rows) -> float | None:
    pairs = list(zip(own[-_TWICE:], other[-_TWICE:], strict=False))
    if len(pairs) < _TWICE or len(own) < _TWICE or len(other) < _TWICE:
        return None
    if not all(_says_enough(one) and is_comparable(one, its) for one, its in pairs):
        return None
    if not all(0 <= score_of(row) <= 1 for pair in pairs for row in pair):  # which NaN is not, either
        return None
    leads = [score_of(its) - score_of(one) for one, its in pairs]
    return leads[-1] if min(leads) > LEAD else None


def _says_enough(row: Mapping[str, Any]) -> bool:
    goals = int(row["goals_per_task"])
    return tells_success(row) and (goals >= GOALS_PER_TASK or goals * len(row["success"]) >= LEAST_EPISODES)


def put_in(state: TrainingRun, entry: Adopted, data: bytes) -> str:
    """Do what the journal says, and begin the average of the actor anew; a sentence. Where it comes to nothing it
    comes to the same again on a resume.
    """
    algorithm, why = state.algorithm, "this algorithm does not support it"
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
                f"step {entry.step:,}: adopts the learner of slot {entry.adopt} at its step {entry.of:,}, which "
                f"solved {entry.lead:.0%} more; this slot's rows and counters stay"
            )
    return f"the learner of slot {entry.adopt} is not adopted: {why}"
