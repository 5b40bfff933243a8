"""An update of a batch that is cut into shards: by one process, and by several that are threads here."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from daemons import PATIENCE_S
from suites import learn

pytest.importorskip("torch")

import torch
from refused import refused
from torch import Tensor

from trainer.algorithms.base import Context
from trainer.algorithms.common.adoption import adopt, learned_of
from trainer.algorithms.common.sharding import OptimizerStep, Sample, in_step, mean_in_order
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.envs.spaces import IMAGE, STATE, ArraySpec, Box, Spaces
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import RanksError
from trainer.machine.group import Group, must_be_the_same
from trainer.training.begin import _envs_of
from trainer.training.run import Order, assist, hand_out

pytestmark = pytest.mark.trainer
ROWS, UPDATES = 24, 3
PLAIN = Spaces({STATE: ArraySpec((5,))}, Box(4), ("a", "b", "c"), 10)
SEEN = Spaces({STATE: ArraySpec((5,)), IMAGE: ArraySpec((3, 8, 8), "uint8", 0, 255)}, Box(4), ("a", "b", "c"), 10)
CATEGORICAL = {"critic_loss": "categorical", "value_bins": 5, "value_limit": 2.0}
#: Each with what decides which steps its update has.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Spaces]] = {
    "sac": ({"name": "sac"}, {}, PLAIN),
    "td3": ({"name": "td3", "policy_delay": 2}, {}, PLAIN),
    "pictures": (
        {"name": "drqv2", "random_shift": 2}, {"trunk": 5, "encoder": {"arch": "anchorleg_toys.glance:Glance"}}, SEEN,
    ),
    "mtsac": ({"name": "mtsac", "grad_clip": 0.5}, {}, PLAIN),
    "categorical": ({"name": "mtsac", **CATEGORICAL}, {"critic_net": "residual"}, PLAIN),
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@dataclass(frozen=True)
class ThreadGroup(Group):
    """Ranks that are threads of one process: what they tell lies in `told`."""

    told: list[Any] = field(default_factory=list)
    barrier: Barrier = field(default_factory=lambda: Barrier(1, timeout=PATIENCE_S))

    @classmethod
    def of(cls, size: int) -> list[ThreadGroup]:
        told, barrier = [None] * size, Barrier(size, timeout=PATIENCE_S)
        return [cls(rank, size, told=told, barrier=barrier) for rank in range(size)]

    def gathered(self, own: Tensor) -> Tensor:
        return torch.cat(self._all(own.clone()))

    def tell(self, number: int = 0) -> int:
        return int(self._all(number)[0])

    def share(self, data: bytes = b"") -> bytes:
        found: bytes = self._all(data)[0]
        return found

    def _all(self, mine: Any) -> list[Any]:
        self.told[self.rank] = mine
        self.barrier.wait()
        found = list(self.told)
        self.barrier.wait()
        return found


def made(case: str, shards: int, group: Group | None = None) -> Any:
    algorithm, network, spaces = CASES[case]
    rates = {"batch_size": ROWS, "buffer_size": 300, "learning_rate": 0.01, "shards": shards}
    training = resolve(
        TrainingSection(
            env={"name": "anchorleg_toys.points:Points", "tasks": spaces.tasks},
            algorithm={**rates, **algorithm},
            network={"actor_hidden": (8, 8), "critic_hidden": (9, 9), **network},
        )
    )
    context = Context(training, spaces, 3, torch.device("cpu"), Experience(training, spaces), group=group or Group())
    found: Any = find(ALGORITHMS, training.algorithm.name)(context)
    return found


def a_batch(case: str, seed: int = 0, *, steps: bool = False) -> Batch:
    rng, spaces = np.random.default_rng(seed), CASES[case][2]

    def seen() -> dict[str, Any]:
        return {
            key: rng.integers(0, 256, (ROWS, *spec.shape), np.uint8)
            if spec.dtype == "uint8"
            else rng.standard_normal((ROWS, *spec.shape), np.float32)
            for key, spec in spaces.obs.items()
        }

    return Batch(
        obs=seen(),
        action=rng.uniform(-1, 1, (ROWS, 4)).astype(np.float32),
        reward=rng.uniform(-1, 1, ROWS).astype(np.float32),
        next_obs=seen(),
        terminated=(np.arange(ROWS) % 4 == 0).astype(np.float32),
        task=np.arange(ROWS) // (ROWS // 3),
        steps=rng.integers(1, 4, ROWS).astype(np.float32) if steps else None,
    )


def learned(algorithm: Any) -> Mapping[str, Tensor]:
    found: Mapping[str, Tensor] = learned_of(algorithm.state()).tensors
    return found


def by_ranks(case: str, size: int, shards: int = 4) -> tuple[list[Any], Tensor]:
    """The learners of so many ranks after some updates, and what the first measured."""
    ranks = [made(case, shards, group) for group in ThreadGroup.of(size)]
    helpers = [
        Thread(
            target=lambda one=one: [one.learn(Sample.unpacked(one.off_policy.group.share())) for _ in range(UPDATES)]
        )
        for one in ranks[1:]
    ]
    for helper in helpers:
        helper.start()
    measured = [learn(ranks[0], a_batch(case, seed)) for seed in range(UPDATES)]
    for helper in helpers:
        helper.join(PATIENCE_S)
    return ranks, torch.stack(measured)


def test_who_assists_goes_on_with_a_learner_that_the_first_took_over() -> None:
    first, other = (made("sac", 4, group) for group in ThreadGroup.of(2))
    leaders = [made("sac", 1) for _ in range(3)]
    for seed, leader in enumerate(leaders):
        learn(leader, a_batch("sac", seed))
    group, said = first.off_policy.group, []

    def helping() -> None:
        try:
            assist(other, other.off_policy.group)
        except RanksError as error:
            said.append(str(error))

    def led_by(leader: Any) -> Any:
        adopt(first, leader.state().tensors)
        return SimpleNamespace(experience=first.off_policy.experience, group=group, algorithm=first)

    def compare() -> None:
        group.tell(Order.CAPTURE)
        must_be_the_same(group, {"algorithm": learned_of(first.state())})

    helper = Thread(target=helping)
    helper.start()
    hand_out(led_by(leaders[0]))
    group.tell(Order.ADVANCE)
    group.tell(1)
    learn(first, a_batch("sac"))
    compare()
    hand_out(led_by(leaders[1]))
    compare()
    led_by(leaders[2])  # and nobody is told
    with refused("ranks.differ", ranks="rank 1 differs"):
        compare()
    helper.join(PATIENCE_S)
    assert len(said) == 1


def are_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("case", CASES)
def test_so_many_ranks_learn_the_same_bits(case: str) -> None:
    (alone,), measured = by_ranks(case, 1)
    for size in (2, 4):
        ranks, also = by_ranks(case, size)
        assert torch.equal(also, measured)
        for rank in ranks:
            drawn = alone if rank is ranks[0] else made(case, 4)  # who assists draws nothing
            assert torch.equal(rank.state().tensors["noise"], drawn.state().tensors["noise"])
            names = [name for name in learned(alone) if not torch.equal(learned(rank)[name], learned(alone)[name])]
            assert names == []


@pytest.mark.parametrize("case", CASES)
def test_shards_change_rounding_alone(case: str) -> None:
    (whole,), (cut,) = by_ranks(case, 1, shards=1)[0], by_ranks(case, 1, shards=4)[0]
    assert not are_equal(learned(whole), learned(cut)), "four parts are added up as one is"
    for name, tensor in learned(whole).items():
        assert torch.allclose(learned(cut)[name], tensor, rtol=2e-2, atol=2e-3), name
    assert torch.equal(whole.state().tensors["noise"], cut.state().tensors["noise"])


@pytest.mark.parametrize("case", ["sac", "pictures"])
@pytest.mark.parametrize("shards", [1, 2, 3, 4, 12])
def test_each_row_is_in_one_shard_and_each_task_in_all_alike(case: str, shards: int) -> None:
    algorithm, batch = made(case, 1), a_batch(case, steps=True)
    sample = Sample(batch, algorithm.draw(batch, algorithm.noise))
    parts = [sample.shard(number, shards) for number in range(shards)]
    for name, array in sample.arrays.items():
        of_parts = [part.arrays[name] for part in parts]
        assert {len(part) for part in of_parts} == {ROWS // shards}
        again = np.stack(of_parts, axis=1).reshape(array.shape)
        assert np.array_equal(again, array)
        assert again.dtype == array.dtype
    counts = [np.bincount(part.batch.task, minlength=3) for part in parts]
    assert max(count.max() for count in counts) - min(count.min() for count in counts) <= 1


def test_gradients_are_added_in_the_order_in_step() -> None:
    numbers = torch.tensor([[1e8], [1.0], [-1e8], [1.0]])
    assert mean_in_order(numbers).item() == 0.25  # 1e8 + 1 is 1e8
    assert mean_in_order(numbers[[0, 2, 1, 3]]).item() == 0.5

    def shard(number: int) -> Any:
        yield OptimizerStep({"net": [numbers[number]]}, {"loss": numbers[number, 0]})

    (step,) = in_step([shard(number) for number in range(4)], Group.alone())
    assert (step.gradients["net"][0].item(), step.measured["loss"].item()) == (0.25, 0.25)


def test_no_shard_is_stepped_in_the_trainers_process_where_workers_are_asked_for() -> None:
    env = {"name": "gymnasium", "id": "odd_envs:Line"}
    training = resolve(TrainingSection(env=env, algorithm={"name": "ppo", "shards": 2}, num_envs=2))
    spec = VectorSpec(suite_of(training), 2, 0)
    with closing(_envs_of(spec, 1, training, Group.alone(), VectorEnv)) as envs:
        assert [len(part.worker_pids) for part in envs.parts.values()] == [1, 1]
