"""A task's model, compiled once and then copied, which takes far less time.

It is copied from one that lives, for a spare one would take 20 MB a task of each worker. MuJoCo compiles without
Python's lock, so `compile_ahead` does it while this process imports what else it needs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

import mujoco
import numpy.typing as npt

import trainer.envs.simulator  # noqa: F401 - where MuJoCo's warnings go, before a first one
from trainer.machine.host import read_host

#: Fields that some task's `reset_model` writes; the quaternions are kept as a precaution (they are small).
MODEL_FIELDS = ("site_pos", "body_pos", "site_quat", "body_quat")
#: What `trainer.envs.views` draws anew, too.
_VIEWED = ("cam_pos", "cam_quat", "light_dir", "light_diffuse")
_MOST_THREADS = 4
#: So many are compiled ahead at most: 20 MB each, which are for nothing where workers step.
_MOST_AHEAD = 16
#: By file: a model that lives, and of all that were compiled what is written later.
_alive: WeakValueDictionary[str, mujoco.MjModel] = WeakValueDictionary()
_compiled: dict[str, dict[str, npt.NDArray[Any]]] = {}
#: By file: what `compile_ahead` began, and nobody has taken.
_ahead: dict[str, Future[mujoco.MjModel]] = {}


def compile_ahead(paths: Iterable[str]) -> None:
    """Begin to compile the models of files; `model_of` takes each once, with its errors."""
    threads = ThreadPoolExecutor(min(_MOST_THREADS, max(1, read_host().cores - 1)), thread_name_prefix="models")
    with suppress(RuntimeError):  # no thread can be had: `model_of` compiles them itself
        for path in islice(dict.fromkeys(paths), _MOST_AHEAD):
            _ahead[path] = threads.submit(mujoco.MjModel.from_xml_path, path)
    threads.shutdown(wait=False)


def drop_ahead() -> None:
    """Forget what was begun and nobody has taken."""
    for begun in _ahead.values():
        begun.cancel()
    _ahead.clear()


def model_of(path: str) -> mujoco.MjModel:
    """The model of the file, as compiled, and the caller's alone. Errors: ValueError, as MuJoCo's."""
    living, begun = _alive.get(path), _ahead.pop(path, None)
    if living is None:
        model = mujoco.MjModel.from_xml_path(path) if begun is None else begun.result()
        _compiled[path] = {name: array.copy() for name, array in _written(model).items()}
    else:
        model = copy.copy(living)
        for name, array in _written(model).items():
            array[:] = _compiled[path][name]
    _alive[path] = model
    return model


def _written(model: mujoco.MjModel) -> dict[str, npt.NDArray[Any]]:
    fields = {name: getattr(model, name) for name in (*MODEL_FIELDS, *_VIEWED)}
    return {**fields, "headlight": model.vis.headlight.diffuse}
