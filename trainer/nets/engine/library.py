"""engine.c as Python calls it, and whether it can be had here."""

from __future__ import annotations

import ctypes
import hashlib
import platform
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trainer.envs.spaces import F32
from trainer.machine.building import Library, Recipe, cache_folder, find_or_build

SOURCES = Path(__file__).parent
#: Every processor of the last ten years has these; the others train by torch.
_INSTRUCTIONS = {"x86_64": ("-mavx2", "-mfma")}
#: None of these lets the compiler change a bit.
FLAGS = (
    *("-O3", "-std=gnu11", "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC"),
    *_INSTRUCTIONS.get(platform.machine(), ()),
)
#: `numbers_of` engine.c, which are the same on every processor.
_NUMBERS = "a8303318d7d576d0df88d4556ea53a186555fee57321aa18a0801268467e5177"


class EngineStep(ctypes.Structure):
    """`struct step`."""

    _fields_ = [("run", c_void_p), ("n", c_int64 * 8), ("p", c_void_p * 12)]


class Engine:
    """A loaded engine.c. It holds Python's lock while it runs: a step takes less than handing it over would."""

    def __init__(self, built: Library) -> None:
        self._library = ctypes.PyDLL(str(built.path))
        self.run = self._library.run
        self.run.argtypes, self.run.restype = [c_void_p, c_int64], None
        self._library.panel_width.restype = c_int64
        self.panel_width: int = self._library.panel_width()

    def steps(self, steps: Sequence[tuple[str, Sequence[int], Sequence[int | None]]]) -> Any:
        """What `run` takes of (name, sizes, addresses) each: `n` and `p` of engine.c."""
        made = [EngineStep(self._address(name), tuple(n), tuple(p)) for name, n, p in steps]
        return (EngineStep * len(made))(*made)

    def _address(self, step: str) -> int:
        found = ctypes.cast(getattr(self._library, step), c_void_p).value
        assert found is not None  # noqa: S101 - `getattr` would have failed
        return found


@cache
def load() -> Engine:
    """Found in the user's cache, or built. Errors: NoLibraryError."""
    return Engine(find_or_build(RECIPE, cache_folder(RECIPE, "engine")))


def numbers_of(engine: Engine) -> str:
    """Digest of what steps make of fixed numbers: a compiler that reorders or contracts them, or takes others for them,
    changes it.
    """
    rows, width, deep = 37, 19, 401
    a, b, panels, c = _some(rows * deep), _some(deep * width), np.zeros(deep * 32, np.float32), _some(rows * width)
    bias, noise, outputs = _some(width), _some(rows * width)[::-1].copy(), _some(2 * rows * width)
    drawn, normalised = np.zeros((4, rows * width), np.float32), np.zeros((2, rows * width), np.float32)
    log, weight, moments = (
        np.zeros((3, rows * width), np.float32),
        _some(rows * width),
        np.zeros((2, rows * width), np.float32),
    )
    clip, adam, count = np.array([0.2]), np.array([1e-3, 0.9, 0.999, 1e-8, 0.01]), np.full(1, 4, np.float32)
    by_ratio, sums = np.zeros(rows, np.float32), np.zeros(3)
    steps: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = [
        ("pack", (deep, width, width, 1), (b, panels)),
        ("product", (rows, width, deep, deep, 1, width), (a, panels, c)),
        ("activate", (rows, width, 2), (bias, c)),
        ("squashed_normal", (rows, width, width), (outputs, noise, *drawn)),
        ("normalise", (rows, width), (outputs, bias, bias, *normalised)),
        ("categorical", (rows, width), (outputs, None, *log)),
        ("clipped_ratio", (rows,), (noise, outputs, c, clip, by_ratio, sums)),
        ("adam", (rows * width,), (adam, weight, c, *moments, count)),
    ]
    packed = [(name, n, [None if place is None else place.ctypes.data for place in p]) for name, n, p in steps]
    engine.run(engine.steps(packed), len(packed))
    found = c, drawn, normalised, log, by_ratio, sums, weight, moments
    return hashlib.sha256(b"".join(array.tobytes() for array in found)).hexdigest()


def _some(count: int) -> F32:
    """Numbers between -3 and 3, which no version of a generator changes."""
    return ((np.arange(count) * 7919 % 2003 - 1001) / 334).astype(np.float32)


def _fault(built: Library) -> str | None:
    return None if numbers_of(Engine(built)) == _NUMBERS else "its results differ from engine.c, as with -ffast-math"


RECIPE = Recipe("engine", SOURCES, FLAGS, fault=_fault)
