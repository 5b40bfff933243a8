"""Several slots in one Slurm job (`slurm.slots_per_job`), each as a job of its own to everybody else.

A pack is a job whose folder is `jobs/pack-<hex>`; its members are files in `members/`, and a member's id is the pack's
with its number behind it ("812.3"). What runs in it is `orchestrator.packing`, and a member's state is in its folder
(`local.json`). A pack that has ended has ended all its members, whatever their folders say.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anchorleg.files import to_json
from orchestrator.disk import LOCAL_DISK, numbers_in, read_json_or_none
from orchestrator.executors.base import (
    Accounting,
    JobRequest,
    JobRow,
    JobState,
    Poll,
    SubmitOutcome,
    SubmitRefused,
    Submitted,
)
from orchestrator.executors.slurm import SlurmExecutor

PACK = "pack-"
#: The part of its walltime that a pack must have left for another member to begin in it.
LEFT = 0.25


class PackedExecutor:
    """`slurm`: the executor that the packs are jobs of. `places`: members side by side; 1: new jobs are no packs."""

    name = "slurm"
    #: A pack's members end together, and their successors begin in another pack.
    queues_behind = False
    avoids_nodes = True

    def __init__(self, slurm: SlurmExecutor, jobs_dir: Path, places: int, limit_s: float) -> None:
        self.slurm, self.jobs_dir, self.places, self.limit_s = slurm, jobs_dir, places, limit_s
        self.submit_grace_s = slurm.submit_grace_s
        self.is_free, self.forget_after_s = slurm.is_free, slurm.forget_after_s
        self._packs: dict[str, JobRow] = {}

    def submit(self, request: JobRequest) -> SubmitOutcome:
        """Into a pack that has a free place, else into a new one."""
        if self.places == 1:
            return self.slurm.submit(request)
        for pack in self._packs.values():
            if self._has_room(pack) and (number := self._add(pack.work_dir, request)) is not None:
                spec = read_json_or_none(LOCAL_DISK, Path(pack.work_dir) / "pack.json") or {}
                return Submitted(job_id=f"{pack.job_id}.{number}", place=spec.get("place", 0))
        return self._submit_pack(request)

    def _has_room(self, pack: JobRow) -> bool:
        if pack.state not in {JobState.PENDING, JobState.RUNNING} or LOCAL_DISK.exists(Path(pack.work_dir) / "closed"):
            return False
        left_s = pack.ends_at - time.time() if pack.state is JobState.RUNNING and pack.ends_at else self.limit_s
        members = sum(row.state is not JobState.ENDED for row in self._members(pack))
        return left_s >= LEFT * self.limit_s and members < self.places

    def _add(self, pack_dir: str, request: JobRequest) -> int | None:
        """The number of the new member; None where the pack closed before it could begin there."""
        members = Path(pack_dir) / "members"
        number = max(numbers_in(LOCAL_DISK, members), default=-1) + 1
        while not LOCAL_DISK.create(members / str(number), to_json({"job_dir": request.job_dir})):
            number += 1
        has_begun = LOCAL_DISK.exists(Path(request.job_dir) / "local.json")
        if not has_begun and LOCAL_DISK.exists(Path(pack_dir) / "closed"):
            LOCAL_DISK.remove(members / str(number))
            return None
        return number

    def _submit_pack(self, request: JobRequest) -> SubmitOutcome:
        name = f"{PACK}{secrets.token_hex(4)}"
        folder, job_dir = self.jobs_dir / name, Path(request.job_dir)
        text = Path(request.script).read_text(encoding="utf-8", errors="surrogateescape")
        text = text.replace(request.job_dir, str(folder)).replace(f"../jobs/{job_dir.name}/", f"../jobs/{name}/")
        text = text.replace("-m orchestrator.shim", "-m orchestrator.packing")
        LOCAL_DISK.make_folder(folder / "members")
        spec = {"places": self.places, "limit_s": self.limit_s}
        LOCAL_DISK.write(folder / "pack.json", to_json(spec))
        LOCAL_DISK.write(folder / "pack.sh", text.encode("utf-8", "surrogateescape"))
        LOCAL_DISK.write(folder / "members/0", to_json({"job_dir": request.job_dir}))
        pack = {"job_dir": str(folder), "script": str(folder / "pack.sh")}
        outcome = self.slurm.submit(request.model_copy(update=pack))
        if isinstance(outcome, SubmitRefused):
            LOCAL_DISK.remove_tree(folder)
        if isinstance(outcome, Submitted):
            LOCAL_DISK.write(folder / "pack.json", to_json({**spec, "place": outcome.place}))
            row = JobRow(state=JobState.PENDING, raw_state="PENDING", job_id=outcome.job_id, work_dir=str(folder))
            self._packs[row.work_dir] = row
            return outcome.model_copy(update={"job_id": f"{outcome.job_id}.0"})
        return outcome

    def poll(self) -> Poll:
        """As Slurm's, with members in place of packs."""
        poll = self.slurm.poll()
        if poll.error is not None:
            return poll
        self._packs = {row.work_dir: row for row in poll.rows if _is_pack(row)}
        rows = tuple(self._expanded(poll.rows))
        return poll.model_copy(update={"rows": rows, "others": poll.others * self.places})

    def accounting(self, since: float) -> Accounting:
        """As Slurm's, with members in place of packs."""
        told = self.slurm.accounting(since)
        return told.model_copy(update={"rows": tuple(self._expanded(told.rows))})

    def _expanded(self, rows: tuple[JobRow, ...]) -> Iterator[JobRow]:
        for row in rows:
            yield from self._members(row) if _is_pack(row) else (row,)

    def _members(self, pack: JobRow) -> Iterator[JobRow]:
        folder = Path(pack.work_dir) / "members"
        for number in numbers_in(LOCAL_DISK, folder):
            job_dir = Path((read_json_or_none(LOCAL_DISK, folder / str(number)) or {}).get("job_dir", folder))
            yield _member(pack, number, self.jobs_dir / job_dir.name)

    def wake(self, job_ids: list[str]) -> str | None:
        """Members look for their hand-over file themselves."""
        others = [job_id for job_id in job_ids if "." not in job_id]
        return self.slurm.wake(others) if others else None

    def cancel(self, job_ids: list[str], *, waiting: bool = False) -> str | None:
        """Of a pack only the members that are meant, and the pack itself where no other is left in it. What leaves a
        waiting pack for another place finds it closed.
        """
        whole = [job_id for job_id in job_ids if "." not in job_id]
        for pack in self._packs.values():
            for row in self._members(pack) if pack.state is not JobState.ENDED else ():
                if row.job_id not in job_ids or (waiting and row.state is not JobState.PENDING):
                    continue
                LOCAL_DISK.touch(Path(row.work_dir) / "cancel")
                if waiting and pack.state is JobState.PENDING:
                    LOCAL_DISK.touch(Path(pack.work_dir) / "closed")
            if pack.state is JobState.PENDING and all(row.state is JobState.ENDED for row in self._members(pack)):
                whole.append(pack.job_id)
        return self.slurm.cancel(whole, waiting=waiting) if whole else None


def _is_pack(row: JobRow) -> bool:
    return Path(row.work_dir).name.startswith(PACK)


def _member(pack: JobRow, number: int, job_dir: Path) -> JobRow:
    update: dict[str, Any] = {"job_id": f"{pack.job_id}.{number}", "work_dir": str(job_dir)}
    record = read_json_or_none(LOCAL_DISK, job_dir / "local.json")
    if record is None:
        update |= {"started_at": None, "ends_at": None, "node": ""}
        if LOCAL_DISK.exists(job_dir / "cancel"):
            update |= {"state": JobState.ENDED, "raw_state": "CANCELLED"}
        elif pack.state is JobState.ENDED:  # it came too late
            update["raw_state"] = "PREEMPTED" if pack.raw_state == "COMPLETED" else pack.raw_state
        else:
            update |= {"state": JobState.PENDING, "raw_state": "PENDING"}
        return pack.model_copy(update=update)
    update |= {"started_at": record["started_at"], "exit_code": record["exit_code"]}
    told = record["raw_state"]
    if told == "CANCELLED" and not LOCAL_DISK.exists(job_dir / "cancel"):
        told = "RUNNING"  # the signal was for the pack, whose end says why
    if told != "RUNNING":
        update |= {"state": JobState.ENDED, "raw_state": told}
    elif pack.raw_state == "COMPLETED":
        update["raw_state"] = "NODE_FAIL"
    return pack.model_copy(update=update)
