"""A replay on the learner's device: what fits into its memory, and into the machine's."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")

import torch
from refused import refused

from trainer.config.section import TrainingSection, resolve
from trainer.errors import ConfigError
from trainer.training import memory
from trainer.training.memory import gpu_parts, host_parts, row_bytes

pytestmark = pytest.mark.trainer


def training_of(**more):
    return resolve(TrainingSection(**{"tasks": ("reach-v3", "push-v3", "door-open-v3"), "buffer_size": 300, **more}))


def test_a_replay_on_a_gpu_counts_there_and_not_in_the_machine():
    host, device = (training_of(replay_on=place, buffer_size=1_000_000) for place in ("host", "device"))
    bytes_of = {
        (place, kind): sum(part.bytes for part in parts)
        for place, training in (("host", host), ("device", device))
        for kind, parts in (("cuda", host_parts(training, "cuda", 500)), ("gpu", gpu_parts(training)))
    }
    row = row_bytes(host)
    assert bytes_of["host", "cuda"] - bytes_of["device", "cuda"] == 500 * row
    # All at once, however many come.
    assert bytes_of["device", "gpu"] - bytes_of["host", "gpu"] == 1_000_000 * row
    assert host_parts(device, "cpu", 500) == host_parts(host, "cpu", 500)


def test_what_does_not_fit_into_the_gpu_is_refused_in_one_sentence():
    training = training_of(replay_on="device", buffer_size=20_000_000)
    lower = "lower training.algorithm.buffer_size to 11,000,000 in a new run, or use a GPU with more memory"
    with refused("memory.gpu-too-small", advice=re.compile(f"^most is for the replay, 20,000,000 rows of .*; {lower}")):
        memory.check(training, "cuda", None, 4 * 10**9)
    memory.check(training.changed(buffer_size=11_000_000), "cuda", None, 4 * 10**9)
    memory.check(training, "cpu", None, None)
    memory.check(training.changed(replay_on="host"), "cuda", None, 4 * 10**9)
    full = memory.shortage(torch.OutOfMemoryError("CUDA out of memory."), training, "cuda")
    assert full.fields["advice"].endswith("in a new run, or use a GPU with more memory (slurm.gpu_type)")
    memory.check(training, "cuda", 4 * 10**9)  # the machine's own memory has to bear none of it
    nets = training_of(critic_hidden=(8192, 8192, 8192))
    with refused("memory.gpu-too-small", advice=re.compile("the critics, .*lower training.network.critic_hidden to ")):
        memory.check(nets, "cuda", None, 10**9)


def test_pictures_stay_in_the_machine():
    training = resolve(
        TrainingSection(env={"name": "arm", "observation": "cameras"}, algorithm="sac", replay_on="device")
    )
    with pytest.raises(ConfigError, match="replay_on device works for states only"):
        memory.check(training, "cpu", None)


def test_what_keeps_no_replay_has_none_to_place():
    with refused("replay.none-kept"):
        resolve(TrainingSection(preset="arm-ppo", replay_on="device"))
