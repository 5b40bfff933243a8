"""The screens of docs/status.md, made by the commands' own code from ledgers that are written here.

`python tests/support/status_screens.py` writes them into the page; a test compares.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from builders import NOW, a_job, a_run, a_slot, token
from rich.console import Console

from orchestrator.config import parse_config
from orchestrator.decisions.models import Attempt, BadNode, Blind, Death, Ledger, Seen, SlotStatus, Verdict
from orchestrator.decisions.reasons import REASONS
from orchestrator.executors.base import JobState
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.ledger import append_event, load_ledger, save_ledger
from orchestrator.run.rundir import RunDir, save_run
from orchestrator.screens.explain import explain, explanation_lines
from orchestrator.screens.reading import Keeper, run_view
from orchestrator.screens.status import plain_lines, run_table

PAGE = Path(__file__).parents[2] / "docs" / "status.md"
RUN_ID = "mt10-3f9c21ab"
CONTROLLER = "process 4657 on login1 (`start`, since 06:12:05)"
CONFIG = {"run_name": "mt10", "executor": "slurm", "slots": 4, "slurm": {"time_limit": "4:00:00"}, "training": {}}
TOTAL = 20_000_000


def running(attempt: int, job: int, *, ends_in_s: float) -> tuple[Any, dict[str, Any]]:
    """A job at work on gpu03, and its attempt's fields."""
    sighting = Seen(
        state=JobState.RUNNING, raw_state="RUNNING", at=NOW - 4, node="gpu03",
        started_at=NOW + ends_in_s - 4 * 3600, ends_at=NOW + ends_in_s,
    )  # fmt: skip
    submission = a_job(token(0, attempt), job_id=str(job), sighting=sighting)
    fields = {"number": attempt, "claimed_by": submission.token, "started_at": NOW + ends_in_s - 4 * 3600}
    return submission, fields | {"heartbeat": 240, "heartbeat_changed_at": NOW - 12}


def pending(job: int, reason: str, starts_in_s: float | None = None) -> Any:
    """A job that waits."""
    starts_at = NOW + starts_in_s if starts_in_s is not None else None
    sighting = Seen(state=JobState.PENDING, raw_state="PENDING", at=NOW - 4, reason=reason, started_at=starts_at)
    return a_job(token(0, 0, job), job_id=str(job), sighting=sighting)


def ended(number: int, verdict: Verdict, cause: str = "", *, ago_s: float = 5000.0) -> Attempt:
    """An attempt that is over."""
    return Attempt(number=number, verdict=verdict, cause=cause, started_at=NOW - ago_s - 14_000, ended_at=NOW - ago_s)


def at_work(index: int, job: int, ends_in_s: float, *, behind: int | None = None) -> Any:
    """A slot in its third job; `behind`: the job that is queued behind it."""
    submission, fields = running(2, job, ends_in_s=ends_in_s)
    began_at = fields["started_at"]
    last = ended(1, Verdict.HANDED_OVER).model_copy(update={"ended_at": began_at - 40})
    slot = a_slot(index, jobs=3, hand_overs=2, attempts=(last,)).with_attempt(submission, **fields)
    if behind is not None:
        slot = slot.with_attempt(pending(behind, "Dependency"), number=3, ahead=True)
    return slot


def good() -> Ledger:
    """Everything goes as it should."""
    slots = [at_work(k, 81_230 + k, 7000 - 900 * k, behind=81_250 + k) for k in range(4)]
    return a_run(*slots)


def troubled() -> Ledger:
    """Each slot has something else to say."""
    failed = ended(4, Verdict.CRASHED, "the GPU ran out of memory (exit code 7)", ago_s=28)
    return a_run(
        a_slot(0, jobs=2, hand_overs=2, step=6_400_000, total=TOTAL).with_attempt(
            pending(81_260, "Priority", 2 * 3600), number=2
        ),
        a_slot(
            1, jobs=5, failures=3, step=2_100_000, total=TOTAL, attempts=(failed,), not_before=NOW + 872,
            why="job 81247 failed: the GPU ran out of memory (exit code 7) (failure 3 of 6)",
        ),
        a_slot(
            2, jobs=3, step=8_000_000, total=TOTAL, status=SlotStatus.PAUSED,
            why="its job was cancelled by user 1004; `orchestrator start mt10` goes on",
        ),
        a_slot(3).with_attempt(pending(81_262, "QOSMaxJobsPerUserLimit")),
        nodes=(BadNode(node="gpu07", deaths=tuple(Death(slot=k, at=NOW) for k in (1, 3)), excluded_until=NOW + 5400),),
    )  # fmt: skip


def unseen() -> Ledger:
    """Slurm gives no answer."""
    error = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    ledger = good()
    lost = {"sighting": Blind(since=NOW - 410, error=error)}
    slots = []
    for slot in ledger.slots:
        attempts = tuple(
            attempt.model_copy(update={"submissions": tuple(s.model_copy(update=lost) for s in attempt.submissions)})
            for attempt in slot.attempts
        )
        slots.append(slot.model_copy(update={"attempts": attempts}))
    return ledger.model_copy(update={"slots": tuple(slots), "blind_since": NOW - 410, "blind_error": error})


@contextmanager
def shown(ledger: Ledger) -> Iterator[RunDir]:
    """A run folder with this ledger, progress files and some history."""
    with tempfile.TemporaryDirectory() as scratch, patch("orchestrator.run.begin.fix_code", lambda _: "0" * 16):
        run_dir = RunDir(Path(scratch) / "runs" / "mt10")
        prepare_folder(run_dir)
        run = begin(parse_config(CONFIG, "c.json"), Path(scratch) / "c.json", run_dir, {"PATH": "/usr/bin"}, NOW)
        save_run(run_dir, run.model_copy(update={"run_id": RUN_ID}))
        save_ledger(run_dir, ledger.model_copy(update={"run_id": RUN_ID}), NOW - 4)
        for slot in ledger.slots:
            if slot.current is not None and slot.current.claimed_by is not None:
                step = 9_284_000 - 310_000 * slot.index
                value = {"step": step, "total": TOTAL, "checkpoint_step": step - 41_000, "at": NOW - 3}
                value |= {"steps_per_s": 905.4 - 7 * slot.index, "gpu_percent": 71, "success": 0.62 - 0.03 * slot.index}
                folder = run_dir.attempt(slot.index, slot.current.number)
                folder.mkdir(parents=True)
                (folder / "progress.json").write_text(json.dumps(value))
        history(run_dir)
        with patch("orchestrator.screens.reading.keeper", lambda *_: Keeper(CONTROLLER)):
            yield run_dir


@contextmanager
def full_disk(run_dir: RunDir) -> Iterator[None]:
    """No byte has been free there for ten minutes."""
    ledger = load_ledger(run_dir, RUN_ID)
    assert ledger is not None
    save_ledger(run_dir, ledger, NOW - 600)
    with patch("orchestrator.screens.reading.left_on_full_disk", lambda _: 0):
        yield


def history(run_dir: RunDir) -> None:
    """What happened to slot 1."""
    for ago_s, kind, facts in (
        (5400, "submission", {"attempt": 4, "job_id": "81247", "exclude": "gpu07"}),
        (1210, "started", {"attempt": 4, "job_id": "81247", "node": "gpu02", "start_step": 2_100_000}),
        (700, "blind", {"error": "slurm_load_jobs error: Socket timed out on send/recv operation"}),
        (610, "sighted", {"blind_s": 90.0}),
        (28, "ended", {"attempt": 4, "job_id": "81247", "verdict": "crashed", "step": 2_118_400,
                       "cause": "the GPU ran out of memory (exit code 7)", "checkpoint_step": 2_100_000}),
    ):  # fmt: skip
        place = {} if kind in {"blind", "sighted"} else {"slot": 1}
        append_event(run_dir, 0, kind, NOW - ago_s, **place, **facts)


def drawn(run_dir: RunDir, width: int) -> str:
    """`status` on a terminal of that width."""
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(run_table(run_view(run_dir, NOW).model_copy(update={"run_dir": "/runs/mt10"}), NOW, width))
    assert isinstance(out.file, io.StringIO)
    return "\n".join(line.rstrip() for line in out.file.getvalue().splitlines())


def screens() -> Mapping[str, str]:
    """By name, each screen's block of the page."""
    found = {}
    with shown(good()) as run_dir:
        found["status 120"] = drawn(run_dir, 120)
        found["status 80"] = drawn(run_dir, 80)
        found["pipe"] = "\n".join(plain_lines(run_view(run_dir, NOW), NOW)[:4])
    with shown(troubled()) as run_dir:
        found["trouble"] = drawn(run_dir, 120)
        found["explain"] = "\n".join(explanation_lines(explain(run_view(run_dir, NOW, events=True), 1, NOW), NOW))
    with shown(unseen()) as run_dir:
        found["blind"] = drawn(run_dir, 120)
    with shown(good()) as run_dir, full_disk(run_dir):
        found["full"] = drawn(run_dir, 120)
    blocks = {name: f"```text\n{text}\n```" for name, text in found.items()}
    rows = [f"| `{code}` | {reason.kind} | {reason.words} |" for code, reason in sorted(REASONS.items())]
    blocks["reasons"] = "\n".join(["| Slurm says | | in words: job 12 ... |", "|---|---|---|", *rows])
    return blocks


def page_with(blocks: Mapping[str, str], page: str) -> str:
    """The page with its blocks made anew. Errors: KeyError for a block that is not made here."""
    marked = re.compile(r"<!-- ([a-z0-9 ]+) -->\n.*?<!-- end -->", re.DOTALL)
    return marked.sub(lambda match: f"<!-- {match[1]} -->\n{blocks[match[1]]}\n<!-- end -->", page)


def main() -> int:
    """Write the page."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    PAGE.write_text(page_with(screens(), PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
