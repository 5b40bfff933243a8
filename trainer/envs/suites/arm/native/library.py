"""The arm's stepper as Python calls it. `ROW` mirrors `struct row` (row.h), field by field."""

from __future__ import annotations

import ctypes
import hashlib
import math
from functools import cache
from pathlib import Path

import numpy as np

from trainer.envs.native.build import default_folder
from trainer.envs.native.library import POINTER, NativeLibrary
from trainer.envs.suites.arm.rewards import EFFORT, REWARDS, STEEPNESS
from trainer.envs.suites.arm.shapes import JOINTS, LEAD, OBSERVATION, OPEN, OPENS, SHUT, SHUTS, SOLVED, SUBSTEPS
from trainer.machine.processor import processor

SOURCES = Path(__file__).parent
ROW = np.dtype(
    [
        *[(name, POINTER) for name in ("model", "data", "hand", "noise")],
        *[(name, np.float64, JOINTS) for name in ("low", "high", "reach", "target", "held")],
        *[(name, np.float64) for name in ("total", "reward")],
        ("last", np.float32, OBSERVATION),
        *[(name, np.int32) for name in ("steps", "triggered", "delay", "reached", "has_triggered")],
        *[(name, np.int32) for name in ("length", "solved", "stepped")],
        *[(name, np.int32) for name in ("taken", "noise_rows", "pays", "is_legacy", "ends_on_success", "episode")],
        *[(name, np.int32) for name in ("index", "task", "horizon", "stop_at_success", "finished", "fault")],
    ],
    align=True,
)
#: `struct numbers` (row.h).
NUMBERS = (LEAD, SOLVED, SHUTS, OPENS, OPEN, SHUT, EFFORT, STEEPNESS)
#: `enum reward` (row.h).
PAYS = {name: number for number, name in enumerate(REWARDS)}
#: `enum fault` (row.h).
SIMULATOR_FAULT = 1
FAULTS = {SIMULATOR_FAULT: "the simulator failed"}


class ArmLibrary(NativeLibrary):
    """The library of one process. `machine`: the processor, and how its C library computes."""

    def __init__(self, folder: Path) -> None:
        """Find or build it in `folder`. Errors: StepperUnavailableError."""
        super().__init__(SOURCES, folder, ROW, SUBSTEPS, "mj_kinematics")
        numbers = np.array(NUMBERS)
        self.held.configure(ctypes.c_void_p(numbers.ctypes.data))
        self.machine = f"{processor()} {_fingerprint()}"


@cache
def load(folder: Path | None = None) -> ArmLibrary:
    """The stepper, once a process. Errors: StepperUnavailableError."""
    return ArmLibrary(folder or default_folder(SOURCES))


def _fingerprint() -> str:
    values = np.array([math.tanh(x) for x in np.random.default_rng(0).uniform(0, 6, 300)])
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]
