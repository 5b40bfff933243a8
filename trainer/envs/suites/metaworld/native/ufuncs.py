"""NumPy's functions for C: the inner loops of its ufuncs, which compute what `np.exp(x)` does and need no lock.

The layout is `PyUFuncObject` of NumPy's C API (numpy/ufuncobject.h), the same since NumPy 1.0. Whoever uses a loop
compares it with the function first.
"""

from __future__ import annotations

import ctypes

import numpy as np

from trainer.envs.suite import StepperUnavailableError

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
    """(function, its data) of each of FUNCTIONS, one after another. Errors: StepperUnavailableError."""
    found: list[int | None] = []
    for function in FUNCTIONS:
        inside = _Ufunc.from_address(id(function))
        told = function.nin, function.nout, function.nargs, function.ntypes
        if (inside.nin, inside.nout, inside.nargs, inside.ntypes) != told:
            raise StepperUnavailableError(f"NumPy {np.__version__} keeps its functions in an unknown way")
        if _SIGNATURE not in function.types:
            raise StepperUnavailableError(f"NumPy {np.__version__} has no {function.__name__} of doubles")
        place = function.types.index(_SIGNATURE)
        found += [inside.functions[place], inside.data[place] if inside.data else None]
    return (ctypes.c_void_p * len(found))(*found)
