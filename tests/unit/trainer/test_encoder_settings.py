"""What is said of encoders in a config, checked where there is no torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from refused import refused

from trainer.config.network import ARCHES, EncoderSettings, Network, licence_note
from trainer.config.section import TrainingSection, resolve

ROOT = Path(__file__).parents[3]


def of_arm(*, env=None, **encoder):
    env = {"name": "arm", "observation": "clips", **(env or {})}
    return resolve(TrainingSection.model_validate({"preset": "arm-sac", "env": env, "network": {"encoder": encoder}}))


def test_an_encoder_of_each_name_can_be_asked_for():
    for name, arch in ARCHES.items():
        seen = {"observation": "clips" if arch.reads == "clips" else "cameras", "image_size": 64}
        assert of_arm(env=seen, arch=name).network.encoder.arch == name
    assert of_arm(arch="my_package.nets:Mine").network.encoder.arch == "my_package.nets:Mine"
    assert of_arm(arch="r3d18", pretrained=True, weights="r3d_18-b3b3357e.pth").network.encoder.is_frozen


@pytest.mark.parametrize("name", [name for name, arch in ARCHES.items() if arch.weights is None])
def test_an_encoder_of_which_nobody_publishes_weights_says_so(name):
    with refused("weights.none-published", arch=name):
        EncoderSettings(arch=name, pretrained=True)
    assert EncoderSettings(arch=name, pretrained=True, weights="fitted.safetensors").is_frozen


def test_the_config_of_the_page_is_one():
    page = (ROOT / "docs/algorithms.md").read_text().split("## Use pretrained weights")[1]
    example = re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0]
    training = resolve(TrainingSection.model_validate(json.loads(f"{{{example}}}")["training"]))
    assert training.network.encoder.arch == "r3d18"
    assert training.env.observation == "clips"


def test_the_licence_of_published_weights_is_told_where_a_file_is_used():
    assert "CC-BY-NC 4.0: no commercial use" in str(licence_note("timesformer", "w.bin"))
    assert "Kinetics-400" in str(licence_note("r3d18", "w.pth"))
    assert licence_note("r3d18", None) is None
    assert licence_note("nature", "fitted.safetensors") is None
    assert Network().encoder.arch == "auto"
