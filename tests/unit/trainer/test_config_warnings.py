"""What a config says and nothing reads, or what comes to nothing, is warned of."""

from __future__ import annotations

import pytest
from refused import refused

from trainer.config.read import read_section
from trainer.config.section import PRESETS, TrainingSection, resolve

pytestmark = pytest.mark.trainer


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        (["algorithm=td3", "value_bins=51"], ["value_bins"]),
        (["observation=cameras", "encoder.freeze=true", "encoder.lr_scale=0.1"], ["encoder.lr_scale"]),
        (["encoder.features=64"], ["encoder.features"]),
        (["encoder.over_time=mean"], ["encoder.over_time"]),
        (["algorithm=mtsac", "env=gymnasium", "env.id=CartPole-v1", "encoder.arch=impala"], ["encoder.arch"]),
        (
            ["env=gymnasium", "env.id=ALE/Pong-v5", "encoder.freeze=true", 'encoders={"image":"drq"}'],
            ["encoder.freeze"],
        ),
        (["observation=cameras", "frame_stride=4"], ["frame_stride"]),
        (["demos_share=0.25"], ["demos_share"]),
        (["algorithm=drqv2", "encoder.arch=drq"], []),
        (["env=gymnasium", "env.id=ALE/Pong-v5", "encoder.arch=impala"], []),  # it may give pictures
        (["observation=both", 'encoders={"state":"spots:Eye"}', "encoder.freeze=true", "encoder.lr_scale=0.1"], []),
        (["random_steps=1000", "total_steps=1000"], ["random_steps"]),
        (["random_steps=1000", "total_steps=999", "num_envs=7"], []),  # 1,001 are made
        (["algorithm=ppo", "total_steps=2041"], []),  # 2,048 are made
        (["algorithm=ppo", "total_steps=2040"], ["rollout_steps"]),
    ],
)
def test_what_nothing_reads_and_what_is_over_before_its_first_update(fields, names):
    first = "arm-sac" if not any(field.startswith(("random", "algorithm=ppo")) for field in fields) else None
    more = [] if first else ["env=arm", "algorithm=sac"]
    told = read_section(None, first, [*more, *fields]).warnings
    assert [words.partition(":")[0] for words in told] == names


def test_no_preset_is_warned_of():
    assert [name for name in PRESETS if resolve(TrainingSection(preset=name)).warnings_of()] == []


def test_a_rate_that_falls_until_the_end_follows_the_total_and_one_that_is_zero_before_is_warned_of():
    assert resolve(TrainingSection(preset="arm-a2c")).falling_steps == 100_000
    assert read_section(None, "arm-a2c", ["total_steps=5000"]).training.falling_steps == 5000
    told = read_section(None, "arm-a2c", ["learning_rate_steps=4000", "total_steps=5000"]).warnings
    assert [words.partition(":")[0] for words in told] == ["learning_rate_steps"]
    for steps in ("5000", "0", "total", "9000"):
        assert read_section(None, "arm-a2c", [f"learning_rate_steps={steps}", "total_steps=5000"]).warnings == ()
    with refused("algorithm.no-length", field="learning_rate_steps"):
        read_section(None, "arm-a2c", ["learning_rate_steps=always"])
