"""Whether demonstrations show what a training's policy sees and does, and what an algorithm keeps of them.

Shapes: an episode of F frames has L steps, F - 1 at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.words import counted
from trainer.buffers.demonstrated import ShownEpisode
from trainer.config.settings import EnvSettings
from trainer.demos.store import ACTION, REWARD, TERMINATED, DemoEpisode, Demos, DemosManifest
from trainer.envs.frames import stacked
from trainer.envs.spaces import (
    ACTION_HIGH,
    ACTION_LOW,
    I64,
    IMAGE,
    PRIVILEGED,
    STATE,
    ArraySpec,
    Box,
    Discrete,
    Obs,
    Spaces,
)
from trainer.errors import ConfigError

#: Of float32 actions that somebody rounded.
_SLACK = 1e-4
#: Pictures that an encoder reads at once.
_AT_ONCE = 64

Read = Callable[[Obs], Obs]


def rows_of(manifest: DemosManifest, spaces: Spaces, *, imitates: bool = False) -> I64:
    """[K] how many frames of each task of a training that sees `spaces` are kept. `imitates`: it learns what was done,
    and not what came of it.

    Errors: ConfigError where it cannot learn from them: other pictures, numbers or actions, no rewards, or a task that
    is not shown (to be imitated, in two episodes, of which one is held out).
    """
    way_out = _way_out(imitates=imitates)
    _check_spaces(manifest, spaces.of_policy if imitates else spaces, spaces, way_out)
    if not imitates and REWARD not in manifest.told:
        raise ConfigError("demos.no-rewards")
    usable = usable_of(manifest, spaces, imitates=imitates)
    for number, name in enumerate(spaces.tasks):
        shown = usable.count(number)
        if imitates and shown < 2:
            raise ConfigError("demos.too-few-episodes", shown=shown, task=name)
        if not shown:
            raise ConfigError("demos.task-missing", task=name)
    rows = np.zeros(len(spaces.tasks), np.int64)
    for task, episode in zip(usable, manifest.episodes, strict=True):
        if task is not None:
            rows[task] += steps_of(episode) + 1
    return rows


def episodes_of(
    demos: Demos, spaces: Spaces, kept: Spaces, read: Read, *, imitates: bool = False
) -> Iterator[ShownEpisode]:
    """All that `rows_of` counts, in order. `kept`: what is kept of `spaces`; `read`: makes that of some observations,
    where a frozen encoder stands between. What nobody says ended truly was cut; where nobody tells rewards, they are 0.

    Errors: ConfigError; DamagedDemosError.
    """
    names, way_out = names_of(demos.manifest.opened, spaces), _way_out(imitates=imitates)
    usable = usable_of(demos.manifest, spaces, imitates=imitates)
    for task, (episode, arrays) in zip(usable, demos.read(), strict=True):
        if task is None:
            continue
        steps, frames = steps_of(episode), {}
        for key, spec in spaces.obs.items():
            shown = arrays[names[key]][: steps + 1]
            frames[key] = shown if kept.obs[key] == spec else _features(key, spec, shown, read)
        told = {
            ACTION: bounded(arrays[ACTION][:steps], spaces.action, way_out),
            REWARD: arrays.get(REWARD, np.zeros(steps, np.float32))[:steps],
            TERMINATED: arrays.get(TERMINATED, np.zeros(steps, np.bool_))[:steps],
        }
        yield ShownEpisode(task, frames, told)


def must_pay_alike(manifest: DemosManifest, env: EnvSettings) -> None:
    """Whether rewards and ends are those of `env`, as far as is known. Errors: ConfigError."""
    then, now = manifest.source.paid_by or {}, env.paid_by
    other = [f"env.{name} {value} → {now.get(name)}" for name, value in then.items() if now.get(name) != value]
    if other:
        raise ConfigError("demos.other-rewards", other=", ".join(other))


def _way_out(*, imitates: bool) -> str:
    return "choose another algorithm than cloning" if imitates else "leave algorithm.demos out"


def _check_spaces(manifest: DemosManifest, needed: Spaces, spaces: Spaces, way_out: str) -> None:
    """Whether pictures are those of `spaces`, and actions and all that is `needed` beside them. Errors: ConfigError."""
    if IMAGE in spaces.obs and spaces.obs[IMAGE].frame != manifest.frame:
        shown, wanted = (" x ".join(map(str, frame)) for frame in (manifest.frame, spaces.obs[IMAGE].frame))
        raise ConfigError("demos.other-pictures", shown=shown, cameras=", ".join(manifest.cameras), wanted=wanted)
    told = manifest.opened
    if told is None:
        raise ConfigError("demos.no-actions", way_out=way_out)
    if told.action != needed.action:
        raise ConfigError("demos.other-actions", shown=told.action, wanted=needed.action, way_out=way_out)
    names = names_of(told, needed)
    for key, spec in needed.obs.items():
        there = told.obs.get(names[key])
        if key != IMAGE and (there is None or (there.shape, there.dtype) != (spec.frame, spec.dtype)):
            who, found = "critics see" if spec.privileged else "policy sees", str(there.shape) if there else "none"
            raise ConfigError(
                "demos.other-observations", who=who, key=key, wanted=str(spec.frame), shown=found, way_out=way_out
            )


def usable_of(manifest: DemosManifest, spaces: Spaces, *, imitates: bool) -> list[int | None]:
    """Of each episode the number of its task; None where nothing is learned from it: it has no step, or failed, and
    that is not imitated. Errors: ConfigError.
    """
    numbers = tasks_of(manifest, spaces, _way_out(imitates=imitates))
    return [
        number if steps_of(episode) and not (imitates and episode.success is False) else None
        for number, episode in zip(numbers, manifest.episodes, strict=True)
    ]


def tasks_of(manifest: DemosManifest, spaces: Spaces, way_out: str) -> list[int]:
    """Of each episode the number of its task. A training of one task takes one task that is named otherwise for it, as
    people do; but not several, nor what is of several of which that is one. Errors: ConfigError.
    """
    numbers = {name: number for number, name in enumerate(spaces.tasks)}
    shown = [manifest.tasks[episode.task] for episode in manifest.episodes]
    if len(spaces.tasks) == len(set(shown)) == 1 and spaces.tasks[0] not in manifest.tasks:
        return [0] * len(shown)
    unknown = sorted(set(shown) - numbers.keys())
    if unknown:
        more = f" and {counted(len(unknown) - 1, 'other')}" if unknown[1:] else ""
        raise ConfigError(
            "demos.other-tasks", task=unknown[0], more=more, tasks=", ".join(spaces.tasks), way_out=way_out
        )
    return [numbers[name] for name in shown]


def names_of(told: Spaces | None, spaces: Spaces) -> dict[str, str]:
    """Key of `spaces` → key of the demonstrations. Where the state alone is seen, it is the whole state, which
    demonstrations have beside what the robot feels of itself.
    """
    names = {key: key for key in spaces.obs}
    if spaces.of_policy.obs.keys() == {STATE} and told is not None and PRIVILEGED in told.obs:
        names[STATE] = PRIVILEGED
    return names


def steps_of(episode: DemoEpisode) -> int:
    """Of its actions those of which is known what they led to."""
    return min(episode.actions, episode.frames - 1)


def bounded(actions: npt.NDArray[Any], space: Box | Discrete, way_out: str) -> npt.NDArray[Any]:
    """`actions` [N, …] within their bounds. Errors: ConfigError where they are not nearly so."""
    if isinstance(space, Box):
        reached = float(np.abs(actions).max(initial=0))
        if reached > ACTION_HIGH + _SLACK:
            raise ConfigError("demos.actions-outside", reached=reached, way_out=way_out)
        clipped: npt.NDArray[Any] = np.clip(actions, ACTION_LOW, ACTION_HIGH)
        return clipped
    if ((actions < 0) | (actions >= space.n)).any():
        raise ConfigError("demos.choices-outside", choices=space.n, way_out=way_out)
    return actions


def _features(key: str, spec: ArraySpec, frames: npt.NDArray[np.generic], read: Read) -> npt.NDArray[np.generic]:
    """[F, features] of [F, *frame] of one episode: before it lies its first frame."""
    back = np.arange(spec.stack)[::-1] * spec.stride
    parts = []
    for first in range(0, len(frames), _AT_ONCE):
        at = np.arange(first, min(first + _AT_ONCE, len(frames)))
        seen = stacked(spec, frames[np.maximum(0, at[:, None] - back)])
        parts.append(read({key: seen})[key])
    return np.concatenate(parts)
