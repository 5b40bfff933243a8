from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from suites import SPACES, learner_of, state_of

pytest.importorskip("torch")

import torch

from trainer.algorithms.common.cuda_graph import GRAPH, KERNELS, WARM_UP, Updates, choose_launch_mode
from trainer.algorithms.common.graph_check import leaves_same_bits
from trainer.algorithms.common.multitask import inputs_of
from trainer.algorithms.common.sharding import Sample
from trainer.algorithms.mtsac import MTSAC
from trainer.buffers.rows import Batch
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.training.begin import choose_numerics

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
    return Batch(state_of(obs), action, reward, state_of(next_obs), np.zeros(n, np.float32), np.arange(n) % 3)


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


def updates_of(learner, *how):
    """Updates of `learner`: batch → metrics."""
    made = Updates(learner.update_of, learner.device, *how)
    return lambda batch: made.update(inputs_of(Sample(batch, learner.draw(batch, learner.noise)), learner.device))


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_updates_are_those_of_other_ways(kind):
    learners = [learner_of(a_training(**KINDS[kind])) for _ in range(2)]
    recorder = Recorder()
    ways = [updates_of(learners[0]), updates_of(learners[1], GRAPH, recorder)]
    found = [[way(a_batch(seed)) for seed in range(8)] for way in ways]
    assert recorder.replays == 8 - WARM_UP
    assert torch.equal(torch.stack(found[0]), torch.stack(found[1]))  # so results were copied away, too
    nets = [learner.state().tensors for learner in learners]
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_reads_no_number_back(kind):
    """On a device whose tensors have no numbers: what would make the host wait for a GPU fails there."""
    training, meta = a_training(**KINDS[kind]), torch.device("meta")
    learner = learner_of(training, meta)
    measured = learner.update_of(inputs_of(Sample(a_batch(), learner.draw(a_batch(), torch.Generator())), meta))
    assert (measured.shape, measured.device) == ((5,), meta)


def test_a_graph_is_for_those_who_ask_and_have_a_gpu():
    assert choose_launch_mode(lambda: True, GPU, wanted=False) == (KERNELS, None)
    assert choose_launch_mode(lambda: True, CPU, wanted=True) == (KERNELS, None)


@pytest.mark.parametrize("name", ["sac", "drqv2", "ppo", "a2c"])
def test_who_records_no_updates_says_so_where_a_graph_was_asked_for(name):
    algorithm, env = find(ALGORITHMS, name), {"observation": "cameras"} if name == "drqv2" else {}
    training = resolve(TrainingSection(env={"name": "arm", **env}, algorithm=name, cuda_graph=True))
    sentence = f"training.cuda_graph is left out: updates of {name} are not recorded"
    assert algorithm.choose_launch_mode(training, SPACES, GPU, None) == (KERNELS, sentence)
    assert algorithm.choose_launch_mode(training, SPACES, CPU, None) == (KERNELS, None)
    assert algorithm.choose_launch_mode(training.changed(cuda_graph=False), SPACES, GPU, None) == (KERNELS, None)


def test_on_a_cpu_it_is_said_that_a_graph_is_left_out():
    said = []
    for cuda_graph in (False, True):
        choose_numerics(a_training(cuda_graph=cuda_graph), SPACES, CPU, {}, SimpleNamespace(say=said.append))
    assert said == ["training.cuda_graph is left out: this trains on the cpu, and its settings are for a GPU"]


def test_a_graph_that_leaves_other_bits_is_left_out():
    assert leaves_same_bits(MTSAC, a_training(), SPACES, CPU, Recorder())
    assert not leaves_same_bits(MTSAC, a_training(), SPACES, CPU, Recorder(spoil=lambda measured: measured + 1e-6))
    assert choose_launch_mode(lambda: True, GPU, wanted=True) == (GRAPH, None)
    assert choose_launch_mode(lambda: False, GPU, wanted=True) == (
        KERNELS,
        "training.cuda_graph is left out: its updates leave other bits here",
    )


def test_a_graph_that_cannot_be_recorded_is_left_out():
    def refused():
        raise RuntimeError("CUDA error: operation not permitted\nwhen stream is capturing")

    way, sentence = choose_launch_mode(refused, GPU, wanted=True)
    assert way == KERNELS
    assert "(CUDA error: operation not permitted when stream is capturing)" in sentence


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_real_graph_leaves_the_bits_of_single_kernels(kind):
    asked = a_training(cuda_graph=True, **KINDS[kind])
    assert MTSAC.choose_launch_mode(asked, SPACES, GPU, None) == (GRAPH, None)
