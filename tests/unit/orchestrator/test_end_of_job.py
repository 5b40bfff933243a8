"""When a job's walltime ends, as its own first process sees it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import NOW
from daemons import PATIENCE_S

from orchestrator.shim import LATEST_START_S, Shim, end_of_job

ROOT = Path(__file__).parents[3]
HOURS_4 = 4 * 3600


def told(start: float, end: float) -> dict[str, str]:
    return {"SLURM_JOB_START_TIME": f"{start:.0f}", "SLURM_JOB_END_TIME": f"{end:.0f}"}


@pytest.mark.parametrize("setup_s", [0, 20, LATEST_START_S])
def test_the_schedulers_word_counts(setup_s: float) -> None:
    assert end_of_job(told(NOW, NOW + HOURS_4), NOW + setup_s, 99) == NOW + HOURS_4


@pytest.mark.parametrize("ahead_s", [-86400, -1800, 1800, 86400])
def test_on_a_node_with_a_wrong_clock_the_jobs_length_counts(ahead_s: float) -> None:
    started_at = NOW + 5 + ahead_s
    assert end_of_job(told(NOW, NOW + HOURS_4), started_at, 99) == started_at + HOURS_4


def test_an_older_slurm_is_asked(tmp_path: Path) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text(f'#!/bin/sh\n[ "$SLURM_TIME_FORMAT $3" = "%s 7" ] || exit 1\necho {NOW:.0f} {NOW + 600:.0f}\n')
    squeue.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    assert end_of_job(environ, NOW + 5, 99) == NOW + 600
    assert end_of_job(environ, NOW + 5000, 99) == NOW + 5600
    assert end_of_job(environ, NOW + 5, 99, ask=False) == NOW + 5 + 99


@pytest.mark.parametrize("answer", ["echo N/A N/A", "exit 1", "echo slurm_load_jobs error"])
def test_where_nobody_says_it_is_the_start_and_the_limit(tmp_path: Path, answer: str) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "squeue").chmod(0o755)
    assert end_of_job({"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}, NOW, 99) == NOW + 99
    assert end_of_job({}, NOW, 99) == NOW + 99


def test_a_program_is_asked_to_hand_over_by_what_squeue_said_after_its_start(tmp_path: Path) -> None:
    """Of a job of an hour squeue says that it ends in 6 s; the lead is 5."""
    job_dir = tmp_path / "run/jobs/s0-a0-00000000"
    job_dir.mkdir(parents=True)
    (tmp_path / "run/slots/0/attempts").mkdir(parents=True)
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\nnow=$(date +%s)\necho $now $((now + 6))\n")
    squeue.chmod(0o755)
    program = "import os, pathlib, sys, time\nwhile not pathlib.Path(os.environ['ANCHORLEG_HANDOVER_FILE']).exists():\n"
    spec = {
        "token": job_dir.name, "run_dir": str(tmp_path / "run"), "slot": 0, "attempt": 0, "folder": str(tmp_path),
        "command": [sys.executable, "-c", f"{program}    time.sleep(0.01)\nsys.exit(75)"],
        "limit_s": 3600, "lead_s": 5, "max_runtime_s": None,
    }  # fmt: skip
    (job_dir / "job.json").write_text(json.dumps(spec))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    words = [sys.executable, "-P", "-S", "-m", "orchestrator.shim"]
    done = subprocess.run(words, cwd=job_dir, env=env, capture_output=True, timeout=PATIENCE_S, check=False)
    ended = json.loads((tmp_path / "run/slots/0/attempts/0/exit.json").read_bytes())
    assert (done.returncode, ended["code"], ended["asked"]) == (0, 75, "deadline")


def a_shim(folder: Path, signal_seen: str | None, *, somebody_asked: bool) -> Shim:
    """At work, after a signal, with or without the file that asks for a hand-over."""
    (folder / "slots/0/attempts/0").mkdir(parents=True)
    shim = Shim(folder, {"run_dir": str(folder), "slot": 0, "attempt": 0, "token": "s0-a0-00000000"}, {})
    shim.asked = signal_seen
    if somebody_asked:
        shim.hand_over_file.touch()
    return shim


class Program:
    """Stands in for the job's program: who signals it."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


class AwayFolder:
    """A job folder on a server that has just been restarted."""

    def __truediv__(self, name: str) -> AwayFolder:
        return self

    def exists(self) -> bool:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_folder_that_fails_at_a_heartbeat_ends_nothing(tmp_path: Path) -> None:
    shim = a_shim(tmp_path, None, somebody_asked=False)
    shim.job_dir = AwayFolder()  # type: ignore[assignment]
    program = Program()
    shim.look(program, float("inf"))  # type: ignore[arg-type]
    assert (shim.beat, program.signals) == (1, [])


@pytest.mark.parametrize(
    ("signal_seen", "somebody_asked", "reason"),
    [
        ("SIGUSR2", True, "asked to"),  # the signal was faster than the look at the file
        ("SIGUSR2", False, "SIGUSR2"),
        ("SIGTERM", True, "SIGTERM"),
        (None, True, "asked to"),
    ],
)
def test_a_request_has_one_reason_whoever_carries_it(
    tmp_path: Path, signal_seen: str | None, somebody_asked: bool, reason: str
) -> None:
    shim = a_shim(tmp_path, signal_seen, somebody_asked=somebody_asked)
    program = Program()
    shim.look(program, float("inf"))  # type: ignore[arg-type]
    assert shim.asked == reason
    assert program.signals == [signal.SIGUSR2]
    assert shim.hand_over_file.exists()
    shim.look(program, float("inf"))  # type: ignore[arg-type]
    assert (shim.asked, len(program.signals)) == (reason, 1)


@pytest.mark.parametrize(("signal_seen", "somebody_asked", "reason"), [
    ("SIGUSR2", True, "asked to"), ("SIGUSR2", False, "SIGUSR2"), (None, True, "asked to"), (None, False, None),
])  # fmt: skip
def test_a_program_that_was_quicker_than_the_look_leaves_the_same_reason(
    tmp_path: Path, signal_seen: str | None, somebody_asked: bool, reason: str | None
) -> None:
    """It saw the file, and had ended, before the next look."""
    shim = a_shim(tmp_path, signal_seen, somebody_asked=somebody_asked)
    shim.end(75)
    assert json.loads((tmp_path / "slots/0/attempts/0/exit.json").read_bytes())["asked"] == reason
