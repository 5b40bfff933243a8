"""Worker processes and signals: they outlive the request to hand over, and never their learner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from daemons import PATIENCE_S
from suites import metaworld

pytest.importorskip("metaworld")

from trainer.config.suites import Gymnasium
from trainer.envs import channel
from trainer.envs.shared import SharedBuffers
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.envs.workers import spawn_worker

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3")
SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


@pytest.fixture(scope="module")
def spec():
    return VectorSpec(metaworld(TASKS, 10), num_envs=4, seed=0)


def actions_at(step):
    return np.random.default_rng(step).uniform(-1, 1, (4, 4)).astype(np.float32)


@pytest.mark.long
def test_workers_outlive_the_signals_of_a_hand_over(spec):
    with VectorEnv(spec) as envs:
        envs.reset()
        expected = [envs.step(actions_at(step)).next_obs["state"].tobytes() for step in range(30)]
    with VectorEnv(spec, 2, "python") as envs:
        envs.reset()
        seen = []
        for step in range(30):
            for pid in envs.worker_pids:
                os.kill(pid, SIGNALS[step % len(SIGNALS)])
            seen.append(envs.step(actions_at(step)).next_obs["state"].tobytes())
        assert envs.snapshot().numbers["num_envs"] == 4
    assert seen == expected


def test_a_worker_that_is_still_starting_outlives_them_too(spec):
    buffers = SharedBuffers(spec.suite.open().spaces, spec.num_envs)
    process, learner = spawn_worker(buffers.fd)
    for number in SIGNALS:
        process.send_signal(number)
    learner.send(channel.SETUP, {"spec": spec.as_json(), "indices": [0], "native": []})
    assert learner.receive().op == channel.DONE
    learner.close()
    assert process.wait(PATIENCE_S) == 0
    buffers.close()


@pytest.mark.long
def test_what_an_environment_starts_in_a_worker_can_be_ended():
    with VectorEnv(VectorSpec(SuiteRef(Gymnasium(id="odd_envs:Parent")), 1, 0), 1) as envs:
        envs.reset()


@pytest.mark.parametrize("already_blocked", [(), (signal.SIGUSR2,)])
def test_the_learners_own_signals_are_as_they_were_and_none_is_lost(already_blocked):
    arrived = []
    handler = signal.signal(signal.SIGUSR2, lambda number, frame: arrived.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, already_blocked)
    try:
        expected = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        os.kill(os.getpid(), signal.SIGUSR2)
        buffers = SharedBuffers(metaworld(TASKS).open().spaces, 1)
        process, learner = spawn_worker(buffers.fd)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == expected
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGUSR2, handler)
    assert arrived == [signal.SIGUSR2]
    learner.close()
    process.wait(PATIENCE_S)
    buffers.close()


def said(learner):
    """What it says up to its answer."""
    heard = [learner.receive()]
    while heard[-1].op == channel.DOING:
        heard.append(learner.receive())
    return heard


@pytest.mark.long
def test_a_worker_says_that_it_goes_on_after_each_episode_that_it_begins_or_puts_back(spec):
    """So that the learner's patience is for one, however many there are."""
    buffers = SharedBuffers(spec.suite.open().spaces, spec.num_envs)
    process, learner = spawn_worker(buffers.fd)
    learner.send(channel.SETUP, {"spec": spec.as_json(), "indices": [0, 1], "native": []})
    assert [one.op for one in said(learner)] == [channel.DONE]
    learner.send(channel.START, {"indices": [0, 1], "attempt": 0})
    assert [one.op for one in said(learner)] == [channel.DOING, channel.DOING, channel.DONE]
    learner.send(channel.SNAPSHOT)
    (state,) = said(learner)
    learner.send(channel.RESTORE, state.meta, state.arrays)
    assert [one.op for one in said(learner)] == [channel.DOING, channel.DOING, channel.DONE]
    learner.close()
    assert process.wait(PATIENCE_S) == 0
    buffers.close()


HANGING = """
import time
from trainer.envs import worker
class Group:
    def close(self):
        time.sleep(3600)
worker._CLOSE_S = 0.01
worker._close(Group())
"""


def test_a_worker_whose_environments_hang_in_their_closing_ends_with_its_stacks():
    """The learner may be dead."""
    command = [sys.executable, "-c", HANGING]
    where = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "in close" in done.stderr


LEARNER = """
import numpy as np
from trainer.envs.step import VectorSpec
from trainer.config.suites import Metaworld
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
spec = VectorSpec(SuiteRef(Metaworld(tasks=("reach-v3",), horizon=10)), num_envs=2, seed=0)
envs = VectorEnv(spec, 2, "python")
envs.reset()
print(*envs.worker_pids, flush=True)
while True:
    envs.step(np.zeros((2, 4), np.float32))
"""


@pytest.mark.long
def test_workers_end_when_their_learner_is_killed():
    read_end, write_end = os.pipe()
    learner = subprocess.Popen(
        [sys.executable, "-c", LEARNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=write_end,  # which the workers inherit: it ends when the last of them has ended
        cwd=Path(__file__).parents[2],
        text=True,
    )
    os.close(write_end)
    assert len(learner.stdout.readline().split()) == 2
    assert not select.select([read_end], [], [], 0)[0]
    learner.kill()
    learner.wait(PATIENCE_S)
    assert select.select([read_end], [], [], PATIENCE_S)[0], "workers are still there"
    assert os.read(read_end, 4096) == b""
    os.close(read_end)
    learner.stdin.close()
    learner.stdout.close()
