"""The program of one environment worker: `python -m trainer.envs.worker SOCKET_FD BOARD_FD`.

It ignores the signals that ask a job to hand over, because the learner still needs it then: scancel and a stopped
terminal signal every process. It ends when its socket closes, so also when the learner is killed. Where it hangs the
learner ends it with SIGABRT, at which it writes its stacks to standard error.
"""

from __future__ import annotations

import faulthandler
import resource
import signal
import socket
import sys
from typing import Any

from anchorleg.job import HAND_OVER_SIGNALS
from trainer.envs import channel
from trainer.envs.channel import Channel, Message


def main(arguments: list[str]) -> int:
    """Serve until the learner's end closes."""
    for number in HAND_OVER_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # Blocked by `spawn_worker` until here, so that none of them can end a worker that is still starting.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HAND_OVER_SIGNALS)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # the stacks will do
    learner = Channel(socket.socket(fileno=int(arguments[0])))
    try:
        _serve(learner, int(arguments[1]))
    except EOFError:
        return 0
    return 0


def _serve(learner: Channel, board_fd: int) -> None:
    setup = learner.receive()
    group: Any = None
    while True:
        message = setup if group is None else learner.receive()
        try:
            if group is None:
                group, answer = _set_up(message, board_fd), Message(channel.DONE, None, {})
            else:
                answer = group.obey(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the learner reports it and ends
            learner.send(channel.FAILED, str(error) or type(error).__name__)
            return
        learner.send(*answer)


def _set_up(message: Message, board_fd: int) -> Any:
    from trainer.envs.group import EnvGroup  # noqa: PLC0415
    from trainer.envs.shared import Board  # noqa: PLC0415 - the simulator is loaded once the signals are dealt with
    from trainer.envs.step import Script, VectorSpec  # noqa: PLC0415

    fields = dict(message.meta["spec"])
    if fields["scripts"] is not None:
        fields["scripts"] = tuple(Script(tuple((t, g) for t, g in episodes)) for episodes in fields["scripts"])
    goals = tuple(message.arrays[f"goals.{k}"] for k in range(len(fields["tasks"])))
    spec = VectorSpec(**{**fields, "tasks": tuple(fields["tasks"]), "goals": goals})
    native = frozenset(message.meta.get("native", ()))
    return EnvGroup(spec, message.meta["indices"], Board(spec.num_envs, board_fd), native)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
