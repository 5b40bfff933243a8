"""The recorder in the loop: whom it shows, how often, and that it neither waits nor fails."""

from __future__ import annotations

import errno
import itertools
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from daemons import PATIENCE_S, wait_for

from anchorleg.live.wanted import FILE, Asking, Wish
from trainer.envs.shown import Glimpse, Parts
from trainer.live import recorder as recorder_module
from trainer.live.recorder import FrameRecorder, RecorderInputs, chosen

pytestmark = pytest.mark.trainer
HORIZON = 12
STEP_S = 1 / 90


class Agents:
    """Environment i plays task (i + episode · walk) % 3; episodes have 12 steps, and end for all at once."""

    def __init__(self, count=3, walk=0, drawn=True):
        self.count, self.walk, self.drawn = count, walk, drawn
        self.steps = 0
        self.watched = []
        self.looked = []

    @property
    def playing(self):
        episode = self.steps // HORIZON
        return np.array([(i + episode * self.walk) % 3 for i in range(self.count)], np.int32)

    def watch(self, indices):
        self.watched.append(set(indices))

    def glimpse(self, index):
        assert index in self.watched[-1], "nobody has asked for it before the step"
        episode, step = divmod(self.steps, HORIZON)
        poses = np.full((2 if self.drawn and step else 0, 7), 0.5, np.float32)
        return Glimpse(episode, step, 0.5 * step, step > 9, 0.0125 * step, poses)

    def look(self, index):
        self.looked.append(int(self.playing[index]))
        return Parts(("a", "b"), {}, 0, {}) if self.drawn else None


class Notebook:
    """In place of the folder: what the thread was given."""

    block: threading.Event | None = None
    fails: Exception | None = None

    def __init__(self):
        self.written = []

    def add_scene(self, task, _parts):
        if self.fails is not None:
            raise self.fails
        self.written.append(("scene", task))

    def write(self, lane, frames):
        if self.block is not None:
            self.block.wait()
        if self.fails is not None:
            raise self.fails
        self.written.append((lane, frames))


@pytest.fixture
def book():
    return Notebook()


@contextmanager
def recorded(folder, book, agents, *wishes):
    """(the recorder, what makes so many steps), with somebody who asks for `wishes`."""
    now = itertools.count()
    given = RecorderInputs(folder / FILE, folder / "live", 0, 2, ("a", "b", "c"), tells_success=True)
    if wishes:
        Asking(folder / FILE).renew(tuple(Wish(0, *wish) for wish in wishes))
    recorder = FrameRecorder(
        agents, given, folder=book, clock=lambda: next(now) / 1e9 + agents.steps * STEP_S,
        wall=lambda: 1000.0 + agents.steps,
    )  # fmt: skip
    wait_for(lambda: not wishes or recorder._wanted, "the recorder hears of the wish")

    def go(steps, *, waits=True):
        """The thread is given the time to write, which a training's steps take; `waits`: not where it cannot."""
        for _ in range(steps):
            agents.steps += 1
            recorder.after(agents.steps, agents.playing)
            deadline = time.monotonic() + PATIENCE_S
            while waits and not recorder._queue.empty() and recorder._thread.is_alive():
                assert time.monotonic() < deadline
                threading.Event().wait(1e-4)

    try:
        yield recorder, go
    finally:
        recorder.close(PATIENCE_S)


def buffers(book, lane):
    return [frames for name, frames in book.written if name == lane]


def test_whom_nobody_asked_for_is_not_looked_at(tmp_path, book):
    agents = Agents()
    with recorded(tmp_path, book, agents) as (_, go):
        go(1000)
    assert (agents.watched, agents.looked, book.written) == ([], [], [])


def test_a_picture_comes_after_every_third_step_where_steps_are_three_times_as_fast(tmp_path, book):
    agents = Agents()
    with recorded(tmp_path, book, agents, ("t1", 30)) as (_, go):
        go(3)
        wait_for(lambda: ("scene", "b") in book.written, "its scene")
        go(20 * HORIZON)
    shown = [(one.episode, one.step) for frames in buffers(book, "t1")[3:] for one in frames.glimpses]
    steps = [step for _, step in shown]
    assert set(np.diff([episode * HORIZON + step for episode, step in shown])) <= {3, 4}, steps
    assert len(agents.watched) > 10, "between two pictures nobody is watched"


def test_any_lane_shows_the_tasks_in_turn_and_changes_at_ends_only(tmp_path, book):
    agents = Agents()
    with recorded(tmp_path, book, agents, ("any", 60)) as (_, go):
        go(9 * HORIZON)
    order = [(frames.episode, frames.task) for frames in buffers(book, "any")]
    tasks = [task for task, _ in itertools.groupby(task for _, task in order)]
    assert tasks == ["a", "b", "c", "a", "b", "c", "a", "b", "c"]
    assert len({episode for episode, _ in order}) == len(set(order)), "no episode is of two tasks"


def test_a_lane_of_one_task_follows_it_from_environment_to_environment(tmp_path, book):
    agents = Agents(count=2, walk=1)
    with recorded(tmp_path, book, agents, ("t2", 60)) as (_, go):
        go(9 * HORIZON)
    found = buffers(book, "t2")
    assert {frames.task for frames in found} == {"c"}
    # Of two environments that walk through three tasks one plays it in two of three episodes.
    assert {frames.episode for frames in found} == {1, 2, 4, 5, 7, 8}


def test_when_the_last_watcher_goes_nobody_is_watched_any_more(tmp_path, book, monkeypatch):
    asked = {"any": 60}
    monkeypatch.setattr(recorder_module, "Asked", lambda *_: SimpleNamespace(lanes=lambda: dict(asked)))
    monkeypatch.setattr(recorder_module, "LOOK_EVERY_S", 0.01)
    agents = Agents()
    with recorded(tmp_path, book, agents, ("any", 60)) as (recorder, go):
        go(5)
        assert agents.watched[-1] == {0}
        asked.clear()
        wait_for(lambda: not recorder._wanted, "the recorder hears that nobody asks")
        go(2)
        assert agents.watched[-1] == set()
        told = len(agents.watched)
        go(100)
        assert len(agents.watched) == told


def test_a_thread_that_is_behind_is_not_waited_for(tmp_path, book):
    book.block = threading.Event()
    agents = Agents()
    with recorded(tmp_path, book, agents, ("any", 60)) as (recorder, go):
        go(300 * HORIZON, waits=False)
        assert recorder._queue.full()
        book.block.set()
        wait_for(recorder._queue.empty, "the thread catches up")
        many = len(book.written)
        go(3 * HORIZON)
    assert len(book.written) > many


@pytest.mark.long
def test_a_full_disk_is_said_once_and_when_there_is_room_the_scene_comes_first(tmp_path, book, monkeypatch):
    monkeypatch.setattr(recorder_module, "AGAIN_AFTER_S", 1.0)
    book.fails = OSError(errno.ENOSPC, "No space left on device")
    agents, said = Agents(), []
    with recorded(tmp_path, book, agents, ("any", 60)) as (recorder, go):
        go(2 * HORIZON)
        wait_for(lambda: not recorder._wanted, "it rests")
        go(2 * HORIZON)
        assert agents.watched[-1] == set()

        def goes_on():
            go(HORIZON)
            recorder.tell(said.append)
            return len(book.written) > 1

        wait_for(lambda: goes_on() or len(agents.watched) > 4, "it tries again")
        assert book.written == []
        book.fails = None
        wait_for(goes_on, "a frames")
    recorder.tell(said.append)
    assert "No space left on device" in said[0]
    assert said[1:] == ["agents are shown again"]
    assert book.written[0][0] == "scene"


class TestLanes:
    def test_the_task_that_was_not_shown_for_longest_is_next(self):
        assert chosen("any", [0, 1, 2], {}) == 0
        assert chosen("any", [0, 1, 2], {0: 5.0, 2: 3.0}) == 1
        assert chosen("any", [0, 1, 2], {0: 5.0, 1: 9.0, 2: 3.0}) == 2
        assert chosen("any", [2, 2, 0], {0: 5.0, 2: 3.0}) == 0
