"""A stepper in C as Python calls it: what is the same for all of them.

A row is what a stepper knows of one environment: a record that a suite's NumPy dtype mirrors field by field, beginning
with MuJoCo's model and data. Loading compares the sizes. A node without a compiler uses a library that another node has
built, and the check of every processor type (`verdicts.py`) judges that.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainer.envs.suite import StepFaultError, StepperUnavailableError
from trainer.machine import building
from trainer.machine.building import Library, NoLibraryError, Recipe

#: Headers for all steppers.
SHARED = Path(__file__).parent
#: No contraction and no `pow` of the compiler's own: each changes last bits.
FLAGS = ("-O2", "-std=gnu11", "-ffp-contract=off", "-fno-fast-math", "-fno-builtin-pow", "-shared", "-fPIC")


def default_folder(sources: Path) -> Path:
    """Where this version's libraries of `sources` are kept: `$XDG_CACHE_HOME/anchorleg/native-…`.

    Errors: StepperUnavailableError where there is no home folder.
    """
    try:
        return building.cache_folder(recipe(sources), "native")
    except NoLibraryError as error:
        raise StepperUnavailableError(str(error)) from error


def find_or_build(sources: Path, folder: Path) -> Library:
    """A library of `sources` (a folder with a stepper.c) that loads here, from `folder` or new.

    Errors: StepperUnavailableError.
    """
    try:
        return building.find_or_build(recipe(sources), folder)
    except NoLibraryError as error:
        raise StepperUnavailableError(str(error)) from error


def recipe(sources: Path) -> Recipe:
    """Of the stepper.c in `sources`. Errors: StepperUnavailableError where MuJoCo is missing."""
    headers = mujoco_folder() / "include"
    return Recipe("stepper", sources, FLAGS, (SHARED,), (headers,), version("mujoco"))


def mujoco_folder() -> Path:
    """Where the `mujoco` package lies; found without importing it. Errors: StepperUnavailableError."""
    spec = find_spec("mujoco")
    if spec is None or not spec.submodule_search_locations:
        raise StepperUnavailableError("mujoco is not installed")
    return Path(spec.submodule_search_locations[0])


def mujoco_library() -> Path:
    """The simulator's own shared library. Errors: StepperUnavailableError."""
    found = [path for pattern in ("libmujoco.so*", "libmujoco*.dylib") for path in mujoco_folder().glob(pattern)]
    if len(found) != 1:
        raise StepperUnavailableError(f"{len(found)} libraries of MuJoCo in {mujoco_folder()}, expected one")
    return found[0]


POINTER = np.uintp
#: Of a library's `faults` the one of which MuJoCo says more.
SIMULATOR_FAILED = "the simulator failed"

_log = logging.getLogger(__name__)


class NativeLibrary:
    """The library of one process. `digest` names its build; `free` calls it without Python's lock, `held` with it.
    `faults`: what the numbers of a row's `fault` mean.
    """

    row: ClassVar[np.dtype[Any]]
    faults: ClassVar[Mapping[int, str]]

    def __init__(self, sources: Path, folder: Path, substeps: int, afterwards: str) -> None:
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
        if self.held.row_bytes() != self.row.itemsize or self.held.mujoco_header() != self._simulator.mj_version():
            raise StepperUnavailableError("the library belongs to another version of MuJoCo or of this program")
        self.held.connect_simulator(
            self.function("mj_step"),
            self.function(afterwards),
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
            _log.warning("the system allows no more threads: environments step in one, more slowly")
        return team or 0

    def close_team(self, team: int) -> None:
        """End the threads of `open_team`."""
        if team:
            self.free.close_team(ctypes.c_void_p(team))

    def error_text(self) -> str:
        """What MuJoCo said last."""
        return bytes(self.free.error_text()).decode(errors="replace")


class SteppedRows:
    """`count` rows of `library`, of which those with a binding taken are stepped on `threads` threads, straight into
    `fields`, the arrays of `SharedBuffers`: all must stay where they are. A row has the fields `finished` and `fault`.

    Errors of the constructor: StepperUnavailableError.
    """

    def __init__(
        self, library: NativeLibrary, count: int, fields: Mapping[str, npt.NDArray[Any]], threads: int
    ) -> None:
        self.rows = np.zeros(count, library.row)
        self._library, self._fields = library, list(fields.values())
        self._buffers = np.array([field.ctypes.data for field in self._fields], POINTER)
        self._team = library.open_team(min(threads, count))
        # With the arguments in place a call costs about a microsecond.
        self._of_rows = ctypes.c_void_p(self._team), ctypes.c_void_p(self.rows.ctypes.data), count
        self._into = ctypes.c_void_p(self._buffers.ctypes.data)
        self._advance = library.free.advance

    def step(self) -> list[int]:
        """Step every taken row; the places whose episode has ended. Errors: StepFaultError."""
        ended: int = self._advance(*self._of_rows, self._into)
        if ended < 0:
            place = int(np.flatnonzero(self.rows["fault"])[0])
            words = self._library.faults[int(self.rows["fault"][place])]
            said = f": {self._library.error_text()}" if words == SIMULATOR_FAILED else ""
            raise StepFaultError(place, words + said)
        return np.flatnonzero(self.rows["finished"]).tolist() if ended else []

    def race(self, steps: int) -> None:
        """The physics of `steps` steps alone: for measurements."""
        self._library.free.race(*self._of_rows, steps)

    def close(self) -> None:
        self._library.close_team(self._team)
        self._team = 0
