"""The C stepper as Python calls it: layouts of its records, its functions, and how NumPy computes on this processor.

`ROW` mirrors `struct row` (row.h), field by field; loading compares the sizes.
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.suite import StepperUnavailableError
from trainer.envs.suites.metaworld.native.build import default_folder, find_or_build, mujoco_library
from trainer.machine.processor import processor

_POINTER = np.uintp
ROW = np.dtype(
    [
        *[(name, _POINTER) for name in ("model", "data", "hand", "right_claw", "left_claw", "right_end", "left_end")],
        *[(name, _POINTER) for name in ("right_pad", "left_pad", "position", "rotation")],
        ("named", _POINTER, 5),
        ("mocap_low", np.float64, 3),
        ("mocap_high", np.float64, 3),
        ("low", np.float64, 39),
        ("high", np.float64, 39),
        *[(name, np.float64, 3) for name in ("offset", "target", "object_init", "init_tcp", "hand_init", "extra")],
        ("radius", np.float64),
        ("previous", np.float64, 18),
        ("last", np.float64, 39),
        ("total", np.float64),
        ("reward", np.float64),
        *[(name, np.int32) for name in ("path_length", "length", "solved", "steps")],
        *[(name, np.int32) for name in ("port", "rotation_kind", "has_offset", "path_limit")],
        *[(name, np.int32) for name in ("index", "task", "horizon", "stop_at_success", "finished", "fault")],
        ("action_scale", np.float32),
        ("spare", np.float32),
    ],
    align=True,
)
#: `enum fault` (numbers.h), in the words of the exceptions that upstream raises.
FAULTS = {
    1: "a reward's margin is negative",
    2: "a part of the reward is not between 0 and 1",
    3: "a product of rewards is not between 0 and 1",
    4: "the episode is over: reset the environment",
    5: "the simulator failed",
}
SIMULATOR_FAULT = 5


class StepperLibrary:
    """The library of one process. `digest` names its build, `machine` the processor and how NumPy computes on it."""

    def __init__(self, folder: Path) -> None:
        """Find or build it in `folder`. Errors: StepperUnavailableError."""
        if _POINTER().itemsize != 8:
            raise StepperUnavailableError("this is not a 64-bit system")
        found = find_or_build(folder)
        self.folder = folder
        self.digest = found.digest
        self._free: Any = ctypes.CDLL(str(found.path))  # lets go of Python's lock while it runs
        self._held: Any = ctypes.PyDLL(str(found.path))  # does not: for calls shorter than taking the lock again
        self._free.open_team.restype = ctypes.c_void_p
        self._free.error_text.restype = ctypes.c_char_p
        simulator: Any = ctypes.CDLL(str(mujoco_library()))
        if self._held.row_bytes() != ROW.itemsize or self._held.mujoco_header() != simulator.mj_version():
            raise StepperUnavailableError("the library is of another version of MuJoCo or of this program")
        self._keep = simulator
        fused = self._how_norms_add()
        self._held.configure(
            *(ctypes.cast(function, ctypes.c_void_p) for function in (simulator.mj_step, simulator.mj_forward)),
            ctypes.c_void_p(ctypes.addressof(ctypes.c_void_p.in_dll(simulator, "mju_user_error"))),
            ctypes.c_bool(fused),
            ctypes.c_double(np.sqrt(-2 * np.log(0.1))),  # as upstream has it; the last bit may be the processor's
        )
        self.machine = f"{processor()} {_fingerprint()}"

    def open_team(self, threads: int) -> int:
        """`threads` - 1 helping threads, for `advance`. Errors: StepperUnavailableError. Close it."""
        if threads <= 1:
            return 0
        team: int | None = self._free.open_team(threads - 1)
        if team is None:
            raise StepperUnavailableError(f"the system refuses {threads} threads")
        return team

    def close_team(self, team: int) -> None:
        """End the threads of `open_team`."""
        if team:
            self._free.close_team(ctypes.c_void_p(team))

    def bind(self, team: int, rows: npt.NDArray[Any], fields: list[npt.NDArray[Any]]) -> Bound:
        """Its functions over `rows` [n] of ROW and the arrays of `SharedBuffers`; all must stay where they are."""
        return Bound(self._free, self._held, team, rows, fields)

    def error_text(self) -> str:
        """What MuJoCo said last."""
        return bytes(self._free.error_text()).decode(errors="replace")

    def _how_norms_add(self) -> bool:
        """Whether NumPy's BLAS fuses the products and sums of short dot products here."""
        matches = {True: True, False: True}
        for count in (1, 2, 3):
            vectors = np.random.default_rng(count).normal(size=(500, count))
            expected = np.array([np.linalg.norm(vector) for vector in vectors])
            for fused in matches:
                out = np.empty(len(vectors))
                self._held.norms(
                    ctypes.c_bool(fused), ctypes.c_void_p(vectors.ctypes.data), len(vectors), count,
                    ctypes.c_void_p(out.ctypes.data),
                )  # fmt: skip
                matches[fused] &= bool((out == expected).all())
        if not any(matches.values()):
            raise StepperUnavailableError("NumPy's BLAS adds up dot products in an unknown order")
        return matches[True]


class Bound:
    """The stepper's functions with their arguments in place: a call costs about a microsecond."""

    def __init__(self, free: Any, held: Any, team: int, rows: npt.NDArray[Any], fields: list[npt.NDArray[Any]]) -> None:
        count = len(rows)
        self._exponentials, self._logarithms = np.zeros(count), np.ones(count)
        self._answers = np.zeros(count), np.zeros(count)
        self._buffers = np.array([field.ctypes.data for field in fields], _POINTER)
        self._keep = rows, fields
        pointer = ctypes.c_void_p
        where = pointer(rows.ctypes.data), count, pointer(self._buffers.ctypes.data)
        self._advance, self._settle, self._race = free.advance, held.settle, free.race
        self._to_advance = (
            pointer(team), *where, pointer(self._exponentials.ctypes.data), pointer(self._logarithms.ctypes.data)
        )  # fmt: skip
        self._to_settle = (*where, *(pointer(answer.ctypes.data) for answer in self._answers))
        self._to_race = pointer(team), where[0], count

    def step(self) -> int:
        """One step of all rows; how many episodes have ended, or -1: look at the rows' faults."""
        self._advance(*self._to_advance)
        np.exp(self._exponentials, out=self._answers[0])
        np.log(self._logarithms, out=self._answers[1])
        ended: int = self._settle(*self._to_settle)
        return ended

    def race(self, steps: int) -> None:
        """The physics alone, `steps` times: for measurements."""
        self._race(*self._to_race, steps)


@cache
def load(folder: Path | None = None) -> StepperLibrary:
    """The stepper, once a process. Errors: StepperUnavailableError."""
    return StepperLibrary(folder or default_folder())


def _fingerprint() -> str:
    """Digest of what NumPy makes of some numbers: its kernels depend on the processor and on the environment."""
    x = np.random.default_rng(0).uniform(0, 2, 300)
    results = [np.exp(-x), np.log(x), np.array([np.float64(v) ** 2 for v in x])]
    results.append(np.array([np.linalg.norm(v) for v in x.reshape(100, 3)]))
    return hashlib.sha256(b"".join(result.tobytes() for result in results)).hexdigest()[:16]
