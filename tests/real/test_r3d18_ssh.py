"""A file of torchvision's names and size, from the training's node to a laptop: R3D-18 goes all the way, once."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from sshd import Sshd
from typed_trainings import HANDING_OVER, run
from typed_trainings import train as typed
from watching import settled

pytest.importorskip("torch")

import safetensors
import torch
from slot_digest import slot_digest

from anchorleg.job import HANDED_OVER
from syncd import store
from trainer.sharing.policies import load

pytestmark = [pytest.mark.trainer, pytest.mark.long]
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/r3d18_torchvision.py"
NUMBERS = 33_166_272
TRAINING: dict[str, Any] = {
    "preset": "debug",
    "algorithm": "sac",
    "env": {
        "name": "arm", "observation": "clips", "goals": "box", "horizon": 8, "cameras": ["front"], "image_size": 32,
        "frame_stack": 4, "frame_stride": 2,
    },
    "network": {"actor_hidden": [16], "critic_hidden": [16], "trunk": 16},
    "num_envs": 2,
    "batch_size": 8,
    "buffer_size": 60,
    "random_steps": 20,
    "updates_per_step": 0.5,
    "random_shift": 0,
    "total_steps": 80,
    "checkpoint_interval": 30,
    "metrics_interval": 20,
    "evaluation_goals": 1,
    "evaluation_unseen_goals": 0,
    "publish_interval": 5,
    "num_workers": 0,
}  # fmt: skip


def made_file(path: Path) -> Path:
    """As torchvision's: its names and shapes, drawn numbers, its head, pickled tensors."""
    with safetensors.safe_open(GOLDEN.with_suffix(".safetensors"), "pt") as file:
        shapes = {name: tuple(shape) for name, shape in json.loads(file.metadata()["shapes"]).items()}
    torch.save(runpy.run_path(str(GOLDEN))["weights"](shapes), path)
    return path


def train(folder: Path, weights: Path, *command: str, expected: int = 0) -> str:
    """With the encoder that is in `weights`, or in the slot already."""
    encoder = {"arch": "r3d18", "weights": str(weights)}
    return typed(
        folder, {**TRAINING, "network": {**TRAINING["network"], "encoder": encoder}}, *command, expected=expected
    )


def test_r3d18_is_loaded_trained_with_handed_over_published_and_played_on_a_laptop(sshd: Sshd, tmp_path: Path) -> None:
    weights = made_file(tmp_path / "r3d_18-made.pth")
    whole, broken, mirror = tmp_path / "whole", tmp_path / "broken", tmp_path / "mirror"
    env = settled(sshd.new_client("anna"), sshd, broken / "run/shared")
    train(whole, weights)
    train(broken, weights, HANDING_OVER, "24", expected=HANDED_OVER)
    weights.unlink()  # the slot has a copy
    first_pull = json.loads(run(mirror, "-m", "syncd", "pull", "", ".", "--json", **env))
    (place,) = store.Shared(mirror).slots()
    first = store.read_manifest(place, store.versions(place)[-1])
    assert first.encoder is not None

    assert "continuing at step 48" in train(broken, weights)
    second_pull = json.loads(run(mirror, "-m", "syncd", "pull", "", ".", "--json", **env))

    assert slot_digest(broken / "run/slots/0") == slot_digest(whole / "run/slots/0")
    newest = store.read_manifest(place, store.versions(place)[-1])
    assert newest.version > first.version
    assert newest.encoder == first.encoder
    assert first.encoder.raw_bytes >= store.BYTES_A_NUMBER * NUMBERS
    assert first_pull["bytes"] > first.encoder.bytes
    assert 0 < second_pull["bytes"] < first.encoder.bytes / 20, "it crossed once"
    assert newest.blob.bytes < 100_000
    shutil.rmtree(broken)
    assert load(place, newest).check_golden(newest.golden) < 1e-5
    actors = ("-m", "trainer", "actors", "--shared-dir", ".", "--num-envs", "2", "--steps", "16")
    assert "done: 16 steps" in run(mirror, *actors)
    assert "episode 0" in run(mirror, "-m", "trainer", "play", "latest", "--shared-dir", ".", "--episodes", "1")
