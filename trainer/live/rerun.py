"""The program that plays episodes of a training again, draws them, and shows them: `python -m trainer.live.rerun FD`.

Its parent is `trainer.live.reruns`. It ends when its socket closes, so also when the training is killed.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorleg.live.batches import AGAIN
from trainer.envs import channel
from trainer.envs.channel import Channel, WorkerMessage
from trainer.envs.worker import begin
from trainer.machine.expendable import be_expendable

#: The training comes first.
_NICE = 10
#: How often it is looked whether the training is still there.
_LOOK_S = 0.5
_OTHER = "an episode that is played again does not come out as it was"


def main(arguments: list[str]) -> int:
    """Serve until the training's end closes."""
    end = begin(int(arguments[0]))
    os.nice(_NICE)
    be_expendable()
    training = Channel(end)
    threading.Thread(target=_end_with, args=(end,), daemon=True).start()
    try:
        _serve(training)
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever it is, the training tells it and goes on
        training.send(channel.FAILED, " ".join(str(error).split()) or type(error).__name__)
    return 0


def _end_with(end: socket.socket) -> None:
    """End when the other end does, also in the middle of foreign code that hangs."""
    while True:
        try:
            if not end.recv(1, socket.MSG_PEEK):
                os._exit(0)
        except TimeoutError:
            continue
        except OSError:
            os._exit(0)
        time.sleep(_LOOK_S)  # a message lies there, for the other thread


def _serve(training: Channel) -> None:
    import numpy as np  # noqa: PLC0415 - once the signals are dealt with

    from trainer.envs.suite import SuiteRef  # noqa: PLC0415
    from trainer.live.folder import LiveFolder  # noqa: PLC0415
    from trainer.live.stage import ShownTask  # noqa: PLC0415

    setup = training.receive().meta
    ref = SuiteRef.from_json(setup["suite"])
    suite, once = ref.open(), ref.settings.SUCCESS_AT == "any step"
    folder = LiveFolder(Path(setup["folder"]), AGAIN, setup["attempt"])
    stage: ShownTask | None = None
    shown = -1
    training.send(channel.DONE)
    while True:
        message = training.receive()
        task = message.meta["task"]
        if stage is None or task != shown:
            if stage is not None:
                stage.close()
            stage, shown = ShownTask(suite, task, np.random.default_rng(0), once_is_enough=once), task
        if not stage.draws_itself:
            raise ValueError(stage.why_no_picture or "it does not draw itself")
        _check(stage, message)
        _play(training, setup, message, stage, folder)
        training.send(channel.DONE)


def _check(stage: Any, message: WorkerMessage) -> None:
    """Play it without a picture. Errors: ValueError where it is not the episode that it was."""
    actions, total = message.arrays["actions"], message.meta["total"]
    stage.reset(message.meta["seed"])
    for number, action in enumerate(actions):
        if number == len(actions) - 1:
            _must_be(stage, total)
        outcome = stage.step(action)
        if (outcome.terminated or outcome.truncated) and number < len(actions) - 1:
            raise ValueError(_OTHER)


def _must_be(stage: Any, total: float) -> None:
    """Before the last step. Errors: ValueError where the return is another one."""
    found = stage.stats.total
    if found != total and not (math.isnan(found) and math.isnan(total)):
        raise ValueError(_OTHER)


def _play(training: Channel, setup: Mapping[str, Any], message: WorkerMessage, stage: Any, folder: Any) -> None:
    from functools import partial  # noqa: PLC0415

    from trainer.live.episode import Reel, play, put  # noqa: PLC0415
    from trainer.live.strips import Strip  # noqa: PLC0415

    meta, actions = message.meta, message.arrays["actions"]

    def act(_obs: Any) -> Any:
        step = stage.stats.length
        if step == len(actions) - 1:
            _must_be(stage, meta["total"])  # drawing may have changed it
        return actions[step] if step < len(actions) else None

    def write(strip: Any) -> None:
        put(folder, setup["lane"], strip, stage)
        training.send(channel.DOING)

    task = setup["tasks"][meta["task"]]
    new = partial(Strip, task, meta["episode"], meta["fps"], setup["tells"], facts=meta["about"])
    obs = stage.reset(meta["seed"])
    play(stage, obs, act, Reel(new, stage, meta["episode"], meta["fps"]), write, threading.Event())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
