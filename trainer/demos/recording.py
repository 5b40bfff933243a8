"""`trainer demos record`: a policy that is known to do well plays, and what cameras see of it is kept.

The teacher may see less or more than the pictures: a scripted one, or one that was trained from the whole state, is
shown the whole state, which critics see (`privileged`); one that was trained from pictures is shown its own. The whole
state is kept where the environment gives more than pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from trainer.buffers.frames import is_picture
from trainer.config.find import SUITES, find
from trainer.config.pictures import PictureSettings
from trainer.config.read import sentences
from trainer.config.settings import EnvSettings
from trainer.config.training import SEEDS
from trainer.demos.store import (
    ACTION,
    REWARD,
    SUCCESS,
    TERMINATED,
    Arrays,
    DemoEpisode,
    Demos,
    DemosManifest,
    DemoSource,
    DemosWriter,
    Progress,
    digest_of,
)
from trainer.envs.collector import Collector, Transition
from trainer.envs.spaces import I32, IMAGE, PRIVILEGED, STATE, Actions, ArraySpec, Obs, Spaces
from trainer.envs.step import Script, VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from trainer.evaluation.playable import Found

#: Where a suite does not say how many steps it makes a second.
_USUAL_FPS = 30
#: Of a suite whose episodes' seeds decide all, one seed has as many episodes as anybody wants.
_NO_END = 2**31
#: The number of the first recorded episode there: evaluations play the first fifty, `trainer play` the first hundred.
OWN_FROM = 1_000_000


Say = Callable[[str], None]


@dataclass(frozen=True)
class Teacher:
    """Who plays: `act` for what its own eyes see. `env`: what is played, with pictures and the whole state."""

    name: str
    env: PictureSettings
    act: Callable[[Obs, I32], Actions]


def with_cameras(
    env: EnvSettings, cameras: Sequence[str], size: int | None, sees: Mapping[str, ArraySpec] | None = None
) -> PictureSettings:
    """`env` with pictures and the whole state to see; `cameras` and `size` where they are not its own. `sees`: by key
    what the player is to see as it saw it: then pictures keep their stacks.

    Errors: ConfigError where it has none, or not these.
    """
    if not isinstance(env, PictureSettings):
        raise ConfigError("record.no-pictures", suite=env.name)
    more: dict[str, Any] = {"critic_sees": "state"}
    if IMAGE not in (sees or {}):
        more["observation"] = "both" if env.observation in {"state", "legacy", "clips"} else env.observation
    if not any(is_picture(spec) for spec in (sees or {}).values()):
        more |= {"frame_stack": 1, "frame_stride": 1}
    if cameras:
        more["cameras"] = tuple(cameras)
    if size is not None:
        more["image_size"] = size
    try:
        return type(env).model_validate({**env.model_dump(mode="json"), **more})
    except ValidationError as error:
        raise ConfigError("record.env", why=FieldError.at("", *sentences(error, type(env))[0])) from None


def scripted(env: EnvSettings, cameras: Sequence[str], size: int | None, seed: int) -> Teacher:
    """The suite's own scripted policy. Errors: ConfigError where it has none."""
    settings = with_cameras(env, cameras, size)
    kind = find(SUITES, env.name)
    if not hasattr(kind, "script"):  # before it is opened, which may draw
        raise ConfigError("record.no-script", suite=env.name)
    suite: Any = SuiteRef(settings, seed).open()
    scripts: dict[int, Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]] = {}

    def act(obs: Obs, task: I32) -> Actions:
        number = int(task[0])
        if number not in scripts:
            scripts[number] = suite.script(number)
        return scripts[number](obs[PRIVILEGED][0])[None]

    return Teacher(f"scripted, {env.name}", settings, act)


def trained(found: Found, cameras: Sequence[str], size: int | None) -> Teacher:
    """A policy that was trained, deterministic. Errors: ConfigError where it cannot be shown what it saw."""
    own = found.policy.spec.spaces
    sees_pictures = any(is_picture(spec) for spec in own.obs.values())
    if sees_pictures and (cameras or size is not None):
        raise ConfigError("record.own-cameras")
    settings = with_cameras(found.env, cameras, size, own.obs)
    try:
        shown = SuiteRef(settings, found.goal_seed).open().spaces
    except ConfigError:
        if not sees_pictures:
            raise
        # There may be pictures alone: without the whole state, it can be opened.
        settings = settings.model_copy(update={"critic_sees": "observation"})
        shown = SuiteRef(settings, found.goal_seed).open().spaces
    from_whole = not sees_pictures and own.obs.keys() == {STATE}
    if from_whole and own.obs[STATE].shape != shown.obs[PRIVILEGED].shape:
        raise ConfigError("record.sees-otherwise")
    other = [key for key, spec in own.obs.items() if key not in shown.obs or shown.obs[key].shape != spec.shape]
    if other and not from_whole:
        raise ConfigError("record.other-picture", key=other[0])

    def act(obs: Obs, task: I32) -> Actions:
        seen = {STATE: obs[PRIVILEGED]} if from_whole else {key: obs[key] for key in own.obs}
        return found.act(seen, task)

    return Teacher(found.name, settings, act)


def record(
    teacher: Teacher,
    task: str | None,
    episodes: int,
    seed: int,
    out: Path,
    progress: Progress,
    say: Say,
    *,
    keeps_failures: bool = False,
) -> Demos:
    """Play `episodes` of `task` (None: of each task as many) and keep those that succeed, or all. The same seed comes
    to the same demonstrations, however often it was interrupted.

    Errors: ConfigError; EnvError; SaveError.
    """
    suite: Any = SuiteRef(teacher.env, seed).open()
    spaces: Spaces = suite.spaces
    if task is not None and task not in spaces.tasks:
        raise ConfigError("record.unknown-task", task=task, tasks=", ".join(spaces.tasks))
    tasks = range(len(spaces.tasks)) if task is None else [spaces.tasks.index(task)]
    keeps_failures |= not suite.tells_success
    kept = _single(spaces)
    source = DemoSource(
        kind="recorded",
        name=teacher.name,
        asked=digest_of(
            teacher=teacher.name,
            env=teacher.env.model_dump(mode="json"),
            tasks=list(tasks),
            episodes=episodes,
            seed=seed,
            failures=keeps_failures,
        ),
        paid_by=teacher.env.paid_by,
    )  # fmt: skip
    plan = DemosManifest(
        source=source,
        cameras=teacher.env.seen_by or ("render",),
        frame=kept.obs[IMAGE].shape,
        tasks=spaces.tasks,
        spaces=kept.as_json(),
        told=(REWARD, TERMINATED, SUCCESS),
    )
    writer = DemosWriter(out, plan)
    turns = [(number, index) for number in range(episodes) for index in tasks]
    first = _behind(writer, turns)
    fps = float(getattr(suite, "steps_a_second", _USUAL_FPS))
    failed = 0
    for turn, arrays, success in _played(teacher, turns[first:], seed, suite.starts):
        number, index = turn
        progress(turns.index(turn), len(turns))
        if success or keeps_failures:
            name = f"{spaces.tasks[index]}, episode {number}"
            told = success if suite.tells_success else None
            episode = DemoEpisode(
                name=name, frames=len(arrays[IMAGE]), actions=len(arrays[ACTION]), fps=fps, task=index, success=told
            )
            writer.add(episode, arrays)
        else:
            failed += 1
    if failed:
        say(f"{failed} of {len(turns) - first} episodes failed and are left out (keep them with --keep-failures)")
    return writer.finish()


def _single(spaces: Spaces) -> Spaces:
    """One frame of each key, without stacks."""
    obs = {
        key: ArraySpec(spec.frame, spec.dtype, spec.low, spec.high, privileged=spec.privileged)
        for key, spec in spaces.obs.items()
    }
    return Spaces(obs, spaces.action, spaces.tasks, spaces.horizon)


def _behind(writer: DemosWriter, turns: Sequence[tuple[int, int]]) -> int:
    """The first turn that is not there: behind the last episode that is."""
    if not writer.manifest.episodes:
        return 0
    last = writer.manifest.episodes[-1]
    return turns.index((int(last.name.rpartition(" ")[2]), last.task)) + 1


def _played(
    teacher: Teacher, turns: Sequence[tuple[int, int]], seed: int, starts: int | None
) -> Iterator[tuple[tuple[int, int], Arrays, bool]]:
    """(turn, arrays, whether it succeeded) of each, in order. Of fixed starts each is played once with each seed."""
    ends = teacher.env.SUCCESS_AT == "any step"
    rounds = starts or _NO_END
    waiting = list(turns)
    while waiting:
        number = waiting[0][0] // rounds
        here = [turn for turn in waiting if turn[0] // rounds == number]
        waiting = waiting[len(here) :]
        script = Script(tuple((task, episode % rounds + (0 if starts else OWN_FROM)) for episode, task in here))
        suite = SuiteRef(teacher.env, (seed + number) % SEEDS)
        spec = VectorSpec(suite, 1, seed, stop_at_success=ends, scripts=(script,))
        with VectorEnv(spec, 0) as envs:
            collector = Collector(envs)
            for turn in here:
                transitions = list(_episode(collector, teacher))
                yield turn, _arrays(envs.spaces, transitions), bool(transitions[-1].step.episode_success[0])


def _episode(collector: Collector, teacher: Teacher) -> Iterator[Transition]:
    while True:
        transition = collector.step(teacher.act(collector.obs, collector.task))
        yield transition
        if transition.step.finished[0]:
            return


def _arrays(spaces: Spaces, transitions: Sequence[Transition]) -> Arrays:
    """Of one episode: of each key a frame more than actions."""
    found: dict[str, npt.NDArray[Any]] = {}
    for key, spec in spaces.obs.items():
        frames = [*(transition.obs[key][0] for transition in transitions), transitions[-1].step.next_obs[key][0]]
        found[key] = np.stack([_newest(spec, frame) for frame in frames])
    found[ACTION] = np.stack([transition.action[0] for transition in transitions])
    steps = [transition.step for transition in transitions]
    found[REWARD] = np.array([step.reward[0] for step in steps], np.float32)
    found[TERMINATED] = np.array([step.terminated[0] for step in steps])
    found[SUCCESS] = np.array([step.success[0] for step in steps])
    return found


def _newest(spec: ArraySpec, seen: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The newest frame of one observation."""
    if spec.stack == 1:
        return seen
    return seen[-1] if spec.is_clip else seen[-spec.frame[0] :]
