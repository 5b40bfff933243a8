"""A stepper in C as Python calls it: what is the same for all of them.

A row is what a stepper knows of one environment: a record that a suite's NumPy dtype mirrors field by field, beginning
with MuJoCo's model and data. Loading compares the sizes.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.native.build import find_or_build, mujoco_library
from trainer.envs.suite import StepperUnavailableError

POINTER = np.uintp

_log = logging.getLogger(__name__)


class NativeLibrary:
    """The library of one process. `digest` names its build; `free` calls it without Python's lock, `held` with it."""

    def __init__(self, sources: Path, folder: Path, row: np.dtype[Any], substeps: int, afterwards: str | None) -> None:
        """Find or build it in `folder`. A step is `substeps` of mj_step, and then MuJoCo's function `afterwards`.

        Errors: StepperUnavailableError.
        """
        if POINTER().itemsize != 8:
            raise StepperUnavailableError("this is not a 64-bit system")
        found = find_or_build(sources, folder)
        self.folder = folder
        self.digest = found.digest
        self.free: Any = ctypes.CDLL(str(found.path))
        self.held: Any = ctypes.PyDLL(str(found.path))  # for calls shorter than taking the lock again
        self.free.open_team.restype = ctypes.c_void_p
        self.free.error_text.restype = ctypes.c_char_p
        self._simulator: Any = ctypes.CDLL(str(mujoco_library()))
        if self.held.row_bytes() != row.itemsize or self.held.mujoco_header() != self._simulator.mj_version():
            raise StepperUnavailableError("the library is of another version of MuJoCo or of this program")
        self.held.connect_simulator(
            self.function("mj_step"),
            None if afterwards is None else self.function(afterwards),
            substeps,
            ctypes.c_void_p(ctypes.addressof(ctypes.c_void_p.in_dll(self._simulator, "mju_user_error"))),
        )

    def function(self, name: str) -> ctypes.c_void_p:
        """MuJoCo's function `name`."""
        return ctypes.cast(getattr(self._simulator, name), ctypes.c_void_p)

    def open_team(self, threads: int) -> int:
        """`threads` - 1 helping threads, or as many as the system gives; 0: none. Close it."""
        if threads <= 1:
            return 0
        team: int | None = self.free.open_team(threads - 1)
        if team is None:
            _log.warning("the system gives no more threads: environments are stepped by one, more slowly")
        return team or 0

    def close_team(self, team: int) -> None:
        """End the threads of `open_team`."""
        if team:
            self.free.close_team(ctypes.c_void_p(team))

    def error_text(self) -> str:
        """What MuJoCo said last."""
        return bytes(self.free.error_text()).decode(errors="replace")


class Bound:
    """A library's functions over `rows` [n] and the arrays of `SharedBuffers`, with their arguments in place: a call
    costs about a microsecond. All must stay where they are.
    """

    def __init__(
        self, library: NativeLibrary, team: int, rows: npt.NDArray[Any], fields: list[npt.NDArray[Any]]
    ) -> None:
        self._buffers = np.array([field.ctypes.data for field in fields], POINTER)
        self._keep = rows, fields
        self._race, self._advance = library.free.race, library.free.advance
        self.team, self.rows = ctypes.c_void_p(team), ctypes.c_void_p(rows.ctypes.data)
        self.count = len(rows)
        self.buffers = ctypes.c_void_p(self._buffers.ctypes.data)

    def step(self) -> int:
        """One step of all rows; how many episodes have ended, or -1: look at the rows' faults."""
        ended: int = self._advance(self.team, self.rows, self.count, self.buffers)
        return ended

    def race(self, steps: int) -> None:
        """The physics alone, `steps` times: for measurements."""
        self._race(self.team, self.rows, self.count, steps)
