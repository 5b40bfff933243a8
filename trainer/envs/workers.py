"""The learner's side of its environment workers: start them, ask them, replace one that has died or hangs.

A worker's environments depend on nothing but what it was told, so another process that is told the same comes to the
same bits. The pool therefore remembers what it said since its last snapshot of the environments.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.signals import python_path
from trainer.envs import channel
from trainer.envs.channel import Channel, WorkerMessage
from trainer.envs.shared import SharedBuffers
from trainer.envs.step import NO_TASK, EnvError, VectorSpec
from trainer.envs.suite import BEGIN_S
from trainer.machine.processes import hand_over_blocked

#: A worker that is silent for so long in a step hangs. Its share takes milliseconds, seconds where episodes of other
#: tasks begin. A false alarm costs seconds and no bit; a hand-over waits for the step under way, and has 120 s.
HUNG_S = 60.0
#: The same for each state that it takes: where that is an episode to be played again it takes as long as the episode
#: took. `BEGIN_S`: while it starts, and for each instance that it builds.
RESTORE_S = 1800.0
#: Workers are replaced so often within `REPLACED_WITHIN_S`; more is no accident (memory, a broken driver).
MAX_REPLACED = 3
REPLACED_WITHIN_S = 600.0
#: After so many messages the pool makes a snapshot, unless a checkpoint did: for ten environments 0.2 % of the stepping
#: time, and what a replacement must repeat takes seconds.
MAX_PAST = 1000
#: A worker ends within milliseconds of its socket's end; after this it is killed.
_END_S = 5.0
#: Time to write the stacks of one that hangs.
_STACKS_S = 2.0
#: The length of an episode, in the buffers, before the worker has written it.
_NOT_DONE = -1
#: Changes nothing: a worker that takes the place of another need not do it again.
_ASKING = {channel.SNAPSHOT, channel.LOOK}
DOING = {
    channel.SETUP: "starting",
    channel.START: "beginning episodes",
    channel.SNAPSHOT: "giving its state",
    channel.RESTORE: "taking a state",
    channel.LOOK: "being looked at",
}

_log = logging.getLogger(__name__)


class WorkerPool:
    """`num_workers` processes that share out the environments of `spec`, in contiguous runs. `tasks`: their names.

    They are programs of their own (not forks: the learner has torch's threads), and hold nothing open but their socket
    and the shared buffers. `native` as in `EnvGroup`. A worker that dies, or is silent for `HUNG_S`, is replaced: the
    new one's environments stand where the old one's stood, bit for bit, and the log says which worker, which
    environment, and (of a Python loop) in which line.

    Errors of all methods: EnvError; also where a replacement fails like its predecessor.
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
        self._past: list[WorkerMessage] = []
        self._snapshot: WorkerMessage | None = None
        self._asked = channel.SETUP
        self._about: Any = None
        self._lost: dict[int, str] = {}
        self._replaced: deque[float] = deque()
        try:
            for _ in self.shares:
                process, ours = spawn_worker(buffers.fd)
                self._processes.append(process)
                self._channels.append(ours)
            self._set_up()
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
        if op not in _ASKING:
            if len(self._past) >= MAX_PAST:
                self.ask(channel.SNAPSHOT)
            taken = {"actions": self._buffers.fields["actions"].copy()} if op == channel.STEP else dict(arrays or {})
            self._past.append(WorkerMessage(op, meta, taken))
        self._asked, self._about = op, meta
        self._lost = self._told(op, meta, arrays)

    def answers(self) -> list[channel.WorkerMessage]:
        """Wait for every worker's answer; replace those that will not answer. In the order of `shares`."""
        answers, lost = self._heard(self._asked, self._lost)
        for worker, how in lost.items():
            answers[worker] = self._replace(worker, how, self._asked, self._about)
        in_order = [answers[worker] for worker in range(len(self.shares))]
        if self._asked == channel.SNAPSHOT:
            state = WorkerMessage(channel.RESTORE, {}, {})
            for answer in in_order:
                state.meta.update(answer.meta)
                state.arrays.update(answer.arrays)
            self._past, self._snapshot = [state], state
        return in_order

    def close(self) -> None:
        """End the workers, all within the same five seconds: they see their socket close."""
        for ours in self._channels:
            ours.close()
        until = time.monotonic() + _END_S
        for process in self._processes:
            end(process, max(0.0, until - time.monotonic()))
        self._channels, self._processes = [], []

    def _set_up(self) -> None:
        _, lost = self._heard(channel.SETUP, self._told(channel.SETUP))
        for worker, how in lost.items():
            raise EnvError("env.worker-lost", worker=self._name(worker), how=how)

    def _told(
        self, op: bytes, meta: Any = None, arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> dict[int, str]:
        """Send to every worker: those that were lost, and how."""
        lost = {}
        for worker in range(len(self.shares)):
            try:
                self._send(worker, op, meta, arrays)
            except (EOFError, TimeoutError) as error:
                lost[worker] = self._how(worker, op, error)
        return lost

    def _heard(self, op: bytes, lost: dict[int, str]) -> tuple[dict[int, WorkerMessage], dict[int, str]]:
        """Receive from every worker but the `lost`: (worker → its answer, worker → how it was lost, now or before)."""
        answers: dict[int, WorkerMessage] = {}
        lost = dict(lost)
        limit_s: float | None = None
        for worker in [worker for worker in range(len(self.shares)) if worker not in lost]:
            try:
                answers[worker] = self._answer(worker, op, limit_s)
            except (EOFError, TimeoutError) as error:
                lost[worker] = self._how(worker, op, error)
                if isinstance(error, TimeoutError):
                    limit_s = channel.LOOK_S  # the others have had the same time already
        return answers, lost

    def _replace(self, worker: int, how: str, op: bytes, meta: Any) -> WorkerMessage:
        """The answer to `op` of a process that takes the place of a lost one and does all that it was told again."""
        words = f"{self._name(worker)} {how}"
        now = time.monotonic()
        while self._replaced and now - self._replaced[0] > REPLACED_WITHIN_S:
            self._replaced.popleft()
        if len(self._replaced) >= MAX_REPLACED:
            raise EnvError("env.workers-replaced", why=words, most=MAX_REPLACED, minutes=REPLACED_WITHIN_S / 60)
        self._replaced.append(now)
        _log.warning("%s; another takes its place", words)
        self._dismiss(worker, words)
        doing = channel.SETUP
        actions = self._buffers.fields["actions"][self._rows(worker)]
        wanted = actions.copy()  # the next step's are there already, where the pool takes its own snapshot before one
        try:
            self._processes[worker], self._channels[worker] = spawn_worker(self._buffers.fd)
            self._send(worker, doing)
            answer = self._answer(worker, doing)
            until_end: set[int] = set()
            for deed in self._past:
                doing, arrays = deed.op, deed.arrays
                if doing == channel.STEP:
                    actions[:] = deed.arrays["actions"][self._rows(worker)]
                    arrays = {}
                self._send(worker, doing, deed.meta, arrays)
                answer = self._answer(worker, doing)
                if doing == channel.STEP:
                    ended, task = self._buffers.fields["finished"], self._buffers.fields["next_task"]
                    other = {k for k in self.shares[worker] if ended[k] and task[k] != NO_TASK} & until_end
                else:
                    until_end = set(answer.meta["until_end"])
                    # What another program's snapshot had lost already begins anew in the same way each time.
                    other = {*answer.meta["anew"], *(answer.meta["lost"] if deed is self._snapshot else ())}
                if other and (deed is not self._past[-1] or op in _ASKING):  # what is in progress nobody has seen yet
                    raise EnvError("env.not-repeatable", why=words, envs=", ".join(map(str, sorted(other))))
            actions[:] = wanted
            if op in _ASKING:
                doing = op
                self._send(worker, doing, meta)
                answer = self._answer(worker, doing)
        except (EOFError, TimeoutError) as error:
            again = self._how(worker, doing, error)
            self._dismiss(worker, words)
            raise EnvError("env.replacement-lost", why=words, how=again) from None
        except OSError as error:
            raise EnvError("env.no-replacement", why=words, cause=error.strerror or error) from error
        _log.warning("worker %d has caught up after %.1f s; nothing is lost", worker, time.monotonic() - now)
        return answer

    def _send(
        self, worker: int, op: bytes, meta: Any = None, arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> None:
        if op == channel.STEP:
            self._buffers.fields["episode_length"][self._rows(worker)] = _NOT_DONE
        elif op == channel.SETUP:
            meta = {"spec": self._spec.as_json(), "indices": self.shares[worker], "native": self._native}
        self._channels[worker].send(op, meta, arrays, longest_s(op))

    def _answer(self, worker: int, op: bytes, limit_s: float | None = None) -> WorkerMessage:
        """`limit_s`: until it says anything, where that is less than `op` may take."""
        answer = self._channels[worker].receive(longest_s(op) if limit_s is None else limit_s)
        while answer.op == channel.DOING:
            answer = self._channels[worker].receive(longest_s(op))
        if answer.op != channel.DONE:
            raise EnvError("env.in-worker", why=str(answer.meta))
        return answer

    def _dismiss(self, worker: int, words: str) -> None:
        """End a lost worker, with its stacks in the log if it is still there. Errors: EnvError where it cannot."""
        if not dismiss(self._processes[worker]):
            raise EnvError("env.worker-unkillable", why=words)
        self._channels[worker].close()

    def _rows(self, worker: int) -> slice:
        share = self.shares[worker]
        return slice(share[0], share[-1] + 1)

    def _name(self, worker: int) -> str:
        share = self.shares[worker]
        names = sorted({self._tasks[task] for task in self._buffers.fields["next_task"][share] if task != NO_TASK})
        return f"environment worker {worker} (environments {share[0]}-{share[-1]}: {', '.join(names)})"

    def _how(self, worker: int, op: bytes, error: EOFError | TimeoutError) -> str:
        if isinstance(error, TimeoutError):
            return f"has been silent for {longest_s(op):.0f} s while {self._doing(worker, op)}"
        try:
            code = self._processes[worker].wait(_END_S)
        except subprocess.TimeoutExpired:
            return "has closed its socket"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        return f"{how} while {self._doing(worker, op)}"

    def _doing(self, worker: int, op: bytes) -> str:
        if op != channel.STEP:
            return DOING[op]
        # A worker steps its environments one after another and writes each one's row when it has done so.
        waiting = np.flatnonzero(self._buffers.fields["episode_length"][self._rows(worker)] == _NOT_DONE)
        if not waiting.size:
            return "beginning episodes"
        index = self.shares[worker][int(waiting[0])]
        return f"stepping environment {index} ({self._tasks[self._buffers.fields['next_task'][index]]})"


def spawn_worker(buffers_fd: int = -1, program: str = "trainer.envs.worker") -> tuple[subprocess.Popen[bytes], Channel]:
    """Start one worker. Until it bears the hand-over signals itself, they are blocked in it. `buffers_fd`: -1 where
    it shares none. Errors: OSError.
    """
    ours, theirs = socket.socketpair()
    environment = {**os.environ, **python_path(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", program, str(theirs.fileno()), str(buffers_fd)]
    with theirs, hand_over_blocked():
        kept = [fd for fd in (theirs.fileno(), buffers_fd) if fd >= 0]
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
