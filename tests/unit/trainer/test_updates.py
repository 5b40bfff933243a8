from __future__ import annotations

import pytest
from suites import SPACES

pytest.importorskip("torch")

import torch

from trainer.algorithms.common.cuda_graph import ENGINE, GRAPH, KERNELS
from trainer.algorithms.common.graph_check import choose_recorded
from trainer.algorithms.mtsac import MTSAC
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve

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


@pytest.mark.parametrize("name", ["sac", "drqv2", "ppo", "a2c"])
def test_who_records_no_updates_says_so_where_a_graph_was_asked_for(name):
    algorithm, env = find(ALGORITHMS, name), {"observation": "cameras"} if name == "drqv2" else {}
    training = resolve(TrainingSection(env={"name": "arm", **env}, algorithm=name, cuda_graph=True))
    sentence = f"training.cuda_graph is ignored: {name} does not support it"
    assert algorithm.choose_launch_mode(training, SPACES, GPU, None) == (KERNELS, sentence)
    assert algorithm.choose_launch_mode(training.changed(cuda_graph=False), SPACES, GPU, None) == (KERNELS, None)
    assert algorithm.choose_launch_mode(training, SPACES, CPU, None) == (ENGINE if name != "drqv2" else KERNELS, None)


OTHER_BITS = "training.cuda_graph is ignored: its updates give other bits here"
REFUSED = (
    "training.cuda_graph is ignored: it cannot be captured here (CUDA error: not permitted when stream is capturing)"
)


@pytest.mark.parametrize(
    ("device", "asked", "tried", "wanted"),
    [
        (GPU, False, True, (KERNELS, None)),
        (CPU, True, True, (KERNELS, None)),
        (GPU, True, True, (GRAPH, None)),
        (GPU, True, False, (KERNELS, OTHER_BITS)),
        (GPU, True, RuntimeError("CUDA error: not permitted\nwhen stream is capturing"), (KERNELS, REFUSED)),
    ],
)
def test_a_graph_is_for_those_who_ask_have_a_gpu_and_come_to_the_same_bits(device, asked, tried, wanted):
    def leaves_same_bits(*_args):
        if isinstance(tried, RuntimeError):
            raise tried
        return tried

    assert choose_recorded(MTSAC, a_training(cuda_graph=asked), SPACES, device, leaves_same_bits) == wanted


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_real_graph_leaves_the_bits_of_single_kernels(kind):
    asked = a_training(cuda_graph=True, **KINDS[kind])
    assert MTSAC.choose_launch_mode(asked, SPACES, GPU, None) == (GRAPH, None)
