"""The learner's side of its environment workers: whether they pay, what they are asked, which has died or hangs.

A lost worker ends the job: the next one goes on from the last checkpoint to the same bits.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.signals import python_path
from trainer.envs import channel
from trainer.envs.channel import Channel, WorkerMessage
from trainer.envs.foreign import Settled, limited
from trainer.envs.shared import SharedBuffers
from trainer.envs.spaces import drawn_actions
from trainer.envs.step import NO_TASK, EnvError, VectorSpec
from trainer.envs.suite import BEGIN_S, SuiteRef
from trainer.machine.processes import hand_over_blocked

#: A worker that is silent for so long in a step hangs. Its share takes milliseconds, seconds where episodes of other
#: tasks begin. A hand-over waits for the step under way, and has 120 s.
HUNG_S = 60.0
#: The same for each state that it takes: where that is an episode to be played again it takes as long as the episode
#: took. `BEGIN_S`: while it starts, and for each instance that it builds.
RESTORE_S = 1800.0
#: A worker ends within milliseconds of its socket's end; after this it is killed.
_END_S = 5.0
#: Time to write the stacks of one that hangs.
_STACKS_S = 2.0
#: A step of all environments below this is not worth workers: waking two, and waiting for both, takes a third.
WORTH_WORKERS_S = 1e-3
#: Steps that are timed, after as many that are not.
_TIMED_STEPS = 8
#: A step that takes so long, and is not the first, settles it.
_SLOW_S = 0.1
#: The length of an episode, in the buffers, before the worker has written it.
_NOT_DONE = -1
DOING = {
    channel.SETUP: "starting",
    channel.START: "beginning episodes",
    channel.SNAPSHOT: "giving its state",
    channel.RESTORE: "taking a state",
    channel.LOOK: "being measured",
}


class WorkerPool:
    """`num_workers` processes that share out the environments of `spec`, in contiguous runs. `tasks`: their names.

    They are programs of their own (not forks: the learner has torch's threads), and hold nothing open but their socket
    and the shared buffers. `native` as in `EnvGroup`.

    Errors of all methods: EnvError; where a worker died, or was silent for `HUNG_S`, it says which worker and which
    environment, and (of a Python loop) the stacks on standard error say in which line.
    """

    def __init__(
        self,
        spec: VectorSpec,
        tasks: Sequence[str],
        num_workers: int,
        buffers: SharedBuffers,
        native: frozenset[int] = frozenset(),
    ) -> None:
        self.shares = [part.tolist() for part in np.array_split(np.arange(spec.num_envs), num_workers)]
        self._spec = spec
        self._tasks = tasks
        self._buffers = buffers
        self._native = sorted(native)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        self._asked = channel.SETUP
        try:
            for _ in self.shares:
                process, ours = spawn_worker(buffers.fd)
                self._processes.append(process)
                self._channels.append(ours)
            self.ask(channel.SETUP)
        except OSError as error:
            self.close()
            raise EnvError("env.workers-not-started", workers=num_workers, why=error.strerror or error) from error
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids, in the order of `shares`."""
        return [process.pid for process in self._processes]

    def ask(
        self, op: bytes, meta: Any = None, arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> list[channel.WorkerMessage]:
        """Send one message to every worker, then wait for all answers."""
        self.post(op, meta, arrays)
        return self.answers()

    def post(self, op: bytes, meta: Any = None, arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        """Send one message to every worker; `answers` must follow."""
        self._asked = op
        for worker, share in enumerate(self.shares):
            if op == channel.STEP:
                self._buffers.fields["episode_length"][self._rows(worker)] = _NOT_DONE
            elif op == channel.SETUP:
                meta = {"spec": self._spec.as_json(), "indices": share, "native": self._native}
            try:
                self._channels[worker].send(op, meta, arrays, longest_s(op))
            except (EOFError, TimeoutError) as error:
                raise self._lost(worker, op, error) from None

    def answers(self) -> list[channel.WorkerMessage]:
        """Wait for every worker's answer. In the order of `shares`."""
        return [self._answer(worker, self._asked) for worker in range(len(self.shares))]

    def close(self) -> None:
        """End the workers, all within the same five seconds: they see their socket close."""
        for ours in self._channels:
            ours.close()
        until = time.monotonic() + _END_S
        for process in self._processes:
            end(process, max(0.0, until - time.monotonic()))
        self._channels, self._processes = [], []

    def _answer(self, worker: int, op: bytes) -> WorkerMessage:
        try:
            answer = self._channels[worker].receive(longest_s(op))
            while answer.op == channel.DOING:
                answer = self._channels[worker].receive(longest_s(op))
        except (EOFError, TimeoutError) as error:
            raise self._lost(worker, op, error) from None
        if answer.op != channel.DONE:
            raise EnvError("env.in-worker", why=str(answer.meta))
        return answer

    def _lost(self, worker: int, op: bytes, error: EOFError | TimeoutError) -> EnvError:
        """What happened to a worker, which is ended if it is still there, with its stacks."""
        share = self.shares[worker]
        names = sorted({self._tasks[task] for task in self._buffers.fields["next_task"][share] if task != NO_TASK})
        doing = self._doing(worker, op)
        process = self._processes[worker]
        if isinstance(error, TimeoutError):
            how = f"has been silent for {longest_s(op):.0f} s while {doing}"
            if not dismiss(process):
                how += ", and cannot be killed, because it waits for a disk or a device"
        else:
            end(process)
            code = process.returncode
            how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"exited with status {code}"
            how += f" while {doing}"
        first, last = share[0], share[-1]
        return EnvError("env.worker-lost", worker=worker, first=first, last=last, tasks=", ".join(names), how=how)

    def _rows(self, worker: int) -> slice:
        share = self.shares[worker]
        return slice(share[0], share[-1] + 1)

    def _doing(self, worker: int, op: bytes) -> str:
        if op != channel.STEP:
            return DOING[op]
        # A worker steps its environments one after another and writes each one's row when it has done so.
        waiting = np.flatnonzero(self._buffers.fields["episode_length"][self._rows(worker)] == _NOT_DONE)
        if not waiting.size:
            return "beginning episodes"
        index = self.shares[worker][int(waiting[0])]
        return f"stepping environment {index} ({self._tasks[self._buffers.fields['next_task'][index]]})"


def spawn_worker(buffers_fd: int) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start one worker. Until it bears the hand-over signals itself, they are blocked in it. Errors: OSError."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, **python_path(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "trainer.envs.worker", str(theirs.fileno()), str(buffers_fd)]
    with theirs, hand_over_blocked():
        kept = (theirs.fileno(), buffers_fd)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=kept, env=environment)
    return process, Channel(ours)


def dismiss(process: subprocess.Popen[bytes]) -> bool:
    """End a worker, with its stacks on standard error if it is still there. False: it cannot be ended."""
    process.send_signal(signal.SIGABRT)
    process.send_signal(signal.SIGCONT)  # one that is stopped heeds nothing else
    try:
        process.wait(_STACKS_S)
    except subprocess.TimeoutExpired:
        return _kill(process)
    return True


def end(process: subprocess.Popen[bytes], seconds: float = _END_S) -> None:
    """Wait for a worker whose socket is closed, and kill it then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill(process)


def longest_s(op: bytes) -> float:
    """How long a process may be silent over `op`."""
    if op == channel.RESTORE:
        return RESTORE_S
    return HUNG_S if op in {channel.STEP, channel.SNAPSHOT} else BEGIN_S


def _kill(process: subprocess.Popen[bytes]) -> bool:
    """False: it is still there, in the kernel's hands."""
    process.kill()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def is_quick(suite: SuiteRef, num_envs: int, clock: Callable[[], float] = time.perf_counter) -> bool:
    """Whether a step of `num_envs` takes less than it takes to share it out.

    It decides where environments are stepped, and so changes no number of a training. One that hangs for `BEGIN_S` ends
    this process, with its stacks.
    """
    known = suite.settings.step_s
    return num_envs * (_step_seconds(suite, clock) if known is None else known) < WORTH_WORKERS_S


def _step_seconds(suite: SuiteRef, clock: Callable[[], float]) -> float:
    """Of one step, with random actions; infinite where something goes wrong, which is told in its training."""
    who = f"an environment ({', '.join(suite.settings.tasks)})"
    words = f"{who} was silent for {BEGIN_S:.0f} s while its speed was measured: see its stacks above"
    rng, seconds, opened = np.random.default_rng(0), [], suite.open()
    with limited(BEGIN_S, words) as tell, Settled(who), suppress(Exception):  # somebody else's code
        env = opened.make(0)
        try:
            env.reset(0, 0)
            for action in drawn_actions(rng, opened.spaces.action, 2 * _TIMED_STEPS):
                tell()
                began = clock()
                outcome = env.step(action)
                seconds.append(clock() - began)
                if outcome.terminated or outcome.truncated:
                    env.reset(0, 0)
                if len(seconds) > 1 and seconds[-1] > _SLOW_S:
                    return inf
        finally:
            env.close()
        return statistics.median(seconds[_TIMED_STEPS:])
    return inf
