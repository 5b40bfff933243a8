"""Trainings that see: handed over in mid-clip, with an encoder from a file, evaluated, published, played elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

import safetensors.torch
import torch
from typed_trainings import HANDING_OVER, bits_of, run
from typed_trainings import train as typed

from anchorleg.job import HANDED_OVER
from syncd import store
from trainer.config.network import EncoderSettings, Network
from trainer.envs.spaces import ArraySpec
from trainer.history.read import read_evaluations
from trainer.nets.encoders import timesformer_tiny

pytestmark = pytest.mark.trainer
ARM = {"name": "arm", "goals": "box", "horizon": 12, "cameras": ["front"], "image_size": 16}
CLIPS = {**ARM, "observation": "clips", "frame_stack": 2, "frame_stride": 3}
TRAINING = {
    "preset": "debug",
    "network": {"actor_hidden": [16], "critic_hidden": [16]},
    "num_envs": 3,
    "total_steps": 240,
    "checkpoint_interval": 90,
    "metrics_interval": 60,
    "evaluation_goals": 2,
    "evaluation_unseen_goals": 0,
    "publish_interval": 20,
    "num_workers": 0,
}
OFF = {"batch_size": 8, "buffer_size": 90, "random_steps": 30, "updates_per_step": 0.2}
PPO = {"rollout_steps": 10, "batch_size": 15, "epochs": 2}


def train(folder: Path, *command: str, expected: int = 0, **fields: object) -> str:
    network = {**TRAINING["network"], **fields.pop("network", {})}
    return typed(folder, {**TRAINING, **fields, "network": network}, *command, expected=expected)


def made_weights(path: Path, *, image_size: int = 16, frames: int = 2) -> Path:
    """A file as for a TimeSformer of four layers, of random numbers, of tensors alone."""
    spec = ArraySpec((frames, 3, image_size, image_size), "uint8", 0, 255, frames, 3)
    network = Network(encoder=EncoderSettings(arch="timesformer_tiny"))
    net = timesformer_tiny.Encoder(spec, network, torch.Generator().manual_seed(5))
    safetensors.torch.save_file(net.state_dict(), path)
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"algorithm": "ppo", "env": {**ARM, "observation": "both", "frame_stack": 2, "critic_sees": "state"}, **PPO,
             "network": {"encoder": {"arch": "impala", "features": 16}}}, id="ppo", marks=pytest.mark.long,
        ),
        pytest.param(
            {"algorithm": "drqv2", "env": {**ARM, "observation": "cameras", "randomize_view": True}, **OFF},
            id="drqv2", marks=pytest.mark.long,
        ),
        pytest.param(
            {"algorithm": "sac", "env": CLIPS, **OFF, "network": {"encoder": {"arch": "simple3dcnn", "features": 16}}},
            id="sac",
        ),
    ],
)  # fmt: skip
def test_hand_overs_in_mid_clip_change_no_bit(fields: dict[str, object], tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(whole, num_workers=2, **fields)
    for vector_steps in ("23", "19"):
        train(broken, HANDING_OVER, vector_steps, expected=HANDED_OVER, **fields)
    assert "continuing at step 126 of attempt 1" in train(broken, **fields)
    assert bits_of(broken) == bits_of(whole)


@pytest.mark.long
def test_a_frozen_encoder_from_a_file_is_kept_once_published_once_and_played_elsewhere(tmp_path: Path) -> None:
    weights = made_weights(tmp_path / "tiny.safetensors")
    encoder = {"arch": "timesformer_tiny", "weights": str(weights)}
    fields = {"algorithm": "sac", "env": CLIPS, **OFF, "random_shift": 0, "network": {"encoder": encoder}}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(whole, **fields)
    train(broken, HANDING_OVER, "33", expected=HANDED_OVER, **fields)
    weights.unlink()  # the slot has a copy
    assert "continuing at step 99" in train(broken, **fields)
    assert bits_of(broken) == bits_of(whole)

    slot = broken / "run/slots/0"
    (kept,) = (slot / "weights").iterdir()
    largest = max(file.stat().st_size for file in slot.glob("attempts/*/checkpoints/*/*.safetensors"))
    assert largest < kept.stat().st_size / 20
    (evaluation,) = read_evaluations(slot)
    told = run(broken, "-m", "trainer", "evaluate", "run", "--goals", "2")
    assert f"success {100 * evaluation['mean_success']:.1f} %" in told

    (place,) = store.Shared(broken / "run/shared").slots()
    manifests = [store.read_manifest(place, version) for version in store.versions(place)]
    assert len(manifests) > 2
    assert len({manifest.encoder.sha256 for manifest in manifests}) == 1
    assert all(manifest.blob.bytes < manifest.encoder.bytes / 20 for manifest in manifests)
    assert str(tmp_path) not in manifests[-1].model_dump_json()
    laptop = tmp_path / "laptop"
    shutil.copytree(broken / "run/shared", laptop / "shared")
    shutil.rmtree(broken)
    actors = ("-m", "trainer", "actors", "--shared-dir", "shared", "--num-envs", "2", "--steps", "40")
    assert "done: 40 steps" in run(laptop, *actors)
    assert "episode 0" in run(laptop, "-m", "trainer", "play", "latest", "--shared-dir", "shared", "--episodes", "1")
