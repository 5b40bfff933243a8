"""What a user is refused that a checkpoint may say: files that nothing reads, and replays that nothing is drawn of."""

from __future__ import annotations

import numpy as np
import pytest
from played_frames import Played, spaces_of_frames
from pydantic import ValidationError
from refused import named, refused

from trainer.buffers.frames import FrameReplay
from trainer.config.read import sentences
from trainer.config.section import TrainingSection, resolve, trained
from trainer.config.training import Training

SUM = "ab" * 32
FILE = {"arch": "drq", "weights": "drq.safetensors"}
SAC = {"preset": "arm-sac"}
SEEN = {**SAC, "env": {"name": "arm", "observation": "cameras"}}
OF_CLIPS = {"name": "arm", "observation": "clips", "frame_stack": 8, "frame_stride": 4}
CART = {"env": {"name": "gymnasium", "id": "CartPole-v1"}}


@pytest.mark.parametrize(
    ("section", "place", "wrong"),
    [
        ({**SAC, "network": {"encoder": FILE}}, "network.encoder.weights", "weights.without-pictures"),
        ({**SAC, "encoder": {**FILE, "pretrained": True}}, "encoder.weights", "weights.without-pictures"),
        ({"network": {"encoder": FILE}}, "network.encoder.weights", "weights.of-state-learner"),
        ({**CART, "network": {"encoder": FILE}}, "network.encoder.weights", "weights.of-state-learner"),
        (
            {**SEEN, "network": {"encoder": FILE, "encoders": {"image": "nature"}}},
            "network.encoder.weights",
            "weights.of-other-encoder",
        ),
        (
            {**SEEN, "network": {"encoder": {"freeze": True}, "encoders": {"image": "nature"}}},
            "network.encoder.freeze",
            "encoder.freeze-of-other",
        ),
        (
            {**SEEN, "algorithm": "drqv2", "encoder": {"freeze": True}, "encoders": {"image": "drq"}},
            "encoder.freeze",
            "encoder.freeze-of-other",
        ),
        ({**SAC, "random_shift": 4}, "random_shift", "algorithm.shift-without-pictures"),
        (
            {**SAC, "algorithm": {"name": "drqv2", "random_shift": 2}},
            "algorithm.random_shift",
            "algorithm.shift-without-pictures",
        ),
        (
            {**SEEN, "network": {"encoder": {"freeze": True, "weights_sha256": SUM}}},
            "network.encoder.weights_sha256",
            "weights.sum-without-file",
        ),
        (
            {**SAC, "env": OF_CLIPS, "num_envs": 8, "buffer_size": 247},
            "buffer_size",
            "replay.too-small-for-frames",
        ),
    ],
)  # fmt: skip
def test_what_nothing_reads_is_refused_where_it_was_written_and_a_checkpoint_that_says_so_loads(section, place, wrong):
    with pytest.raises(ValidationError) as caught:
        TrainingSection.model_validate(section)
    assert [(where, error.id) for where, error in sentences(caught.value, Training)] == [(place, wrong)]
    training = trained(section)
    assert trained(training.model_dump(mode="json")) == training


@pytest.mark.parametrize(
    "section",
    [
        {**SEEN, "network": {"encoder": FILE}},
        {**SEEN, "network": {"encoder": {**FILE, "weights_sha256": SUM}}},
        {**SEEN, "network": {"encoder": {"freeze": True}}},
        {**SEEN, "random_shift": 4},
        {**SAC, "algorithm": "drqv2"},  # whose shift is 4
        {**SAC, "encoder": {"arch": "drq"}},
        {**CART, "algorithm": "sac", "network": {"encoder": FILE}},  # it may give pictures itself
        {**SAC, "num_envs": 8, "buffer_size": 100},
        {**SAC, "env": OF_CLIPS, "num_envs": 8, "buffer_size": 248},
    ],
)
def test_what_is_read_is_taken_and_its_dump_too(section):
    training = resolve(TrainingSection.model_validate(section))
    assert resolve(TrainingSection.model_validate(training.model_dump(mode="json"))) == training


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
