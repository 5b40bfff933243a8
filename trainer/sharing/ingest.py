"""Contributors' segments: what waits in the inboxes for this slot is judged, and what is good kept ready for the loop.

The work is bounded a round and in memory, and contributors take turns, so a flood from one of them keeps nobody else
out, and neither does a folder of somebody's that cannot be used. Where the slot takes nothing (any more), those who are
dropped are seen to all the same, and what is counted is cleared away.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

from anchorleg.job import Job
from syncd import store
from trainer.config.training import Training
from trainer.sharing.duplicates import TakenBefore, Trace
from trainer.sharing.journal import Taken
from trainer.sharing.judge import Accepted, ContributorStanding, Judge, RefusedSegment, SlotJudge, judge
from trainer.sharing.notice import ContributionNotice, usable_of
from trainer.sharing.reader import WITH_A_LIE, InflowSource, Ready, ReadySegments, Removals, Why
from trainer.sharing.segment import MALFORMED, Reason
from trainer.sharing.spotcheck import Resimulator, SpotChecks

#: Segments judged in one round: 10,000 rows a second, ten learners' own; at 2 ms each it is 4 % of one core.
JUDGED_A_ROUND = 20
#: Good rows that wait for the loop: 20 MB. Beyond it segments stay in the inbox.
MAX_READY_ROWS = 50_000
#: Inboxes are freed of what nobody fetched this often.
PRUNE_EVERY_S = 600.0
#: What stands for a contributor's name where it is about all that give as accounts of this machine.
OTHER_ACCOUNTS = "other accounts"
#: What is wrong with a file itself, not with the folder: a link, no permission, no regular file.
_ITS_OWN_FAULT = (errno.ELOOP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENXIO)


class Ingester(InflowSource):
    """Judges for one slot. `step` is for the loop to set; `know` for the publisher; the rest for the loop.

    `start`: (attempt, step) of the checkpoint that was gone on from. `seen`: contents taken before. `counted`: segments
    whose rows are in that checkpoint. `taken`: others that are in it, or that the loop will take again by itself.
    `unwanted`: (who, file) of what the slot went back to be without. `resimulate`: makes what does segments again, in
    the thread; None where this run's environments cannot be repeated. `step`: where the learner is. `notice`: who gave
    what. `ready`: the good, for the loop to take. `removals`: whose rows it is to take out.
    """

    def __init__(
        self,
        job: Job,
        training: Training,
        *,
        step: int,
        start: tuple[int, int] | None = None,
        seen: Iterable[str] = (),
        counted: Sequence[Taken] = (),
        taken: Sequence[Taken] = (),
        unwanted: Collection[tuple[str, str]] = (),
        resimulate: Callable[[], Resimulator | None] = lambda: None,
        clock: Callable[[], float] = time.time,
        judge: Judge = judge,
        most_ready_rows: int = MAX_READY_ROWS,
    ) -> None:
        super().__init__()
        self.step = step
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        self._job = job
        self._training = training
        self._clock = clock
        self._most_ready_rows = most_ready_rows
        self._shared = store.Shared(job.shared_dir)
        self.where = f"the inboxes under {self._shared.path}"
        self._before = TakenBefore(job, [*seen, *(entry.content for entry in taken)])
        self._taken = {(entry.who, entry.sha256) for entry in taken}
        self._unwanted = frozenset(unwanted)
        self._counted: deque[Taken] = deque(counted)
        self._judge = SlotJudge(job, job.slot, training, judge)
        self._listed: dict[str, deque[Path]] = {}
        self._served_last = ""
        self._gone: set[str] = set()
        self.ready = ReadySegments()
        self.removals = Removals(job, self.ready, start)
        self._checks = SpotChecks(resimulate, training.contribution_check_share)
        self._broken: dict[str, str] = {}
        self._pruned_at = time.monotonic()
        self.notice = ContributionNotice(job, clock=clock, usable=usable_of(training.group, job.slots))
        self._is_closed = False
        self._incoming: store.Incoming | None = None
        self._standing = ContributorStanding()

    @property
    def has_something(self) -> bool:
        """Whether `ready` or `removals` would give something. Cheap."""
        return bool(self.ready.rows or self.removals)

    def counted(self, entries: Iterable[Taken]) -> None:
        """A published checkpoint has the rows of these: their files may go."""
        self._counted.extend(entries)

    def know(self, attempt: int, seq: int, step: int) -> None:
        """A policy of this slot is about to be seen."""
        self._judge.versions.know(attempt, seq, step)

    def look(self) -> None:
        """One round; at the end it judges nothing more, and clears away what the last checkpoint counts."""
        takes = self._job.accepts_contributions
        self.one_round(JUDGED_A_ROUND if takes and not self.is_ending else 0)
        if takes and not self.is_ending:  # at the end of a run it is said that it is over
            self.notice.say(self.step)

    def close(self) -> None:
        self._checks.close()
        if self._incoming is not None:
            self._incoming.close()

    def one_round(self, judged: int = JUDGED_A_ROUND) -> int:
        """Look once: at most `judged` segments. Returns how many were. Errors: OSError; the next round goes on."""
        self._judge.versions.new_round()
        self._broken.clear()
        self._clear_counted()
        try:
            done = self._judge_some(judged)
        finally:
            self.notice.write(self._try)
            if self._broken:
                who, why = next(iter(self._broken.items()))
                others = f" and {len(self._broken) - 1} more" if len(self._broken) > 1 else ""
                self.notices.trouble(f"the inbox of {who}{others} cannot be used now ({why}); trying again")
                self.is_broken = True
        return done

    def _collect(self, most: int) -> None:
        """What other accounts of this machine gave comes into their inboxes. Errors: OSError."""
        slot = (self._shared, self._job.run_id, self._job.slot)
        if not self._is_closed:
            self.notices.note(*store.close_to_others(self._shared))
            self._is_closed = True
        if self._incoming is None and store.make_incoming(*slot):
            self._incoming = store.Incoming(*slot)
        if self._incoming is not None:
            self._incoming.collect(most, now=self._clock())

    def _judge_some(self, judged: int) -> int:
        self.notice.look()
        if judged:
            self._try(OTHER_ACCOUNTS, partial(self._collect, judged))
        inboxes = [
            one for one in store.Inbox.all_of(self._shared) if self._try(one.who, partial(store.insist_ours, one))
        ]
        for inbox in inboxes:
            self._try(inbox.who, partial(self._see_to_removals, inbox))
        if time.monotonic() - self._pruned_at >= PRUNE_EVERY_S:
            self._pruned_at = time.monotonic()
            for inbox in inboxes:
                self._try(inbox.who, partial(store.prune, inbox, now=self._clock()))
        done = 0
        welcome = [inbox for inbox in inboxes if judged and store.held(inbox.path, self._clock()) is None]
        welcome.sort(key=lambda inbox: (inbox.who <= self._served_last, inbox.who))  # the turns go on
        lines = [inbox for inbox in welcome if self._try(inbox.who, partial(self._list, inbox))]
        while lines and done < judged and self.ready.rows < self._most_ready_rows and not self.is_ending:
            inbox = lines.pop(0)
            line = self._listed[inbox.who]
            if not line or self.notice.is_spent(inbox):
                continue
            if self._try(inbox.who, partial(self._look_at, inbox, line.popleft())):
                self._served_last = inbox.who
                done += 1
                lines.append(inbox)
        return done

    def _try(self, who: str, act: Callable[[], object]) -> bool:
        """Do `act` in the inbox of `who`, unless that failed in this round already. Whether it was done."""
        if who in self._broken:
            return False
        try:
            act()
        except OSError as error:
            self._broken[who] = error.strerror or str(error)
            return False
        return True

    def _list(self, inbox: store.Inbox) -> None:
        """Look what `inbox` has for this slot, once the last listing is worked off."""
        run_id, slot = self._job.run_id, self._job.slot
        line = self._listed.get(inbox.who)
        if line is None:  # at first: what an attempt that came to nothing had accepted, and nobody has counted
            known = self._taken | {(entry.who, entry.sha256) for entry in self._counted}
            left = inbox.place("accepted", run_id, slot)
            line = self._listed[inbox.who] = deque(
                file.path
                for file in inbox.files("accepted")
                if file.path.parent == left and (inbox.who, file.path.name) not in known
            )
        if not line:
            line.extend(inbox.waiting(run_id, slot, now=self._clock()))

    def _look_at(self, inbox: store.Inbox, path: Path) -> None:
        """Judge one file and move it where it belongs. Errors: OSError, not of the file's own making."""
        with contextlib.suppress(FileNotFoundError):  # moved meanwhile, by the owner's `drop` or by hand
            self._sort(inbox, path)

    def _sort(self, inbox: store.Inbox, path: Path) -> None:
        if (inbox.who, path.name) in self._taken:
            inbox.accept(path, now=self._clock())  # a kill came between the journal and the move
            return
        try:
            data = inbox.read(path)
        except OSError as error:
            if error.errno not in _ITS_OWN_FAULT:
                raise
            self._refuse(inbox, path, Reason.DEFECT, f"it cannot be read ({error.strerror})")
            return
        if inbox.who in self._gone:
            self._refuse(inbox, path, Reason.DROPPED, f"{inbox.who} was dropped from this run")
            return
        if (inbox.who, path.name) in self._unwanted:
            self._refuse(inbox, path, Reason.DROPPED, "the training was rolled back to before it")
            return
        step = self.step
        traces = self._before.traces if _is_new(path) else None  # else it would be known by itself
        verdict = self._judge.verdict(data, path.name, step, self._before.contents, traces)
        if isinstance(verdict, Accepted):
            verdict = self._checked(inbox, verdict)
        if isinstance(verdict, RefusedSegment):
            self._refuse(inbox, path, verdict.reason, verdict.sentence)
        else:
            self._accept(inbox, path, verdict, step)
        reason = verdict.reason if isinstance(verdict, RefusedSegment) else None
        if isinstance(verdict, RefusedSegment) and reason == Reason.NOT_REPRODUCED:
            self._lied(inbox, verdict.sentence)
        elif why := self._standing.note(inbox.who, reason):
            self._hold(inbox, why)

    def _checked(self, inbox: store.Inbox, verdict: Accepted) -> Accepted | RefusedSegment:
        """`verdict`, or another where the segment must be done again and cannot be, or something else comes out."""
        who = inbox.who
        if who in self._training.trusted_contributors:
            return verdict
        in_doubt = store.in_doubt(inbox.path, self._clock())
        try:
            if not self._checks.can_repeat:
                return RefusedSegment(
                    Reason.UNTRUSTED, f"{who} is not in trusted_contributors, and its segments cannot be checked"
                )
            done = self._checks.check(who, verdict.segment, in_doubt=in_doubt)
        except Exception as error:  # noqa: BLE001 - as for the judge: the segment pays
            return RefusedSegment(
                Reason.DEFECT, f"simulating it again failed ({type(error).__name__}); please report it"
            )
        if done is None:
            return verdict
        exact = done.gap == 0.0 and not done.wrong
        self.notice.note(who, checked=1, exact=int(exact))
        return RefusedSegment(Reason.NOT_REPRODUCED, done.wrong) if done.wrong else verdict

    def _lied(self, inbox: store.Inbox, why: str) -> None:
        """What `inbox` brought did not happen: nothing of its sender stays, and it is held."""
        self.removals.write_down(inbox)
        self._take_back(inbox, WITH_A_LIE)
        self._try(inbox.who, partial(self.notice.take_back, inbox))
        self._hold(inbox, f"simulating a segment again proves it false: {why}")

    def _hold(self, inbox: store.Inbox, why: str) -> None:
        made = store.hold(inbox.path, why, now=self._clock())
        self._listed[inbox.who].clear()  # it waits in the inbox until then
        hours = (made.until - made.at) / 3600
        self.notices.note(f"nothing is accepted from {inbox.who} for {hours:g} h: {why} (`syncd readmit` ends this)")

    def _take_back(self, inbox: store.Inbox, why: Why) -> None:
        """What `inbox` gave leaves: what waits for the loop now, the ring's rows at its next barrier."""
        self._refuse_accepted(inbox, self.removals.begin(inbox.who, why))

    def _refuse_accepted(self, inbox: store.Inbox, found: Iterable[Ready]) -> None:
        for one in found:
            path = inbox.accepted(self._job.run_id, self._job.slot, one.sha256)
            with contextlib.suppress(FileNotFoundError):
                self._refuse(inbox, path, *self.removals.why[inbox.who])

    def _accept(self, inbox: store.Inbox, path: Path, verdict: Accepted, step: int) -> None:
        inbox.accept(path, now=self._clock())
        ready = Ready(inbox.who, path.name, verdict.task, verdict.rows(), verdict.content, step - verdict.lag)
        self._before.add(verdict.content, Trace.of(verdict.segment))
        if _is_new(path):  # else it was counted when it was accepted first
            ended = bool(verdict.segment.truncated[-1])  # of an episode's beginning nobody knows how it ended
            solved = ended and self._training.env.succeeded(verdict.segment.success)
            self.notice.note(inbox.who, accepted=1, rows=ready.count, episodes=int(ended), solved=int(solved))
        self.accepted += 1
        self.ready.add(ready)

    def _refuse(self, inbox: store.Inbox, path: Path, reason: str, sentence: str) -> None:
        inbox.refuse(path, str(reason), sentence, now=self._clock(), keep=reason not in MALFORMED)
        self.notice.note(inbox.who, refused={str(reason): 1})
        self.refused[str(reason)] += 1

    def _see_to_removals(self, inbox: store.Inbox) -> None:
        if not inbox.is_dropped:
            self._gone.discard(inbox.who)
        elif inbox.who not in self._gone:
            self._gone.add(inbox.who)
            self._take_back(inbox, (Reason.DROPPED, f"{inbox.who} was dropped from this run"))
        if self.removals.is_left(inbox):
            self.removals.write_down(inbox)
            self._take_back(inbox, WITH_A_LIE)
        self._refuse_accepted(inbox, self.removals.look(inbox))

    def _clear_counted(self) -> None:
        for _ in range(len(self._counted)):
            entry = self._counted[0]
            if not self._try(entry.who, partial(self._consume, entry)):
                self._counted.append(entry)  # before it leaves the front: `_list` must not take it for an orphan
            self._counted.popleft()

    def _consume(self, entry: Taken) -> None:
        inbox = store.Inbox.of(self._shared, entry.who)
        path = inbox.find(self._job.run_id, self._job.slot, entry.sha256)
        if path is not None and _is_new(path):
            inbox.accept(path, now=self._clock())
        inbox.consumed(self._job.run_id, self._job.slot, [entry.sha256])


def _is_new(path: Path) -> bool:
    return path.parents[2].name == "new"
