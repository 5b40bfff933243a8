"""The job's side of the contract: what a program that is kept alive by Anchorleg sees and says.

A program needs none of this (environment variables and exit codes are enough); this is the Python door::

    job = Job.from_environment() or Job.standalone(Path("runs/by-hand"))
    job.listen()
    start = job.choose_parent()                   # the checkpoint to go on from, or None
    while step < total:
        ...
        if job.hand_over_reason():
            job.save_checkpoint(step, save)       # save(folder) writes the files
            job.report(step=step, total=total, checkpoint_step=step)
            sys.exit(HANDED_OVER)

Rules that make a resume exact (docs/architecture.md, "Attempts"):

* an attempt writes below its own folder only, so a ghost of an older attempt harms nobody;
* what it starts from is exact: the newest good checkpoint of its own, else precisely the one that its
  `parent.json` names, and so on down the line; never "the newest file in sight";
* before each publication it looks for a higher claimed attempt (`superseded_by`), and ends if there is one.

Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from anchorleg.files import (
    create_exclusive,
    fsync_tree,
    make_folder,
    publish_folder,
    read_json,
    remove_folder,
    to_json,
    write_bytes,
    write_json,
)
from anchorleg.places import begin_id, published_attempt, run_id_of
from anchorleg.rollback import read_parent, rollbacks
from anchorleg.signals import answer_hand_over

if TYPE_CHECKING:
    from anchorleg.live.showing import Showing

#: Where a run publishes when it is not told where, in its own folder.
SHARED = "shared"
#: Exit code "checkpointed, give me another job" (sysexits.h EX_TEMPFAIL).
HANDED_OVER = 75
#: Exit code "another job would not help" (the convention of NVIDIA's resiliency extension).
DO_NOT_REQUEUE = 93

#: How often the hand-over file is looked for, at most: a stat on a network folder costs up to a millisecond.
HAND_OVER_LOOK_S = 0.25


class CheckpointRef(NamedTuple):
    """One published checkpoint: `slots/<k>/attempts/<attempt>/checkpoints/<step>/`."""

    attempt: int
    step: int
    path: Path


class Stretch(NamedTuple):
    """What one attempt added to the slot's history: the steps in (after, until]; until None: still open."""

    attempt: int
    after: int
    until: int | None


def attempt_numbers(slot_dir: Path) -> list[int]:
    """The attempts that have a folder, ascending."""
    try:
        names = os.listdir(slot_dir / "attempts")
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


def checkpoints_of(slot_dir: Path, attempt: int) -> list[CheckpointRef]:
    """The published checkpoints of one attempt, newest first. Unfinished ones have names that are no numbers."""
    folder = slot_dir / "attempts" / str(attempt) / "checkpoints"
    try:
        names = {int(name): name for name in os.listdir(folder) if name.isdigit()}
    except FileNotFoundError:
        return []
    return [CheckpointRef(attempt, step, folder / names[step]) for step in sorted(names, reverse=True)]


def _read_parent(slot_dir: Path, attempt: int) -> tuple[bool, CheckpointRef | None]:
    """(whether `attempt` has decided, what it decided on). A decision of None means: from scratch.

    Only an absent file is no decision. One that cannot be read is an error (OSError, ValueError): to overlook it would
    show a successor what a ghost published later.
    """
    found = read_parent(slot_dir, attempt)
    if found is None or found.attempt is None:
        return found is not None, None
    path = slot_dir / "attempts" / str(found.attempt) / "checkpoints" / found.checkpoint
    return True, CheckpointRef(found.attempt, found.step, path)


def candidates_before(slot_dir: Path, attempt: int, *, backs_until: int | None = None) -> Iterator[CheckpointRef]:
    """Where `attempt` may start from, best first, following each attempt's own decision.

    An attempt that decided on a parent hides whatever older attempts published after that parent, and so does a
    decision to go back (`anchorleg.rollback`); `backs_until`: only those that were made up to this attempt. Errors:
    OSError, ValueError where one of these cannot be read.
    """
    at, bound = attempt - 1, None
    last = attempt - 1 if backs_until is None else backs_until
    backs = [back for back in rollbacks(slot_dir, attempt - 1) if back.attempt <= last]
    while at >= 0:
        for ref in checkpoints_of(slot_dir, at):
            if (bound is None or ref.step <= bound) and not any(back.hides(ref.attempt, ref.step) for back in backs):
                yield ref
        decided, parent = _read_parent(slot_dir, at)
        if not decided:
            at, bound = at - 1, None
        elif parent is None:
            return
        else:
            at, bound = parent.attempt, parent.step


def passed_over(slot_dir: Path, attempt: int) -> list[CheckpointRef]:
    """What `attempt` would hand to the next one, newest first, had nobody decided to go back while it is the newest.

    It stays until the next one has begun: until then such a decision can be taken back. Errors: `candidates_before`'s.
    """
    left = {ref.path for ref in candidates_before(slot_dir, attempt + 1)}
    before = candidates_before(slot_dir, attempt + 1, backs_until=attempt - 1)
    return [ref for ref in before if ref.path not in left]


def lineage(slot_dir: Path, newest: int | None = None, *, oldest: int = 0) -> list[Stretch]:
    """The attempts whose steps make up the slot's history, oldest first, each cut at its successor's parent.

    An attempt that died before its first checkpoint is not in it, unless it is the newest one. `newest`: as it was when
    that attempt was the newest. `oldest`: of this attempt and those after it only.
    """
    known = [a for a in attempt_numbers(slot_dir) if newest is None or a <= newest]
    at = next((a for a in reversed(known) if _read_parent(slot_dir, a)[0]), None)
    until: int | None = None
    stretches: list[Stretch] = []
    while at is not None and at >= oldest:
        _, parent = _read_parent(slot_dir, at)
        stretches.append(Stretch(at, parent.step if parent else 0, until))
        until, at = (parent.step, parent.attempt) if parent else (None, None)
    return stretches[::-1]


class Job:
    """One attempt of one slot, seen from inside.

    Attributes: `run_dir`, `slot`, `attempt`, `slot_dir`, `attempt_dir` (write here only), `config` (the file of
    the slot's settings, None where there is none), `scratch` (node-local, removed at the end; None outside
    one), `deadline` (unix seconds at which it must hand over, None: no limit), `hand_over_file`, `run_id`, `run_name`
    (what the run is called on other machines), `shared_dir` (where policies are published for them),
    `accepts_contributions` (whether what comes back from there is to be used), `terms` (what is asked of those who send
    it: fields of `syncd.shared.reception.Terms`).
    """

    def __init__(
        self,
        run_dir: Path,
        slot: int,
        attempt: int,
        *,
        config: Path | None = None,
        deadline: float | None = None,
        hand_over_file: Path | None = None,
        scratch: Path | None = None,
        run_id: str | None = None,
        run_name: str | None = None,
        shared_dir: Path | None = None,
        accepts_contributions: bool = False,
        terms: Mapping[str, Any] | None = None,
        slots: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run_dir = run_dir
        self.slot = slot
        self.attempt = attempt
        self.config = config
        self.deadline = deadline
        self.hand_over_file = hand_over_file
        self.scratch = scratch
        self.run_id = run_id or run_id_of(run_dir)
        self.run_name = run_name or self.run_id.rpartition("-")[0]
        self.shared_dir = shared_dir or run_dir / SHARED
        self.accepts_contributions, self.terms = accepts_contributions, terms or {}
        self.slots = slots
        self._clock = clock
        self._asked: str | None = None
        self._looked_at = float("-inf")
        self._showing: Showing | None = None

    @property
    def slot_dir(self) -> Path:
        """`<run_dir>/slots/<k>`."""
        return self.run_dir / "slots" / str(self.slot)

    @property
    def attempt_dir(self) -> Path:
        """`<run_dir>/slots/<k>/attempts/<a>`."""
        return self.slot_dir / "attempts" / str(self.attempt)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Job | None:
        """The job that the shim described in `ANCHORLEG_*`; None outside one. Errors: KeyError/ValueError if torn."""
        if "ANCHORLEG_RUN_DIR" not in environ:
            return None
        config, deadline = environ.get("ANCHORLEG_CONFIG"), environ.get("ANCHORLEG_DEADLINE")
        return cls(
            Path(environ["ANCHORLEG_RUN_DIR"]),
            int(environ["ANCHORLEG_SLOT"]),
            int(environ["ANCHORLEG_ATTEMPT"]),
            config=Path(config) if config else None,
            deadline=float(deadline) if deadline else None,
            hand_over_file=Path(environ["ANCHORLEG_HANDOVER_FILE"]),
            scratch=Path(environ["ANCHORLEG_SCRATCH"]),
            run_id=environ.get("ANCHORLEG_RUN_ID"),
            run_name=environ.get("ANCHORLEG_RUN_NAME"),
            shared_dir=Path(environ["ANCHORLEG_SHARED_DIR"]) if environ.get("ANCHORLEG_SHARED_DIR") else None,
            accepts_contributions=environ.get("ANCHORLEG_CONTRIBUTIONS") == "1",
            terms=json.loads(environ.get("ANCHORLEG_TERMS") or "{}"),
            slots=int(environ.get("ANCHORLEG_SLOTS", "1")),
        )

    @classmethod
    def standalone(
        cls, run_dir: Path, slot: int = 0, *, shared_dir: Path | None = None, accepts_contributions: bool = False
    ) -> Job:
        """The next attempt of `run_dir`, above all that published, claimed without an orchestrator. Errors: OSError."""
        begin_id(run_dir)
        job = cls(run_dir, slot, 0, shared_dir=shared_dir, accepts_contributions=accepts_contributions)
        job.attempt = 1 + max([published_attempt(job.shared_dir, job.run_id, slot), *attempt_numbers(job.slot_dir)])
        owner = {"token": None, "job_id": None, "host": os.uname().nodename, "pid": os.getpid(), "at": time.time()}
        while True:
            make_folder(job.attempt_dir)
            if create_exclusive(job.attempt_dir / "claim", to_json(owner)):
                return job
            job.attempt += 1

    def listen(self) -> None:
        """Turn SIGUSR2, SIGTERM and SIGINT into a request to hand over. The handlers only set a flag.

        Call it from the main thread, before the slow imports: the shim starts the program with the first two ignored.
        Children are ended by SIGTERM from here on, forked ones too.
        """
        answer_hand_over(self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._asked = self._asked or signal.Signals(number).name

    def hand_over_reason(self) -> str | None:
        """Why the program should save and exit 75 now; None: go on. Cheap enough for every step."""
        if self._asked is None:
            now = self._clock()
            if self.deadline is not None and now >= self.deadline:
                self._asked = "deadline"
            elif self.hand_over_file is not None and abs(now - self._looked_at) >= HAND_OVER_LOOK_S:
                self._looked_at = now
                with contextlib.suppress(OSError):  # a stale handle of a network folder says nothing
                    self._asked = "asked to" if self.hand_over_file.exists() else None
        return self._asked

    def candidates(self) -> Iterator[CheckpointRef]:
        """Checkpoints to start from, best first. They are published, not verified."""
        return candidates_before(self.slot_dir, self.attempt)

    def choose_parent(self, is_good: Callable[[CheckpointRef], bool] = lambda _ref: True) -> CheckpointRef | None:
        """Take the first candidate that `is_good` accepts (None: from scratch) and write it down as the parent."""
        chosen = next((ref for ref in self.candidates() if is_good(ref)), None)
        self.start_from(chosen)
        return chosen

    def start_from(self, parent: CheckpointRef | None) -> None:
        """Write `parent.json`: the one place that says where this attempt began. Do so before the first output."""
        write_json(self.attempt_dir / "parent.json", parent_record(parent))

    def settings(self) -> dict[str, Any]:
        """What ANCHORLEG_CONFIG holds: for a program of one's own its slot's params. {} where there is no such file.

        Errors: OSError; ValueError where it is no JSON object.
        """
        return dict(read_json(self.config)) if self.config is not None else {}

    def save_checkpoint(self, step: int, write: Callable[[Path], object]) -> Path:
        """Publish `checkpoints/<step>/` with the files that `write(folder)` puts into an empty folder: durable and
        whole, or not at all. One that is published already stays as it is. Returns its path.

        Errors: OSError, those of `write`; ValueError for a step that is no whole number (1000.0, say: no job would find
        it); SystemExit(75) where a higher attempt has taken over: nothing is published.
        """
        if not hasattr(step, "__index__") or operator.index(step) < 0:
            raise ValueError(f"save_checkpoint({step!r}): a checkpoint's step is a whole number, 1000 and not 1000.0")
        step = operator.index(step)
        folder = self.attempt_dir / "checkpoints"
        final, unfinished = folder / str(step), folder / f".{step}.unfinished"
        if final.exists():
            return final
        make_folder(folder)
        if unfinished.exists():
            remove_folder(unfinished)
        unfinished.mkdir()
        try:
            write(unfinished)
            fsync_tree(unfinished)
            if self.superseded_by() is not None:
                sys.exit(HANDED_OVER)
            publish_folder(unfinished, final)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_folder(unfinished)
            raise
        return final

    def superseded_by(self) -> int | None:
        """The highest claimed attempt above this one: then end, publish nothing, delete nothing."""
        for number in reversed(attempt_numbers(self.slot_dir)):
            if number <= self.attempt:
                return None
            if (self.slot_dir / "attempts" / str(number) / "claim").exists():
                return number
        return None

    def report(self, *, step: int, total: int, checkpoint_step: int, **more: Any) -> None:
        """Write `progress.json` atomically: what `orchestrator status` shows and what decides about "finished".

        `more`: rates and use, e.g. `steps_per_s`, `gpu_percent`; numbers, strings, and objects of them.
        """
        value = {"step": step, "total": total, "checkpoint_step": checkpoint_step, "at": self._clock(), **more}
        write_bytes(self.attempt_dir / "progress.json", json.dumps(value).encode() + b"\n")

    def watched(self) -> int:
        """How many pictures a second somebody wants to see of this slot; 0: nobody. Cheap enough for every step."""
        if self._showing is None:
            from anchorleg.live.showing import Showing

            self._showing = Showing(self.shared_dir, self.run_id, self.slot, self.attempt)
        return self._showing.wanted()

    def show(
        self,
        facts: Mapping[str, Any] | None = None,
        *,
        jpeg: bytes | None = None,
        task: str = "",
        episode: int = 0,
        step: int = 0,
        score: float = 0.0,
        success: bool | None = None,
    ) -> bool:
        """Show a picture (60 KB at most) or `facts` alone to who watches; what comes too often is left out.

        `facts`: words and numbers by name, 64 at most; `score`: the episode's, so far. Returns whether it was taken; a
        full disk is no error, and what cannot be shown at all is a warning, once.
        """
        if not self.watched() or self._showing is None:
            return False
        return self._showing.show(
            facts=facts or {}, jpeg=jpeg, task=task, episode=episode, step=step, score=score, success=success
        )


def parent_record(parent: CheckpointRef | None) -> dict[str, Any]:
    """The content of `parent.json`."""
    if parent is None:
        return {"attempt": None, "step": 0, "checkpoint": None}
    return {"attempt": parent.attempt, "step": parent.step, "checkpoint": parent.path.name}
