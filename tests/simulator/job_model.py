"""A model of `orchestrator/shim.py` and of a program that checkpoints, on simulated nodes and a simulated folder.

`test_simulator_model.py` puts it beside the real shim: the same inputs must leave the same files. What an attempt may
start from is not modelled: `anchorleg.job` itself decides, on the simulated folder.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from failover_model import FailoverTick
from memory_disk import Server
from queue_model import score

from anchorleg import job as job_module
from anchorleg import rollback
from anchorleg.job import DO_NOT_REQUEUE, HANDED_OVER, CheckpointRef, candidates_before, parent_record
from orchestrator.jobside import BEATS_OF_LIFE, SILENT_S, given
from orchestrator.run.rundir import RunDir
from orchestrator.shim import ABORT_S, HEARTBEAT_S, SHIM_FAILED

if TYPE_CHECKING:
    from cluster_model import SimJob
    from world import World

#: A checkpoint each ten minutes, as the trainer does.
CHECKPOINT_S = 600.0
#: How often a queued successor looks at the job before it.
WATCH_S = 10.0
#: Steps a second of the simulated program.
RATE = 100.0


class ListedFolder:
    """What `anchorleg.job` uses of `os`, on the simulated folder."""

    def __init__(self, server: Server, client: str | None) -> None:
        self._server = server
        self._client = client

    def listdir(self, path: object) -> list[str]:
        """The names in a folder. Errors: FileNotFoundError."""
        if str(path) not in self._server.folders:
            raise FileNotFoundError(str(path))
        return self._server.names(self._client, str(path))


@contextmanager
def seen_by(server: Server, client: str | None) -> Iterator[None]:
    """`anchorleg.job` looks at the simulated folder, with the eyes of one machine (None: the server's own)."""
    before = job_module.os, rollback.read_json
    job_module.os = ListedFolder(server, client)
    rollback.read_json = lambda path: json.loads(server.read(client, str(path)))
    try:
        yield
    finally:
        job_module.os, rollback.read_json = before


class Run:
    """One start of one job on one node: the shim, and the program that it runs. `fate`: how it will end of itself."""

    def __init__(self, world: World, job: SimJob, node: str, pid: int) -> None:
        self.world = world
        self.job = job
        self.node = node
        self.pid = pid
        self.alive = True
        self.claimed = False
        self.said_its_end = False
        self.failover: FailoverTick | None = None
        self.claimed_at = 0.0
        self.died_at: float | None = None
        self.asked: str | None = None
        self.asked_at: float | None = None
        self.terminated = False
        self.first_progress_at: float | None = None
        self.parent: CheckpointRef | None = None
        self.base_step = 0
        self.saved_step = 0
        self.working_since: float | None = None
        self.stopped_at: float | None = None
        self.total = 0
        self.began_at = world.timeline.now
        self.watched_since: float | None = None
        self.beat, self.beats = None, 0
        self.spec: dict[str, Any] = {}
        run_dir: RunDir = world.paths
        self.attempt_dir = str(run_dir.attempt(job.slot, job.attempt))
        self.slot_dir = run_dir.slot(job.slot)
        self.job_dir = str(run_dir.job(job.token))
        world.timeline.after(world.rng.uniform(0.5, 4.0), self._begin)

    # --- the shim ---

    def record(self, **more: Any) -> dict[str, Any]:
        """Who it is, in every file."""
        who = {"token": self.job.token, "job_id": self.job.job_id, "host": self.node, "pid": self.pid}
        return {**who, "at": self.world.node_time(self.node), **more}

    def _write(self, path: str, value: Any) -> None:
        if self.world.is_full(self.node):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        self.world.server.write(self.node, path, json.dumps(value).encode())

    def unneeded(self) -> str | None:
        """As `Shim.unneeded`."""
        if not self.job.ahead:
            return None
        server = self.world.server
        if server.entry(self.node, str(self.slot_dir), "hold") is not None:
            return "the slot is held"
        behind = self.job.behind
        before = f"{self.slot_dir}/attempts/{behind}"
        ended = server.json_or_none(self.node, f"{before}/exit.json")
        if ended is not None and ended["code"] != HANDED_OVER:
            return f"the job before it ended with {ended['code']}"
        if ended is not None and ended.get("terminated"):
            return "the job before it got a SIGTERM from an unknown sender"
        if ended is not None or server.entry(self.node, before, "claim") is None:
            self.watched_since = float("-inf")
            return None
        beat = (server.json_or_none(self.node, f"{before}/heartbeat.json") or {}).get("beat")
        now = self.world.timeline.now
        if self.watched_since is None:
            self.beat, self.watched_since = beat, now
        if beat != self.beat:
            self.beat, self.beats, self.watched_since = beat, self.beats + 1, now
        if self.asked is not None:
            return "it got a SIGTERM"
        return "the job before it is still active" if self.beats >= BEATS_OF_LIFE else None

    def _begin(self) -> None:
        if not self.alive:
            return
        # A job's node has never looked at this folder: what it asks for, it asks the server.
        if self.world.server.entry(None, self.job_dir, "job.json") is None:
            self._leave(SHIM_FAILED)
            return
        self.spec = self.world.server.json_or_none(None, f"{self.job_dir}/job.json") or {}  # kept, as `Shim` keeps it
        try:
            if why := self.unneeded():
                self._write(f"{self.attempt_dir}/duplicate-{self.node}-{self.pid}.json", self.record(unneeded=why))
                self._leave(0)
                return
            if self.watched_since is not None and self.world.timeline.now - self.watched_since < SILENT_S:
                self.world.timeline.after(WATCH_S, self._begin)
                return
            if not self._claim():
                self._leave(0)
                return
            self.claimed, self.claimed_at = True, self.world.timeline.now
            self.world.watch.claimed(self)
            self._decide(None)
        except OSError:
            self._leave(1)
            return
        self.world.server.write(self.node, f"{self.attempt_dir}/heartbeat.json", self._heartbeat)
        if self.asked is None and self.world.server.entry(self.node, self.job_dir, "hand-over") is not None:
            self.asked, self.asked_at = "asked to", self.world.timeline.now
        self.world.timeline.at(self.job.ends_at - self.world.lead_s, lambda: self.ask("deadline"))
        self.world.timeline.after(self.world.rng.uniform(3.0, 20.0), self._start)

    def _claim(self) -> bool:
        if self.world.is_full(self.node):
            raise OSError(errno.ENOSPC, "No space left on device")
        server, path = self.world.server, f"{self.attempt_dir}/claim"
        if (
            server.create(self.node, path, json.dumps(self.record(gpus="", start="")).encode())
            or self.world.no_claim_fence
        ):
            return True
        winner = server.json_or_none(self.node, path)
        self._write(f"{self.attempt_dir}/duplicate-{self.node}-{self.pid}.json", self.record(winner=winner))
        return False

    def _candidates(self) -> list[CheckpointRef]:
        with seen_by(self.world.server, self.node):
            found = []
            for ref in candidates_before(self.slot_dir, self.job.attempt):
                found.append(ref)
                if self.world.is_good(self.job.slot, ref):
                    break
            return found

    def _decide(self, chosen: CheckpointRef | None) -> None:
        """The shim takes the first published one; the program, which opens it, the first good one."""
        candidates = self._candidates()
        parent = chosen or (candidates[0] if candidates else None)
        self._write(f"{self.attempt_dir}/parent.json", parent_record(parent))
        self.parent = parent
        self.base_step = self.saved_step = parent.step if parent else 0
        self.world.watch.decided(self)

    def _heartbeat(self, now: float) -> bytes:
        until = now if self.died_at is None else min(now, self.died_at)
        return b'{"beat": %d}' % (1 + int((until - self.claimed_at) / HEARTBEAT_S))

    def superseded_by(self) -> int | None:
        """As `Job.superseded_by`, by the eyes of this node."""
        server, attempts = self.world.server, f"{self.slot_dir}/attempts"
        for number in range(self.world.top_attempt(self.job.slot), self.job.attempt, -1):
            if server.entry(self.node, f"{attempts}/{number}", "claim") is not None:
                return number
        return None

    def look_soon(self, lag_s: float) -> None:
        """Something was put where the shim looks with its next heartbeat: a claim above it, `abort`, `hand-over`."""
        self.world.timeline.after(lag_s + self.world.rng.uniform(0.2, HEARTBEAT_S), self._look)

    def _look(self) -> None:
        if not self.alive or not self.claimed:
            return
        server = self.world.server
        if self.asked is None and server.entry(self.node, self.job_dir, "hand-over") is not None:
            self.ask("asked to")
        if self.asked is None and self.superseded_by() is not None:
            self.ask("superseded")
        if self.asked != "stalled" and server.entry(self.node, self.job_dir, "abort") is not None:
            self.asked = "stalled"
            self.world.timeline.after(self.world.rng.uniform(0.5, ABORT_S), lambda: self._exit(-6))

    def ask(self, why: str) -> None:
        """To hand over: the deadline, a signal, a file."""
        if not self.alive:
            return
        self.terminated = self.terminated or why == "SIGTERM"
        if self.asked is not None:
            return
        self.asked, self.asked_at = why, self.world.timeline.now
        if self.claimed and self.stopped_at is None:  # a stalled program hears nothing
            self.world.timeline.after(self.world.hand_over_s(), self._hand_over)

    # --- the program ---

    def _start(self) -> None:
        if not self.alive:
            return
        try:
            good = [ref for ref in self._candidates() if self.world.is_good(self.job.slot, ref)]
            if (good[0] if good else None) != self.parent:
                self._decide_program(good[0] if good else None)
        except OSError:
            self._exit(1)
            return
        self.total = self.world.total(self.job.slot)
        if self.base_step >= self.total:
            self._exit(0)
            return
        self.world.timeline.after(self.world.rng.uniform(5.0, 40.0), self._work)

    def _decide_program(self, chosen: CheckpointRef | None) -> None:
        self._write(f"{self.attempt_dir}/parent.json", parent_record(chosen))
        self.parent = chosen
        self.base_step = self.saved_step = chosen.step if chosen else 0
        self.world.watch.decided(self)

    def _work(self) -> None:
        if not self.alive:
            return
        now = self.world.timeline.now
        self.working_since = self.first_progress_at = now
        self.world.watch.working(self)
        self.world.server.write(self.node, f"{self.attempt_dir}/progress.json", self._progress)
        if self.asked is not None:  # it was asked in the middle of its start-up
            self.world.timeline.after(self.world.hand_over_s(), self._hand_over)
        self.world.timeline.after(CHECKPOINT_S + self.world.rng.uniform(-20.0, 20.0), self._save)
        self.world.timeline.after((self.total - self.base_step) / RATE, self._finish)
        fate, after_s = self.world.fate(self.job.slot)
        if fate == "stall":
            self.world.timeline.after(after_s, self._stall)
        elif fate == "out of memory":
            self.world.timeline.after(after_s, lambda: self.world.cluster.out_of_memory(self.job, self))
        elif fate == "crash":
            self.world.timeline.after(after_s, lambda: self._exit(1))
        elif fate == "do not requeue":
            self.world.timeline.after(after_s, lambda: self._exit(DO_NOT_REQUEUE))

    def step(self, now: float) -> int:
        """Steps done by now."""
        if self.working_since is None:
            return self.base_step
        ends = [now, *(at for at in (self.died_at, self.stopped_at) if at is not None)]
        return min(self.total, self.base_step + int(RATE * max(0.0, min(ends) - self.working_since)))

    def _progress(self, now: float) -> bytes:
        at = min(now, self.died_at or now, self.stopped_at or now)
        reported = self.step(now), self.total, self.saved_step, at, score(self.job.slot)
        return b'{"step": %d, "total": %d, "checkpoint_step": %d, "at": %r, "score": %r}' % reported

    def _save(self) -> None:
        if not self.alive or self.stopped_at is not None or self.asked is not None:
            return
        if self._publish():
            self.world.timeline.after(CHECKPOINT_S + self.world.rng.uniform(-20.0, 20.0), self._save)

    def _publish(self) -> bool:
        """A checkpoint. False: the program ended instead: it is superseded, or the disk is full."""
        if self.superseded_by() is not None:
            self._exit(HANDED_OVER)
            return False
        if self.world.is_full(self.node):
            self._exit(1)
            return False
        step = self.step(self.world.timeline.now)
        if step > self.saved_step:
            self.world.server.make_folder(self.node, f"{self.attempt_dir}/checkpoints/{step}")
            self.saved_step = step
            self.world.watch.published(self, step)
        return True

    def _stall(self) -> None:
        if self.alive and self.asked is None:
            self.stopped_at = self.world.timeline.now
            self.world.timeline.tell(f"job {self.job.job_id} stalls")

    def _hand_over(self) -> None:
        if self.alive and self.working_since is not None and self.stopped_at is None and self._publish():
            self._exit(0 if self.saved_step >= self.total else HANDED_OVER)

    def _finish(self) -> None:
        if self.alive and self.asked is None and self.stopped_at is None and self._publish():
            self._exit(0)

    def _given(self) -> str:
        """As the shim notes it: what `start` compares, where the slot is finished."""
        server, spec = self.world.server, self.spec
        settings = server.json_or_none(self.node, str(spec["config_file"])) if "config_file" in spec else None
        return given(spec.get("command", []), settings)

    def _exit(self, code: int) -> None:
        """The program has ended: the shim says so, and ends too."""
        if not self.alive:
            return
        superseded = self.superseded_by()
        facts = {"code": code, "asked": self.asked, "superseded_by": superseded, "words": ""}
        facts["terminated"] = self.terminated
        facts["newest"] = self.saved_step if self.saved_step > self.base_step else None
        facts |= {"asked_at": self.asked_at, "first_progress_at": self.first_progress_at}
        facts["deadline"] = self.began_at + self.world.profile.walltime_s - self.world.lead_s
        if code == 0:
            facts["given"] = self._given()
        try:
            self._write(f"{self.attempt_dir}/exit.json", self.record(started_at=self.began_at, **facts))
        except OSError:
            self._leave(code if 0 < code < SHIM_FAILED else SHIM_FAILED)
            return
        self.said_its_end = True
        self.world.watch.ended(self, code)
        good = code in {0, HANDED_OVER, DO_NOT_REQUEUE} or superseded is not None
        self._leave(0 if good else 128 - code if code < 0 else code, failover=self.spec.get("failover") is not None)

    def _leave(self, code: int, *, failover: bool = False) -> None:
        self.die()
        then = partial(self.world.cluster.script_ended, self.job, self, code)
        if failover:
            self.failover = FailoverTick(self, then)
            self.failover.begin()
        else:
            then()

    def die(self) -> None:
        """SIGKILL, or the end: from here on it writes nothing."""
        if self.failover is not None:
            self.failover.die()
        if self.alive:
            self.alive = False
            self.died_at = self.world.timeline.now
