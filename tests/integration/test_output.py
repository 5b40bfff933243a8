"""What a command prints: where it cannot go (`| head -1`, a full disk), and while something takes long."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from daemons import WORK_S

READER_GONE = 141
COMMANDS = {
    "orchestrator": (["orchestrator", "schema"], 7),
    "syncd": (["syncd", "--version"], 7),
    "trainer": (["trainer", "--help"], 5),
    "viewer": (["viewer", "--help"], 7),
}


def run(command: Sequence[str], out: int, **more: Any) -> tuple[int, str]:
    """(exit code, what it says on standard error) of a command whose output goes to `out`."""
    done = subprocess.run(
        [sys.executable, "-m", *command], check=False, text=True, stdout=out, stderr=subprocess.PIPE, timeout=WORK_S,
        **more,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture
def nobody():
    """The end of a pipe that nobody reads."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def environ(request: pytest.FixtureRequest) -> Mapping[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": request.param}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_reader_has_gone_ends_without_a_word(
    name: str, environ: Mapping[str, str], nobody: int
) -> None:
    assert run(COMMANDS[name][0], nobody, env=environ) == (READER_GONE, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_output_cannot_be_written_says_so(name: str, environ: Mapping[str, str]) -> None:
    command, code = COMMANDS[name]
    with open("/dev/full", "wb") as full:
        found, said = run(command, full.fileno(), env=environ)
    assert (found, said.partition(" [")[0].rstrip(".\n")) == (code, f"{name}: the output: No space left on device")


@pytest.mark.long
def test_an_error_is_told_to_programs_too_unless_an_answer_was(tmp_path: Path) -> None:
    (tmp_path / "cluster_config.json").write_text('{"executor": "local", "slurm": {"time_limit": 1}}')
    told = []
    for words in (["status", "nobody"], ["doctor"]):
        command = [sys.executable, "-m", "orchestrator", *words, "--json"]
        done = subprocess.run(command, cwd=tmp_path, check=False, text=True, capture_output=True, timeout=WORK_S)
        told.append((done.returncode, json.loads(done.stdout).get("error"), done.stderr.rpartition(" ")[2]))
    assert told == [(8, "run.unknown", "[run.unknown]\n"), (11, None, "[doctor.problems]\n")]


@pytest.mark.long
@pytest.mark.trainer
@pytest.mark.parametrize("where", ["nobody", "/dev/full"])
def test_a_training_goes_on_where_nobody_reads_of_it(
    where: str, environ: Mapping[str, str], nobody: int, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    sets = ["total_steps=600", "random_steps=100", "metrics_interval=100", "updates_per_step=0.1"]
    command = ["trainer", "train", "--preset", "tiny", "--run-dir", "run", *(w for one in sets for w in ("--set", one))]
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        code, said = run(command, nobody if where == "nobody" else full, cwd=tmp_path, env=environ)
    finally:
        os.close(full)
    assert (code, "Traceback" in said) == (0, False)
    assert list((tmp_path / "run").glob("slots/0/attempts/0/checkpoints/*600*"))


def test_a_character_that_the_output_cannot_have_ends_no_command() -> None:
    program = "from anchorleg.output import ending_well; ending_well(lambda: print('from a \\u2192 b'))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, timeout=WORK_S,
        env={**os.environ, "PYTHONIOENCODING": "iso8859-2"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"from a \\u2192 b\n", b"")


#: A sentence, a table that rich redraws, and an error.
SHOWS = """
from rich.console import Console
from rich.live import Live
from anchorleg.output import end_with_error, ending_well, say

def act():
    say("word " * 20 + chr(27))
    with Live("first", console=Console(), auto_refresh=False) as live:
        live.update("[bold]second", refresh=True)
    end_with_error("toy", "error " * 20 + "\\nlast", 3)

ending_well(act)
"""


def test_a_terminal_gets_whole_words_and_obeys_our_tables_alone() -> None:
    typed = f"unset COLUMNS; stty cols 40; {sys.executable} -c '{SHOWS}'"  # pytest-xdist sets it
    done = subprocess.run(
        ["script", "-qec", typed, "/dev/null"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=WORK_S, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert (max(len(line) for line in lines if "\x1b" not in line) <= 40, lines[-1]) == (True, "last")
    assert (done.returncode, done.stdout.split().count("word"), done.stdout.split().count("error")) == (3, 20, 20)
    assert (done.stdout.count("\\u001b"), "\x1b[1msecond" in done.stdout) == (1, True)


#: Prints beside its answer: in Python, below it, late, and by a program that it starts.
ANSWERS = """
import os, subprocess
from anchorleg.output import ending_well, set_aside

def act():
    with set_aside() as answer:
        print("a banner")
        subprocess.run(["echo", "a child"], check=True)
        print("one", file=answer)
    os.write(1, b"late\\n")
    print("two")

ending_well(act)
"""


def test_an_answer_is_alone_on_the_output_whoever_prints_beside_it(environ: Mapping[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", ANSWERS], capture_output=True, env=environ, timeout=WORK_S, check=True)
    assert done.stdout == b"one\ntwo\n"
    assert set(done.stderr.splitlines()) >= {b"a banner", b"a child", b"late"}


WAITS = """
import sys
from anchorleg.output import Waiting
with Waiting("reading") as line:
    sys.stdin.readline()
    with Waiting("compiling"):
        sys.stdin.readline()
    line.count(1, 2, "runs")
    sys.stdin.readline()
"""


def test_what_takes_long_is_told_on_a_terminal_alone_and_taken_away() -> None:
    command, environ = [sys.executable, "-c", WAITS], {**os.environ, "TERM": "xterm"}
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=theirs, env=environ) as child:
        os.close(theirs)
        assert child.stdin is not None
        said = b""
        for words in (b"reading", b"compiling", b"1 of 2 runs"):
            while words not in said:
                said += os.read(ours, 4096)
            child.stdin.write(b"\n")
            child.stdin.flush()
        with contextlib.suppress(OSError):  # its end
            while more := os.read(ours, 4096):
                said += more
    os.close(ours)
    assert said.endswith(b"\r\x1b[K")
    assert subprocess.run(command, input=b"\n\n\n", stderr=subprocess.PIPE, check=True, timeout=WORK_S).stderr == b""
