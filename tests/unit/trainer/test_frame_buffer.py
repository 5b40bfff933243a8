"""Poses as a batch has them: int16, and what is lost by it."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from anchorleg.live.batches import FACTS, POSE, checked
from trainer.envs.shown import Glimpse
from trainer.live.scene import FINEST_M, FrameBuffer, quantised

pytestmark = pytest.mark.trainer
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5))


def poses_at(places, rotations=None):
    """[F, B, 7] of places [F, B, 3], upright unless said otherwise."""
    upright = np.zeros((*places.shape[:2], 4))
    upright[..., 0] = 1
    return np.concatenate([places, upright if rotations is None else rotations], axis=-1).astype(np.float32)


def restored(found, frames, bodies):
    """Poses [F, B, 7] of a batch, as `anchorleg.live.batches` says."""
    values = np.frombuffer(found.body, "<i2").reshape(frames, bodies, 7).astype(float)
    values[..., :3] = np.asarray(found.place) + found.unit * values[..., :3]
    values[..., 3:] /= 32_767
    return values


@st.composite
def poses(draw):
    shape = draw(SHAPES)
    size = draw(st.sampled_from([0.01, 1.0, 50.0, 4000.0]))
    numbers = st.floats(-1, 1, width=32)
    places = draw(arrays(np.float32, (*shape, 3), elements=numbers)) * size
    rotations = draw(arrays(np.float32, (*shape, 4), elements=st.floats(0.125, 1, width=32)))
    return poses_at(places, rotations)


@given(poses())
def test_what_comes_back_is_what_was_there_but_for_half_a_unit(given_poses):
    found = quantised(given_poses)
    back = restored(found, *given_poses.shape[:2])
    spread = np.ptp(given_poses[..., :3].astype(float), axis=(0, 1)).max()
    assert found.unit == pytest.approx(FINEST_M) or found.unit <= spread / 32_767
    assert np.abs(back[..., :3] - given_poses[..., :3]).max() <= 0.501 * found.unit
    turned = given_poses[..., 3:] / np.linalg.norm(given_poses[..., 3:].astype(float), axis=-1, keepdims=True)
    assert np.abs(back[..., 3:] - turned).max() <= 2e-5


@given(poses())
def test_a_strip_of_it_is_a_batch_that_can_be_drawn(given_poses):
    glimpses = [Glimpse(2, 5 + 3 * i, 1.5 + i, i > 1, 0.1 * i, one) for i, one in enumerate(given_poses)]
    kind, payload = FrameBuffer("reach-v3", 2, 30, told=True, at=9.0, glimpses=glimpses).payload(
        "a" * 64, "training", 4
    )
    header, body = checked(kind, payload)
    assert kind == POSE
    assert (header["frames"], header["bodies"], header["step"], header["episode"]) == (*given_poses.shape[:2], 5, 2)
    assert header["return"] == glimpses[-1].total
    assert header["success"] is (len(glimpses) > 2)
    assert header["dt"] == pytest.approx(0.1 if len(glimpses) > 1 else 1 / 30)
    assert body == quantised(given_poses).body


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("number", range(7))
def test_a_body_that_is_nowhere_is_refused(wrong, number):
    bad = poses_at(np.zeros((2, 3, 3)))
    bad[1, 2, number] = wrong
    with pytest.raises(ValueError, match="not a number"):
        quantised(bad)


def test_without_a_scene_the_facts_alone_go_and_success_is_told_once_there_is_one():
    glimpse = Glimpse(0, 1, -2.0, False, 0.0, np.zeros((0, 7), np.float32))
    frames = FrameBuffer("x", 0, 30, told=False, glimpses=[glimpse], facts={"trained steps": 7.0})
    kind, payload = frames.payload(None, "training", 0)
    assert kind == FACTS
    assert checked(kind, payload)[0]["success"] is None
    near = FrameBuffer("x", 0, 30, told=False, glimpses=[glimpse, glimpse._replace(goal=(0.5, 0.25, 1.0))])
    assert checked(*near.payload(None, "training", 0))[0]["facts"] == {"goal_x": 0.5, "goal_y": 0.25, "goal_z": 1.0}
    solved = FrameBuffer("x", 0, 30, told=False, glimpses=[glimpse._replace(success=True)])
    assert checked(*solved.payload(None, "training", 0))[0]["success"] is True


def test_a_strip_is_full_before_it_does_not_fit():
    one = Glimpse(0, 1, 0.0, False, 0.0, poses_at(np.zeros((1, 500, 3)))[0])
    frames = FrameBuffer("x" * 100, 0, 60, told=True, facts={f"fact {i}": "y" * 100 for i in range(40)})
    while not frames.glimpses or not frames.is_full:
        frames.glimpses.append(one)
    assert 5 <= len(frames.glimpses) <= 9
    kind, payload = frames.payload("a" * 64, "training", 0)
    assert checked(kind, payload)[0]["frames"] == len(frames.glimpses)
    assert json.loads(payload[2 : 2 + int.from_bytes(payload[:2])])["bodies"] == 500
