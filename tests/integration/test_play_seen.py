"""Policies that see pictures: films show what they see, a machine that cannot draw says so, another driver is told."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from vector_bytes import through_files

pytest.importorskip("metaworld")

from trainer.config.suites import Arm, Gymnasium, Metaworld
from trainer.envs.episodes import seed_of
from trainer.envs.exact import SEEDS
from trainer.envs.spaces import IMAGE
from trainer.envs.step import Script, VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.evaluation.playable import Playable
from trainer.showing.play import PlayedTask, WatchedTask, newest_frames, with_views

pytestmark = [pytest.mark.trainer, pytest.mark.usefixtures("eyes_here")]
STEPS = 9
SETTINGS = (
    Metaworld(tasks=("push-v3",), horizon=STEPS, observation="both", frame_stack=3, image_size=32, randomize_view=True),
    Arm(horizon=STEPS, observation="clips", frame_stack=3, frame_stride=2, image_size=32, critic_sees="state"),
    Gymnasium(id="odd_envs:Teller", horizon=STEPS, observation="both", frame_stack=2, image_size=32),
)
#: Pixels of the scene in a film.
WIDE = {"arm": 480, "gymnasium": 62}


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.name)
def test_a_policy_that_is_filmed_sees_what_it_sees_in_an_evaluation(settings):
    """Also its stacks, from the episode's first frame on; and never what is for critics."""
    number = next(n for n in range(50) if seed_of(4, 0, n) >= SEEDS)  # a number with a sign has another
    ref, seen = SuiteRef(settings, 4), []

    def act(obs, task):
        seen.append(obs)
        return np.full((1, spaces.action.size), 0.4, np.float32)

    with VectorEnv(VectorSpec(ref, 1, 4, scripts=(Script(((0, number),)),))) as envs:
        spaces = envs.spaces
        expected = [envs.reset().obs]
        expected += [envs.step(np.full((1, spaces.action.size), 0.4, np.float32)).obs for _ in range(STEPS - 1)]
    stage = (PlayedTask if settings.name == "metaworld" else WatchedTask)(Playable("x", 0, settings, 4, act, ()), None)
    shown = []
    is_metaworld = isinstance(stage, PlayedTask)
    stage.play(number, lambda _: shown.append(stage.views if is_metaworld else stage.picture()))
    stage.close()
    assert len(seen) == len(expected) == STEPS
    assert len(shown) == STEPS + 1
    for found, wanted in zip(seen, expected, strict=True):
        assert set(found) == set(spaces.of_policy.obs)
        assert all(found[key].tobytes() == wanted[key].tobytes() for key in found)
    views = newest_frames(spaces.obs, seen[-1])
    if is_metaworld:
        assert all((one == other).all() for one, other in zip(shown[-2], views, strict=True))
    else:
        film = shown[-2]
        assert (film == with_views(film[:, : WIDE[settings.name]], views)).all()
        assert film.shape[0] % 2 == film.shape[1] % 2 == 0


def test_on_another_driver_frames_are_kept_and_it_is_said(caplog):
    ref = SuiteRef(SETTINGS[1], 4)
    with VectorEnv(VectorSpec(ref, 2, 4)) as envs:
        envs.reset()
        state = through_files(envs.snapshot())
    kept = state.tensors["obs.image"] ^ np.uint8(1)  # as another driver may have drawn it
    tensors = {**state.tensors, "envs.0.obs.image": kept[0], "envs.1.obs.image": kept[1]}
    frames = {"frames.image": np.repeat(kept[None], len(state.tensors["frames.image"]), 0)}
    state = replace(state, tensors={**tensors, **frames}, numbers={**state.numbers, "driver": "an old one"})
    with caplog.at_level(logging.WARNING), VectorEnv(VectorSpec(ref, 2, 4)) as envs:
        seen = envs.restore(state).obs[IMAGE]
    assert (seen == kept[:, None]).all()
    assert "drawn by an old one, and " in caplog.text
