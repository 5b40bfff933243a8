"""Actors in a thread of the test, and a display that keeps what it is shown."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path

import torch
from daemons import PATIENCE_S

from syncd import store
from trainer.actors.actors import Actors, Plan
from trainer.sharing.selection import Choice

#: A line for programs that record: a slow disk may take longer at their end than they would wait.
UNHURRIED = f"from trainer.sharing.recorder import Dispatch; Dispatch.close.__defaults__ = ({PATIENCE_S},); "


class Screen:
    """A display that keeps what it is shown."""

    def __init__(self):
        self.notes, self.last = [], None

    def say(self, sentence):
        self.notes.append(sentence)

    def is_due(self, doing):
        return True

    def progress(self, playing):
        self.last = playing

    def is_playing(self, version):
        return self.last is not None and self.last.policy == version


@contextmanager
def actors(folder: Path, policy="latest", **settings):
    """Actors in a thread of this process: (the screen, the running `Actors`)."""
    fields = {"num_envs": 4, "workers": 0, "contribute": True, "device": torch.device("cpu"), **settings}
    plan = Plan(folder=folder, shared=store.Shared(folder), choice=Choice.parse(policy), **fields)
    screen, stop, failed = Screen(), threading.Event(), []
    running = Actors(plan, screen)

    def run():
        try:
            running.run(stop.is_set)
        except Exception as error:  # noqa: BLE001 - raised again below, in the test's own thread
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield screen, running
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    if failed:
        raise failed[0]
