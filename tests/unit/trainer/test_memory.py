from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from daemons import PATIENCE_S

pytest.importorskip("torch")

import torch
from published import fresh_algorithm
from refused import refused

from trainer.algorithms.base import Context
from trainer.buffers.contributed import Contributed, group_capacity_of
from trainer.buffers.experience import Experience
from trainer.buffers.rows import fields_of
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import PRESETS, TrainingSection, resolve
from trainer.envs.suite import spaces_of
from trainer.training.memory import check, host_parts, row_bytes, shortage

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[3]
GB = 10**9


def a_training(**fields):
    return resolve(TrainingSection(**{"preset": "guide", **fields}))


def refusal(limit_bytes, device="cpu", wrong="memory.too-little", training=None, more=None, **fields):
    """What the refusal says."""
    with refused(wrong) as caught:
        check(training or a_training(**fields), device, limit_bytes, **(more or {}))
    return caught.value.fields


def needed(training, device="cpu", **more):
    """GB."""
    return refusal(GB // 10, device, training=training, more=more)["need_gb"]


def lower(advice):
    """The setting that an advice names, and its values."""
    words = advice.partition("lower training.")[2].partition(" in a new run")[0]
    name, _, values = words.partition(" to ")
    return name, [int(value.replace(",", "")) for value in values.split(", ")]


def total(parts, what):
    return sum(part.bytes for part in parts if what in part.what)


def sizes(training):
    """How many numbers the actor and the critics learn."""
    return [net.parameters for net in find(ALGORITHMS, training.algorithm.name).sizes(training, spaces_of(training))]


@pytest.mark.parametrize(
    "fields",
    [
        *({"preset": name} for name in PRESETS),
        {"critic_net": "heads"},
        {"critic_net": "residual", "critic_loss": "categorical", "value_bins": 21},
    ],
    ids=str,
)
def test_nets_without_memory_have_as_many_numbers_as_those_that_learn(fields):
    training = a_training(**fields)
    algorithm = fresh_algorithm(training)
    learned = {name.split(".")[0]: 0 for name in algorithm.state().tensors}
    for name, tensor in algorithm.state().tensors.items():
        if not name.startswith("policy.scales."):  # not learned, and next to nothing
            learned[name.split(".")[0]] += tensor.numel()
    assert sizes(training) == [learned["policy"], learned.get("critics", learned.get("critic"))]


def test_a_replay_larger_than_the_limit_is_refused_with_what_to_lower_and_how_far():
    assert row_bytes(a_training()) == 333  # (39 + 4 + 1 + 39) · 4 + 1
    fields = {"buffer_size": 40_000_000, "total_steps": 50_000_000}
    told = refusal(8 * GB, **fields)
    assert told["limit_gb"] == 8
    assert told["advice"].startswith("most is for the replay, 40,000,000 rows of 333 bytes = 13.32 GB; ")
    name, (value,) = lower(told["advice"])
    assert name == "algorithm.buffer_size"
    assert 10_000_000 < value < 8 * GB // 333
    check(a_training(**{**fields, "buffer_size": value}), "cpu", 8 * GB)
    check(a_training(**fields), "cpu", int((told["need_gb"] + 0.01) * GB))


def test_rings_of_others_rows_are_counted_where_they_are_switched_on_and_as_large_as_they_are_made():
    many = {"buffer_size": 10_000_000, "total_steps": 10_000_000}
    alone, group = (a_training(**many, group={"rows": rows, "share": 0.5}) for rows in (False, True))
    rows = 10_000_000 * row_bytes(alone) / GB
    assert needed(alone, accepts=True) - needed(alone) == pytest.approx(rows * 3 / 7, abs=0.02)
    assert needed(group) - needed(alone) == pytest.approx(rows, abs=0.02)
    assert needed(group, accepts=True) - needed(group) == pytest.approx(rows * 3 / 7, abs=0.02)
    # They grow with what the run has of its own: where that is less than the buffer, so are they.
    few = a_training(buffer_size=10_000_000, total_steps=1_000_000)
    assert needed(few, accepts=True) - needed(few) == pytest.approx(rows / 10 * 3 / 7, abs=0.02)
    room = group_capacity_of(10_000_000, len(group.env.tasks), group.group.share)
    ring = Contributed(10_000_000, len(group.env.tasks), 0, fields_of(spaces_of(group)), capacity=room).ring
    assert total(host_parts(group, "cpu", 10_000_000), "the replay") == row_bytes(group) * (
        10_000_000 + ring.capacity * ring.num_tasks
    )


def test_an_unknown_limit_refuses_nothing_and_a_hopeless_one_names_no_value():
    check(a_training(buffer_size=10**11, total_steps=10**11), "cpu", None)
    assert "lower" not in refusal(GB // 10)["advice"]


def allocate(how):
    try:
        how()
    except (MemoryError, RuntimeError) as error:
        return error
    pytest.fail("there was memory")


def test_the_libraries_own_errors_become_a_sentence():
    training = a_training(buffer_size=40_000_000)
    for how in (lambda: np.zeros(2**50), lambda: torch.empty(2**50)):
        error = shortage(allocate(how), training, "cpu")
        assert (error.id, lower(error.fields["advice"])) == ("memory.full", ("algorithm.buffer_size", [20_000_000]))
    assert shortage(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), training, "cpu") is not None
    assert shortage(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), training, "cpu") is None
    assert shortage(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), training, "cpu") is None


@pytest.mark.parametrize(("name", "moments"), [("ppo", 2), ("a2c", 1), ("sac", 2), ("td3", 2)])
def test_what_an_optimizer_remembers_is_counted(name, moments):
    training = resolve(TrainingSection(preset="arm-ppo", algorithm=name, num_envs=8))
    spaces, algorithm = spaces_of(training), find(ALGORITHMS, name)
    experience = Experience(training, spaces) if training.uses_experience else None
    context = Context(training, spaces, 8, torch.device("cpu"), experience)
    made = algorithm(context)
    optimizer = made.optimizer if hasattr(made, "optimizer") else made.nets.optimizers["actor"]
    learned = [one for group in optimizer.param_groups for one in group["params"]]
    for one in learned:
        one.grad = torch.ones_like(one)
    optimizer.step()
    remembered = [value.numel() for value in optimizer.state[learned[0]].values() if value.shape == learned[0].shape]
    assert remembered == [learned[0].numel()] * moments
    assert {size.moments for size in algorithm.sizes(training, spaces)} == {moments}
    nets = [part for part in host_parts(training, "cuda", 0) if part.what.startswith("the actor")]
    (actor,) = [size for size in algorithm.sizes(training, spaces) if size.name == "the actor"]
    assert nets[0].bytes == 2 * (1 + moments + actor.targets + 1) * 4 * actor.parameters


def run(code, folder):
    """What a process of its own says to `code`."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_a_process_that_gets_no_memory_ends_with_one_sentence_and_code_7(tmp_path):
    # 40 million rows are 13 GB; a few hundred steps touch next to nothing of it, so only the allocation itself fails.
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))\n"
        "sys.argv = ['trainer', 'train', '--preset', 'tiny', '--run-dir', 'run', '--set', 'buffer_size=40000000']\n"
        "from trainer.cli import main\n"
        "main()"
    )
    done = run(code, tmp_path)
    assert done.returncode == 7, done.stderr
    assert "the replay, 40,000,000 rows" in done.stderr
    assert "[memory.full]" in done.stderr
    assert "training.algorithm.buffer_size to 20,000,000" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_measured_of_a_training_beside_a_gpu_is_what_is_counted():
    training = resolve(TrainingSection(preset="fast-td3"))
    assert needed(training, "cuda") == pytest.approx(30, rel=0.05)  # the program and CUDA: bench/results/gpu.csv


@pytest.mark.parametrize("preset", ["arm-ppo", "arm-sac"])
def test_each_rank_has_the_nets_and_where_all_play_its_share_of_the_rest(preset):
    training = a_training(preset=preset, num_envs=8, num_workers=0)
    whole, half = (host_parts(training, "cpu", 0, **more) for more in ({}, {"ranks": 4, "here": 2}))
    assert total(half, "parameters") == 2 * total(whole, "parameters")
    for what in ("environments", "a rollout"):
        assert total(half, what) == (total(whole, what) // 2 if preset == "arm-ppo" else total(whole, what))
