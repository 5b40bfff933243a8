"""The program of one environment worker: `python -m trainer.envs.worker SOCKET_FD BUFFERS_FD`.

It bears the signals that ask a job to hand over, because the learner still needs it then: scancel and a stopped
terminal signal every process. It ends when its socket closes, so also when the learner is killed. Where it hangs the
learner ends it with SIGABRT, at which it writes its stacks to standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import resource
import signal
import socket
import sys
from typing import Any

from anchorleg.signals import HAND_OVER_SIGNALS, bear_hand_over
from trainer.envs import channel
from trainer.envs.channel import Channel, WorkerMessage
from trainer.envs.foreign import leave

#: For closing all its environments; the learner waits no longer than that either (`trainer.envs.workers`).
_CLOSE_S = 5.0


def begin(fd: int) -> socket.socket:
    """What every such program does first; its end of the socket."""
    bear_hand_over()
    # Blocked by `spawn_worker` until here, so that none of them can end a worker that is still starting.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HAND_OVER_SIGNALS)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # the stacks will do
    return socket.socket(fileno=fd)


def main(arguments: list[str]) -> int:
    """Serve until the learner's end closes."""
    own = contextlib.closing(Channel(begin(int(arguments[0]))))
    with own as learner, contextlib.suppress(EOFError), contextlib.ExitStack() as closing:
        _serve(learner, int(arguments[1]), closing)
    return 0


def _serve(learner: Channel, buffers_fd: int, closing: contextlib.ExitStack) -> None:
    """`closing`: what is to be closed after it."""
    setup = learner.receive()
    group: Any = None
    while True:
        message = setup if group is None else learner.receive()
        try:
            if group is None:
                group, answer = _set_up(message, buffers_fd), WorkerMessage(channel.DONE, None, {})
                closing.callback(_close, group)
            else:
                answer = group.obey(message, lambda: learner.send(channel.DOING))
        except Exception as error:  # noqa: BLE001 - whatever it is, the learner reports it and ends
            learner.send(channel.FAILED, str(error) or type(error).__name__)
            return
        learner.send(*answer)


def _close(group: Any) -> None:
    """Free its environments. What hangs in that ends with its stacks: nobody may be there any more to end it."""
    faulthandler.dump_traceback_later(_CLOSE_S, exit=True)
    group.close()
    faulthandler.cancel_dump_traceback_later()


def _set_up(message: WorkerMessage, buffers_fd: int) -> Any:
    from trainer.envs.group import EnvGroup
    from trainer.envs.shared import SharedBuffers
    from trainer.envs.step import VectorSpec

    spec = VectorSpec.from_json(message.meta["spec"])
    suite = spec.suite.open()
    buffers = SharedBuffers(suite.spaces, spec.num_envs, buffers_fd, len(spec.suite.settings.MEASURES))
    return EnvGroup(spec, suite, message.meta["indices"], buffers, frozenset(message.meta["native"]))


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
