"""One tick over many slots: how long it takes, how it grows, and what it asks and writes.

`python bench/tick.py [SLOTS …]` makes runs of 125 to 2,000 slots on the real disk, each slot with two ended attempts
and one running job, and an executor that answers from memory. It times quiet ticks (everything runs) and busy ones (one
job has handed over and gets a successor, one has vanished without a word), and counts questions and ledger writes.
Writes tick.csv.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import figures

from orchestrator.config import parse_config
from orchestrator.controller import Controller
from orchestrator.decisions.models import Attempt, Ledger, Slot, Submission, SubmissionState, Verdict, make_token
from orchestrator.executors.base import Accounting, JobRequest, JobRow, JobState, Poll, Submitted
from orchestrator.run.code import fix_code
from orchestrator.run.lease import Lease
from orchestrator.run.ledger import save_ledger
from orchestrator.run.rundir import Run, RunDir, save_run

ROOT = Path(__file__).resolve().parents[1]
SIZES = (125, 250, 500, 1000, 2000)
#: Quiet ticks, and busy ones, of each size.
REPEATS = 7
TOTAL = 1_000_000


class Memory:
    """An executor without a scheduler: what it is asked costs nothing, and is counted."""

    name = "slurm"
    submit_grace_s = 120.0
    queues_behind = True
    avoids_nodes = True

    def __init__(self) -> None:
        self.rows: dict[str, JobRow] = {}
        self.asked = {"polls": 0, "histories": 0}

    def submit(self, request: JobRequest) -> Submitted:
        """Accept it, and run it at once."""
        job_id = str(100_000 + len(self.rows))
        self.rows[request.job_dir] = running(request.job_dir, job_id)
        return Submitted(job_id=job_id)

    def poll(self) -> Poll:
        """Everything runs."""
        self.asked["polls"] += 1
        return Poll(at=time.time(), rows=tuple(self.rows.values()), others=2)

    def accounting(self, since: float) -> Accounting:
        """It knows nothing."""
        del since
        self.asked["histories"] += 1
        return Accounting(at=time.time(), status="ok")

    def wake(self, job_ids: list[str]) -> None:
        """Nobody is there."""
        del job_ids

    def release(self, job_ids: list[str]) -> None:
        """Nobody is held."""
        del job_ids

    def cancel(self, job_ids: list[str]) -> None:
        """Nobody is there."""
        del job_ids

    def forget_after_s(self) -> float:
        """Slurm's default."""
        return 300.0


def running(job_dir: str, job_id: str) -> JobRow:
    """A line of squeue."""
    now = time.time()
    times = {"submitted_at": now - 700, "started_at": now - 600, "ends_at": now + 13_000}
    return JobRow(job_id=job_id, state=JobState.RUNNING, raw_state="RUNNING", work_dir=job_dir, node="n1", **times)


def put(path: Path, value: object) -> None:
    """A file as a job leaves it; only the ticks need to be durable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def attempt_files(run_dir: RunDir, slot: int, number: int, token: str, *, ended: bool) -> None:
    """What one attempt has left on the disk."""
    folder, now = run_dir.attempt(slot, number), time.time()
    who = {"token": token, "job_id": str(slot * 10 + number), "host": "n1", "pid": 4242, "at": now - 600}
    saved = 1000 * (number + 1)
    before = {"attempt": number - 1, "step": 1000 * number, "checkpoint": str(1000 * number)} if number else None
    put(folder / "claim", who)
    put(folder / "parent.json", before or {"attempt": None, "step": 0, "checkpoint": None})
    put(folder / "heartbeat.json", {**who, "beat": 7})
    put(folder / "progress.json", {"step": saved, "total": TOTAL, "checkpoint_step": saved, "at": now})
    (folder / "checkpoints" / str(saved)).mkdir(parents=True)
    put(run_dir.job(token) / "job.json", {"token": token})
    (run_dir.job(token) / f"job-{who['job_id']}.err").write_text("a line of a log\n" * 40)
    if ended:
        put(folder / "exit.json", {**who, "code": 75, "asked": "deadline", "started_at": now - 600})


def make_run(folder: Path, slots: int, executor: Memory) -> Controller:
    """A run in the middle of its life, and its controller."""
    run_dir = RunDir(folder / "run")
    config = parse_config(
        {"run_name": "many", "executor": "slurm", "command": ["true"], "slots": min(slots, 1000)}, "bench"
    ).model_copy(update={"slots": slots})  # beyond what a config may ask for, to see the growth
    run = Run(
        run_id="many-0123abcd", revision=0, created_at=time.time(), executor="slurm", config=config,
        config_path=str(folder / "cluster_config.json"), folder=str(folder), python=sys.executable,
        code=fix_code(run_dir.code), identity=None, env={},
    )  # fmt: skip
    for path in (run_dir.lease, run_dir.jobs, run_dir.control):
        path.mkdir(parents=True)
    save_run(run_dir, run)
    made = []
    for index in range(slots):
        attempts = []
        for number in range(3):
            token, ended = make_token(index, number, f"{index:08x}"), number < 2
            attempt_files(run_dir, index, number, token, ended=ended)
            job_id, at = str(index * 10 + number), time.time() - 700
            state = SubmissionState.ENDED if ended else SubmissionState.SUBMITTED
            submission = Submission(token=token, intent_at=at, state=state, job_id=job_id)
            over = {"verdict": Verdict.HANDED_OVER, "ended_at": time.time() - 600} if ended else {}
            attempts.append(Attempt(number=number, submissions=(submission,), claimed_by=token, started_at=at, **over))
            if not ended:
                executor.rows[str(run_dir.job(token))] = running(str(run_dir.job(token)), job_id)
        made.append(Slot(index=index, attempts=tuple(attempts), jobs=3, hand_overs=2))
    lease = Lease.take(run_dir, "bench", now=time.time())
    save_ledger(run_dir, Ledger(run_id=run.run_id, epoch=lease.epoch, slots=tuple(made)), time.time())
    return Controller(run, run_dir, lease, executor, poll_s=0.0)


def end_two(controller: Controller, executor: Memory, turn: int) -> None:
    """One job hands over, another leaves the queue without a word."""
    slots = controller.ledger.slots
    for slot, speaks in ((slots[2 * turn], True), (slots[2 * turn + 1], False)):
        token, number = slot.attempts[-1].submissions[-1].token, slot.attempts[-1].number
        executor.rows.pop(str(controller.run_dir.job(token)))
        if speaks:
            who = {"token": token, "job_id": "1", "host": "n1", "pid": 1, "at": time.time()}
            put(controller.run_dir.attempt(slot.index, number) / "exit.json", {**who, "code": 75, "asked": "deadline"})


def measure(slots: int) -> dict[str, float]:
    """Median seconds of a quiet and of a busy tick, and the most that a tick asked and wrote."""
    executor = Memory()
    with tempfile.TemporaryDirectory() as name:
        controller = make_run(Path(name), slots, executor)
        controller.tick()  # takes in what the files say; from here on it is what repeats
        quiet: list[float] = []
        busy: list[float] = []
        cpus: list[float] = []
        most = {"squeue": 0, "sacct": 0, "writes": 0}
        for turn in range(2 * REPEATS):
            is_busy = turn % 2 == 1
            if is_busy:
                end_two(controller, executor, turn // 2)
            executor.asked.update(polls=0, histories=0)
            writes, began, cpu = controller.ledger.beat, time.perf_counter(), time.process_time()
            controller.tick()
            (busy if is_busy else quiet).append(time.perf_counter() - began)
            if not is_busy:
                cpus.append(time.process_time() - cpu)
            seen = {"squeue": executor.asked["polls"], "sacct": executor.asked["histories"]}
            seen["writes"] = controller.ledger.beat - writes
            most = {key: max(most[key], seen[key]) for key in most}
    return {"quiet": statistics.median(quiet), "busy": statistics.median(busy), "cpu": statistics.median(cpus), **most}


def main() -> None:
    """Measure every size and print it."""
    sizes = [int(word) for word in sys.argv[1:]] or list(SIZES)
    rows = []
    for slots in sizes:
        seen = measure(slots)
        per_slot = 1000 * seen["cpu"] / slots
        times = [f"{seen[kind]:.3f}" for kind in ("quiet", "busy", "cpu")]
        rows.append([slots, *times, f"{per_slot:.3f}", seen["squeue"], seen["sacct"], seen["writes"]])
        print(
            f"{slots} slots: quiet {times[0]} s ({times[2]} s of CPU, {per_slot:.3f} ms a slot), busy {times[1]} s, "
            f"at most {seen['squeue']} squeue, {seen['sacct']} sacct, {seen['writes']} ledger writes"
        )
    if len(sys.argv) > 1:
        return  # an excerpt is for looking, not for the page
    head = ["slots", "quiet_s", "busy_s", "quiet_cpu_s", "cpu_ms_a_slot", "squeue", "sacct", "ledger_writes"]
    figures.save("tick", head, rows)


if __name__ == "__main__":
    os.environ.pop("SLURM_CONF", None)
    main()
