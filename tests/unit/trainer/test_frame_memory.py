"""What pictures take of the memory: what is refused, with what to lower and how far; and what autotune says of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from autograd_keeps import really_kept
from played_frames import Played, spaces_of_frames
from refused import named, refused

from trainer.buffers.experience import Experience
from trainer.buffers.frames import FrameReplay
from trainer.buffers.rollout import Rollout
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.envs.spaces import IMAGE
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError
from trainer.nets.encoders.base import encoder_for, kept_spaces
from trainer.training.memory import check, gpu_parts, host_parts, row_bytes

pytestmark = pytest.mark.trainer
GB = 10**9


def a_training(algorithm="sac", *, encoder=None, total_steps=100_000, num_envs=3, evaluation_goals=0, **fields):
    shown = {"observation": "cameras", "cameras": ["above", "below", "beside"], "frame_stack": 4}
    named = {"name": algorithm} if isinstance(algorithm, str) else algorithm
    return resolve(
        TrainingSection(
            env={"name": "anchorleg_toys.points:Points", **shown, **fields},
            algorithm=named,
            network={"encoder": {"arch": "anchorleg_toys.glance:Glance", **(encoder or {})}},
            total_steps=total_steps,
            num_envs=num_envs,
            evaluation_goals=evaluation_goals,
        )
    )


def advice(limit_bytes, **fields):
    """What the refusal says: (setting, value, the sentence)."""
    with refused("memory.too-little") as caught:
        check(a_training(**fields), "cpu", limit_bytes)
    words = caught.value.fields["advice"]
    found = re.search(r"; lower training\.([\w.]+) to ([\d,]+)(?: in a new run)?, or ask for", words)
    assert found, words
    return found[1], int(found[2].replace(",", "")), words


def hidden_bytes(training):
    """What plain layers keep of a row for the way back."""
    return 4 * sum(net.values for net in find(ALGORITHMS, training.algorithm.name).sizes(training, spaces_of(training)))


def part(training, what, **more):
    (found,) = [one for one in host_parts(training, "cpu", 100_000, **more) if what in one.what]
    return found


def test_a_hundred_thousand_steps_of_three_cameras_are_3_7_gb_however_many_are_stacked():
    for stack in (1, 4, 16):
        training = a_training(frame_stack=stack)
        assert row_bytes(training) == 3 * 3 * 64 * 64 + 4 + 4 + 1 + 1 + 4 + 4
        assert part(training, "the replay").bytes == pytest.approx(3.69e9, rel=0.001)
        kept = Experience(training.changed(buffer_size=300), spaces_of(training)).own
        rows = sum(array[:1].nbytes for array in kept.arrays().values())
        assert rows + kept._ahead[:1].nbytes == row_bytes(training)


@pytest.mark.parametrize(
    ("fields", "what", "setting"),
    [
        ({"algorithm": {"name": "sac"}}, "the replay, 100,000 rows of 36882 bytes = 3.69 GB", "algorithm.buffer_size"),
        (
            {"algorithm": {"name": "ppo", "rollout_steps": 40_000}},
            "a rollout, 120,000 steps of 36892 bytes", "algorithm.rollout_steps",
        ),
        (
            {"algorithm": {"name": "sac", "batch_size": 3_000, "buffer_size": 4_000}, "total_steps": 2_000},
            "an update, 3,000 rows of", "algorithm.batch_size",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_value_that_fits(fields, what, setting):
    name, value, words = advice(2 * GB, **fields)
    assert what in words
    assert name == setting
    section, _, field = setting.rpartition(".")
    lowered = {section: {**fields[section], field: value}} if section else {field: value}
    check(a_training(**{**fields, **lowered}), "cpu", 2 * GB)


@pytest.mark.parametrize("arch", ["drq", "impala", "simple3dcnn"])
def test_what_an_encoder_keeps_of_an_update_is_counted_where_the_update_is_made(arch):
    shown = {"observation": "clips", "frame_stack": 8, "frame_stride": 1} if arch == "simple3dcnn" else {}
    training = a_training({"name": "sac", "batch_size": 12}, encoder={"arch": arch, "freeze": False}, **shown)
    spec = spaces_of(training).obs[IMAGE]
    kept = 12 * really_kept(encoder_for(IMAGE, spec, training.network, torch.Generator()), spec)
    taken = {"cpu": part(training, "an update"), "gpu": gpu_parts(training)[-1]}
    (taken["cuda"],) = [one for one in host_parts(training, "cuda", 0) if "an update" in one.what]
    assert kept > 0
    assert taken["gpu"].bytes - 12 * hidden_bytes(training) == pytest.approx(kept, rel=0.02)
    assert taken["cuda"].bytes == 2 * 12 * np.prod(spec.shape)
    assert taken["cpu"].bytes == taken["gpu"].bytes + taken["cuda"].bytes


def test_what_only_the_environment_knows_is_checked_as_soon_as_it_is_opened():
    """Keys of observations, and whether one of them is what a file of weights is for."""
    training = a_training(observation="both")
    check(training.changed(encoders={"image": "nature"}, frame_stack=1), "cpu", None)
    with pytest.raises(ConfigError, match=r"training.network.encoders.imge: the policy sees no 'imge'; .*\"image\"\?"):
        check(training.changed(encoders={"imge": "nature"}), "cpu", None)
    arch, words = training.network.encoder.arch, "encoder.weights: nothing reads this file, .*sees"
    of_file = training.changed(encoder={"arch": arch, "weights": "glance.safetensors"})
    check(of_file, "cpu", None)
    with pytest.raises(ConfigError, match=rf"{words} \(image, state\)"):
        check(of_file.changed(encoders={"image": "nature"}, frame_stack=1), "cpu", None)
    with pytest.raises(ConfigError, match=rf"{words} \(state\)"):
        check(of_file.changed(observation="state", cameras=[], frame_stack=1), "cpu", None)


def test_what_is_counted_of_a_rollout_is_what_it_takes():
    training = a_training({"name": "ppo", "rollout_steps": 50})
    rollout = Rollout(spaces_of(training), 50, 3)
    taken = sum(array.nbytes for array in (*rollout._frames.values(), *rollout.fields.values()))
    assert part(training, "a rollout").bytes == taken


def test_features_of_a_frozen_encoder_are_kept_once():
    training = a_training({"name": "sac", "buffer_size": 300}, encoder={"freeze": True}, observation="both")
    ring = Experience(training, kept_spaces(spaces_of(training), training.network)).own
    assert isinstance(ring, FrameReplay)
    features = ring.arrays()[f"obs.{IMAGE}"]
    assert (features.shape, features.dtype) == ((300, 4), np.float32)
    rows = sum(array[:1].nbytes for array in ring.arrays().values())
    assert row_bytes(training) == rows + ring._ahead[:1].nbytes
    assert part(training, "an update").bytes == training.learned_at_once * hidden_bytes(training)


@pytest.mark.parametrize(("rows", "is_refused"), [(119, True), (120, False)])
def test_a_replay_too_short_for_pictures_that_an_environment_gives_itself_is_refused(rows, is_refused):
    """40 environments of one task: a row before, one of the step, and one where an episode begins."""
    env = {"name": "gymnasium", "id": "odd_envs:Cameras", "horizon": 9}
    sac = {"name": "sac", "batch_size": 8, "buffer_size": rows}
    glance = {"encoder": {"arch": "anchorleg_toys.glance:Glance"}}
    training = resolve(TrainingSection(env=env, algorithm=sac, network=glance, num_envs=40, total_steps=1_000))
    if not is_refused:
        check(training, "cpu", None)
        return
    words = (
        "training.algorithm.buffer_size: buffer_size 119 is too small for 40 environments whose policy sees frames of "
        "one step: frames would be overwritten before use; use 120 or more, or lower num_envs"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}$"):
        check(training, "cpu", None)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("tasks", "num_envs"), [(1, 4), (2, 4), (2, 3)])
def test_with_as_many_rows_as_the_refusal_says_something_can_be_drawn_at_all_times(tasks, num_envs, steps):
    algorithm = {"name": "td3", "n_step": steps, "batch_size": 8, "buffer_size": 8}
    looks = {"observation": "clips", "frame_stack": 3, "frame_stride": 2}
    with refused("replay.too-small-for-frames") as caught:
        TrainingSection(algorithm=algorithm, tasks=("reach-v3", "push-v3")[:tasks], num_envs=num_envs, **looks)
    rows = named(caught.value).fields["least"]
    spaces, played_together = spaces_of_frames(tasks, 3, 2, clip=True), -(-num_envs // tasks)
    enough, few = (
        FrameReplay(capacity, tasks, spaces, steps) for capacity in (rows, rows - 2 * tasks * played_together)
    )
    played, learns = Played(spaces, num_envs), []
    for step in range(60):
        played.task = np.arange(num_envs) % tasks  # as they are scheduled
        transition = played.step(float(step % 10 == 9))  # episodes begin all at once, as those of one length do
        enough.add(transition)
        few.add(transition)
        learns.append((enough.drawable.all(), few.drawable[0]))
    begun = learns[steps:]
    assert all(always for always, _ in begun)
    assert not all(sometimes for _, sometimes in begun)
