"""The machine that the trainer finds itself on: device, CPUs, GPU use, torch's numeric settings."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading

import torch

from trainer.errors import ConfigError

#: A poll of nvidia-smi takes 0.03-1 s; more often than this tells no more.
GPU_POLL_S = 10.0
#: A hung driver must not hold the poll for ever.
_NVIDIA_SMI_TIMEOUT_S = 10.0
#: Below this many environments a worker costs more in messages than its stepping saves.
_ENVS_A_WORKER = 2


def choose(wanted: str) -> torch.device:
    """The device that `wanted` names; `auto`: the best there is. Errors: ConfigError where it is not there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return torch.device(next(name for name, present in there.items() if present))
    if not there[wanted]:
        raise ConfigError(
            f"training.device is {wanted!r}, but torch {torch.__version__} sees no such device here; "
            "use 'auto' or 'cpu', or ask for a node that has one"
        )
    return torch.device(wanted)


def name(device: torch.device) -> str:
    """What computes there, as far as numbers depend on it: the device's type, and of a GPU its model."""
    return f"{device.type} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def settle(threads: int) -> None:
    """Numeric settings of the whole process: torch's threads, and deterministic kernels where there is a choice.

    A kernel that has no deterministic form only warns: an inexact resume is better than none.
    """
    torch.set_num_threads(threads)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with it only
    # The same as use_deterministic_algorithms(warn_only=True), which would import the compiler (2 s).
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # else every torch.empty is written first
    torch.backends.cudnn.benchmark = False


def workers(wanted: int | None, num_envs: int) -> int:
    """Worker processes for `num_envs`: as many as this job's CPUs, where that leaves each a few; 0 in process."""
    if wanted is not None:
        return wanted
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(cpus, num_envs // _ENVS_A_WORKER)
    return count if count > 1 else 0


class GpuMeter:
    """GPU use in per cent, asked of nvidia-smi in the background; None where there is none to ask.

    `first` is set once the first answer, or none, has come.
    """

    def __init__(self, device: torch.device) -> None:
        self.percent: float | None = None
        self.first = threading.Event()
        self._stop = threading.Event()
        if device.type == "cuda" and shutil.which("nvidia-smi"):
            threading.Thread(target=self._poll, args=(device.index or 0,), daemon=True).start()

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()

    def _poll(self, index: int) -> None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        gpu = visible[index] if index < len(visible) and visible[index] else str(index)
        command = ["nvidia-smi", f"--id={gpu}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self._stop.is_set():
            with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
                answer = subprocess.run(
                    command, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=True
                )
                self.percent = float(answer.stdout.split()[0])
            self.first.set()
            self._stop.wait(GPU_POLL_S)
