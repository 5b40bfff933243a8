"""Ranks are started, and rank 0's exit code is given back: small programs in their place, and an srun of our own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S, started_at, wait_for

from anchorleg.job import Job
from anchorleg.signals import HAND_OVER_SIGNALS
from trainer.machine import launching
from trainer.machine.launching import RankPlace, launch, place_of

#: A stand-in for srun: the tasks one after the other, last first, and the largest exit code, as srun gives it.
SRUN = """#!/bin/bash
echo "$@" > "$WORDS"
echo $$ > "$WORDS.pid"
while [[ $1 == --* ]]; do [[ $1 == --ntasks=* ]] && n=${1#*=}; shift; done
largest=0
for ((rank = n - 1; rank >= 0; rank--)); do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@"; code=$?
    ((code > largest)) && largest=$code
done
exit $largest
"""

#: Another: all tasks at once.
SRUN_AT_ONCE = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for rank in 0 1; do
    (echo $BASHPID >> "$WORDS.tasks"; SLURM_PROCID=$rank SLURM_LOCALID=$rank exec "$@") &
done
wait
"""
#: And a stand-in for scancel, which signals its tasks.
SCANCEL = """#!/bin/bash
echo "$@" > "$WORDS.scancel"
kill -ABRT $(cat "$WORDS.tasks")
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (*HAND_OVER_SIGNALS, signal.SIGABRT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job.standalone(tmp_path / "run")


def launched(job: Job, code: str, ranks: int = 3, **environ: str) -> tuple[int, list[str]]:
    """The exit code of ranks that run `code`, which knows its `rank`, and what was said."""
    said: list[str] = []
    program = "import os, signal, sys; rank = int(os.environ.get('ANCHORLEG_RANK', os.environ.get('SLURM_PROCID')))\n"
    command = [sys.executable, "-S", "-c", program + code]
    return launch(job, ranks, {"PATH": os.environ["PATH"], **environ}, command, said.append), said


@pytest.mark.parametrize("code", [0, 2, 75, 93])
def test_rank_0s_exit_code_is_given_back(job: Job, code: int) -> None:
    assert launched(job, f"sys.exit({code} if rank == 0 else 0)") == (code, [])


def test_a_rank_that_is_killed_is_named_and_the_code_is_that_of_rank_0(job: Job) -> None:
    dies = "os.kill(os.getpid(), signal.SIGKILL) if rank == 2 else sys.exit(8)"
    assert launched(job, dies) == (8, ["rank 2 was killed by SIGKILL: all ranks end; the last checkpoint is good"])


def test_who_does_not_end_with_the_others_is_killed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "GRACE_S", 0.2)
    assert launched(job, "sys.exit(75) if rank == 0 else signal.pause()") == (75, [])


@pytest.mark.parametrize("then", ["signal.pause()", "sys.exit(8)"])
def test_whatever_rank_0_does_the_code_is_that_of_the_rank_that_failed(
    job: Job, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(launching, "GRACE_S", 0.2)
    fails = "left = os.environ['ANCHORLEG_ATTEMPT_DIR'] + '/ranks-exit'\n"
    fails += "if rank: open(left, 'w').write('6'); sys.exit(6)\n"
    assert launched(job, f"{fails}while not os.path.exists(left): pass\n{then}", 2)[0] == 6


def test_ranks_know_their_job_and_their_place(job: Job) -> None:
    told = "import json; open(os.environ['OUT'] + str(rank), 'w').write(json.dumps(dict(os.environ)))"
    out = job.run_dir / "told-"
    assert launched(job, told, 2, OUT=str(out)) == (0, [])
    environ = json.loads(Path(f"{out}1").read_text())
    assert place_of(environ) == RankPlace(1, 2, 1, 2, "127.0.0.1")
    found = Job.from_environment(environ)
    assert found is not None
    assert (found.attempt_dir, found.run_id, found.deadline) == (job.attempt_dir, job.run_id, None)
    assert found.hand_over_file == job.attempt_dir / "hand-over"


def test_a_signal_asks_for_a_hand_over_by_the_file(job: Job) -> None:
    # It may not listen yet when it is signalled first.
    asks = (
        "import time\nwhile not os.path.exists(os.environ['ANCHORLEG_HANDOVER_FILE']):\n"
        "    rank or os.kill(os.getppid(), signal.SIGUSR2)\n    time.sleep(0.01)\n"
        "sys.exit(75 if rank == 0 else 0)"
    )
    assert launched(job, asks) == (75, [])


def test_under_a_shim_a_signal_comes_to_rank_0(job: Job) -> None:
    waits = (
        "import time\nrank or signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75))\n"
        "for _ in range(0 if rank else 500): os.kill(os.getppid(), signal.SIGUSR2); time.sleep(0.01)"
    )
    asked = job.run_dir / "asked"
    job.hand_over_file = asked
    assert launched(job, waits) == (75, [])
    assert not asked.exists(), "the file is the shim's"


def srun(folder: Path, **more: str) -> dict[str, str]:
    (folder / "bin").mkdir()
    (folder / "bin/srun").write_text(SRUN)
    (folder / "bin/srun").chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {"PATH": path, "SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "WORDS": str(folder / "words"), **more}


def test_in_a_job_of_several_tasks_srun_starts_them_and_rank_0_says_the_code(job: Job, tmp_path: Path) -> None:
    leaves = (
        "path = os.environ['ANCHORLEG_RUN_DIR'] + '/slots/0/attempts/0/ranks-exit'\n"
        "if rank == 0: open(path, 'w').write('75')\nsys.exit(0 if rank == 0 else 143)"
    )
    assert launched(job, leaves, **srun(tmp_path, SLURM_CPUS_PER_TASK="4")) == (75, [])
    words = (tmp_path / "words").read_text()
    assert words.startswith("--kill-on-bad-exit=1 --ntasks=3 --export=ALL --cpus-per-task=4 ")


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler of its own for this signal (proc(5): SigCgt)."""
    (mask,) = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("with_srun", [False, True])
def test_who_prints_the_stacks_of_a_hung_training_gets_those_of_all_ranks(tmp_path: Path, with_srun: bool) -> None:
    """In a process of its own, which dies of it as a hung training does."""
    listens = (
        "import os, signal, sys, time\nstarter = os.getppid()\n"
        "rank = os.environ.get('ANCHORLEG_RANK', os.environ.get('SLURM_PROCID'))\n"
        "def end(*_):\n    open(sys.argv[1] + '/stacks-' + rank, 'w').close()\n    sys.exit(8)\n"
        "signal.signal(signal.SIGABRT, end)\n"
        "open(sys.argv[1] + '/listens-' + rank, 'w').close()\n"
        "while os.getppid() == starter: time.sleep(0.01)"
    )
    starts = (
        "import os, sys\nfrom pathlib import Path\nfrom anchorleg.job import Job\n"
        "from trainer.machine.launching import launch\n"
        "sys.exit(launch(Job.standalone(Path(sys.argv[1]) / 'run'), 2, os.environ, sys.argv[2:], print))"
    )
    env = {**os.environ}
    if with_srun:
        env |= srun(tmp_path, SLURM_NTASKS="2")
        (tmp_path / "bin/srun").write_text(SRUN_AT_ONCE)
        (tmp_path / "bin/scancel").write_text(SCANCEL)
        (tmp_path / "bin/scancel").chmod(0o755)
    words = [sys.executable, "-c", starts, str(tmp_path), sys.executable, "-S", "-c", listens, str(tmp_path)]
    with subprocess.Popen(words, env=env) as starter:
        try:
            wait_for(lambda: len(list(tmp_path.glob("listens-*"))) == 2, "two ranks that listen")
            wait_for(lambda: catches(starter.pid, signal.SIGABRT), "a starter that listens")
            starter.send_signal(signal.SIGABRT)
            assert starter.wait(PATIENCE_S) == 128 + signal.SIGABRT
            assert {path.name for path in tmp_path.glob("stacks-*")} == {"stacks-0", "stacks-1"}
            if with_srun:
                assert (tmp_path / "words.scancel").read_text() == "--signal=ABRT 7\n"
        finally:
            starter.kill()


def test_an_srun_that_does_not_end_with_rank_0_is_ended(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "LEAVE_S", 0.2)
    stays = (
        "import time\nif rank: sys.exit()\nsrun = os.getppid()\n"
        "open(os.environ['ANCHORLEG_ATTEMPT_DIR'] + '/ranks-exit', 'w').write('75')\n"
        "while os.getppid() == srun: time.sleep(0.01)"
    )
    assert launched(job, stays, **srun(tmp_path)) == (75, [])
    pid = int((tmp_path / "words.pid").read_text())
    wait_for(lambda: started_at(pid) is None, "srun's end")


def test_a_task_of_srun_knows_its_place() -> None:
    environ = {"ANCHORLEG_RANKS": "4", "ANCHORLEG_RANKS_HOST": "node1", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}
    assert place_of({**environ, "SLURM_STEP_NUM_NODES": "2"}) == RankPlace(3, 4, 1, 2, "node1")
    assert place_of({"SLURM_PROCID": "3"}) is None
