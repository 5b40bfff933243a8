"""The learner's side of its environment workers: start them, ask them, notice when one has died."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs import channel
from trainer.envs.board import Board
from trainer.envs.channel import Channel
from trainer.envs.spec import NO_TASK, EnvError, VectorSpec
from trainer.envs.worker import IGNORED

#: A worker ends within milliseconds of its socket's end; after this it is killed.
_END_S = 5.0


class Crew:
    """`num_workers` processes that share out the environments of `spec`, in contiguous runs.

    They are programs of their own (not forks: the learner has torch's threads), and hold nothing open but their socket
    and the board. `native` as in `EnvGroup`. Errors of all methods: EnvError.
    """

    def __init__(self, spec: VectorSpec, num_workers: int, board: Board, native: frozenset[str] = frozenset()) -> None:
        self.shares = [part.tolist() for part in np.array_split(np.arange(spec.num_envs), num_workers)]
        self._spec = spec
        self._board = board
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        try:
            for _ in self.shares:
                process, end = spawn_worker(board.fd)
                self._processes.append(process)
                self._channels.append(end)
            goals = {f"goals.{k}": table for k, table in enumerate(spec.goals)}
            for worker, share in enumerate(self.shares):
                setup = {"spec": _as_json(spec), "indices": share, "native": sorted(native)}
                self._send(worker, channel.SETUP, setup, goals)
            self.answers()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids, in the order of `shares`."""
        return [process.pid for process in self._processes]

    def ask(
        self, op: bytes, meta: Any = None, arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> list[channel.Message]:
        """Send one message to every worker, then wait for all answers."""
        self.post(op, meta, arrays)
        return self.answers()

    def post(self, op: bytes, meta: Any = None, arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        """Send one message to every worker; `answers` must follow."""
        for worker in range(len(self._channels)):
            self._send(worker, op, meta, arrays)

    def answers(self) -> list[channel.Message]:
        """Wait for every worker's answer."""
        answers = []
        for worker, end in enumerate(self._channels):
            try:
                answer = end.receive()
            except EOFError:
                raise self._death(worker) from None
            if answer.op != channel.DONE:
                raise EnvError(str(answer.meta))
            answers.append(answer)
        return answers

    def close(self) -> None:
        """End the workers: they see their socket close."""
        for end in self._channels:
            end.close()
        for process in self._processes:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._channels, self._processes = [], []

    def _send(self, worker: int, op: bytes, meta: Any, arrays: Mapping[str, npt.NDArray[Any]] | None) -> None:
        try:
            self._channels[worker].send(op, meta, arrays)
        except EOFError:
            raise self._death(worker) from None

    def _death(self, worker: int) -> EnvError:
        try:
            code = self._processes[worker].wait(_END_S)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        share = self.shares[worker]
        names = sorted({self._spec.tasks[task] for task in self._board.fields["next_task"][share] if task != NO_TASK})
        return EnvError(
            f"environment worker {worker} (environments {share[0]}-{share[-1]}: {', '.join(names)}) {how}; "
            "go on from the last checkpoint, and look for lack of memory if it happens again"
        )


def spawn_worker(board_fd: int) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start one worker. Until it ignores the hand-over signals itself, they are blocked in it."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "trainer.envs.worker", str(theirs.fileno()), str(board_fd)]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)  # inherited; ours stay pending, none is lost
    try:
        with theirs:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), board_fd), env=environment
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process, Channel(ours)


def _as_json(spec: VectorSpec) -> dict[str, Any]:
    scripts: Sequence[Any] | None = None if spec.scripts is None else [script.episodes for script in spec.scripts]
    return {
        "tasks": spec.tasks,
        "num_envs": spec.num_envs,
        "seed": spec.seed,
        "horizon": spec.horizon,
        "attempt": spec.attempt,
        "stop_at_success": spec.stop_at_success,
        "scripts": scripts,
    }
