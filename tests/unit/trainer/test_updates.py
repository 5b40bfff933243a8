from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from trainer.algorithms import mtsac
from trainer.algorithms import recorded as updates
from trainer.algorithms.inputs import prepare
from trainer.algorithms.recorded import GRAPH, KERNELS, WARM_UP, Updates, choose, is_same
from trainer.buffers.replay import Batch
from trainer.config import TrainingSection, resolve

pytestmark = pytest.mark.trainer
CPU, GPU = torch.device("cpu"), torch.device("cuda")
KINDS = {
    "plain": {},
    "heads": {"critic_net": "heads", "grad_clip": 1.0},
    "categorical": {"critic_net": "residual", "critic_loss": "categorical", "value_bins": 5},
}


def a_training(**fields):
    values = {
        "tasks": ("reach-v3", "push-v3", "door-open-v3"),
        "actor_hidden": (16,),
        "critic_hidden": (16, 16),
        "batch_size": 12,
        **fields,
    }
    return resolve(TrainingSection(preset="debug", **values))


def a_batch(seed=0, n=12):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.standard_normal((2, n, 39), np.float32)
    action, reward = rng.uniform(-1, 1, (n, 4)).astype(np.float32), rng.random(n, np.float32)
    return Batch(obs, action, reward, next_obs, np.zeros(n, np.float32), np.arange(n) % 3)


class Recorder:
    """A stand-in for a CUDA graph: does nothing at first, and what it was given at each replay."""

    def __init__(self, spoil=lambda measured: measured):
        self.replays = 0
        self.spoil = spoil

    def __call__(self, update):
        measured = torch.full((5,), torch.nan)

        def replay():
            self.replays += 1
            measured.copy_(self.spoil(update()))

        return replay, measured


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_updates_are_those_of_other_ways(kind):
    learners = [mtsac.create(a_training(**KINDS[kind]), CPU) for _ in range(2)]
    recorder = Recorder()
    ways = [Updates(learners[0]), Updates(learners[1], GRAPH, recorder)]
    found = [[way.update(a_batch(seed)) for seed in range(8)] for way in ways]
    assert recorder.replays == 8 - WARM_UP
    assert torch.equal(torch.stack(found[0]), torch.stack(found[1]))  # so results were copied away, too
    nets = [{**mtsac.nets_of(learner), **mtsac.rest_of(learner)} for learner in learners]
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_reads_no_number_back(kind):
    """On a device whose tensors have no numbers: what would make the host wait for a GPU fails there."""
    training, meta = a_training(**KINDS[kind]), torch.device("meta")
    measured = mtsac.learn(mtsac.create(training, meta), prepare(a_batch(), torch.Generator(), meta))
    assert (measured.shape, measured.device) == ((5,), meta)


def test_a_graph_is_for_those_who_ask_and_have_a_gpu():
    assert choose(a_training(), GPU) == (KERNELS, None)
    assert choose(a_training(cuda_graph=True), CPU) == (KERNELS, None)


def test_a_graph_that_leaves_other_bits_is_left_out(monkeypatch):
    assert is_same(a_training(), CPU, Recorder())
    assert not is_same(a_training(), CPU, Recorder(spoil=lambda measured: measured + 1e-6))
    asked = a_training(cuda_graph=True)
    monkeypatch.setattr(updates, "is_same", lambda *_args: True)
    assert choose(asked, GPU) == (GRAPH, None)
    monkeypatch.setattr(updates, "is_same", lambda *_args: False)
    assert choose(asked, GPU) == (KERNELS, "training.cuda_graph is left out: its updates leave other bits here")


def test_a_graph_that_cannot_be_recorded_is_left_out(monkeypatch):
    def is_same(*_args):
        raise RuntimeError("CUDA error: operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(updates, "is_same", is_same)
    way, sentence = choose(a_training(cuda_graph=True), GPU)
    assert way == KERNELS
    assert "(CUDA error: operation not permitted when stream is capturing)" in sentence


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_real_graph_leaves_the_bits_of_single_kernels(kind):
    assert choose(a_training(cuda_graph=True, **KINDS[kind]), GPU) == (GRAPH, None)
