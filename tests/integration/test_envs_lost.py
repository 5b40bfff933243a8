"""Workers that hang or die: named, replaced, and not a bit is different."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from daemons import PATIENCE_S, WORK_S
from suites import metaworld
from vector_bytes import as_bytes

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from refused import refused
from slot_digest import slot_digest

from trainer.config.suites import Gymnasium
from trainer.envs import workers
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
TASKS = ("reach-v3", "push-v3")
STEPS = 30


@pytest.fixture(scope="module")
def spec():
    return VectorSpec(metaworld(TASKS, 10), num_envs=4, seed=0)


@pytest.fixture
def soon(monkeypatch):
    """What would take a minute takes seconds. A false alarm on a loaded machine changes no bit either."""
    monkeypatch.setattr(workers, "HUNG_S", 3.0)
    monkeypatch.setattr(workers, "MAX_REPLACED", 20)


@pytest.fixture
def once(soon, monkeypatch):
    """The second one has its time: two alarms in one place end a training."""
    replace = workers.WorkerPool._replace

    def unhurried(pool, *words):
        with monkeypatch.context() as patch:
            patch.setattr(workers, "HUNG_S", PATIENCE_S)
            return replace(pool, *words)

    monkeypatch.setattr(workers.WorkerPool, "_replace", unhurried)


def played(envs, before=lambda step: None):
    """Every byte of the first observations, of all steps and of the state at the end."""
    seen = [as_bytes(envs.reset())]
    for step in range(STEPS):
        before(step)
        seen.append(as_bytes(envs.step(np.random.default_rng(step).uniform(-1, 1, (4, 4)).astype(np.float32))))
    before(STEPS)
    state = envs.snapshot()
    arrays = {name: array.tobytes() for name, array in state.tensors.items()}
    return [*seen, arrays, json.dumps(state.numbers, sort_keys=True)]


@pytest.fixture(scope="module")
def undisturbed(spec):
    with VectorEnv(spec, 0, "python") as envs:
        return played(envs)


@pytest.mark.long
@pytest.mark.usefixtures("once")
def test_workers_that_are_stopped_or_killed_are_replaced_and_no_bit_changes(spec, undisturbed, monkeypatch, caplog):
    monkeypatch.setattr(workers, "MAX_PAST", 9)
    # Before the first snapshot of the pool's own, after one, where one is due, and while the learner wants one.
    blows = {5: (1, signal.SIGSTOP), 17: (0, signal.SIGKILL), 24: (0, signal.SIGKILL), STEPS: (1, signal.SIGKILL)}
    with VectorEnv(spec, 2, "python") as envs:
        first = envs.worker_pids

        def strike(step):
            if step in blows:
                worker, number = blows[step]
                os.kill(envs.worker_pids[worker], number)

        assert played(envs, strike) == undisturbed
        assert not set(first) & set(envs.worker_pids)
    for pid in first:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    name = "environment worker 1 (environments 2-3: push-v3, reach-v3)"
    silent = f"{name} has been silent for 3 s while stepping environment 2 (reach-v3)"
    assert any(line.startswith(silent) for line in caplog.messages), caplog.messages
    assert any("worker 0" in line and "was killed by SIGKILL while stepping" in line for line in caplog.messages)
    for worker in (0, 1):
        assert any(f"worker {worker}" in line and "SIGKILL while giving its state" in line for line in caplog.messages)


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
            if MARK.read_text() == "once":
                MARK.unlink()
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
@pytest.mark.usefixtures("once")
def test_a_task_that_loops_once_is_named_with_its_line_and_no_bit_changes(spec, undisturbed, mark, caplog, capfd):
    with VectorEnv(spec, 1, "python") as envs:
        assert played(envs, lambda step: mark.write_text("once") if step == 17 else None) == undisturbed
    told = [line for line in caplog.messages if "worker 0 (environments 0-3: push-v3, reach-v3)" in line]
    assert any("while stepping environment 1 (push-v3)" in line for line in told), caplog.messages
    assert "in loop_for_ever" in capfd.readouterr().err


@pytest.mark.long
@pytest.mark.usefixtures("soon")
def test_a_task_that_loops_again_in_the_next_worker_ends_it_with_one_sentence(spec, mark):
    mark.write_text("always")
    with (
        VectorEnv(spec, 1, "python") as envs,
        pytest.raises(
            EnvError,
            match=r"silent for 3 s while stepping environment 1 \(push-v3\); the one in its place has been silent for "
            r"3 s while stepping environment 1 \(push-v3\): go on from the last checkpoint",
        ),
    ):
        played(envs)


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_worker_of_what_nobody_can_repeat_is_not_replaced(has_snapshot):
    spec, action = VectorSpec(SuiteRef(Gymnasium(id="odd_envs:Entropy")), 2, 0), np.zeros((2, 1), np.float32)
    with VectorEnv(spec, 1) as envs:
        envs.reset()
        envs.step(action)
        if has_snapshot:
            envs.snapshot()
        os.kill(envs.worker_pids[0], signal.SIGKILL)
        with refused("env.not-repeatable", envs="0, 1"):
            envs.step(action)


@pytest.mark.parametrize(("steps", "is_replaced"), [(1, True), (60, False)])
def test_a_worker_of_what_begins_otherwise_each_time_is_replaced_within_an_episode_alone(steps, is_replaced):
    """Its own state is exact; an episode of at most 50 steps that nobody has a state of does not come out again."""
    spec, action = VectorSpec(SuiteRef(Gymnasium(id="odd_envs:Strewn")), 2, 0), np.zeros((2, 1), np.float32)
    with VectorEnv(spec, 1) as envs:
        envs.reset()
        envs.snapshot()
        for _ in range(steps):
            envs.step(action)
        os.kill(envs.worker_pids[0], signal.SIGKILL)
        if is_replaced:
            envs.step(action)
        else:
            with pytest.raises(EnvError, match=r"what environments (0|1|0, 1) did cannot be done again"):
                envs.step(action)


@pytest.mark.long
def test_a_worker_of_what_is_played_again_is_replaced():
    spec, action = VectorSpec(SuiteRef(Gymnasium(id="odd_envs:Line")), 2, 0), np.ones((2, 1), np.float32)
    seen = []
    for is_killed in (False, True):
        with VectorEnv(spec, 1) as envs:
            envs.reset()
            envs.step(action)
            envs.snapshot()
            if is_killed:
                os.kill(envs.worker_pids[0], signal.SIGKILL)
            seen.append([as_bytes(envs.step(action)) for _ in range(3)])
    assert seen[0] == seen[1]


@pytest.mark.long
def test_workers_that_die_again_and_again_end_it_with_one_sentence(spec, monkeypatch):
    monkeypatch.setattr(workers, "MAX_REPLACED", 1)
    with (
        VectorEnv(spec, 1, "python") as envs,
        refused("env.workers-replaced", why=re.compile("was killed by SIGKILL"), most=1, minutes=10.0),
    ):
        played(envs, lambda step: os.kill(envs.worker_pids[0], signal.SIGKILL) if step in {3, 4} else None)


def test_where_no_process_can_be_started_one_sentence_says_what_to_lower(spec, monkeypatch):
    def no_process(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(workers.subprocess, "Popen", no_process)
    with refused("env.workers-not-started"):
        VectorEnv(spec, 3, "python")


#: `trainer` that stops its worker 1 in the middle of its training.
STOPS_A_WORKER = """
import os, signal
from trainer.cli import main
from trainer.envs.vector import VectorEnv
made, real = 0, VectorEnv.step_async
def step_async(envs, actions, **more):
    global made
    made += 1
    if made == 100:
        os.kill(envs.worker_pids[1], signal.SIGSTOP)
    real(envs, actions, **more)
VectorEnv.step_async = step_async
main()
"""


@pytest.mark.long
def test_a_training_goes_on_after_a_minute_without_a_worker_and_comes_to_the_same_bits(tmp_path):
    """The stated time, as it is: CPU seconds, a minute of waiting."""
    settings = {
        "preset": "debug", "tasks": "sweep-v3,stick-push-v3", "num_envs": 4, "num_workers": 2, "total_steps": 1200,
        "actor_hidden": "[16]", "critic_hidden": "[16]", "batch_size": 20, "buffer_size": 1000, "random_steps": 200,
        "checkpoint_interval": 500, "metrics_interval": 100, "horizon": 37, "evaluation_goals": 0,
    }  # fmt: skip
    told = {}
    for name in ("undisturbed", "disturbed"):
        program = ("-c", STOPS_A_WORKER) if name == "disturbed" else ("-m", "trainer")
        command = [sys.executable, *program, "train", "--run-dir", str(tmp_path / name)]
        command += [part for item in settings.items() for part in ("--set", "{}={}".format(*item))]
        by_python = {"CC": "false", "XDG_CACHE_HOME": str(tmp_path / "cache")}  # where C steps there are no workers
        done = subprocess.run(
            command, env={**os.environ, **by_python, "PYTHONPATH": str(REPOSITORY)}, stderr=subprocess.PIPE, text=True,
            timeout=WORK_S, check=False,
        )  # fmt: skip
        told[name] = done.stderr
        assert done.returncode == 0, done.stderr
    assert "worker 1 (environments 2-3: stick-push-v3, sweep-v3) has been silent for 60 s" in told["disturbed"]
    assert slot_digest(tmp_path / "disturbed/slots/0") == slot_digest(tmp_path / "undisturbed/slots/0")
