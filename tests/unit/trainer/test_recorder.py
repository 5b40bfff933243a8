from __future__ import annotations

import errno
import threading

import numpy as np
import pytest
from daemons import PATIENCE_S, wait_for
from hypothesis import given
from hypothesis import strategies as st
from suites import spaces_like, state_of

pytest.importorskip("metaworld")

from trainer.envs.step import Step
from trainer.envs.suites.metaworld.shapes import BOUNDS
from trainer.sharing.judge import Accepted, Expectation, judge
from trainer.sharing.recorder import Dispatch, Recorder, SegmentOrigin
from trainer.sharing.segment import decode, encode, name_of

pytestmark = pytest.mark.trainer

TASKS = ("reach-v3", "push-v3", "soccer-v3")


class Toys:
    """N environments of numbered frames: everything that is seen says where and when it was."""

    def __init__(self, num_envs, horizon):
        self.n, self.horizon, self.t = num_envs, horizon, 0
        self.obs = self._frames(0)

    def _frames(self, t):
        obs = np.zeros((self.n, 39), np.float32)
        obs[:, 0] = np.arange(self.n)
        obs[:, 1] = t / 1000
        obs[:, 18:36] = obs[:, :18]
        obs[:, 19] = max(0, t - 1) / 1000
        return state_of(obs)

    def step(self):
        self.t += 1
        ends = self.t % self.horizon == 0
        task = (np.arange(self.n) + (self.t - 1) // self.horizon) % len(TASKS)
        next_obs = self._frames((self.t - 1) % self.horizon + 1)
        self.obs = self._frames(0) if ends else next_obs
        off, last = np.zeros(self.n, bool), np.full(self.n, ends)
        return Step(
            obs=self.obs,
            next_obs=next_obs,
            reward=np.full(self.n, self.t % 10, np.float32),
            terminated=off,
            truncated=last,
            success=off,
            task=task.astype(np.int32),
            next_task=task.astype(np.int32),
            finished=last,
            episode_return=np.zeros(self.n),
            episode_length=np.zeros(self.n, np.int32),
            episode_success=off,
            episode_measures=np.zeros((self.n, 0)),
        )


def recorded(num_envs, horizon, steps, version=lambda t: (1, 1)):
    toys, recorder = (
        Toys(num_envs, horizon),
        Recorder(SegmentOrigin("r", 2, spaces_like(TASKS, horizon), "ab" * 8), num_envs),
    )
    segments = []
    for t in range(steps):
        obs = toys.obs
        segments += recorder.add(obs, np.full((num_envs, 4), 0.5, np.float32), toys.step(), version(t))
    return segments + recorder.rest(), recorder


@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 40))
def test_every_step_is_in_exactly_one_segment_and_the_learner_takes_them_all(num_envs, horizon, steps):
    segments, recorder = recorded(num_envs, horizon, steps)
    places = [(s.env, s.episode * horizon + i) for s in segments for i in range(s.steps)]
    assert sorted(places) == [(i, t) for i in range(num_envs) for t in range(steps)]
    for s in segments:
        assert s.task == TASKS[(s.env + s.episode) % len(TASKS)]
        assert (s.obs[:, 0] == s.env).all()
        expect = Expectation("r", 2, spaces_like(TASKS, horizon), BOUNDS, [(1, 1, 0)], 0, 0)
        found = judge(encode(s), name_of(encode(s)), expect)
        assert isinstance(found, Accepted), found
    assert recorder.rest() == []


def test_segments_own_their_memory():
    toys, recorder = Toys(1, 2), Recorder(SegmentOrigin("r", 0, spaces_like(TASKS, 2), "ab" * 8), 1)
    kept = []
    for number in range(4):
        obs = {key: frame + number for key, frame in toys.obs.items()}
        kept += recorder.add(obs, np.zeros((1, 4), np.float32), toys.step(), (1, 1))
    assert [s.obs[0, 0] for s in kept] == [0, 2]
    assert kept[0].reward.tolist() == [1, 2]


class Box:
    """An outbox that can be full or broken."""

    def __init__(self):
        self.got, self.has_room, self.error = [], True, None
        self.asked = threading.Event()

    def offer(self, segment, data):
        self.asked.set()
        if self.error:
            raise self.error
        if self.has_room:
            self.got.append((segment.run_id, segment.slot, decode(data, spaces_like(TASKS)).episode))
        return self.has_room


def test_a_full_outbox_pauses_the_recording_and_loses_nothing_that_it_took():
    segments, _ = recorded(1, 2, 20)
    box = Box()
    box.has_room = False
    dispatch = Dispatch(box.offer, limit=4, retry_s=0.01)
    dispatch.put(segments[:1])
    wait_for(lambda: dispatch.trouble is not None, "the trouble")
    assert dispatch.trouble == "no room"
    dispatch.put(segments[1:9])
    assert dispatch.lost == 4  # the queue took four
    box.has_room = True
    wait_for(lambda: len(box.got) == 5, "what the queue held")
    wait_for(lambda: dispatch.trouble is None, "the end of the trouble")
    dispatch.put(segments[9:])
    dispatch.close(PATIENCE_S)
    assert box.got == [("r", 2, episode) for episode in (0, 1, 2, 3, 4, 9)]
    assert (dispatch.recorded, dispatch.lost) == (6, 4)


def test_a_full_disk_is_one_sentence_and_recording_goes_on_when_it_is_mended():
    segments, _ = recorded(1, 2, 4)
    box = Box()
    box.error = OSError(errno.ENOSPC, "No space left on device", "/x/outbox")
    dispatch = Dispatch(box.offer, limit=4, retry_s=0.01)
    dispatch.put(segments)
    wait_for(lambda: dispatch.trouble is not None, "the trouble")
    assert "No space left on device" in dispatch.trouble
    box.error = None
    wait_for(lambda: dispatch.recorded == 2, "both segments")
    dispatch.close()


def test_a_defect_of_the_thread_is_raised_and_not_just_lost():
    def offer(_segment, _data):
        raise KeyError("a defect")

    dispatch = Dispatch(offer, limit=4)
    dispatch.put(recorded(1, 2, 2)[0])
    dispatch._thread.join(PATIENCE_S)
    with pytest.raises(KeyError, match="a defect"):
        dispatch.put([])
    dispatch.close()


def test_the_end_does_not_wait_for_an_outbox_that_stays_full():
    segments, _ = recorded(1, 2, 8)
    box = Box()
    box.has_room = False
    dispatch = Dispatch(box.offer, limit=8, retry_s=1e6)
    dispatch.put(segments)
    wait_for(box.asked.is_set, "a try")
    dispatch.close(PATIENCE_S)  # returns, although the next try is days away
    assert dispatch.lost == 4
