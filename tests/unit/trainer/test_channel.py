"""A channel between two threads of this process: what silence is, and what is not."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from daemons import PATIENCE_S

from trainer.envs import channel
from trainer.envs.channel import Channel

pytestmark = pytest.mark.trainer
#: More than a socket takes in while nobody reads.
LARGE = {"a": np.arange(2_000_000, dtype=np.float64)}


@pytest.fixture
def ends(monkeypatch):
    monkeypatch.setattr(channel, "LOOK_S", 0.01)
    sockets = socket.socketpair()
    yield tuple(map(Channel, sockets))
    for end in sockets:
        end.close()


def in_the_background(act, *arguments):
    thread = threading.Thread(target=act, args=arguments, daemon=True)
    thread.start()
    return thread


def test_a_message_comes_out_as_it_went_in(ends):
    here, there = ends
    sender = in_the_background(here.send, channel.RESTORE, {"0": [1, None]}, LARGE)
    op, meta, arrays = there.receive(PATIENCE_S)
    sender.join(PATIENCE_S)
    assert (op, meta) == (channel.RESTORE, {"0": [1, None]})
    assert np.array_equal(arrays["a"], LARGE["a"])


def test_an_end_that_never_answers_is_silent_and_one_that_answers_late_is_not(ends):
    here, there = ends
    with pytest.raises(TimeoutError):
        here.receive(0.03)
    answer = threading.Timer(0.1, there.send, (channel.DONE,))
    answer.start()
    assert here.receive(60).op == channel.DONE
    answer.join()
