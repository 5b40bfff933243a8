"""The C stepper as Python calls it: layouts of its records, its functions, and how NumPy computes on this processor.

`ROW` mirrors `struct row` (row.h), field by field; loading compares the sizes.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainer.envs.native.library import POINTER, SIMULATOR_FAILED, NativeLibrary, default_folder
from trainer.envs.suite import StepperUnavailableError
from trainer.machine.host import processor

#: In the order of `enum function` (numbers.h).
FUNCTIONS = (np.exp, np.log, np.sin, np.cos)
_SIGNATURE = "d->d"


class _Ufunc(ctypes.Structure):
    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        *((name, ctypes.c_int) for name in ("nin", "nout", "nargs", "identity")),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
    )


def loops() -> ctypes.Array[ctypes.c_void_p]:
    """(inner loop, its data) of each of NumPy's FUNCTIONS, one after another: it computes what `np.exp(x)` does, and
    needs no lock. The layout is `PyUFuncObject` of NumPy's C API (numpy/ufuncobject.h), the same since NumPy 1.0; who
    uses a loop compares it with the function first. Errors: StepperUnavailableError.
    """
    found: list[int | None] = []
    for function in FUNCTIONS:
        inside = _Ufunc.from_address(id(function))
        told = function.nin, function.nout, function.nargs, function.ntypes
        if (inside.nin, inside.nout, inside.nargs, inside.ntypes) != told:
            raise StepperUnavailableError(f"NumPy {np.__version__} stores its functions in an unknown way")
        if _SIGNATURE not in function.types:
            raise StepperUnavailableError(f"NumPy {np.__version__} has no {function.__name__} of doubles")
        place = function.types.index(_SIGNATURE)
        found += [inside.functions[place], inside.data[place] if inside.data else None]
    return (ctypes.c_void_p * len(found))(*found)


SOURCES = Path(__file__).parent
#: Upstream's `frame_skip`.
FRAME_SKIP = 5
OBJECT = np.dtype(
    [
        *[(name, POINTER) for name in ("position", "rotation", "angle")],
        ("offset", np.float64, 3),
        *[(name, np.int32) for name in ("has_offset", "rotation_kind")],
    ],
    align=True,
)
ROW = np.dtype(
    [
        *[(name, POINTER) for name in ("model", "data", "hand", "right_claw", "left_claw", "right_end", "left_end")],
        *[(name, POINTER) for name in ("right_pad", "left_pad")],
        ("objects", OBJECT, 2),
        ("named", POINTER, 5),
        *[(name, POINTER) for name in ("target_window", "object_window")],
        ("mocap_low", np.float64, 3),
        ("mocap_high", np.float64, 3),
        ("low", np.float64, 39),
        ("high", np.float64, 39),
        *[(name, np.float64, 3) for name in ("target", "object_init", "init_tcp", "hand_init", "extra")],
        ("radius", np.float64),
        ("previous", np.float64, 18),
        ("last", np.float64, 39),
        ("total", np.float64),
        ("reward", np.float64),
        *[(name, np.int32) for name in ("path_length", "length", "solved", "steps", "found")],
        *[(name, np.int32) for name in ("port", "objects_seen", "path_limit")],
        *[(name, np.int32) for name in ("index", "task", "horizon", "stop_at_success")],
        *[(name, np.int32) for name in ("right_pad_geom", "left_pad_geom", "main_geom")],
        *[(name, np.int32) for name in ("finished", "fault")],
        ("action_scale", np.float32),
    ],
    align=True,
)
#: Of a thousand one differs where a compiler multiplies.
_SQUARES = 20_000


class StepperLibrary(NativeLibrary):
    """The library of one process. `machine`: the processor, and how NumPy computes on it."""

    row: ClassVar[np.dtype[Any]] = ROW
    #: `enum fault` (numbers.h), in the words of the exceptions that upstream raises.
    faults: ClassVar[Mapping[int, str]] = {
        1: "a reward's margin is negative",
        2: "a part of the reward is not between 0 and 1",
        3: "a product of rewards is not between 0 and 1",
        4: "the episode is over: reset the environment",
        5: SIMULATOR_FAILED,
    }

    def __init__(self, folder: Path) -> None:
        """Find or build it in `folder`. Errors: StepperUnavailableError."""
        super().__init__(SOURCES, folder, FRAME_SKIP, "mj_forward")
        self.held.connect_numpy(loops())
        self._compare_functions()
        fused = self._how_norms_add()
        scale = np.sqrt(-2 * np.log(0.1))  # as upstream has it; the last bit may be the processor's
        self.held.configure(ctypes.c_bool(fused), ctypes.c_double(scale))
        self.machine = f"{processor()} {_fingerprint()}"

    def _compare_functions(self) -> None:
        """Whether C computes what NumPy does. Errors: StepperUnavailableError."""
        for which, (function, count) in enumerate([*((each, 500) for each in FUNCTIONS), (square, _SQUARES)]):
            of = np.random.default_rng(0).uniform(0, 8, count)
            out = np.empty(count)
            self.held.values(which, ctypes.c_void_p(of.ctypes.data), len(of), ctypes.c_void_p(out.ctypes.data))
            if not (out == [function(x) for x in of]).all():
                raise StepperUnavailableError(f"NumPy's {function.__name__} is another in C")

    def _how_norms_add(self) -> bool:
        """Whether NumPy's BLAS fuses the products and sums of short dot products here."""
        matches = {True: True, False: True}
        for count in (1, 2, 3, 4):
            vectors = np.random.default_rng(count).normal(size=(500, count))
            expected = np.array([np.linalg.norm(vector) for vector in vectors])
            for fused in matches:
                out = np.empty(len(vectors))
                self.held.norms(
                    ctypes.c_bool(fused), ctypes.c_void_p(vectors.ctypes.data), len(vectors), count,
                    ctypes.c_void_p(out.ctypes.data),
                )  # fmt: skip
                matches[fused] &= bool((out == expected).all())
        if not any(matches.values()):
            raise StepperUnavailableError("NumPy's BLAS adds up dot products in an unknown order")
        return matches[True]


def square(x: np.float64) -> np.float64:
    """As upstream has it, of a scalar."""
    return x**2


@cache
def load(folder: Path | None = None) -> StepperLibrary:
    """The stepper, once a process. Errors: StepperUnavailableError."""
    return StepperLibrary(folder or default_folder(SOURCES))


def _fingerprint() -> str:
    """Digest of what NumPy makes of some numbers: its kernels depend on the processor and on the environment."""
    x = np.random.default_rng(0).uniform(0, 2, 300)
    results = [np.exp(-x), np.log(x), np.sin(x), np.cos(x), np.array([np.float64(v) ** 2 for v in x])]
    results.append(np.array([np.linalg.norm(v) for v in x.reshape(100, 3)]))
    return hashlib.sha256(b"".join(result.tobytes() for result in results)).hexdigest()[:16]
