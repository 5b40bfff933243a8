"""Which GPUs a machine has, and which of them a slot's local jobs get."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import parse_config
from orchestrator.configwarnings import warnings_of
from orchestrator.executors.local import gpus_of_slot, listed_gpus, sharing, stated_gpus, visible_gpus
from orchestrator.shim import gpus_of

#: As `nvidia-smi -L` prints it (format of driver 535's manual page).
FOUR = "".join(f"GPU {index}: NVIDIA A100-SXM4-40GB (UUID: GPU-{index}5fd0a7c-aaaa)\n" for index in range(4))
DIVIDED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-05fd0a7c-aaaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-1a)
  MIG 3g.20gb     Device  1: (UUID: MIG-1b)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-15fd0a7c-aaaa)
"""


def a_machine(folder: Path, program: str) -> dict[str, str]:
    """An environment in which `nvidia-smi` is this shell program."""
    fake = folder / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_the_driver_lists_the_gpus(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(FOUR)
    env = a_machine(tmp_path, f'[ "$1" = -L ] && cat {tmp_path}/list')
    assert visible_gpus(env) == ("0", "1", "2", "3")


def test_a_machine_without_gpus_has_none(tmp_path: Path) -> None:
    assert visible_gpus({"PATH": str(tmp_path)}) == ()
    assert visible_gpus(a_machine(tmp_path, "echo No devices found.; exit 6")) == ()


def test_what_is_stated_counts_and_nobody_is_asked(tmp_path: Path) -> None:
    env = a_machine(tmp_path, "touch asked") | {"CUDA_VISIBLE_DEVICES": "2, GPU-15fd"}
    assert visible_gpus(env) == ("2", "GPU-15fd")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("stated", "meant"),
    [("", ()), ("-1", ()), ("0,1", ("0", "1")), ("1,-1,0", ("1",)), ("3,3", ("3",)), ("MIG-1a", ("MIG-1a",))],
)
def test_stated_gpus_mean_what_they_mean_to_cuda(stated: str, meant: tuple[str, ...]) -> None:
    assert stated_gpus(stated) == meant


def test_the_parts_of_a_divided_gpu_stand_for_it() -> None:
    assert listed_gpus(DIVIDED) == ("MIG-1a", "MIG-1b", "1")


@given(st.integers(1, 16), st.integers(1, 40), st.integers(1, 16))
def test_no_gpu_carries_two_slots_more_than_another(count: int, slots: int, wanted: int) -> None:
    there = tuple(map(str, range(count)))
    carried: Counter[str] = Counter()
    for slot in range(slots):
        own = gpus_of_slot(there, slot, wanted, carried)
        assert len(set(own)) == min(wanted, count)
        carried.update(own)
    loads = [carried[name] for name in there]
    assert max(loads) - min(loads) <= 1
    assert bool(sharing(there, slots, wanted)) == (max(loads) > 1 or wanted > count)


def test_a_slot_that_takes_anothers_place_gets_what_is_free() -> None:
    there = ("0", "1", "2", "3")
    assert gpus_of_slot(there[:2], 2, 1, {"0": 1}) == ("1",)
    assert gpus_of_slot(there[:2], 2, 1, {"0": 1, "1": 1}) == ("0",)
    assert gpus_of_slot(there, 2, 2, {"0": 1, "2": 1}) == ("1", "3")


def test_a_trainer_that_uses_one_gpu_does_not_need_two() -> None:
    assert warnings_of(parse_config({"slurm": {"gpus": 2}}, "c")) == [
        (
            "slurm.gpus: 2: the trainer uses one GPU of a job, and the other stays idle. Set it to 1, and slots to "
            "the number of GPUs; docs/cluster.md says when one slot on several is faster."
        )
    ]
    assert warnings_of(parse_config({"slurm": {"gpus": 2}, "command": ["python3", "two.py"]}, "c")) == []
    assert warnings_of(parse_config({"slurm": {"gpus": 1}}, "c")) == []


def test_each_rank_uses_a_gpu() -> None:
    training = {"preset": "arm-ppo", "algorithm": {"name": "ppo", "shards": 4}}
    section = {"gpus": 2, "ranks": 4, "nodes": 2}
    assert warnings_of(parse_config({"slurm": section, "training": training}, "c")) == []
    (idle,) = warnings_of(parse_config({"slurm": {**section, "gpus": 3}, "training": training}, "c"))
    assert idle.startswith("slurm.gpus: 3: 2 ranks use 2 GPUs, and the other stays idle. Set it to 2, and slots")


def test_the_nodes_own_numbers_are_told_where_there_are_any() -> None:
    assert gpus_of({"SLURM_JOB_GPUS": "3", "CUDA_VISIBLE_DEVICES": "0"}) == "3"
    assert gpus_of({"CUDA_VISIBLE_DEVICES": "0,1"}) == "0,1"
    assert gpus_of({}) == ""
