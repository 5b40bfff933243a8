from __future__ import annotations

import os
import stat

import pytest
from daemons import PATIENCE_S

pytest.importorskip("torch")

import torch

from trainer.errors import ConfigError
from trainer.machine import device as machine

pytestmark = pytest.mark.trainer


def test_a_device_that_is_not_there_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"training.device is 'cuda', but torch .* use 'auto' or 'cpu'"):
        machine.choose("cuda")


def test_auto_takes_the_best_there_is(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert machine.choose("auto").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert machine.choose("auto").type == "cuda"


def test_a_gpu_is_named_with_its_model_because_models_round_differently(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Model {device.index}")
    assert machine.name(torch.device("cuda", 1)) == "cuda (Model 1)"
    assert machine.name(torch.device("cpu")) == "cpu"


def test_workers_are_the_jobs_cpus_where_each_gets_two_environments(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert [machine.workers(None, n) for n in (1, 3, 10, 48)] == [0, 0, 5, 8]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert machine.workers(None, 48) == 0
    assert machine.workers(3, 48) == 3


def test_gpu_use_is_asked_of_the_jobs_own_gpu(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/asked\necho 37\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-abc,GPU-def")
    meter = machine.GpuMeter(torch.device("cuda", 1))
    meter.first.wait(PATIENCE_S)
    meter.close()
    assert meter.percent == 37
    assert (tmp_path / "asked").read_text().strip() == "--id=GPU-def"


def test_without_a_gpu_nothing_is_asked():
    assert machine.GpuMeter(torch.device("cpu")).percent is None
