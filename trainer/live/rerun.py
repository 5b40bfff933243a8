"""The program that plays episodes of a training again, draws them, and shows them: `python -m trainer.live.rerun FD`.

Its parent is `trainer.live.reruns`. It ends when its socket closes, so also when the training is killed.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorleg.live.batches import AGAIN
from trainer.envs import channel
from trainer.envs.channel import Channel, WorkerMessage
from trainer.envs.worker import begin

#: The training comes first.
_NICE = 10


def main(arguments: list[str]) -> int:
    """Serve until the training's end closes."""
    end = begin(int(arguments[0]))
    os.nice(_NICE)
    training = Channel(end)
    try:
        _serve(training, end)
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever it is, the training tells it and goes on
        training.send(channel.FAILED, " ".join(str(error).split()) or type(error).__name__)
    return 0


def _serve(training: Channel, end: socket.socket) -> None:
    import numpy as np  # noqa: PLC0415 - once the signals are dealt with

    from trainer.envs.suite import SuiteRef  # noqa: PLC0415
    from trainer.live.folder import LiveFolder  # noqa: PLC0415
    from trainer.live.stage import ShownTask  # noqa: PLC0415

    setup = training.receive().meta
    suite = SuiteRef.from_json(setup["suite"]).open()
    folder = LiveFolder(Path(setup["folder"]), AGAIN, setup["attempt"])
    stages: dict[int, ShownTask] = {}
    training.send(channel.DONE)
    while True:
        message = training.receive()
        task = message.meta["task"]
        if task not in stages:
            stages[task] = ShownTask(suite, task, np.random.default_rng(0))
        stage = stages[task]
        if not stage.draws_itself:
            raise ValueError(stage.why_no_picture or "it does not draw itself")
        _play(training, end, setup, message, stage, folder)
        training.send(channel.DONE)


def _play(
    training: Channel, end: socket.socket, setup: Mapping[str, Any], message: WorkerMessage, stage: Any, folder: Any
) -> None:
    from functools import partial  # noqa: PLC0415

    from trainer.live.episode import Reel, play, put  # noqa: PLC0415
    from trainer.live.strips import Strip  # noqa: PLC0415

    meta, actions = message.meta, iter(message.arrays["actions"])
    last = len(message.arrays["actions"]) - 1
    gone = threading.Event()

    def act(_obs: Any) -> Any:
        if stage.stats.length == last and stage.stats.total != meta["total"]:
            raise ValueError("an episode that is played again does not come out as it was")
        if select.select([end], [], [], 0)[0]:  # nothing is sent while it plays
            gone.set()
            return None
        return next(actions, None)

    def write(strip: Any) -> None:
        put(folder, setup["lane"], strip, stage)
        training.send(channel.DOING)

    new = partial(
        Strip, setup["tasks"][meta["task"]], meta["episode"], meta["fps"], setup["tells"], facts=meta["about"]
    )
    obs = stage.reset(meta["seed"])
    play(stage, obs, act, Reel(new, stage, meta["episode"], meta["fps"]), write, gone)
    if gone.is_set():
        raise EOFError


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
