"""What is said of encoders in a config, checked where there is no torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from trainer.config.network import ARCHES, EncoderSettings, Network, told
from trainer.config.read import sentences
from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training

ROOT = Path(__file__).parents[3]


def of_arm(*, env=None, **encoder):
    env = {"name": "arm", "observation": "clips", **(env or {})}
    return resolve(TrainingSection.model_validate({"preset": "arm-sac", "env": env, "network": {"encoder": encoder}}))


def refused(**values):
    """The one sentence, with its place."""
    with pytest.raises(ValidationError) as caught:
        of_arm(**values)
    ((place, words),) = sentences(caught.value, Training)
    return place, str(words)


def test_an_encoder_of_each_name_can_be_asked_for():
    for name, arch in ARCHES.items():
        seen = {"observation": "clips" if arch.reads == "clips" else "cameras", "image_size": 64}
        assert of_arm(env=seen, arch=name).network.encoder.arch == name
    assert of_arm(arch="my_package.nets:Mine").network.encoder.arch == "my_package.nets:Mine"


def test_a_name_that_there_is_not_is_refused_with_the_nearest():
    place, words = refused(arch="r3d_18")
    assert place == "network.encoder.arch"
    assert "there is no encoder 'r3d_18'" in words
    assert "r3d18" in words
    with pytest.raises(ValidationError, match="there is no encoder 'natur'"):
        resolve(TrainingSection.model_validate({"network": {"encoders": {"image": "natur"}}}))


def test_pretrained_without_a_file_says_which_and_how_it_gets_to_a_cluster():
    place, words = refused(arch="r3d18", pretrained=True)
    assert place == "network.encoder.pretrained"
    for part in (
        "fetch r3d_18-b3b3357e.pth (127 MB) on your laptop from https://download.pytorch.org/models/",
        "rsync r3d_18-b3b3357e.pth LOGIN_NODE:weights/",
        "network.encoder.weights",
    ):
        assert part in words
    assert "fetch pytorch_model.bin (486 MB)" in refused(arch="timesformer", pretrained=True)[1]
    assert of_arm(arch="r3d18", pretrained=True, weights="r3d_18-b3b3357e.pth").network.encoder.is_frozen


@pytest.mark.parametrize("name", [name for name, arch in ARCHES.items() if arch.weights is None])
def test_an_encoder_of_which_nobody_publishes_weights_says_so(name):
    with pytest.raises(ValidationError, match=f"nobody publishes weights of {name} .*trainer demos fit"):
        EncoderSettings(arch=name, pretrained=True)
    assert EncoderSettings(arch=name, pretrained=True, weights="fitted.safetensors").is_frozen


def test_weights_without_a_name_are_refused():
    assert refused(weights="w.pth") == (
        "network.encoder.arch",
        "name the encoder that the file of weights is of",
    )


def test_features_that_cannot_be_chosen_are_refused():
    place, words = refused(arch="r3d18", features=100)
    assert place == "network.encoder.features"
    assert "512 of a camera" in words
    assert of_arm(arch="simple3dcnn", features=100).network.encoder.features == 100


@pytest.mark.parametrize(
    ("env", "arch", "words"),
    [
        (
            {},
            "nature",
            r'nature reads pictures, and these are clips: set env.observation to "cameras" or "both" \("state" where',
        ),
        (
            {"observation": "cameras"},
            "simple3dcnn",
            'set env.observation to "clips", or network.encoder.arch to nature',
        ),
        ({"observation": "cameras", "image_size": 32}, "nature", "36 by 36 pixels or more, and these have 32 by 32"),
        ({"observation": "cameras", "image_size": 32}, "auto", "nature reads pictures of 36 by 36 pixels or more"),
        (
            {"image_size": 84},
            "timesformer",
            "squares of 16 by 16 pixels, and 84 by 84 cannot be: set env.image_size to 80",
        ),
        ({"image_size": 84}, "timesformer_tiny", "squares of 8 by 8 pixels, and 84 by 84 cannot be: .* to 80 or 88"),
    ],
)
def test_what_an_encoder_cannot_read_is_refused_before_anything_is_made(env, arch, words):
    place, said = refused(env=env, arch=arch)
    assert place == "network.encoder.arch"
    assert re.search(words, said)


def test_the_config_of_the_page_is_one():
    (example,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/encoders.md").read_text(), re.DOTALL)
    training = resolve(TrainingSection.model_validate(json.loads(f"{{{example}}}")["training"]))
    assert training.network.encoder.arch == "r3d18"
    assert training.env.observation == "clips"


def test_where_nothing_is_seen_nothing_is_refused():
    network = {"encoder": {"arch": "r3d18"}}
    assert resolve(TrainingSection.model_validate({"network": network})).network.encoder.arch == "r3d18"


def test_the_licence_of_published_weights_is_told_where_a_file_is_used():
    assert "CC-BY-NC 4.0: not for commercial use" in str(told("timesformer", "w.bin"))
    assert "Kinetics-400" in str(told("r3d18", "w.pth"))
    assert told("r3d18", None) is None
    assert told("nature", "fitted.safetensors") is None
    assert Network().encoder.arch == "auto"
