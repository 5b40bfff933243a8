"""The native stepper's library: built once, by several at once, anew where it is damaged; and life without it."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from daemons import PATIENCE_S, wait_for
from needs import is_missing
from suites import metaworld

pytest.importorskip("metaworld")

from trainer.envs.native import library as build
from trainer.envs.native import verdicts
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import StepperUnavailableError
from trainer.envs.suites.metaworld import suite as metaworld_suite
from trainer.envs.suites.metaworld.native import library
from trainer.envs.vector import VectorEnv
from trainer.machine import building

try:
    library.load()
except StepperUnavailableError as error:
    is_missing(str(error))

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3")
find_or_build = partial(build.find_or_build, library.SOURCES)
verdict_file = partial(
    verdicts.verdict_file, packages=metaworld_suite.PACKAGES, suite=Path(metaworld_suite.__file__).parent
)


@pytest.fixture
def fresh():
    """This process has not loaded the library yet."""
    library.load.cache_clear()
    yield
    library.load.cache_clear()


@pytest.fixture
def spec():
    return VectorSpec(metaworld(TASKS, 10), num_envs=2, seed=0)


def test_a_library_is_built_once_and_then_found(tmp_path, monkeypatch):
    folder = tmp_path / "cache" / "native"
    built = find_or_build(folder)
    assert [path.name for path in folder.iterdir()] == [f"stepper-{built.digest}.so"]
    monkeypatch.setenv("CC", "/nonexistent/cc")  # a node without a compiler uses what another has built
    assert find_or_build(folder) == built


@pytest.mark.long
def test_a_damaged_library_is_built_again(tmp_path, caplog):
    built = find_or_build(tmp_path / "native")
    built.path.unlink()  # a process may have it mapped
    built.path.write_bytes(b"not a library")
    assert find_or_build(tmp_path / "native") == built
    assert "is damaged and is rebuilt" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("links", [True, False])
def test_one_is_never_put_over_anothers(tmp_path, monkeypatch, links):
    """Also not where the other's comes between a look and the renaming; without links of the file system, a look."""
    folder = tmp_path / "native"
    if not links:
        monkeypatch.setattr(building.os, "link", refused)
    replaced = []
    monkeypatch.setattr(building.os, "replace", lambda source, target: replaced.append(os.rename(source, target)))
    built = find_or_build(folder)
    assert bool(replaced) is not links
    before = built.path.stat()
    assert building._build(build.recipe(library.SOURCES), folder).path.stat().st_ino == before.st_ino


def refused(*_):
    raise PermissionError(errno.EPERM, "Operation not permitted")


SLOW_COMPILER = """#!/bin/sh
kill -s {name} $$
exec cc "$@"
"""


@pytest.mark.parametrize("name", ["INT", "USR2"])
def test_a_hand_over_while_it_compiles_ends_no_compiler(tmp_path, monkeypatch, name):
    """By Ctrl-C or `scancel` the compiler has the signal, too; whoever listens goes on, and has its library."""
    compiler = tmp_path / "slow-cc"
    compiler.write_text(SLOW_COMPILER.format(name=name))
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert find_or_build(tmp_path / "native").path.exists()


BUILDER = """
import sys
from pathlib import Path
from trainer.envs.native.library import find_or_build
sys.stdin.read()
print(find_or_build(Path(sys.argv[1]), Path(sys.argv[2])).digest)
"""


@pytest.mark.long
def test_processes_that_build_at_once_disturb_nobody(tmp_path):
    folder = tmp_path / "native"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUILDER, library.SOURCES, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        process.stdin.close()
    digests = {process.stdout.read().strip() for process in processes}
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * 4
    for process in processes:
        process.stdout.close()
    assert {path.name for path in folder.iterdir()} == {f"stepper-{digest}.so" for digest in digests}


def failing_compiler(tmp_path):
    path = tmp_path / "cc"
    path.write_text("#!/bin/sh\nprintf 'x.h: error: no such thing \\351\\ncompilation terminated.\\n' >&2\nexit 1\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("compiler", ["missing", "failing", "torn"])
def test_without_a_compiler_python_steps_and_says_so_once(compiler, spec, fresh, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands = {"missing": "/nonexistent/cc", "failing": failing_compiler(tmp_path), "torn": "cc -I'"}
    monkeypatch.setenv("CC", commands[compiler])
    if compiler == "missing":
        monkeypatch.setenv("PATH", str(tmp_path / "no programs"))  # else `cc` would be taken
    with caplog.at_level(logging.INFO, "trainer.envs"), VectorEnv(spec) as envs:
        assert set(envs.stepping.values()) == {"python"}
        envs.reset()
    lines = [record.message for record in caplog.records if "step in Python" in record.message]
    assert len(lines) == 1
    causes = {"missing": "cannot be run", "failing": "no such thing", "torn": "is not a command"}
    assert causes[compiler] in lines[0]
    with pytest.raises(EnvError, match="cc"):
        VectorEnv(spec, stepper="native")
    assert not list((tmp_path / "cache").rglob("building-*"))
    VectorEnv(spec, stepper="python").close()


@pytest.fixture
def wrong(tmp_path):
    """A stepper that rounds its norms otherwise than NumPy does on this processor."""
    stepper = library.StepperLibrary(tmp_path / "native")
    fused = stepper._how_norms_add()
    yield stepper
    stepper.held.norms(ctypes.c_bool(fused), None, 0, 0, None)


def test_where_numpys_functions_are_not_what_c_calls_there_is_no_stepper(tmp_path, monkeypatch):
    loops = library.loops()
    monkeypatch.setattr(library, "loops", lambda: loops)
    monkeypatch.setattr(library, "FUNCTIONS", (np.exp, np.log1p, np.sin, np.cos))
    with pytest.raises(StepperUnavailableError, match="NumPy's log1p is another in C"):
        library.StepperLibrary(tmp_path / "native")


@pytest.mark.long
def test_a_task_that_differs_in_a_bit_is_stepped_by_python(wrong, caplog):
    fused = wrong._how_norms_add()
    wrong.held.norms(ctypes.c_bool(not fused), None, 0, 0, None)
    assert metaworld_suite.approved(wrong, ["reach-v3"]) == frozenset()
    assert "differs from Python here for reach-v3" in caplog.text
    wrong.held.norms(ctypes.c_bool(fused), None, 0, 0, None)
    assert metaworld_suite.approved(wrong, ["reach-v3", "push-v3"]) == {"push-v3"}  # the verdict on reach was kept
    verdict_file(wrong).unlink()
    assert metaworld_suite.approved(wrong, ["reach-v3"]) == {"reach-v3"}


def test_a_verdict_is_reached_once_for_a_processor(tmp_path, monkeypatch):
    stepper = library.StepperLibrary(tmp_path / "native")
    asked = []
    trial = "trainer.envs.suites.metaworld.native.rows.steps_alike"
    monkeypatch.setattr(trial, lambda stepper, task: asked.append(task) or True)
    assert metaworld_suite.approved(stepper, TASKS) == metaworld_suite.approved(stepper, TASKS) == set(TASKS)
    assert asked == list(TASKS)
    monkeypatch.setattr(stepper, "machine", "another processor")
    metaworld_suite.approved(stepper, TASKS[:1])
    assert asked == [*TASKS, TASKS[0]]


def test_the_helping_threads_leave_signals_to_python():
    """A hand-over's signal must wake the main thread, which may be waiting for it. Those of its own crash are a
    thread's own: where they are blocked, the process ends before Python has told a stack.
    """
    stepper = library.load()
    before = set(os.listdir("/proc/self/task"))
    team = stepper.open_team(3)
    new = set(os.listdir("/proc/self/task")) - before
    assert len(new) == 2
    own = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    for thread in new:  # while it is made, the C library has all of them blocked
        wait_for(lambda thread=thread: not blocked_in(thread) & own, "a thread that sees its own crash")
        assert {signal.SIGTERM, signal.SIGUSR2} <= blocked_in(thread)
    stepper.close_team(team)


def blocked_in(thread):
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    return {each for each in signal.Signals if blocked & (1 << (each - 1))}


TEAM_OF_FEW = """
#include <pthread.h>
static int left;
static int few(pthread_t *thread, const pthread_attr_t *how, void *(*work)(void *), void *with) {
    return left-- > 0 ? pthread_create(thread, how, work, with) : 11;
}
#define pthread_create few
#include "team.h"
static void add(void *sum, int piece) { atomic_fetch_add((atomic_int *)sum, piece); }

/* How many of three helpers the system gives; `sum` is of the pieces 0 to 9. */
int helpers(int given, atomic_int *sum) {
    left = given;
    struct team *team = team_open(3);
    if (!team)
        return 0;
    int got = team->helpers;
    team_do(team, 10, add, sum);
    team_close(team);
    return got;
}
"""


def test_a_team_has_as_many_threads_as_the_system_gives(tmp_path):
    (tmp_path / "few.c").write_text(TEAM_OF_FEW)
    recipe = building.Recipe("few", tmp_path, ("-shared", "-fPIC"), (build.SHARED,))
    few = ctypes.CDLL(str(building.find_or_build(recipe, tmp_path / "few").path))
    for given in range(4):
        total = ctypes.c_int(0)
        assert few.helpers(given, ctypes.byref(total)) == given
        assert total.value == (45 if given else 0)
