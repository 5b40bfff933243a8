"""bfloat16 for an update's products: it rounds them, and nothing that is kept."""

from __future__ import annotations

import numpy as np
import pytest
from suites import learn, learner_of

pytest.importorskip("torch")

import torch
from refused import refused
from test_mtsac import a_batch
from test_updates import KINDS, a_training

from trainer.algorithms.base import Context
from trainer.algorithms.common.off_policy import must_be_had, rounding
from trainer.buffers.experience import Experience
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import differences, identity
from trainer.envs.suite import spaces_of

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")


def learned(kind, precision, updates):
    """(what the updates measured, all tensors) of MTSAC."""
    torch.set_num_threads(1)
    training = a_training(precision=precision, **KINDS[kind])
    learner = learner_of(training)
    with rounding(training.off_policy, CPU):
        measured = [learn(learner, a_batch(96, seed)) for seed in range(updates)]
    return torch.stack(measured), learner.state().tensors


def kinds(tensors):
    return {name: tensor.dtype for name, tensor in tensors.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_rounded_updates_are_near_the_exact_ones_and_leave_single_precision(kind):
    (exact, plain), (rounded, tensors) = (learned(kind, precision, 1) for precision in ("float32", "bf16"))
    assert not torch.equal(exact, rounded)
    # bfloat16 has 8 bits: a few layers of it are off by some per cent.
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.02)
    assert kinds(tensors) == kinds(plain)
    moments = [name for name in tensors if name.endswith("exp_avg") and "critics" in name]
    for name in moments:
        assert float((tensors[name] - plain[name]).norm()) < 0.1 * float(plain[name].norm())


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_other_algorithms_round_theirs_too(name):
    torch.set_num_threads(1)
    found = []
    for precision in ("float32", "bf16"):
        training = a_training(algorithm={"name": name, "batch_size": 12, "precision": precision})
        spaces = spaces_of(training)
        experience = Experience(training, spaces)
        made = find(ALGORITHMS, name)(Context(training, spaces, 3, CPU, experience))
        rng = np.random.default_rng(0)
        seen = rng.standard_normal((2, 30, 39), np.float32)
        rows = {
            "obs.state": seen[0], "next_obs.state": seen[1], "action": rng.uniform(-1, 1, (30, 4)).astype(np.float32),
            "reward": rng.random(30, np.float32), "terminated": np.zeros(30, np.bool_),
        }  # fmt: skip
        experience.add(np.arange(30) % 3, rows)
        found.append((torch.stack([made.update() for _ in range(2)]), made.state().tensors))
    (exact, plain), (rounded, tensors) = found
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.02)
    assert kinds(tensors) == kinds(plain)


def test_it_is_part_of_what_a_run_is_and_float32_is_what_runs_were_before():
    exact, rounded = a_training(), a_training(precision="bf16")
    assert identity(exact) != identity(rounded)
    saved = exact.model_dump(mode="json")
    assert differences(saved, rounded) == ["precision float32 → bf16"]
    del saved["algorithm"]["precision"]
    assert differences(saved, rounded) == ["precision float32 → bf16"]
    assert differences(saved, exact) == []


def test_a_gpu_without_it_is_told_in_one_sentence():
    gpu, rounded = torch.device("cuda"), a_training(precision="bf16").off_policy
    with refused("algorithm.no-bf16"):
        must_be_had(rounded, gpu, lambda: False)
    must_be_had(rounded, gpu, lambda: True)
    must_be_had(rounded, CPU, lambda: False)
    must_be_had(a_training().off_policy, gpu, lambda: False)
