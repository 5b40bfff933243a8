"""What is said of encoders in a config, checked where there is no torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from refused import refused

from trainer.config.network import ARCHES, EncoderSettings, Network, told
from trainer.config.read import sentences
from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training

ROOT = Path(__file__).parents[3]


def of_arm(*, env=None, **encoder):
    env = {"name": "arm", "observation": "clips", **(env or {})}
    return resolve(TrainingSection.model_validate({"preset": "arm-sac", "env": env, "network": {"encoder": encoder}}))


def refusal(**values):
    """The place of the one error under `network.encoder`, and the error."""
    with pytest.raises(ValidationError) as caught:
        of_arm(**values)
    ((place, error),) = sentences(caught.value, Training)
    return place.removeprefix("network.encoder."), error


def test_an_encoder_of_each_name_can_be_asked_for():
    for name, arch in ARCHES.items():
        seen = {"observation": "clips" if arch.reads == "clips" else "cameras", "image_size": 64}
        assert of_arm(env=seen, arch=name).network.encoder.arch == name
    assert of_arm(arch="my_package.nets:Mine").network.encoder.arch == "my_package.nets:Mine"


def test_a_name_that_there_is_not_is_refused_with_the_nearest():
    place, error = refusal(arch="r3d_18")
    assert (place, error.id, error.fields["name"]) == ("arch", "plugin.unknown", "r3d_18")
    assert "r3d18" in error.fields["near"]
    with refused("plugin.unknown", name="natur"):
        resolve(TrainingSection.model_validate({"network": {"encoders": {"image": "natur"}}}))


def test_pretrained_without_a_file_says_which_and_how_it_gets_to_a_cluster():
    place, error = refusal(arch="r3d18", pretrained=True)
    assert (place, error.id) == ("pretrained", "weights.where")
    assert (error.fields["file"], error.fields["megabytes"]) == ("r3d_18-b3b3357e.pth", 127)
    assert refusal(arch="timesformer", pretrained=True)[1].fields["megabytes"] == 486
    assert of_arm(arch="r3d18", pretrained=True, weights="r3d_18-b3b3357e.pth").network.encoder.is_frozen


@pytest.mark.parametrize("name", [name for name, arch in ARCHES.items() if arch.weights is None])
def test_an_encoder_of_which_nobody_publishes_weights_says_so(name):
    with refused("weights.none-published", arch=name):
        EncoderSettings(arch=name, pretrained=True)
    assert EncoderSettings(arch=name, pretrained=True, weights="fitted.safetensors").is_frozen


def test_weights_without_a_name_are_refused():
    place, error = refusal(weights="w.pth")
    assert (place, error.id) == ("arch", "encoder.weights-without-arch")


def test_features_that_cannot_be_chosen_are_refused():
    place, error = refusal(arch="r3d18", features=100)
    assert (place, error.id, error.fields["features"]) == ("features", "encoder.fixed-features", 512)
    assert of_arm(arch="simple3dcnn", features=100).network.encoder.features == 100


@pytest.mark.parametrize(
    ("env", "arch", "wrong", "fields"),
    [
        ({}, "nature", "encoder.other-kind", {"seen": "clips"}),
        ({"observation": "cameras"}, "simple3dcnn", "encoder.other-kind", {"seen": "pictures", "way": '"clips"'}),
        ({"observation": "cameras", "image_size": 32}, "nature", "encoder.picture-too-small", {"least": 36}),
        ({"observation": "cameras", "image_size": 32}, "auto", "encoder.picture-too-small", {"arch": "nature"}),
        ({"image_size": 84}, "timesformer", "encoder.squares", {"square": 16, "lower": 80}),
        ({"image_size": 84}, "timesformer_tiny", "encoder.squares", {"lower": 80, "upper": 88}),
    ],
)
def test_what_an_encoder_cannot_read_is_refused_before_anything_is_made(env, arch, wrong, fields):
    place, error = refusal(env=env, arch=arch)
    assert (place, error.id) == ("arch", wrong)
    assert fields.items() <= error.fields.items()


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
