"""Who owns a run: one controller at a time, on folders where neither locks nor SQLite can be trusted.

docs/architecture.md ("Lease and ledger") says when an owner is taken for gone (never because of a clock), and what a
successor waits for. Names and contents of a shared folder may be seen up to a minute late, each by itself.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.files import patiently, to_json
from orchestrator.disk import numbers_in, read_json
from orchestrator.errors import LeaseHeld, LeaseLost, RunFolderError
from orchestrator.executors.base import Frozen
from orchestrator.failover import HOLDER
from orchestrator.processes import ProcessId, boot_id, host_name, is_alive, myself
from orchestrator.run.rundir import RunDir

#: Three of the longest allowed polls (60 s) without a beat. An owner beats at least once a poll.
TTL_S = 180.0
#: A tick is soon over, if Slurm answers: another owner waits for its end, and until its ledger is seen.
PASSING_TIMEOUT_S = TTL_S + 60.0
#: No file is seen later than this (the longest attribute cache of NFS is 60 s); what is missing then was taken away.
LATE_S = 75.0
PASSING_LOOK_S = 0.1
#: A wait of minutes for a machine's word need not read a shared folder ten times a second.
WORD_LOOK_S = 1.0
#: A crontab's line may fail to run so often before it counts as gone; farther apart than that, ticks are a person's.
TICKS_MISSED = 3
LONGEST_BETWEEN_TICKS_S = 15 * 60.0


class Owner(Frozen):
    """The record behind an epoch."""

    epoch: int
    process: ProcessId
    since: float
    command: str

    @property
    def passes(self) -> bool:
        """Whether it only looks once and is soon gone: a tick of a person, a crontab or a job."""
        return self.command.split()[0] == "tick"

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.process} (orchestrator {self.command}, since {since})"


def highest_epoch(run_dir: RunDir) -> int:
    """The newest epoch that anybody took; -1 where there is none."""
    return max(numbers_in(run_dir.disk, run_dir.lease), default=-1)


def read_owner(run_dir: RunDir, epoch: int) -> Owner:
    """Errors: RunFolderError where the record is damaged or missing, OSError where it cannot be read now."""
    path = run_dir.lease / str(epoch)
    try:
        return Owner.model_validate(read_json(run_dir.disk, path))
    except (FileNotFoundError, ValueError) as error:
        raise RunFolderError("lease.unreadable", path=path, why=error) from None


def living_owner(run_dir: RunDir, *, monotonic: Callable[[], float] = time.monotonic) -> Owner | None:
    """The owner, unless it is known to be gone. Errors: RunFolderError; OSError where it cannot be told now."""
    epoch = highest_epoch(run_dir)
    if epoch < 0 or run_dir.disk.exists(run_dir.lease / f"{epoch}.released"):
        return None
    owner = read_owner(run_dir, epoch)
    if is_alive(owner.process) is False:
        return None
    return None if silent_for(run_dir, epoch, monotonic()) > TTL_S else owner


class Ticks(NamedTuple):
    """`orchestrator tick` comes to a run every `every_s` seconds, the last time on `host`."""

    host: str
    every_s: float


def regular_ticks(run_dir: RunDir, now: float) -> Ticks | None:
    """What a crontab does for a run, by its two newest owners. None: no such ticks come. Errors: OSError."""
    newest = highest_epoch(run_dir)
    try:
        last, before = read_owner(run_dir, newest), read_owner(run_dir, newest - 1)
    except RunFolderError:
        return None
    every_s = last.since - before.since
    if not all(owner.passes and owner.command != HOLDER for owner in (last, before)):
        return None
    is_regular = 0 < every_s <= LONGEST_BETWEEN_TICKS_S and now - last.since <= TICKS_MISSED * every_s
    return Ticks(last.process.host, every_s) if is_regular else None


def silent_for(run_dir: RunDir, epoch: int, now: float) -> float:
    """For how long (seconds) this machine has seen no beat of an epoch. Errors: OSError where it cannot be told now: a
    dead owner must not live again because a read was refused.
    """
    # The monotonic clock is the same for all processes of one boot, so its readings can be kept in a file.
    seen_path = run_dir.lease / f"seen-{host_name()}-{boot_id()}.json"
    beat = _content(run_dir, run_dir.ledger(epoch)).get("beat", -1)
    seen: dict[str, Any] = {}
    with contextlib.suppress(PermissionError):  # another account looked from here, and closed it to us
        seen = _content(run_dir, seen_path)
    if (seen.get("epoch"), seen.get("beat")) != (epoch, beat) or seen.get("at", now) > now:
        with contextlib.suppress(OSError):  # a guest who may only read sees a living owner for as long as it looks
            run_dir.disk.write(seen_path, to_json({"epoch": epoch, "beat": beat, "at": now}))
        return 0.0
    return now - float(seen["at"])


def _content(run_dir: RunDir, path: Path) -> dict[str, Any]:
    """What a file says; nothing where it is not there or damaged. Errors: OSError where it cannot be read now."""
    try:
        value = read_json(run_dir.disk, path)
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def wait_for_word(
    run_dir: RunDir,
    owner: Owner,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until `owner` is heard of (True) or is known to be gone (False), for `PASSING_TIMEOUT_S` at most."""
    give_up_at = monotonic() + PASSING_TIMEOUT_S
    beats: set[int | None] = set()
    while monotonic() < give_up_at:
        with contextlib.suppress(OSError):  # such a look has seen nothing new
            if living_owner(run_dir, monotonic=monotonic) != owner:
                return False
            beats.add(_beat(run_dir, owner.epoch))
            if len(beats) > 1:
                return True
        sleep(WORD_LOOK_S)
    return False


def unseen_ledger(run_dir: RunDir, epoch: int, *, monotonic: Callable[[], float] = time.monotonic) -> int | None:
    """The epoch, up to `epoch`, whose owner left a newer ledger than is seen here; None: we see all, or have waited for
    `LATE_S`. Errors: OSError where it cannot be told now.
    """
    for taken in reversed([one for one in numbers_in(run_dir.disk, run_dir.lease) if one <= epoch]):
        try:
            released = read_json(run_dir.disk, run_dir.lease / f"{taken}.released")
        except (FileNotFoundError, ValueError):  # it was silent for longer than any file is late, or died here
            return None
        told, seen = released.get("beat", -1), _beat(run_dir, taken)
        if seen is None and told < 0:
            continue  # it came to nothing: what counts is the ledger before it
        is_here = told <= (-1 if seen is None else seen) or silent_for(run_dir, taken, monotonic()) > LATE_S
        return None if is_here else taken
    return None


def _beat(run_dir: RunDir, epoch: int) -> int | None:
    """Of the ledger that is seen here; None where there is none. A damaged one is no older one: it has all beats."""
    try:
        value = read_json(run_dir.disk, run_dir.ledger(epoch))
    except FileNotFoundError:
        return None
    except ValueError:
        return sys.maxsize
    return int(value["beat"]) if isinstance(value, dict) and isinstance(value.get("beat"), int) else sys.maxsize


def _free_epoch(run_dir: RunDir, monotonic: Callable[[], float]) -> int:
    """The epoch that may be taken. Errors: LeaseHeld; OSError where it cannot be told now."""
    run_dir.disk.make_folder(run_dir.lease, exist_ok=True)
    # Read before the look at its owner: one who takes it meanwhile makes our link fail.
    epoch = highest_epoch(run_dir) + 1
    if owner := living_owner(run_dir, monotonic=monotonic):
        raise LeaseHeld("controller.lives", owner=owner)
    if (unseen := unseen_ledger(run_dir, epoch - 1, monotonic=monotonic)) is not None:
        raise LeaseHeld("controller.ledger-unseen", ledger=run_dir.ledger(unseen).name)
    return epoch


class Lease:
    """An epoch that we own. `record`: the content of its file."""

    def __init__(self, run_dir: RunDir, owner: Owner, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.run_dir = run_dir
        self.owner = owner
        self._monotonic = monotonic
        self.record = to_json(owner.model_dump(mode="json"))

    @property
    def epoch(self) -> int:
        """The epoch's number."""
        return self.owner.epoch

    @classmethod
    def of_nobody(cls, run_dir: RunDir) -> Lease:
        """One whose `check` always fails: enough for `Controller.preview`."""
        return cls(run_dir, Owner(epoch=-1, process=myself(), since=0.0, command="preview"))

    @classmethod
    def take(
        cls,
        run_dir: RunDir,
        command: str,
        *,
        now: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Lease:
        """Own the next epoch. Errors: LeaseHeld; OSError where it cannot be told for some seconds."""
        epoch = patiently(lambda: _free_epoch(run_dir, monotonic), sleep=sleep, monotonic=monotonic)
        owner = Owner(epoch=epoch, process=myself(), since=now, command=command)
        lease = cls(run_dir, owner)
        if not run_dir.disk.create(run_dir.lease / str(epoch), lease.record):
            winner = patiently(lambda: read_owner(run_dir, epoch), sleep=sleep, monotonic=monotonic)
            raise LeaseHeld("controller.was-faster", owner=winner)
        return lease

    @classmethod
    def take_patiently(
        cls,
        run_dir: RunDir,
        command: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Lease:
        """As `take`, but an owner that only passes by is waited for. Errors: as `take`."""
        give_up_at = monotonic() + PASSING_TIMEOUT_S
        while True:
            try:
                return cls.take(run_dir, command, now=time.time(), monotonic=monotonic, sleep=sleep)
            except LeaseHeld:
                owner = patiently(lambda: living_owner(run_dir, monotonic=monotonic), sleep=sleep, monotonic=monotonic)
                if (owner is not None and not owner.passes) or monotonic() > give_up_at:
                    raise
            sleep(PASSING_LOOK_S)

    def check(self) -> None:
        """Call before every submission and cancellation. Errors: LeaseLost, OSError."""
        newest = highest_epoch(self.run_dir)
        if newest < 0 or (newest == self.epoch and not self._is_ours()):
            raise LeaseLost("lease.folder-gone", path=self.run_dir.path)
        if newest != self.epoch:
            raise LeaseLost("lease.taken", owner=read_owner(self.run_dir, newest), epoch=self.epoch)

    def passed_by(self, *, sleep: Callable[[float], None] = time.sleep) -> Owner | None:
        """The tick that took this run over while this process was held up. Errors: RunFolderError, OSError."""
        owner = patiently(self._successor, sleep=sleep, monotonic=self._monotonic)
        return owner if owner is not None and owner.passes else None

    def _successor(self) -> Owner | None:
        newest = highest_epoch(self.run_dir)
        return read_owner(self.run_dir, newest) if newest > self.epoch else None

    def release(self) -> None:
        """Say that we are done, and with which beat. Idempotent. A folder that was made anew under us is left alone."""
        if not self._is_ours():
            return
        beat = _beat(self.run_dir, self.epoch)
        record = to_json({"beat": -1 if beat is None else beat})
        self.run_dir.disk.create(self.run_dir.lease / f"{self.epoch}.released", record)

    def _is_ours(self) -> bool:
        """Errors: OSError where it cannot be told now: a network folder that fails for a moment was not removed."""
        try:
            return self.run_dir.disk.read(self.run_dir.lease / str(self.epoch)) == self.record
        except FileNotFoundError:
            return False
