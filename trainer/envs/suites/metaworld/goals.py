"""The fixed goals of tasks.

Meta-World's protocol: each task has 50 fixed goals ("rand_vecs": where objects and target are), drawn once from a
seed, and every training episode starts from one of them. `goal_table(task, seed)` is exactly what `metaworld.MT1(task,
seed)` fixes, whatever other tasks are trained beside it; so a task keeps its goals when the list changes.
(`metaworld.MT10(seed)` draws its tasks from one stream: its first task has these goals, the later ones others of the
same distribution.) For goals that training never sees use another seed, as ML1's test set does (seed + 1).

Which of the goals an episode starts from is drawn by the environment's own `np.random.Generator`, see
`trainer.envs.episodes`: upstream's `reset(seed=)` is ignored, and its global `np.random` is shared by all.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.files import read_json_or_none, write_json
from trainer.config.settings import GOALS_PER_TASK
from trainer.config.suites import checked_tasks

Goals = npt.NDArray[np.float64]

_log = logging.getLogger(__name__)


def goal_table(task: str, seed: int, cache_dir: Path | None = None) -> Goals:
    """The 50 fixed goals of `task` for `seed`: [50, d] float64, equal to `metaworld.MT1(task, seed)`'s.

    With `cache_dir` the table is kept there as JSON, checked when it is read and silently made anew where it is
    damaged; a folder that cannot be written costs time, nothing else. Errors: ValueError for an unknown task.
    """
    checked_tasks((task,))
    release = version("metaworld")
    path = cache_dir / f"goals-{task}-{seed}-{release}.json" if cache_dir is not None else None
    if path is not None and (cached := _read(path, task, seed, release)) is not None:
        return cached
    goals = _draw(task, seed)
    if path is not None:
        value = {"task": task, "seed": seed, "metaworld": release, "sha256": digest(goals), "goals": goals.tolist()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, value)
        except OSError as error:
            _log.debug("goal table not cached: %s", error)
    return goals


def goal_tables(tasks: Sequence[str], seed: int, cache_dir: Path | None = None) -> tuple[Goals, ...]:
    """`goal_table` of each of `tasks`."""
    return tuple(goal_table(task, seed, cache_dir) for task in tasks)


def digest(goals: Goals) -> str:
    """sha256 of a goal table's shape and bytes."""
    return hashlib.sha256(f"{goals.dtype} {goals.shape} ".encode() + np.ascontiguousarray(goals).tobytes()).hexdigest()


def _read(path: Path, task: str, seed: int, release: str) -> Goals | None:
    value = read_json_or_none(path)
    try:
        goals = np.array(value["goals"], dtype=np.float64)  # type: ignore[index]
        genuine = (value["task"], value["seed"], value["metaworld"]) == (task, seed, release)  # type: ignore[index]
        genuine = genuine and goals.shape[0] == GOALS_PER_TASK and value["sha256"] == digest(goals)  # type: ignore[index]
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    return goals if genuine else None


@lru_cache(maxsize=256)
def _draw(task: str, seed: int) -> Goals:
    """What upstream's `_make_tasks` draws, without the physics of its hundred resets (3.7 s for MT10).

    The draws depend on the random numbers alone: every task's rejection rule looks at the drawn vector only. A test
    compares all fifty tasks with upstream.
    """
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env: Any = ALL_V3_ENVIRONMENTS[task]()
    env._freeze_rand_vec = False  # noqa: SLF001 - upstream has no other door
    env._set_task_called = True  # noqa: SLF001
    env.do_simulation = lambda ctrl, n_frames: None  # noqa: ARG005
    env.set_state = lambda qpos, qvel: None  # noqa: ARG005
    outside = np.random.get_state()  # noqa: NPY002 - the stream that upstream draws from
    np.random.seed(seed)  # noqa: NPY002
    try:
        drawn = []
        for _ in range(GOALS_PER_TASK):
            env.reset_model()
            env.reset_model()  # upstream's `reset` calls it twice, and the second draw counts
            drawn.append(env._last_rand_vec)  # noqa: SLF001
    finally:
        np.random.set_state(outside)  # noqa: NPY002
        env.close()
    goals = np.array(drawn, dtype=np.float64)
    goals.flags.writeable = False  # it is everybody's
    return goals
