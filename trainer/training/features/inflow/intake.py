"""The one way in: what comes from outside enters the training at barriers, journaled, and the same again on a resume.

`trainer.sharing.reader` reads and judges beside the training. This is the loop's side: at the end of a vector step it
takes what is ready, writes the journal durably, and only then lets it in. An attempt that goes on from a checkpoint
first takes again what its parent had taken after that checkpoint, each entry at its step (`again.py`); new ones come
after the last of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from anchorleg.job import Job
from anchorleg.output import Notices
from trainer.checkpoints.resume import Start
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.suite import suite_of
from trainer.sharing.copies import Copies
from trainer.sharing.ingest import Ingester
from trainer.sharing.journal import (
    Adopted,
    Entry,
    Inherited,
    OfSlots,
    Removed,
    Taken,
    TakenFromPeer,
    append,
    begin,
    copies_of,
    inherited,
)
from trainer.sharing.judge import why_none
from trainer.sharing.notice import say_over, say_useless
from trainer.sharing.peers import PeerReader
from trainer.sharing.reader import InflowSource, Reader, Ready
from trainer.sharing.spotcheck import Redo
from trainer.training.features.base import EndReason, Feature, RunningAttempt
from trainer.training.features.inflow.adopting import Adoptions
from trainer.training.features.inflow.again import JournalReplay, enter_rows
from trainer.training.features.inflow.mixing import Mixes
from trainer.training.features.inflow.rollback import unlearn
from trainer.training.ranks import hand_out
from trainer.training.run import TrainingRun

#: Rows enter this often at most, so that the journal's fsync (some ms) costs the training less than one in a hundred.
TAKE_EVERY_S = 1.0
#: Rows that enter at one barrier: 10,000 are added in 3 ms.
MAX_ROWS = 10_000
#: A removal that the disk refuses is tried again this often: it reads the slot's journals, and no step waits for long.
REMOVE_AGAIN_S = 60.0
#: The reader is waited for this long at the end.
CLOSE_WAIT_S = 5.0


class Intake(Feature):
    """What enters from outside, for one attempt. All methods are for the loop's thread.

    `ends_unsaved`: the attempt ends at this barrier, and saves nothing more: the slot goes on from an older checkpoint,
    or what entered at this step before could not be read in the time that is left.
    """

    def __init__(
        self, job: Job, training: Training, start: Start | None, resimulate: Callable[[], Redo | None] = lambda: None
    ) -> None:
        before = inherited(job, start)
        self._job, self._training = job, training
        self._notices = Notices()
        suite = suite_of(training).open()
        self._replay = JournalReplay(job, suite.spaces, before.later, self._notices)
        self._uncounted: list[Taken | OfSlots] = [*before.held]
        self._given_at: dict[str, float] = {}
        self._published_step = step = start.ref.step if start else 0
        self._took_at = float("-inf")
        self._remove_at: dict[str, float] = {}
        self.ends_unsaved = False
        self.copies = Copies(job)
        self.ingester: Ingester | None = None
        self.peers: PeerReader | None = None
        ahead = before.later
        self.adoptions = Adoptions(job, training, self.copies, ahead) if training.group.adopt else None
        self.mixes = Mixes(job, training, self.copies, ahead, self._not_needed) if training.group.mix else None
        if (why := why_none(training, suite)) is None:
            self._open_doors(before, start, resimulate)
        else:
            whose = ["other machines"] * job.accepts_contributions + ["other slots"] * training.group.rows
            if whose:
                self._notices.note(f"experience of {' and '.join(whose)} is not taken: {why}")
            if job.accepts_contributions:
                say_useless(job, step, self._notices.note)
        sources: list[InflowSource | None] = [self.copies, self.ingester, self.peers, self.adoptions, self.mixes]
        self.reader = Reader(job, [source for source in sources if source is not None])

    def _open_doors(self, before: Inherited, start: Start | None, resimulate: Callable[[], Redo | None]) -> None:
        job, training, step = self._job, self._training, self._published_step
        experience = start.experience if start is not None else None
        if training.group.rows:
            known = experience.peers.recent if experience is not None and experience.peers is not None else ()
            given = [entry.content for entry in before.later if isinstance(entry, TakenFromPeer)]
            self.peers = PeerReader(job, training, self.copies, step=step, seen=[*known, *given])
        others = experience.others if experience is not None else None
        from_others = [entry for entry in (*before.held, *before.later) if isinstance(entry, Taken | Removed)]
        if job.accepts_contributions or from_others or others is not None:
            self.ingester = Ingester(
                job,
                training,
                step=step,
                start=(start.ref.attempt, step) if start else None,
                seen=others.recent if others is not None else (),
                counted=before.counted,
                taken=[entry for entry in from_others if isinstance(entry, Taken)],
                unwanted=before.unwanted,
                resimulate=resimulate,
            )

    @property
    def _doors(self) -> list[Ingester | PeerReader]:
        return [door for door in (self.ingester, self.peers) if door is not None]

    def begin(self, run: RunningAttempt) -> None:
        self._replay.meanwhile = partial(run.wait_for, "waiting for the files of what entered before")
        self.open()

    def open(self) -> None:
        """Write down what was inherited, and begin to read. Errors: OSError."""
        begin(self._job.attempt_dir, self._replay.ahead)
        self.copies.begin(set(copies_of([*self._uncounted, *self._replay.ahead])))
        self.reader.begin()

    def after_step(self, run: RunningAttempt, transition: Transition | None) -> None:
        self.take(run.state)
        run.ends_unsaved |= self.ends_unsaved

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        row |= rows_from_outside(run.state)

    def on_evaluation(self, run: RunningAttempt, row: Mapping[str, Any]) -> None:
        if self.adoptions is not None:
            self.adoptions.evaluated(row, run.state.step)

    def on_version(self, attempt: int, seq: int, step: int) -> None:
        if self.ingester is not None:
            self.ingester.know(attempt, seq, step)

    def facts(self, run: RunningAttempt) -> Mapping[str, Any]:
        rows, found = run.state.ring_rows, dict[str, Any]()
        if self._job.accepts_contributions or rows:
            found = {"contributed_rows": rows, "accepted": 0, "refused": 0, **self.summary()}
            found["contributors"] = self.ingester.notice.by_contributor if self.ingester is not None else {}
        return found | ({"group": self.group_of(run.state)} if self._training.group.rows else {})

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        if reason is EndReason.FINISHED:
            self.complete(run.state.step)  # first: it says again and again that experience is taken
            say_over(self._job, run.state.step, run.say)
        else:
            self.close()

    def take(self, state: TrainingRun) -> None:
        """At a barrier: what is due again, else what is ready. Costs next to nothing where nothing is."""
        for door in self._doors:
            door.step = state.step
        if self._replay.ahead:
            self._take_again(state)
            return
        for learners in (self.adoptions, self.mixes):
            if learners is not None and (entry := learners.enter(state, self._written)) is not None:
                self._uncounted.append(entry)
                hand_out(state)
                if isinstance(entry, Adopted) and self.mixes is not None:
                    self.mixes.begin_anew()
        waiting = [door for door in self._doors if door.has_something]
        if not waiting or time.monotonic() - self._took_at < TAKE_EVERY_S:
            return
        self._took_at = time.monotonic()
        for door in waiting:
            if isinstance(door, Ingester):
                self._take_out(state, door)
            ready = door.ready.take(MAX_ROWS)
            if ready:
                self._take_new(state, ready, door)

    def _take_again(self, state: TrainingRun) -> None:
        entered, lost = self._replay.take_due(state)
        for entry in entered:
            self._entered(entry)
        for adopted in lost:
            if self.adoptions is not None:
                self.adoptions.lost(adopted)
        self.ends_unsaved |= self._replay.is_hung

    def _entered(self, entry: Taken | OfSlots) -> None:
        self._uncounted.append(entry)
        if isinstance(entry, TakenFromPeer):
            self._given_at[str(entry.peer)] = round(time.time(), 1)

    def on_checkpoint(self, step: int) -> None:
        """The checkpoint of `step` is published: what the one before it holds need not be kept for a resume.

        What only this one holds is needed where it turns out damaged, and a resume walks back.
        """
        before, self._published_step = self._published_step, step
        done = [entry for entry in self._uncounted if entry.step <= before]
        self._uncounted = [entry for entry in self._uncounted if entry.step > before]
        if self.ingester is not None:
            self.ingester.counted([entry for entry in done if isinstance(entry, Taken)])
        self._not_needed(copies_of(done))

    def _not_needed(self, files: Iterable[str]) -> None:
        """These copies may go, but for those of what is not counted yet: the same may be taken twice."""
        self.copies.counted({*files} - {*copies_of((*self._uncounted, *self._replay.ahead))})

    def summary(self) -> dict[str, int]:
        """Segments that this attempt accepted and refused."""
        door = self.ingester
        return {} if door is None else {"accepted": door.accepted, "refused": sum(door.refused.values())}

    def group_of(self, state: TrainingRun) -> dict[str, Any]:
        """Which slot gave this one what, in all its attempts, and when (unix seconds) this one took the last of it."""
        given = state.experience.given if state.experience is not None else {}
        return {
            f"slot {slot}": {"segments": segments, "transitions": rows, "last_at": self._given_at.get(slot)}
            for slot, (segments, rows) in sorted(given.items())
        }

    def tell(self, say: Callable[[str], None]) -> None:
        self._notices.tell(say)
        self.reader.tell(say)

    def close(self) -> None:
        """End the reader. What is ready and not taken lies in the inbox, and with its giver, for the next attempt."""
        self.reader.close(CLOSE_WAIT_S)
        self._replay.say_gone()

    def complete(self, step: int) -> None:
        """The last checkpoint, of `step`, is published: `close`, and keep nothing for a resume."""
        self.on_checkpoint(step)  # once more: nobody goes on from a checkpoint before this one
        self.copies.complete()
        self.close()

    def _take_new(self, state: TrainingRun, ready: list[Ready], door: Ingester | PeerReader) -> None:
        taken = [_entry_of(one, state.step, is_peer=isinstance(door, PeerReader)) for one in ready]
        if not self._written(taken):
            (door.removals if isinstance(door, Ingester) else door.ready).put_back(ready)
            return
        for one, entry in zip(ready, taken, strict=True):
            enter_rows(state, entry, one.task, one.rows)
            self._entered(entry)
        self.copies.entered(copies_of(taken))

    def _take_out(self, state: TrainingRun, door: Ingester) -> None:
        left = []
        while (who := door.removals.next()) is not None:
            if self._remove(state, who):
                door.removals.done(who, state.step)
            else:
                left.append(who)
        for who in reversed(left):
            door.removals.later(who)

    def _remove(self, state: TrainingRun, who: str) -> bool:
        """False: the disk refuses something now, and it must be tried again."""
        others = state.experience.others if state.experience else None
        if others is not None and (rows := others.rows_of(who)):
            if not self._written([Removed(state.step, who)]):
                return False
            self._notices.note(f"the rows of {who} are taken out: {rows:,} contributed rows forgotten")
            others.drop(who)
        now = time.monotonic()
        if now < self._remove_at.get(who, now):
            return False
        try:
            self._unlearn(who)
        except OSError as error:
            if who not in self._remove_at:
                words = f"what the training learned from {who} cannot be seen to now ({error.strerror or error})"
                self._notices.note(f"{words}: it is tried again")
            self._remove_at[who] = now + REMOVE_AGAIN_S
            return False
        except ValueError as error:
            self._notices.note(f"since when the training learned from {who} cannot be told ({error})")
        self._remove_at.pop(who, None)
        return True

    def _unlearn(self, who: str) -> None:
        """Errors: as `unlearn`."""
        wanted = self._training.contribution_rollback
        self.ends_unsaved |= unlearn(self._job, wanted, who, self._notices.note)

    def _written(self, entries: Sequence[Entry]) -> bool:
        """Journal `entries`. False: the disk refused, and the user was told; nothing may enter then."""
        try:
            append(self._job.attempt_dir, entries)
        except OSError as error:
            self._notices.trouble(f"the journal of contributions cannot be written ({error.strerror}); they wait")
            return False
        self._notices.over()
        return True


def rows_from_outside(state: TrainingRun) -> dict[str, Any]:
    """What a row of metrics says of them.

    `contributed`, once others sent something in: rows in the ring, their share of a batch now, segments taken since the
    row before and how many steps behind their policies were. `group`, once other slots gave something: of their rows
    the same, and `group_rows`, those of each slot; how often another's learner was `adopted`, and others' weights were
    `mixed` in.
    """
    experience, found = state.experience, dict[str, Any]()
    given = state.learners
    if experience is not None:
        batch = state.training.off_policy.batch_size
        if others := experience.others_row(batch):
            found["contributed"] = others
        given = {**(experience.group_row(batch) or {}), **given}
    return found | ({"group": given} if given else {})


def _entry_of(one: Ready, step: int, *, is_peer: bool) -> Taken | TakenFromPeer:
    more = (one.sha256, one.count, one.content, one.policy_step)
    return TakenFromPeer(step, int(one.who), *more) if is_peer else Taken(step, one.who, *more)
