"""Files of weights: what is read, what is refused and how, and what is kept."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

import safetensors
import torch
from leftovers import unfinished
from safetensors.torch import save_file

from trainer.config.network import EncoderSettings, Network
from trainer.envs.spaces import ArraySpec
from trainer.errors import ConfigError
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
    """As Hugging Face lays them: an index, and half of the tensors in each of two files."""
    names = sorted(tensors)
    files = {name: f"model-0000{1 + place % 2}-of-00002.safetensors" for place, name in enumerate(names)}
    for file in set(files.values()) - {without}:
        save_file({name: tensors[name] for name in names if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
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
    with pytest.raises(ConfigError, match=r"there is no file of weights .*none\.pth"):
        encoder_for("image", PICTURE, network, torch.Generator())


def test_halves_are_read_as_float32(tmp_path):
    half = {name: tensor.half() for name, tensor in numbers(an_encoder(1)).items()}
    save_file(half, tmp_path / "w.safetensors")
    encoder = an_encoder()
    weights.load(encoder, tmp_path / "w.safetensors", "drq")
    assert {tensor.dtype for tensor in encoder.state_dict().values()} == {torch.float32}
    assert torch.equal(encoder.convs[0].weight, half["convs.0.weight"].float())


def test_the_sum_is_that_of_the_file_and_of_a_folders_shards_in_their_order(tmp_path):
    folder = in_shards(tmp_path, numbers(an_encoder()))
    shards = [(folder / f"model-0000{number}-of-00002.safetensors").read_bytes() for number in (1, 2)]
    assert weights.sha256_of(folder) == hashlib.sha256(shards[0] + shards[1]).hexdigest()
    one = folder / "model-00001-of-00002.safetensors"
    assert weights.sha256_of(one) == hashlib.sha256(shards[0]).hexdigest()


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


def another(tensors, **changes):
    return {name: tensor for name, tensor in {**tensors, **changes}.items() if tensor is not None}


def bad_files(folder):
    """Name → (path, what the sentence says)."""
    own = numbers(an_encoder(1))

    def saved(name, tensors):
        save_file(tensors, folder / f"{name}.safetensors")
        return folder / f"{name}.safetensors"

    def torched(name, value):
        torch.save(value, folder / f"{name}.pth")
        return folder / f"{name}.pth"

    def folder_of(name):
        (folder / name).mkdir()
        return folder / name

    (folder / "garbage.pth").write_bytes(b"not weights at all" * 40)
    (folder / "empty.pth").write_bytes(b"")
    (folder / "w.onnx").write_bytes(b"x")
    outside = folder_of("outside")
    index = {"weight_map": {"convs.0.weight": "../secret.safetensors"}}
    (outside / "model.safetensors.index.json").write_text(json.dumps(index))
    broken = folder_of("broken")
    (broken / "model.safetensors.index.json").write_text("{")
    lacking = in_shards(folder_of("lacking"), own, without="model-00002-of-00002.safetensors")
    nan = {**own, "convs.2.bias": torch.full_like(own["convs.2.bias"], float("nan"))}
    beyond = {**own, "convs.2.bias": torch.full_like(own["convs.2.bias"], 1e300, dtype=torch.float64)}
    pipe = folder / "pipe.safetensors"
    os.mkfifo(pipe)
    device = folder / "device.pth"
    device.symlink_to("/dev/zero")
    piped = in_shards(folder_of("piped"), own)
    (piped / "model-00002-of-00002.safetensors").unlink()
    os.mkfifo(piped / "model-00002-of-00002.safetensors")
    indexed = folder_of("indexed")
    os.mkfifo(indexed / "model.safetensors.index.json")
    counts = {**own, "convs.2.bias": own["convs.2.bias"].to(torch.int32)}
    turned = {**own, "convs.2.weight": own["convs.2.weight"][:, :3].contiguous()}
    return {
        "missing": (folder / "nowhere.pth", "there is no file of weights .*nowhere.pth"),
        "too few": (
            saved("few", another(own, **{"convs.2.bias": None})),
            "another net than drq: it lacks convs.2.bias;",
        ),
        "too many": (saved("many", {**own, "gru.bias": torch.zeros(2)}), "it has gru.bias, which drq has not;"),
        "another": (
            saved("another", {"stem.0.weight": torch.zeros(2)}),
            "it lacks convs.0.weight and it has stem.0.weight, which drq has not; give a file of drq",
        ),
        "shape": (saved("shape", turned), r"convs.2.weight has the shape \(32, 3, 3, 3\), and here \(32, 32, 3, 3\)"),
        "not finite": (saved("nan", nan), "convs.2.bias has numbers that are not finite"),
        "beyond": (saved("beyond", beyond), "convs.2.bias has numbers that are not finite in single precision"),
        "cut": (cut(saved("cut", own)), "cannot be read as weights .* it is damaged or something else"),
        "cut pth": (cut(torched("cut", own)), "cannot be read as weights .* it is damaged or something else"),
        "garbage": (folder / "garbage.pth", r"cannot be read as weights \(torch finds no tensors in it\)"),
        "empty": (folder / "empty.pth", "cannot be read as weights"),
        "code": (torched("code", _Code(folder / "it-ran")), "could run code that came with it: nothing of it was read"),
        "command": (torched("command", _Command(folder / "it-ran")), "could run code that came with it"),
        "nested": (torched("nested", {"state_dict": own}), "holds no tensors by their names"),
        "no names": (torched("list", list(own.values())), "holds no tensors by their names"),
        "kind": (folder / "w.onnx", "is no file of weights by its name"),
        "empty folder": (folder_of("nothing"), "has no model.safetensors, and no shards"),
        "lacking": (lacking, "lacks model-00002-of-00002.safetensors, which its index names"),
        "outside": (outside, "is no index of shards"),
        "zeros": (device, "is no regular file"),
        "the device": (Path("/dev/zero"), "is no regular file"),
        "pipe": (pipe, "is no regular file"),
        "a shard's pipe": (piped, "is no regular file"),
        "an index's pipe": (indexed, "is no regular file"),
        "whole numbers": (saved("whole", counts), "convs.2.bias is of torch.int32, and here of torch.float32"),
        "yes and no": (
            torched("flags", {**own, "convs.2.bias": own["convs.2.bias"] > 0}),
            "convs.2.bias is of torch.bool, and here of torch.float32",
        ),
        "broken": (broken, "model.safetensors.index.json cannot be read"),
    }


CASES = (
    "missing", "too few", "too many", "another", "shape", "not finite", "beyond", "cut", "cut pth", "garbage", "empty",
    "code", "command",
    "nested", "no names", "kind", "empty folder", "lacking", "outside", "broken", "zeros", "the device", "pipe",
    "a shard's pipe", "an index's pipe", "whole numbers", "yes and no",
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence_and_the_net_stays_as_it_was(case, tmp_path):
    files = bad_files(tmp_path)
    assert set(files) == set(CASES)
    path, words = files[case]
    encoder = an_encoder()
    before = numbers(encoder)
    with pytest.raises(ConfigError, match=words) as refused:
        weights.load(encoder, path, "drq")
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    assert not (tmp_path / "it-ran").exists()
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())


def test_a_file_larger_than_any_net_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "w.safetensors"
    save_file(numbers(an_encoder()), path)
    monkeypatch.setattr(weights, "MOST_BYTES", 1000)
    with pytest.raises(ConfigError, match="more than any net that is read here"):
        weights.read(path)


def test_a_kept_copy_whose_numbers_changed_is_not_used(tmp_path):
    path = tmp_path / "w.pth"
    torch.save(numbers(an_encoder()), path)
    kept = weights.kept_copy(path, tmp_path / "weights")
    with safetensors.safe_open(kept, "pt") as file:
        assert file.metadata()["source_sha256"] == weights.sha256_of(path) == kept.stem
    data = bytearray(kept.read_bytes())
    data[-2] ^= 1
    kept.write_bytes(data)
    with pytest.raises(ConfigError, match="is damaged: its numbers are not those that were written"):
        weights.load(an_encoder(), kept, "drq")
