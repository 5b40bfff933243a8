"""R3D-18 and TimeSformer are upstream's: the same names, the same features, the same operations."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")

import safetensors
import torch
from needs import need_package
from refused import refused
from torch.utils.flop_counter import FlopCounterMode

from trainer.config.find import ENCODERS, find
from trainer.config.network import EncoderSettings, Network
from trainer.envs.spaces import ArraySpec
from trainer.nets import weights
from trainer.nets.encoders import timesformer
from trainer.nets.encoders.base import encoder_for

pytestmark = pytest.mark.trainer
GOLDEN = Path(__file__).parents[2] / "golden/r3d18_torchvision.py"
#: A made file: the tiny net at its smallest squares, as Hugging Face describes it.
TINY = {
    "hidden_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "patch_size": 8,
    "image_size": 32,
    "num_frames": 4,
}


def clip_spec(frames, height, width, cameras=1):
    return ArraySpec((frames, 3 * cameras, height, width), "uint8", 0, 255, frames)


def made(name, spec, seed=0):
    return find(ENCODERS, name)(spec, Network(), None if seed is None else torch.Generator().manual_seed(seed))


def test_a_made_file_of_torchvisions_names_gives_torchvisions_features(tmp_path):
    script, path = runpy.run_path(str(GOLDEN)), tmp_path / "r3d_18-made.pth"
    with safetensors.safe_open(GOLDEN.with_suffix(".safetensors"), "pt") as file:
        wanted, shapes = file.get_tensor("features"), json.loads(file.metadata()["shapes"])
    torch.save(script["weights"]({name: tuple(shape) for name, shape in shapes.items()}), path)
    network = Network(encoder=EncoderSettings(arch="r3d18", weights=str(path)))
    frames, _, height, width = script["CLIPS"][1:]
    encoder = encoder_for("image", clip_spec(frames, height, width), network, torch.Generator().manual_seed(0))
    assert set(encoder.state_dict()) == {name for name in shapes if not name.startswith("fc.")}
    with torch.no_grad():
        features = encoder.train()(script["clips"]())
    # No difference at all in one process (the script insists on it); another processor rounds otherwise.
    assert torch.allclose(features, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """A made TimeSformer of Hugging Face's, and the folder where it lies in shards."""
    need_package("transformers")
    from transformers import TimesformerConfig, TimesformerForVideoClassification

    whole = TimesformerForVideoClassification(TimesformerConfig(**TINY)).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in whole.parameters():
        parameter.data.normal_(0, 0.05, generator=generator)
    folder = tmp_path_factory.mktemp("timesformer")
    whole.save_pretrained(folder, max_shard_size="3MB")
    return whole.timesformer, folder


@pytest.mark.long
def test_a_made_folder_of_shards_gives_hugging_faces_features(upstream):
    model, folder = upstream
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    encoder = made("timesformer_tiny", clip_spec(4, 32, 32))
    weights.load(encoder, folder, "timesformer_tiny")
    seen = torch.randint(0, 256, (2, 4, 3, 32, 32), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    with torch.no_grad():
        theirs = model((seen.float() / 255 - timesformer.MEAN) / timesformer.DEVIATION).last_hidden_state[:, 0]
        ours = encoder(seen)
    assert float((ours - theirs).abs().max() / theirs.abs().max()) < 1e-5


def test_a_file_of_another_size_is_brought_to_the_one_that_is_seen(upstream):
    _, folder = upstream
    with torch.no_grad():
        same, larger = made("timesformer_tiny", clip_spec(4, 32, 32)), made("timesformer_tiny", clip_spec(7, 64, 48))
        for encoder in (same, larger):
            weights.load(encoder, folder, "timesformer_tiny")
        before, after = same.embeddings, larger.embeddings
        assert torch.equal(before.position_embeddings[:, :1], after.position_embeddings[:, :1])
        assert after.position_embeddings.shape == (1, 1 + 8 * 6, 192)
        assert after.time_embeddings.shape == (1, 7, 192)
        # A field that is flat stays so, and one that rises to the right and with time rises still.
        ramp = torch.linspace(0, 1, 4).view(1, 4, 1).expand(1, 4, 192)
        places = torch.cat([torch.zeros(1, 1, 192), ramp.repeat(1, 4, 1)], 1)
        fitted = larger.fitted({"embeddings.position_embeddings": places, "embeddings.time_embeddings": ramp})
    rows = fitted["embeddings.position_embeddings"][0, 1:, 0].view(8, 6)
    assert torch.allclose(rows, rows[:1].expand(8, 6), atol=1e-6)
    assert bool((rows[0].diff() > 0).all())
    assert bool((fitted["embeddings.time_embeddings"][0, :, 0].diff() >= 0).all())
    assert torch.equal(larger(seen := torch.zeros(1, 7, 3, 64, 48, dtype=torch.uint8)), larger(seen))


def test_a_description_of_another_net_is_refused_though_every_shape_fits(upstream, tmp_path):
    _, folder = upstream
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "num_attention_heads": 6}))
    with refused("weights.other-description", name="num_attention_heads", found=6, wanted=3):
        weights.load(made("timesformer_tiny", clip_spec(4, 32, 32)), tmp_path, "timesformer_tiny")


@pytest.mark.parametrize(
    ("name", "spec", "published"),
    [
        # torchvision's R3D_18_Weights says 40.697, of which 0.0002 are the head's.
        ("r3d18", clip_spec(16, 112, 112), 40.697),
        # open-mmlab/mmaction2, configs/recognition/timesformer/README.md.
        ("timesformer", clip_spec(8, 224, 224), 196),
    ],
)
def test_it_takes_as_many_operations_as_is_published(name, spec, published):
    encoder, counter = made(name, spec, None), FlopCounterMode(display=False)
    with counter:
        encoder(torch.empty(1, *spec.shape, device="meta"))
    assert counter.get_total_flops() / 2e9 == pytest.approx(published, rel=0.01)
