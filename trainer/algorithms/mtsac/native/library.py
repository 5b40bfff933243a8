"""kernels.c as Python calls it."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from trainer.machine.building import Library, Recipe, cache_folder, find_or_build

SOURCES = Path(__file__).parent
#: None of these lets the compiler change a bit.
FLAGS = (
    "-O3",
    "-std=gnu11",
    "-ffp-contract=off",
    "-fno-fast-math",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
)
RECIPE = Recipe("kernels", SOURCES, FLAGS)


class Adam(ctypes.Structure):
    """`struct adam`."""

    _fields_ = [(name, c_double) for name in ("rate", "beta1", "beta2", "eps", "weight_decay")]


_P, _N, _F, _D = c_void_p, c_int64, c_float, c_double
#: Function → its arguments, as kernels.c has them.
_ARGUMENTS: dict[str, list[Any]] = {
    "fill_inputs": [_N, _N, _N, _N, _P, _P, _P, _P],
    "bias_relu": [_N, _N, _P, _P],
    "through_relu": [_N, _N, _P, _P, _P],
    "through_relu_of": [_N, _P, _N, _P, _P],
    "through_head": [_N, _P, _N, _P, _N, _P, _P, _P, _P],
    "sum_rows": [_N, _N, _P, _P],
    "draw_actions": [_N, _N, _P, _P, _P, _P, _N, _P, _P, _P],
    "actor_gradient": [_N, _N, _P, _N, *[_P] * 9],
    "smaller": [_N, _N, *[_P] * 7],
    "td_target": [_N, _P, _P, _P, _F, _P, _P, _P],
    "critic_gradient": [_N, _N, *[_P] * 7],
    "put_rows": [_N, _P, _N, _P, _P],
    "clip_scale": [_N, _P, _D],
    "adam": [POINTER(Adam), _N, _F, _P, _P, _P, _P, _P, _P, _F],
    "temperatures": [_N, _P, _P],
    "temperature_gradient": [_N, _N, c_int, _P, _P, _F, _P, _P, _P],
}
_RESULTS = {"smaller": c_int64, "clip_scale": c_double}


@cache
def load() -> Any:
    """The functions of kernels.c, which hold Python's lock: each is shorter than handing it over would take.

    Found in the user's cache, or built. Errors: NoLibraryError.
    """
    return bind(find_or_build(RECIPE, cache_folder(RECIPE, "update")))


def bind(built: Library) -> Any:
    """The functions of a library."""
    library = ctypes.PyDLL(str(built.path))
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, _RESULTS.get(name)
    return library
