"""The controller in the background: the foreground's, in a session of its own, with its output in controller.log."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from anchorleg.files import patiently
from anchorleg.output import Waiting, say
from orchestrator.decisions.models import SlotStatus, SubmissionState
from orchestrator.disk import private_opener
from orchestrator.errors import LeaseHeld
from orchestrator.hosts.host import KNOWN, hand_to_living_owner, notes_of
from orchestrator.run.begin import prepare_folder
from orchestrator.run.lease import PASSING_TIMEOUT_S, highest_epoch, living_owner, read_owner
from orchestrator.run.ledger import load_ledger, read_control
from orchestrator.run.rundir import RunDir, load_run
from orchestrator.run.starting import StartRequest

#: Beyond a second or two for its lease, a passing tick is waited for.
START_TIMEOUT_S = PASSING_TIMEOUT_S + 30.0
LOOK_S = 0.05
#: So long the scheduler's answer to the first jobs is waited for: a refusal is better told here than in a log.
FIRST_TICK_S = 20.0


def start_in_background(asked: StartRequest, words: list[str]) -> None:
    """`start` in a session of its own. `words`: the command line that asks for the same. Errors: as `host.start`."""
    run_dir, name = asked.run_dir, asked.config.run_name
    known = patiently(lambda: read_control(run_dir)).number
    say(*notes_of(asked), file=sys.stderr)
    if hand_to_living_owner(asked):
        return
    prepare_folder(run_dir)
    owner = patiently(lambda: living_owner(run_dir))
    if owner is not None and not owner.passes:
        raise LeaseHeld("controller.lives", owner=owner)
    before = patiently(lambda: highest_epoch(run_dir))
    with open(run_dir.log, "ab", opener=private_opener) as log:
        start_of_log = log.tell()
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator", *words],
            env={**os.environ, KNOWN: str(known)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with Waiting("starting the controller"):
        _wait_for_word(run_dir, child, before, start_of_log)
    goes_on = patiently(lambda: read_control(run_dir)).wish == "run"
    stands = f"under way: controller {child.pid}"
    if not goes_on:
        stands = f"being stopped: controller {child.pid} ends when its jobs have"
    say(f"{name} is {stands}, log {run_dir.log}", f"  orchestrator status {name}")
    if goes_on:
        say(f"  orchestrator stop {name}")


def _wait_for_word(run_dir: RunDir, child: subprocess.Popen[bytes], before: int, start_of_log: int) -> None:
    """Until the new controller has asked the scheduler. Errors: LeaseHeld; SystemExit where it has ended."""
    give_up_at = time.monotonic() + START_TIMEOUT_S
    late_at: float | None = None
    while time.monotonic() < give_up_at:
        if late_at is None and patiently(lambda: _has_begun(run_dir, before, child.pid)):
            late_at = time.monotonic() + FIRST_TICK_S
        if child.poll() is not None:
            with open(run_dir.log, encoding="utf-8", errors="replace") as log_text:
                log_text.seek(start_of_log)
                Waiting.clear()
                sys.stderr.write(log_text.read())
            sys.exit(child.returncode)
        if late_at is not None and (time.monotonic() > late_at or patiently(lambda: _is_answered(run_dir))):
            return
        time.sleep(LOOK_S)
    raise LeaseHeld("controller.not-begun", pid=child.pid, seconds=START_TIMEOUT_S, log=run_dir.log)


def _has_begun(run_dir: RunDir, before: int, pid: int) -> bool:
    """Whether process `pid` owns an epoch after `before`, and has written its ledger."""
    epoch = highest_epoch(run_dir)
    return epoch > before and run_dir.ledger(epoch).exists() and read_owner(run_dir, epoch).process.pid == pid


def _is_answered(run_dir: RunDir) -> bool:
    """Whether a slot that goes on has heard of its first job: accepted, waiting for room, or not clear."""
    ledger = load_ledger(run_dir, load_run(run_dir).run_id)
    return any(
        submission.state is not SubmissionState.INTENT
        for slot in (ledger.slots if ledger is not None else ())
        if slot.status is SlotStatus.ACTIVE
        for attempt in slot.attempts
        for submission in attempt.submissions
    )
