"""The one way in: what comes from outside enters the training at barriers, journaled, and the same again on a resume.

`trainer.sharing.reader` reads and judges beside the training. This is the loop's side: at the end of a vector step it
takes what is ready, writes the journal durably, and only then lets it in. An attempt that goes on from a checkpoint
first takes again what its parent had taken after that checkpoint, each entry at its step; new ones come after the last
of these.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from anchorleg.job import Job
from anchorleg.output import Notices
from syncd import store
from trainer.checkpoints.resume import Start
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.suite import suite_of
from trainer.sharing.copies import Copies, read_taken
from trainer.sharing.ingest import Ingester
from trainer.sharing.journal import (
    Adopted,
    Entry,
    Inherited,
    Mixed,
    OfSlots,
    Removed,
    Taken,
    TakenFromPeer,
    append,
    begin,
    copies_of,
    inherited,
)
from trainer.sharing.judge import Accepted, why_none
from trainer.sharing.notice import say_none
from trainer.sharing.peers import PeerReader
from trainer.sharing.reader import InflowSource, Reader, Ready
from trainer.sharing.segment import BadSegmentError, decode, name_of
from trainer.sharing.spotcheck import Resimulator
from trainer.training.features.base import EndReason, Feature, RunningAttempt
from trainer.training.features.inflow.adopting import Adoptions, put_in
from trainer.training.features.inflow.mixing import Mixes, mix_in
from trainer.training.features.inflow.rollback import unlearn
from trainer.training.run import TrainingRun, hand_out

#: Rows enter this often at most, so that the journal's fsync (some ms) costs the training less than one in a hundred.
TAKE_EVERY_S = 1.0
#: Rows that enter at one barrier: 10,000 are added in 3 ms.
MAX_ROWS = 10_000
#: The reader is waited for this long at the end.
CLOSE_WAIT_S = 5.0


class Intake(Feature):
    """What enters from outside, for one attempt. All methods are for the loop's thread.

    `ahead`: what is still to enter again, in order. `ends_unsaved`: the attempt ends at this barrier, and saves nothing
    more: the slot goes on from an older checkpoint.
    """

    def __init__(
        self,
        job: Job,
        training: Training,
        start: Start | None,
        resimulate: Callable[[], Resimulator | None] = lambda: None,
    ) -> None:
        before = inherited(job, start)
        self._job, self._training = job, training
        self._notices = Notices()
        suite = suite_of(training).open()
        self._spaces = suite.spaces
        self.ahead = deque(before.later)
        self._gone: list[tuple[Taken | OfSlots, Exception]] = []
        self._uncounted: list[Taken | OfSlots] = [*before.held]
        self._given_at: dict[str, float] = {}
        self._published_step = step = start.ref.step if start else 0
        self._took_at = float("-inf")
        self._tried: set[str] = set()
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
                self._notices.note(f"experience from {' and '.join(whose)} is not accepted: {why}")
            if job.accepts_contributions:
                say_none(job, step, self._notices.note, over=False)
        sources: list[InflowSource | None] = [self.copies, self.ingester, self.peers, self.adoptions, self.mixes]
        self.reader = Reader(job, [source for source in sources if source is not None])

    def _open_doors(self, before: Inherited, start: Start | None, resimulate: Callable[[], Resimulator | None]) -> None:
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
        self.open()

    def open(self) -> None:
        """Write down what was inherited, and begin to read. Errors: OSError."""
        begin(self._job.attempt_dir, self.ahead)
        self.copies.begin(set(copies_of([*self._uncounted, *self.ahead])))
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
            say_none(self._job, run.state.step, run.say, over=True)
        else:
            self.close()

    def take(self, state: TrainingRun) -> None:
        """At a barrier: what is due again, else what is ready. Costs next to nothing where nothing is."""
        for door in self._doors:
            door.step = state.step
        if self.ahead:
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
                door.removals.take_out(partial(self._remove, state), state.step)
            if ready := door.ready.take(MAX_ROWS):
                self._take_new(state, ready, door)

    def _take_again(self, state: TrainingRun) -> None:
        while self.ahead and self.ahead[0].step <= state.step:
            entry = self.ahead.popleft()
            if isinstance(entry, Removed):
                _drop_rows(state, entry.drop)
                continue
            try:
                self._enter_again(state, entry)
            except (OSError, ValueError, BadSegmentError) as error:
                self._gone.append((entry, error))
                if isinstance(entry, Adopted) and self.adoptions is not None:
                    self.adoptions.lost(entry)
            else:
                self._entered(entry)
        if not self.ahead:
            self._say_gone()

    def _enter_again(self, state: TrainingRun, entry: Taken | OfSlots) -> None:
        """Errors: OSError, ValueError, BadSegmentError where a file of it is gone or damaged."""
        if isinstance(entry, Taken):
            files = [_read_segment(self._job, entry)]
        else:
            files = [read_taken(self._job, sha256) for sha256 in copies_of([entry])]
        if isinstance(entry, Adopted | Mixed):
            words = put_in(state, entry, *files) if isinstance(entry, Adopted) else mix_in(state, entry, files)
            hand_out(state)
            self._notices.note(*filter(None, [words]))
        else:
            segment = decode(files[0], self._spaces)
            task = self._spaces.tasks.index(segment.task)
            enter_rows(state, entry, task, Accepted(segment, task, entry.content, 0).rows())

    def _say_gone(self) -> None:
        """One sentence of all that could not be taken again."""
        if self._gone:
            (entry, error), more = self._gone[0], len(self._gone) - 1
            others = f", and {more:,} more up to step {self._gone[-1][0].step:,}" if more else ""
            self._notices.note(
                f"{_what(entry)} that entered at step {entry.step:,} is gone or damaged ({error}){others}: "
                f"continuing without {'them' if more else 'it'}; bits may differ from here on"
            )
            self._gone.clear()

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
        self.copies.counted({*files} - {*copies_of((*self._uncounted, *self.ahead))})

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
        self._say_gone()

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

    def _remove(self, state: TrainingRun, who: str) -> bool:
        """False: the disk refuses something now, and it must be tried again."""
        others = state.experience.others if state.experience else None
        if others is not None and (rows := others.rows_of(who)):
            if not self._written([Removed(state.step, who)]):
                return False
            self._notices.note(f"{rows:,} contributed rows of {who} are removed")
            others.drop(who)
        wanted = self._training.contribution_rollback
        try:
            self.ends_unsaved |= unlearn(self._job, wanted, who, self._notices.note)
        except OSError as error:
            words = f"the learning from {who} cannot be undone now ({error.strerror or error})"
            if who not in self._tried:
                self._notices.note(f"{words}: it is tried again")
            self._tried.add(who)
            return False
        except ValueError as error:
            self._notices.note(f"it is unknown since when the training learned from {who} ({error})")
        self._tried.discard(who)
        return True

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


def enter_rows(state: TrainingRun, entry: Taken | TakenFromPeer, task: int, rows: dict[str, Any]) -> None:
    """The rows of `entry`, which is journaled, enter the ring of their kind."""
    experience, paid = state.experience, None
    if experience is None:
        raise AssertionError("this algorithm does not learn from experience")
    if isinstance(entry, TakenFromPeer):
        who, ring = str(entry.peer), experience.join()
        segments, transitions = experience.given.get(who, (0, 0))
        experience.given[who] = [segments + 1, transitions + entry.rows]
    else:
        who, ring, paid = entry.who, experience.welcome(), experience.pays(task, rows["reward"])
    ring.add(who, rows, task=task, content=entry.content, policy_step=entry.policy_step, step=entry.step, paid=paid)


def _drop_rows(state: TrainingRun, who: str) -> None:
    if state.experience is not None and state.experience.others is not None:
        state.experience.others.drop(who)


def _read_segment(job: Job, entry: Taken) -> bytes:
    """Errors: OSError; ValueError where it is another file."""
    inbox = store.Inbox.of(store.Shared(job.shared_dir), entry.who)
    path = inbox.find(job.run_id, job.slot, entry.sha256)
    if path is None:
        raise FileNotFoundError(2, f"{entry.sha256[:12]}… is not in the inbox")
    data = inbox.read(path)
    if name_of(data) != entry.sha256:
        raise ValueError(f"{entry.sha256[:12]}… has changed since it was sent")
    return data


def _what(entry: Taken | OfSlots) -> str:
    if isinstance(entry, Adopted):
        return f"the learner of slot {entry.adopt}"
    if isinstance(entry, Mixed):
        return f"a mean with the weights of {entry.whom}"
    return f"a segment of {entry.who if isinstance(entry, Taken) else f'slot {entry.peer}'}"
