"""The algorithm that docs/plugins.md shows: exactly that block is trained, interrupted and compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from test_algorithms import POINTS, all_of, envs_of, handed_over

from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.training.run import advance, fresh

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"
MOST_LINES = 60


@pytest.fixture
def training(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "class Reinforce" in block]
    assert len(block.splitlines()) <= MOST_LINES
    (tmp_path / "reinforce.py").write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    algorithm = {"name": "reinforce:Reinforce", "rollout_steps": 5, "learning_rate": 0.01}
    network = {"actor_hidden": (8,), "critic_hidden": (8,)}
    return resolve(TrainingSection(env=POINTS, algorithm=algorithm, num_envs=4, network=network))


def test_it_goes_on_bit_for_bit_from_any_barrier(training):
    whole, broken = (fresh(training, CPU, envs_of(training)) for _ in range(2))
    for barrier in range(30):
        advance(whole)
        advance(broken)
        broken = handed_over(broken, training)
        assert all_of(broken) == all_of(whole), barrier
    assert whole.updates == 5


def test_it_learns_to_do_what_is_rewarded(training):
    kind = find(ALGORITHMS, training.algorithm.name)
    assert kind.METRICS == ("policy_loss",)
    run = fresh(training, CPU, envs_of(training))
    before = {name: tensor.clone() for name, tensor in run.algorithm.policy.state_dict().items()}
    while run.updates < 3:
        advance(run)
    assert any(not torch.equal(tensor, before[name]) for name, tensor in run.algorithm.policy.state_dict().items())
