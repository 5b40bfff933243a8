"""The machine that the trainer finds itself on: device, CPUs, GPU use, torch's numeric settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from trainer.errors import ConfigError, DeviceError
from trainer.machine.host import read_host

#: More often than this tells no more.
GPU_POLL_S = 10.0
#: Where a job is told which GPUs are its own, and how that is said of none.
_GIVEN = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS")
_NO_GPUS = {"", "-1", "NoDevFiles"}
#: How torch begins what CUDA and its libraries say.
_OF_CUDA = ("CUDA error", "CUDA driver error", "cuDNN error", "cuBLAS error")
#: Below this many environments a worker costs more in messages than its stepping saves.
_ENVS_A_WORKER = 2


def devices_here() -> dict[str, bool]:
    """Which types of device torch sees here, the best first."""
    return {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}


def choose_device(
    wanted: str, there: Mapping[str, bool] | None = None, *, asked_by: str = "training.device"
) -> torch.device:
    """The device that `wanted` names; `auto`: the best there is. Errors: ConfigError where it is not there.

    `there`: as `devices_here` says. `asked_by`: where `wanted` stands, for the sentence.
    """
    there = there or devices_here()
    if wanted == "auto":
        return torch.device(next(name for name, present in there.items() if present))
    if not there[wanted]:
        raise ConfigError("device.none-here", asked_by=asked_by, device=wanted, version=torch.__version__)
    return torch.device(wanted)


def device_of_job(
    wanted: str,
    environ: Mapping[str, str] = os.environ,
    there: Mapping[str, bool] | None = None,
    built_for: str | None = torch.version.cuda or torch.version.hip,
) -> torch.device:
    """As `choose_device`. Errors: ConfigError; DeviceError where the job was given a GPU that cannot be used, and
    nobody asked for the CPU. The sentence is the same on every node: `orchestrator.decisions.nodes` compares them.
    """
    there = there or devices_here()
    given = next((name for name in _GIVEN if environ.get(name, "").strip() not in _NO_GPUS), None)
    if given is not None and not there["cuda"] and wanted in {"auto", "cuda"}:
        if built_for is None:
            raise DeviceError("gpu.no-cuda", version=torch.__version__)
        raise DeviceError("gpu.none-usable", given=given, version=torch.__version__)
    return choose_device(wanted, there)


def is_of_the_gpu(error: BaseException) -> bool:
    """Whether CUDA or one of its libraries says that it cannot go on."""
    return isinstance(error, RuntimeError) and str(error).lstrip().startswith(_OF_CUDA)


def device_name(device: torch.device, model: Callable[[torch.device], str] = torch.cuda.get_device_name) -> str:
    """What computes there, as far as numbers depend on it: the device's type, and of a GPU its `model`."""
    return f"{device.type} ({model(device)})" if device.type == "cuda" else device.type


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`. To an NVIDIA GPU by way of pinned memory, so that the host does not wait for it."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def on_device(numbers: npt.NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """An array, or a tensor that may lie there already, as a tensor on `device`."""
    return to_device(numbers if isinstance(numbers, Tensor) else torch.from_numpy(numbers), device)


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory that the GPU has; None: it is none, or shares the machine's."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def set_deterministic(threads: int) -> None:
    """Numeric settings of the whole process: torch's threads, and deterministic kernels where there is a choice.

    A kernel that has no deterministic form only warns: an inexact resume is better than none.
    """
    torch.set_num_threads(threads)
    leave_compiler_out()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with it only
    # The same as use_deterministic_algorithms(warn_only=True), which would import the compiler (2 s).
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # else every torch.empty is written first
    torch.backends.cudnn.benchmark = False


def leave_compiler_out() -> None:
    """Keep the making of torch's first optimizer from importing its compiler (more than a second), which is used
    nowhere here. A step of one would, too: see `trainer.algorithms.common.tensors.bare_step`.

    torch marks these functions as not to be compiled at their first call; to it they are marked already. Where a
    version does that otherwise, it imports the compiler as before.
    """
    for name in ("add_param_group", "state_dict", "load_state_dict", "zero_grad"):
        function = getattr(getattr(torch.optim.Optimizer, name), "__wrapped__", None)
        if function is not None:
            setattr(function, "__dynamo_disable", function)


def default_workers(wanted: int | None, num_envs: int, cores: int | None = None) -> int:
    """Worker processes for `num_envs`: as many as this job has `cores`, where that leaves each a few; 0 in process."""
    if wanted is not None:
        return wanted
    count = min(cores or read_host().cores, num_envs // _ENVS_A_WORKER)
    return count if count > 1 else 0


class GpuMeter:
    """GPU use in per cent, asked of the driver in the background, where a hung one holds nobody; None: none tells."""

    def __init__(self, device: torch.device, ask: Callable[[torch.device], float] = torch.cuda.utilization) -> None:
        self.percent: float | None = None
        self._stop = threading.Event()
        if device.type == "cuda":
            threading.Thread(target=self._poll, args=(device, ask), daemon=True).start()

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()

    def _poll(self, device: torch.device, ask: Callable[[torch.device], float]) -> None:
        while not self._stop.is_set():
            try:
                self.percent = ask(device)
            except Exception:  # noqa: BLE001 - no pynvml, no driver, parts of a GPU (MIG): each has errors of its own
                self.percent = None
            self._stop.wait(GPU_POLL_S)
