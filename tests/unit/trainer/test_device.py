from __future__ import annotations

import pytest
from daemons import wait_for

pytest.importorskip("torch")

import torch
from refused import refused

from trainer.machine import device as machine

pytestmark = pytest.mark.trainer


NO_GPU = {"cuda": False, "mps": False, "cpu": True}


def test_a_device_that_is_not_there_is_refused_with_what_to_do():
    with refused("device.none-here", asked_by="training.device", device="cuda"):
        machine.choose_device("cuda", NO_GPU)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS"])
def test_a_job_that_was_given_a_gpu_does_not_train_without_it_unless_that_was_asked_for(name):
    for wanted in ("auto", "cuda"):
        with refused("gpu.none-usable", given=name):
            machine.device_of_job(wanted, {name: "0,1"}, NO_GPU, "12.4")
        with refused("gpu.no-cuda"):
            machine.device_of_job(wanted, {name: "0,1"}, NO_GPU, None)
    assert machine.device_of_job("cpu", {name: "0,1"}, NO_GPU).type == "cpu"
    assert machine.device_of_job("auto", {name: "0,1"}, {**NO_GPU, "cuda": True}).type == "cuda"
    for nothing in ({}, {name: ""}, {name: "-1"}, {name: "NoDevFiles"}):
        assert machine.device_of_job("auto", nothing, NO_GPU).type == "cpu"


def test_workers_are_the_jobs_cores_where_each_gets_two_environments():
    assert [machine.default_workers(None, n, cores=8) for n in (1, 3, 10, 48)] == [0, 0, 5, 8]
    assert machine.default_workers(None, 48, cores=1) == 0
    assert machine.default_workers(3, 48, cores=1) == 3


def test_gpu_use_is_asked_of_the_trainings_own_gpu():
    asked = []
    meter = machine.GpuMeter(torch.device("cuda", 1), ask=lambda device: asked.append(device) or 37)
    wait_for(lambda: meter.percent is not None, "the first answer")
    meter.close()
    assert meter.percent == 37
    assert asked == [torch.device("cuda", 1)]
