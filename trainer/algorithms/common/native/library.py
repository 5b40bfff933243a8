"""kernels.c as Python calls it, whether it is called, and by how many threads."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, c_double, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer.algorithms.common.cuda_graph import KERNELS, NATIVE
from trainer.config.training import Training
from trainer.envs.spaces import F32
from trainer.errors import ConfigError, UndecidedError
from trainer.machine.building import (
    Library,
    NoLibraryError,
    Recipe,
    UnreadLibraryError,
    cache_folder,
    find_or_build,
)

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
#: Operations of a layer of the critics from which a second thread is worth its messages (bench/update.py).
WORTH_A_THREAD = 2 * 128 * 256 * 256
#: `numbers_of` kernels.c, which are the same everywhere.
_NUMBERS = "bba368d56cfee8f009bac416741549e169b42367586da336582b214aba71af43"


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


def numbers_of(kernels: Any) -> str:
    """Digest of what functions of one number, a sum and a step make of fixed numbers: a compiler that reorders them,
    contracts them or takes others for them changes it.
    """
    rows, actions = 67, 3
    size = rows * actions
    outputs, bias, noise = _some(2 * size), _some(2 * actions), _some(size)[::-1].copy()
    temperature, action, step, within, target = made = np.zeros((5, size), np.float32)
    log_prob, steps = np.zeros(rows, np.float32), np.full(1, 4, np.float32)
    weight, mean, square = noise.copy(), _some(size), _some(size) ** 2
    kernels.temperatures(size, _at(noise), _at(temperature))
    inputs = _at(outputs), _at(bias), _at(noise)
    kernels.draw_actions(rows, actions, *inputs, _at(action), actions, _at(log_prob), _at(step), _at(within))
    scale = kernels.clip_scale(2 * size, _at(outputs), 1.0)
    moved = _at(weight), _at(outputs), _at(mean), _at(square), _at(steps), _at(target)
    kernels.adam(Adam(1e-3, 0.9, 0.999, 1e-8, 0.01), size, scale, *moved, 0.005)
    found = made, log_prob, weight, mean, square, np.float64(scale)
    return hashlib.sha256(b"".join(array.tobytes() for array in found)).hexdigest()


def _some(count: int) -> F32:
    """Numbers between -3 and 3, which no version of a generator changes."""
    return ((np.arange(count) * 7919 % 2003 - 1001) / 334).astype(np.float32)


def _at(array: F32) -> int:
    return array.ctypes.data


def _fault(built: Library) -> str | None:
    if numbers_of(bind(built)) == _NUMBERS:
        return None
    return "its results differ from kernels.c, as with -ffast-math"


RECIPE = Recipe("kernels", SOURCES, FLAGS, fault=_fault)


def choose_native(training: Training, recorded: str | None) -> tuple[str, str | None]:
    """(the way for `numeric`, a sentence for the user or None): as it was `recorded`; else, at a run's beginning,
    natively where critics are plain, batches whole and products not rounded, torch has one thread, and there is a
    library.

    Errors: ConfigError where a run was begun natively, and there is no library: its bits are nowhere else;
    UndecidedError where it is not known whether there is one.
    """
    off_policy = training.off_policy
    is_whole = off_policy.shards == 1 and off_policy.precision == "float32"
    is_meant = is_whole and training.network.critic_net != "residual" and training.threads == 1
    if recorded not in {None, NATIVE} or (recorded is None and not is_meant):
        return KERNELS, None
    try:
        load()
    except UnreadLibraryError as error:
        raise UndecidedError("library.updates-unread", why=error) from error
    except NoLibraryError as error:
        if recorded == NATIVE:
            raise ConfigError("library.updates-gone", why=error) from error
        return KERNELS, f"updates run without the faster C library ({error})"
    return NATIVE, None


def threads_for(training: Training, cores: int) -> int:
    """Of native updates: two, which leave the same bits, where there is a second core, products are large, and each of
    them is computed by one.
    """
    widest = max(training.network.critic_hidden)
    is_worth_it = 2 * training.off_policy.batch_size * widest**2 >= WORTH_A_THREAD
    return 2 if training.threads == 1 and cores > 1 and is_worth_it else 1


class ThreadPair:
    """Does two things at the same time, the second in a thread of its own; with one thread, or where no other can be
    started, one after the other.

    The other thread has what torch and its libraries keep for each thread: as many threads for a product, no gradients.
    """

    def __init__(self, threads: int) -> None:
        self._pool = _started() if threads > 1 else None

    @property
    def threads(self) -> int:
        """How many work at the same time."""
        return 1 if self._pool is None else 2

    def both(self, one: Callable[[], None], other: Callable[[], None]) -> None:
        """Returns when both are done. Errors: those of either."""
        if self._pool is None:
            one()
            other()
            return
        running = self._pool.submit(other)
        try:
            one()
        finally:
            running.result()


def _started() -> ThreadPoolExecutor | None:
    """A thread that runs and has its settings; None: the system has none left."""
    pool = ThreadPoolExecutor(1, "learner", _set_up_thread, (torch.get_num_threads(),))
    try:
        pool.submit(int).result()
    except RuntimeError:
        return None
    return pool


def _set_up_thread(threads: int) -> None:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
