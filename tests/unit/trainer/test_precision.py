"""bfloat16 for an update's products: it rounds them, and nothing that is kept."""

from __future__ import annotations

import pytest
from suites import learn, learner_of

pytest.importorskip("torch")

import torch
from refused import refused
from test_mtsac import a_batch
from test_updates import KINDS, a_training

from trainer.algorithms.common.off_policy import must_be_had, rounding

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


def test_a_gpu_without_it_is_told_in_one_sentence():
    gpu, rounded = torch.device("cuda"), a_training(precision="bf16").off_policy
    with refused("algorithm.no-bf16"):
        must_be_had(rounded, gpu, lambda: False)
    must_be_had(rounded, gpu, lambda: True)
    must_be_had(rounded, CPU, lambda: False)
    must_be_had(a_training().off_policy, gpu, lambda: False)
