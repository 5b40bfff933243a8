"""Workers that hang or die are named and ended."""

from __future__ import annotations

import errno
import os
import signal

import numpy as np
import pytest
from suites import metaworld

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from refused import refused

from trainer.envs import workers
from trainer.envs.step import VectorSpec
from trainer.envs.vector import VectorEnv

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3")


@pytest.fixture(scope="module")
def spec():
    return VectorSpec(metaworld(TASKS, 10), num_envs=4, seed=0)


@pytest.mark.parametrize(
    ("number", "how"), [(signal.SIGSTOP, "has been silent for 3 s"), (signal.SIGKILL, "was killed by SIGKILL")]
)
def test_a_worker_that_hangs_or_dies_is_named_and_ended(spec, number, how, monkeypatch):
    monkeypatch.setattr(workers, "HUNG_S", 3.0)
    with VectorEnv(spec, 2, "python") as envs:
        envs.reset()
        pids = envs.worker_pids
        os.kill(pids[1], number)
        with refused("env.worker-lost", worker=1, first=2, last=3, tasks="push-v3, reach-v3") as error:
            envs.step(np.zeros((4, 4), np.float32))
    assert error.value.fields["how"] == f"{how} while stepping environment 2 (reach-v3)"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


#: Found by every Python that this one starts: a task that loops for ever while the file says so.
LOOP = """
import sys, time
from pathlib import Path
MARK = Path({mark!r})
if "trainer.envs.worker" in sys.orig_argv:
    from trainer.envs.suites.metaworld.env import TaskEnv
    real = TaskEnv.step
    def loop_for_ever():
        while True:
            time.sleep(0.01)
    def step(env, action):
        if MARK.exists() and env.task == "push-v3":
            loop_for_ever()
        return real(env, action)
    TaskEnv.step = step
"""


@pytest.fixture
def mark(tmp_path, monkeypatch):
    path = tmp_path / "mark"
    (tmp_path / "sitecustomize.py").write_text(LOOP.format(mark=str(path)))
    monkeypatch.syspath_prepend(tmp_path)
    return path


@pytest.mark.long
def test_a_task_that_loops_is_named_with_its_line(spec, mark, monkeypatch, capfd):
    monkeypatch.setattr(workers, "HUNG_S", 3.0)
    mark.write_text("")
    with VectorEnv(spec, 1, "python") as envs:
        envs.reset()
        with refused("env.worker-lost", how="has been silent for 3 s while stepping environment 1 (push-v3)"):
            envs.step(np.zeros((4, 4), np.float32))
    assert "in loop_for_ever" in capfd.readouterr().err


def test_where_no_process_can_be_started_one_sentence_says_what_to_lower(spec, monkeypatch):
    def no_process(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(workers.subprocess, "Popen", no_process)
    with refused("env.workers-not-started"):
        VectorEnv(spec, 3, "python")
