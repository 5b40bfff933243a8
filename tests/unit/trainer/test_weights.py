"""Files of weights: what is read, what is refused and how, and what is kept."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

import safetensors
import torch
from leftovers import unfinished
from refused import refused
from safetensors.torch import save_file

from trainer.config.network import EncoderSettings, Network
from trainer.envs.spaces import ArraySpec
from trainer.nets import weights
from trainer.nets.encoders import drq
from trainer.nets.encoders.base import encoder_for

pytestmark = pytest.mark.trainer
PICTURE = ArraySpec((3, 32, 32), "uint8", 0, 255)


def an_encoder(seed=0):
    return drq.Encoder(PICTURE, Network(), torch.Generator().manual_seed(seed))


def numbers(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def in_shards(folder, tensors, *, without=None):
    """As Hugging Face lays them: half of the tensors in each of two files."""
    names = sorted(tensors)
    files = {name: f"model-0000{1 + place % 2}-of-00002.safetensors" for place, name in enumerate(names)}
    for file in set(files.values()) - {without}:
        save_file({name: tensors[name] for name in names if files[name] == file}, folder / file)
    return folder


def laid(kind, folder, tensors):
    """The same tensors in each of the ways that are read."""
    if kind == "safetensors":
        save_file(tensors, folder / "w.safetensors")
        return folder / "w.safetensors"
    if kind == "shards":
        return in_shards(folder, tensors)
    if kind == "folder":
        save_file(tensors, folder / "model.safetensors")
        return folder
    torch.save(tensors, folder / "w.pth", _use_new_zipfile_serialization=kind == "pth")
    return folder / "w.pth"


@pytest.mark.parametrize("kind", ["safetensors", "shards", "folder", "pth", "pth of before 2020"])
def test_a_file_of_every_kind_enters_the_net_and_is_kept_as_one_that_has_the_same_numbers(kind, tmp_path):
    wanted = numbers(an_encoder(1))
    (tmp_path / "in").mkdir()
    path = laid(kind, tmp_path / "in", wanted)
    network = Network(encoder=EncoderSettings(arch="drq", weights=str(path)))
    encoder = encoder_for("image", PICTURE, network, torch.Generator().manual_seed(0))
    assert all(torch.equal(wanted[name], tensor) for name, tensor in encoder.state_dict().items())
    kept = weights.kept_copy(path, tmp_path / "slot/weights")
    assert kept == weights.place_of(tmp_path / "slot/weights", weights.sha256_of(path))
    assert all(torch.equal(wanted[name], tensor) for name, tensor in weights.read(kept).items())
    before = kept.stat().st_mtime_ns
    assert weights.kept_copy(path, tmp_path / "slot/weights") == kept
    assert kept.stat().st_mtime_ns == before, "it was there"
    assert list(kept.parent.iterdir()) == [kept]


def test_what_a_job_that_was_killed_at_its_copy_left_goes(tmp_path):
    path = laid("safetensors", tmp_path, numbers(an_encoder(1)))
    kept = weights.kept_copy(path, tmp_path / "slot/weights")
    for again in (False, True):
        dead, living = unfinished(kept.parent, kept.name)
        if again:
            kept.unlink()
        assert weights.kept_copy(path, tmp_path / "slot/weights") == kept
        assert (dead.exists(), living.exists()) == (False, True)


def test_no_file_is_read_for_shapes_alone_or_for_an_observation_that_another_net_reads(tmp_path):
    network = Network(encoder=EncoderSettings(arch="drq", weights=str(tmp_path / "none.pth")), encoders={"x": "nature"})
    assert encoder_for("image", PICTURE, network, None) is not None
    assert encoder_for("x", ArraySpec((3, 64, 64), "uint8", 0, 255), network, torch.Generator()) is not None
    with refused("weights.no-such-file", path=tmp_path / "none.pth"):
        encoder_for("image", PICTURE, network, torch.Generator())


def test_halves_are_read_as_float32(tmp_path):
    half = {name: tensor.half() for name, tensor in numbers(an_encoder(1)).items()}
    save_file(half, tmp_path / "w.safetensors")
    encoder = an_encoder()
    weights.load(encoder, tmp_path / "w.safetensors", "drq")
    assert {tensor.dtype for tensor in encoder.state_dict().values()} == {torch.float32}
    assert torch.equal(encoder.convs[0].weight, half["convs.0.weight"].float())


class _Code:
    """What a pickle runs when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


class _Command(_Code):
    """As above, by a module that torch blocks in other words."""

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def saved(folder, tensors):
    save_file(tensors, folder / "w.safetensors")
    return folder / "w.safetensors"


def torched(folder, value):
    torch.save(value, folder / "w.pth")
    return folder / "w.pth"


def written(folder, name, data=b"not weights at all" * 40):
    (folder / name).write_bytes(data)
    return folder / name


def pipe(path):
    os.mkfifo(path)
    return path


def endless(folder):
    (folder / "w.pth").symlink_to("/dev/zero")
    return folder / "w.pth"


SECOND, BIAS = "model-00002-of-00002.safetensors", "convs.2.bias"
#: What is bad of it: (makes it in a folder, from a net's own tensors; what it is refused by).
BAD = {
    "missing": (lambda at, own: at / "nowhere.pth", "weights.no-such-file"),
    "too few": (lambda at, own: saved(at, {k: v for k, v in own.items() if k != BIAS}), "weights.tensor-missing"),
    "too many": (lambda at, own: saved(at, {**own, "gru.bias": torch.zeros(2)}), "weights.tensor-unknown"),
    "another": (lambda at, own: saved(at, {"stem.0.weight": torch.zeros(2)}), "weights.tensor-missing"),
    "shape": (
        lambda at, own: saved(at, {**own, "convs.2.weight": own["convs.2.weight"][:, :3].contiguous()}),
        "weights.tensor-shape",
    ),
    "not finite": (lambda at, own: saved(at, {**own, BIAS: own[BIAS] * float("nan")}), "weights.not-finite"),
    "cut": (lambda at, own: cut(saved(at, own)), "weights.unreadable"),
    "cut pth": (lambda at, own: cut(torched(at, own)), "weights.unreadable"),
    "garbage": (lambda at, own: written(at, "w.pth"), "weights.unreadable"),
    "code": (lambda at, own: torched(at, _Code(at / "it-ran")), "weights.holds-code"),
    "command": (lambda at, own: torched(at, _Command(at / "it-ran")), "weights.holds-code"),
    "nested": (lambda at, own: torched(at, {"state_dict": own}), "weights.no-tensors"),
    "kind": (lambda at, own: written(at, "w.onnx"), "weights.other-suffix"),
    "empty folder": (lambda at, own: at, "weights.no-shards"),
    "lacking": (lambda at, own: in_shards(at, own, without=SECOND), "weights.tensor-missing"),
    "zeros": (lambda at, own: endless(at), "weights.not-regular"),
    "pipe": (lambda at, own: pipe(at / "w.safetensors"), "weights.not-regular"),
    "whole numbers": (lambda at, own: saved(at, {**own, BIAS: own[BIAS].to(torch.int32)}), "weights.tensor-type"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_cannot_be_used_is_refused_and_the_net_stays_as_it_was(case, tmp_path):
    make, why = BAD[case]
    path = make(tmp_path, numbers(an_encoder(1)))
    encoder = an_encoder()
    before = numbers(encoder)
    with refused(why) as caught:
        weights.load(encoder, path, "drq")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "it-ran").exists()
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())


def test_a_kept_copy_whose_numbers_changed_is_not_used(tmp_path):
    path = tmp_path / "w.pth"
    torch.save(numbers(an_encoder()), path)
    kept = weights.kept_copy(path, tmp_path / "weights")
    with safetensors.safe_open(kept, "pt") as file:
        assert file.metadata()["source_sha256"] == weights.sha256_of(path) == kept.stem
    data = bytearray(kept.read_bytes())
    data[-2] ^= 1
    kept.write_bytes(data)
    with refused("weights.copy-damaged"):
        weights.load(an_encoder(), kept, "drq")
