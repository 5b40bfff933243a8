"""Runs as they lie on a disk after some days, for what looks at them: ledgers, histories, jobs' records, rows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders import a_job, a_slot, no_code, token

from orchestrator.config import parse_config
from orchestrator.decisions.models import Attempt, Ledger, Seen, SlotStatus, Verdict
from orchestrator.executors.base import JobState
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.ledger import append_event, save_ledger
from orchestrator.run.rundir import RunDir, save_run

TASKS = ("door-open-v3", "drawer-close-v3", "pick-place-v3", "reach-v3")
TOTAL = 2_000_000
HOUR_S = 3600.0
#: One job: it waits, starts up, trains, saves.
JOB_S, WAIT_S, START_S, SAVE_S = 4 * HOUR_S, 420.0, 90.0, 60.0
STEPS_A_JOB = 260_000


def a_watched_run(
    folder: Path, now: float, *, name: str = "mt10", slots: int = 4, jobs: int = 6, rows: int = 60,
    tasks: Sequence[str] = TASKS, tree: bool = True, **config: Any,
) -> RunDir:  # fmt: skip
    """A run of `jobs` jobs a slot, the last of which runs. `tree`: with the jobs' own files and curves."""
    run_dir = RunDir(folder)
    prepare_folder(run_dir)
    value = {"run_name": name, "executor": "slurm", "slots": slots, "slurm": {"time_limit": "4:00:00"}, **config}
    value = {"training": {}, **value} if "command" not in value else value
    run = begin(parse_config(value, "c.json"), folder / "c.json", run_dir, {"PATH": "/usr/bin"}, now, fix=no_code)
    save_run(run_dir, run)
    built = []
    events: list[tuple[float, str, dict[str, Any]]] = []
    for slot in range(slots):
        ended = []
        for attempt in range(jobs):
            begun = now - (jobs - attempt) * (JOB_S + WAIT_S) + 0.6 * JOB_S + 37.0 * slot
            at_work = attempt == jobs - 1
            crashed = slot == 1 and attempt == jobs - 3
            events += _told(slot, attempt, begun, at_work=at_work, crashed=crashed)
            if tree:
                _leave(run_dir, slot, attempt, begun, now, rows, tasks, at_work=at_work, crashed=crashed)
            if not at_work:
                verdict = Verdict.CRASHED if crashed else Verdict.HANDED_OVER
                ended.append(
                    Attempt(number=attempt, verdict=verdict, started_at=begun, ended_at=begun + JOB_S,
                            checkpoint_step=_saved(attempt))
                )  # fmt: skip
        built.append(_slot(slot, jobs, now, ended[-3:]))
    for at, kind, facts in sorted(events, key=lambda one: one[0]):
        append_event(run_dir, 0, kind, at, **facts)
    ledger = Ledger(run_id=run.run_id, epoch=0, slots=tuple(built))
    save_ledger(run_dir, ledger, now - 4)
    return run_dir


def _slot(slot: int, jobs: int, now: float, ended: list[Attempt]) -> Any:
    last = jobs - 1
    name, began = token(slot, last), now - JOB_S * 0.4 - WAIT_S + 37.0 * slot
    sighting = Seen(
        state=JobState.RUNNING, raw_state="RUNNING", at=now - 4, node=f"gpu0{slot % 4 + 1}",
        started_at=began, ends_at=began + JOB_S,
    )  # fmt: skip
    builder = a_slot(slot, jobs=jobs, hand_overs=jobs - 1, step=_saved(last), total=TOTAL, attempts=tuple(ended))
    if slot == 3:
        words = "its job was cancelled by user 1004"
        return builder.but(status=SlotStatus.PAUSED, why=words).built
    return builder.with_attempt(
        a_job(name, job_id=str(81_000 + 100 * slot + last), sighting=sighting), number=last, claimed_by=name,
        started_at=began, start_step=_saved(last - 1), heartbeat=9, heartbeat_changed_at=now - 12,
    ).built  # fmt: skip


def _saved(attempt: int) -> int:
    return (attempt + 1) * STEPS_A_JOB


def _told(slot: int, attempt: int, begun: float, *, at_work: bool, crashed: bool) -> list[Any]:
    place = {
        "slot": slot,
        "attempt": attempt,
        "token": token(slot, attempt),
        "job_id": str(81_000 + 100 * slot + attempt),
    }
    start = _saved(attempt - 1) if attempt else 0
    found = [
        (begun - WAIT_S, "submission", place),
        (begun, "started", place | {"node": f"gpu0{slot % 4 + 1}", "start_step": start}),
    ]
    if not at_work:
        end = {
            "verdict": "handed over",
            "cause": "deadline",
            "step": _saved(attempt),
            "checkpoint_step": _saved(attempt),
        }
        if crashed:
            end |= {"verdict": "crashed", "cause": "the GPU ran out of memory", "step": _saved(attempt) + 12_000}
        found.append((begun + JOB_S, "ended", place | end | {"ended_at": begun + JOB_S - 1}))
    return found


def _leave(
    run_dir: RunDir, slot: int, attempt: int, begun: float, now: float, rows: int, tasks: Sequence[str], *,
    at_work: bool, crashed: bool,
) -> None:  # fmt: skip
    """What a job and its program leave in their folder."""
    folder = run_dir.attempt(slot, attempt)
    folder.mkdir(parents=True)
    claim = {"token": token(slot, attempt), "job_id": str(81_000 + 100 * slot + attempt), "host": "gpu01", "pid": 4242}
    _write(folder / "claim", claim | {"at": begun})
    parent = {"attempt": attempt - 1, "step": _saved(attempt - 1), "checkpoint": str(_saved(attempt - 1))}
    _write(folder / "parent.json", parent if attempt else {"attempt": None, "step": 0, "checkpoint": None})
    start, done = (_saved(attempt - 1) if attempt else 0), 0.6 if at_work else 1.0
    last = start + int(done * STEPS_A_JOB)
    _write(folder / "progress.json", {"step": last, "total": TOTAL, "checkpoint_step": last - 9_000, "at": now - 3,
                                      "steps_per_s": 18.3})  # fmt: skip
    times = {"started_at": begun, "first_progress_at": begun + START_S}
    if at_work:
        _write(folder / "heartbeat.json", {"token": token(slot, attempt), "at": now - 9, **times})
    else:
        end = {"token": token(slot, attempt), "code": 1 if crashed else 75, "at": begun + JOB_S - 1, **times}
        _write(
            folder / "exit.json", end if crashed else end | {"asked": "deadline", "asked_at": begun + JOB_S - SAVE_S}
        )
    write_rows(folder, slot, start, last, rows, tasks, begun)


def write_rows(folder: Path, slot: int, start: int, last: int, rows: int, tasks: Sequence[str], at: float) -> None:
    """Metrics and evaluations of the steps from `start` to `last`."""
    metrics, evaluations = [], []
    for row in range(rows):
        low, high = (start + (last - start) * k // rows for k in (row, row + 1))
        told = {task: _task(k, slot, high) for k, task in enumerate(tasks)}
        losses = {"critic_loss": 40_000 / (high + 9_000), "entropy": 4.0 - high / 800_000}
        metrics.append({"from": low, "to": high, "at": at + row, "updates": 10, "tasks": told, **losses})
    share = {task: _task(k, slot, last)["success"] for k, task in enumerate(tasks)}
    evaluations.append({
        "step": last, "at": at, "success": share, "returns": {task: 4000 * value for task, value in share.items()},
        "steps_to_success": {task: 90 + 20 * k for k, task in enumerate(tasks)},
        "mean_success": sum(share.values()) / len(share),
        "score": "success", "goals_per_task": 50,
    })  # fmt: skip
    for name, lines in (("metrics", metrics), ("evaluations", evaluations)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _task(k: int, slot: int, step: int) -> dict[str, float]:
    """A rise of its own for each task and slot, with some noise that depends on the step alone."""
    middle = 250_000 * (1 + k) + 40_000 * slot
    share = 1 / (1 + math.exp(-(step - middle) / 120_000)) * (0.98 - 0.04 * k)
    share = min(1.0, max(0.0, share + 0.04 * math.sin(step / 9_000 + k)))
    return {"episodes": 6, "success": round(share, 3), "return": round(4000 * share + 200, 1)}


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
