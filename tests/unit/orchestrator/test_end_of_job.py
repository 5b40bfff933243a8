"""When a job's walltime ends, how it hands over, and its last word, as its own first process sees it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import NOW
from daemons import PATIENCE_S

from anchorleg.job import Job
from orchestrator.jobside import LATEST_START_S, end_of_job
from orchestrator.shim import RECORD_WAITS_S, SHIM_FAILED, Shim

ROOT = Path(__file__).parents[3]
HOURS_4 = 4 * 3600


def told(start: float, end: float) -> dict[str, str]:
    return {"SLURM_JOB_START_TIME": f"{start:.0f}", "SLURM_JOB_END_TIME": f"{end:.0f}"}


@pytest.mark.parametrize("setup_s", [0, 20, LATEST_START_S])
def test_the_schedulers_word_counts(setup_s: float) -> None:
    assert end_of_job(told(NOW, NOW + HOURS_4), NOW + setup_s, 99) == NOW + HOURS_4
    assert end_of_job({}, NOW, 99) == NOW + 99


@pytest.mark.parametrize("ahead_s", [-86400, -1800, 1800, 86400])
def test_on_a_node_with_a_wrong_clock_the_jobs_length_counts(ahead_s: float) -> None:
    started_at = NOW + 5 + ahead_s
    assert end_of_job(told(NOW, NOW + HOURS_4), started_at, 99) == started_at + HOURS_4


@pytest.mark.parametrize("text", ["{}", "null", '{"att'])
def test_a_damaged_word_on_where_an_attempt_began_ends_the_job_in_a_sentence(tmp_path: Path, text: str) -> None:
    older, job_dir = tmp_path / "run/slots/0/attempts/0", tmp_path / "run/jobs/s0-a1-00000000"
    for folder in (older, job_dir):
        folder.mkdir(parents=True)
    (older / "parent.json").write_text(text)
    spec = {"token": job_dir.name, "run_dir": str(tmp_path / "run"), "slot": 0, "attempt": 1}
    (job_dir / "job.json").write_text(json.dumps(spec))
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-P", "-S", "-m", "orchestrator.shim"]
    done = subprocess.run(words, cwd=job_dir, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    told = f"{older / 'parent.json'}, which says where attempt 0 began, is damaged: restore it from a backup, or move"
    ended = json.loads((older.parent / "1/exit.json").read_bytes())
    assert (done.returncode, ended["code"], ended["words"].startswith(told)) == (3, 3, True)
    assert f"anchorleg: {told}" in done.stderr
    assert "Traceback" not in done.stderr


def never(seconds: float) -> None:
    raise AssertionError(f"{seconds} s are waited")


def a_shim(
    folder: Path, signal_seen: str | None, *, somebody_asked: bool, sleep: Callable[[float], None] = never
) -> Shim:
    """At work, after a signal, with or without the file that asks for a hand-over."""
    (folder / "slots/0/attempts/0").mkdir(parents=True)
    spec = {"run_dir": str(folder), "slot": 0, "attempt": 0, "token": "s0-a0-00000000"}
    shim = Shim(folder, spec, {}, sleep=sleep)
    shim.asked = signal_seen
    if somebody_asked:
        shim.hand_over_file.touch()
    return shim


@pytest.mark.parametrize(("longest_s", "after_s"), [(None, 3540), (10, 10), (9999, 3540)])
def test_a_hand_over_is_due_the_lead_before_the_end_or_when_it_has_worked_long_enough(
    tmp_path: Path, longest_s: int | None, after_s: int
) -> None:
    shim = a_shim(tmp_path, None, somebody_asked=False)
    shim.spec |= {"limit_s": 3600, "lead_s": 60, "max_runtime_s": longest_s}
    assert shim.deadline() == shim.started_at + after_s


def last_word(folder: Path) -> dict[str, Any]:
    """What `a_shim` left of its end."""
    word: dict[str, Any] = json.loads((folder / "slots/0/attempts/0/exit.json").read_bytes())
    return word


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

    is_dir = exists


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


@pytest.mark.parametrize(
    ("names", "newest", "misnamed"),
    [
        ([], None, ""),
        (["step_1000", ".7.unfinished"], None, "step_1000"),
        (["1000.0"], None, "1000.0"),
        ([".7.unfinished", "README", "unfinished", "step_7\udcff"], None, ""),
        (["2000.tmp"], None, ""),
        (["2000.tmp.3118", "tmp-1000", "tmp7x_2", "7.part", "7.PARTIAL", "unfinished-7", "9.orbax-tmp-1"], None, ""),
        (["events.out.tfevents.1760086400.n1.7.0"], None, ""),
        (["2000.tmp", "step_1000"], None, "step_1000"),
        (["attempt_7"], None, "attempt_7"),
        (["9", "10", "step_11"], 10, ""),
    ],
)
def test_the_record_of_the_end_says_which_checkpoint_a_successor_would_find(
    tmp_path: Path, names: list[str], newest: int | None, misnamed: str
) -> None:
    shim = a_shim(tmp_path, None, somebody_asked=False)
    for name in names:
        (tmp_path / "slots/0/attempts/0/checkpoints" / name).mkdir(parents=True)
    shim.end(75)
    assert (last_word(tmp_path)["newest"], last_word(tmp_path).get("misnamed", "")) == (newest, misnamed)


@pytest.mark.parametrize(("number", "terminated"), [(signal.SIGTERM, True), (signal.SIGUSR2, False)])
def test_a_sigterm_is_told_also_where_a_hand_over_was_under_way(
    tmp_path: Path, number: signal.Signals, *, terminated: bool
) -> None:
    shim = a_shim(tmp_path, "deadline", somebody_asked=False)
    shim.on_signal(number, None)
    shim.end(75)
    assert (last_word(tmp_path)["asked"], last_word(tmp_path)["terminated"]) == ("deadline", terminated)


def test_looks_that_fail_keep_no_record_of_the_end_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = a_shim(tmp_path, None, somebody_asked=False)
    shim.hand_over_file = AwayFolder()  # type: ignore[assignment]
    monkeypatch.setattr(Job, "superseded_by", lambda _job: AwayFolder().exists())
    assert shim.end(75) == 0
    assert (last_word(tmp_path)["code"], last_word(tmp_path)["superseded_by"]) == (75, None)


def test_a_record_of_the_end_that_cannot_be_written_is_tried_again_for_seconds(tmp_path: Path) -> None:
    waits: list[float] = []
    attempt = tmp_path / "slots/0/attempts/0"

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            attempt.mkdir()

    shim = a_shim(tmp_path, None, somebody_asked=False, sleep=sleep)
    attempt.rmdir()
    assert shim.end(75) == 0
    assert (last_word(tmp_path)["code"], waits) == (75, list(RECORD_WAITS_S[:2]))


def test_a_job_that_can_never_write_its_end_says_so_to_the_scheduler(tmp_path: Path) -> None:
    waits: list[float] = []
    shim = a_shim(tmp_path, None, somebody_asked=False, sleep=waits.append)
    (tmp_path / "slots/0/attempts/0").rmdir()
    assert shim.end(-9) == SHIM_FAILED
    assert waits == list(RECORD_WAITS_S)


def test_folders_that_are_removed_under_a_job_are_made_again_with_its_claim(tmp_path: Path) -> None:
    run, job_dir = tmp_path / "run", tmp_path / "run" / "jobs" / "s0-a0-00000000"
    job_dir.mkdir(parents=True)
    (run / "run.json").touch()
    spec = {"run_dir": str(run), "slot": 0, "attempt": 0, "token": job_dir.name}
    shim = Shim(job_dir, spec, {"SLURM_JOB_ID": "17"})
    assert shim.claim()
    shim.decide_parent()
    attempt = shim.job.attempt_dir
    before = {name: (attempt / name).read_bytes() for name in ("claim", "parent.json")}
    shutil.rmtree(job_dir.parent)
    shutil.rmtree(run / "slots")
    program = Program()
    shim.asked = "deadline"

    shim.look(program, float("inf"))  # type: ignore[arg-type]

    assert shim.hand_over_file.exists()
    assert job_dir.parent.stat().st_mode & 0o777 == 0o700
    assert {name: (attempt / name).read_bytes() for name in before} == before
    assert json.loads((attempt / "heartbeat.json").read_bytes())["job_id"] == "17"


def test_nothing_is_made_again_of_a_run_that_was_moved_away(tmp_path: Path) -> None:
    shim = a_shim(tmp_path / "run", "deadline", somebody_asked=False)
    (tmp_path / "run").rename(tmp_path / "moved")
    program = Program()
    shim.look(program, float("inf"))  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    assert program.signals == [signal.SIGUSR2]
