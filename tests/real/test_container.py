"""The container of the tests is a real one, and behaves as the documentation of its module says."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from container import Container, host_env
from daemons import PATIENCE_S


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work here").mkdir()
    return tmp_path / "work here"


def test_a_python_program_runs_inside_and_writes_through_a_bind(container: Container, work: Path) -> None:
    program = "import os, sys; open('out', 'w').write(os.environ['A'] + os.getcwd()); sys.exit(75)"

    done = container.run(
        [container.python, "-c", program], binds=[str(work)], cwd=str(work), env={"A": "$HOME:b "}
    )  # fmt: skip

    assert done.returncode == 75, done.stderr
    assert (work / "out").read_text() == f"$HOME:b {work}"


def test_it_works_where_the_jobs_scratch_is_tmpdir(
    container: Container, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = work / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))

    done = container.run(["sh", "-c", 'touch "$TMPDIR/x"'], binds=[str(work)], env={"TMPDIR": str(scratch)})

    assert done.returncode == 0, done.stderr
    assert (scratch / "x").exists()


def test_signals_reach_the_program_and_ignored_ones_stay_ignored(container: Container, work: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "print(os.getpid(), flush=True)\n"
        "while True: signal.pause()\n"
    )
    # The command line begins with `env`, which replaces itself like ch-run.
    with subprocess.Popen(
        ["env", "--ignore-signal=USR2", *container.command_line([container.python, "-c", program])],
        env=host_env(),
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert int(child.stdout.readline()) == child.pid

        os.kill(child.pid, signal.SIGUSR2)
        os.kill(child.pid, signal.SIGTERM)

        assert child.wait(PATIENCE_S) == 75
