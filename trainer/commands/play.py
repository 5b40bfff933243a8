"""`trainer play`: watch a policy."""

from __future__ import annotations

import contextlib
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer.envs.cameras import Picture
    from trainer.evaluation.playable import Found

PolicyArgument = Annotated[
    str,
    typer.Argument(
        metavar="POLICY", help="A checkpoint or run folder; a mirror or manifest; or latest, best, RUN, RUN/SLOT."
    ),
]
TaskOption = Annotated[str | None, typer.Option(help="Which of the policy's tasks; may be left out where it has one.")]
EpisodesOption = Annotated[int, typer.Option(min=1, max=50, help="Episodes, each from the next goal.")]
GoalOption = Annotated[int, typer.Option(min=0, max=49, help="The first episode's fixed goal.")]
OutOption = Annotated[Path | None, typer.Option(help="The film, an .mp4 or a .gif; default: TASK.mp4 in this folder.")]
CameraOption = Annotated[
    str | None,
    typer.Option(help="Of Meta-World: corner2 (default), corner, corner3, corner4, topview, behindGripper"),
]
SizeOption = Annotated[int | None, typer.Option(help="Of Meta-World: pixels a side; default: 480.")]
SharedDirOption = Annotated[
    Path | None, typer.Option(help="The mirror or shared folder that latest, best, RUN are in.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
BestOption = Annotated[bool, typer.Option("--best", help="The folder's best evaluated checkpoint, not its newest.")]
AveragedOption = Annotated[
    bool, typer.Option("--averaged", help="The moving average of what was trained, in place of its last weights.")
]
SlotOption = Annotated[
    int | None, typer.Option(min=0, help="This slot of a run or mirror; left out: the furthest, or newest.")
]


def play(
    policy: PolicyArgument,
    task: TaskOption = None,
    episodes: EpisodesOption = 1,
    goal: GoalOption = 0,
    out: OutOption = None,
    camera: CameraOption = None,
    size: SizeOption = None,
    shared_dir: SharedDirOption = None,
    device: DeviceOption = "auto",
    best: BestOption = False,
    averaged: AveragedOption = False,
    slot: SlotOption = None,
) -> None:
    """Play single episodes with the deterministic policy, and make a video of them."""
    from trainer.showing.filmfile import check_place  # noqa: PLC0415 - with the rest

    if out is not None:
        check_place(out)
    from trainer.errors import ConfigError  # noqa: PLC0415 - with the rest
    from trainer.evaluation.playable import find_playable  # noqa: PLC0415 - torch
    from trainer.machine import drawing  # noqa: PLC0415

    found = find_playable(policy, shared_dir, device, best=best, averaged=averaged, slot=slot)
    found.task_index(task)
    for note in found.notes:
        print(note, file=sys.stderr)
    if found.env.name != "metaworld":
        if camera is not None or size is not None:
            raise ConfigError("play.size-of-other-suite", suite=found.env.name)
        _watch(found, task, episodes, goal, out)
        return
    drawing.prepare()  # before anything loads mujoco
    from trainer.showing.beside import with_views  # noqa: PLC0415
    from trainer.showing.camera import FRAMES_A_SECOND, Camera, film  # noqa: PLC0415
    from trainer.showing.play import staged, steps_a_frame  # noqa: PLC0415 - the simulator

    with staged(found, task) as stage:
        video = out or Path(f"{stage.task}.mp4")
        print(f"{stage.task} · {found.name} · step {found.step:,}")
        solved = 0
        with closing(Camera(stage.simulation, camera or "corner2", size or 480)) as eye:
            height, width, _ = with_views(eye.picture(), stage.views).shape
            with film(video, (width, height)) as show:

                def seen() -> Picture:
                    return with_views(eye.picture(), stage.views)

                def look(every: int, step: int) -> None:
                    if step % every == 0:
                        show(seen())

                for number in range(goal, goal + episodes):
                    # It comes out alike each time, so its length is known before it is drawn.
                    every = steps_a_frame(stage.play(number, lambda _: None).steps)
                    episode = stage.play(number, partial(look, every))
                    _hold(seen(), show, FRAMES_A_SECOND)
                    solved += episode.solved_at is not None
                    print(episode.words(), flush=True)
    print(f"solved {solved} of {episodes}; the video: {video}")


def _watch(found: Found, task: str | None, episodes: int, first: int, out: Path | None) -> None:
    """Environments that draw themselves, in their own size and at their own speed."""
    from trainer.errors import ConfigError  # noqa: PLC0415 - as above
    from trainer.machine import drawing  # noqa: PLC0415

    with contextlib.suppress(ConfigError):  # not all are MuJoCo's, and those say themselves what is missing
        drawing.prepare()
    from trainer.showing.camera import film  # noqa: PLC0415
    from trainer.showing.watch import watching  # noqa: PLC0415 - the environments

    with watching(found, task) as stage:
        video = out or Path(f"{stage.task}.mp4")
        print(f"{stage.task} · {found.name} · step {found.step:,}")
        stage.reset(first)
        height, width, _ = stage.picture().shape
        with film(video, (width, height), stage.fps) as show:
            for number in range(first, first + episodes):
                print(stage.play(number, lambda: show(stage.picture())).words(), flush=True)
                _hold(stage.picture(), show, stage.fps)
    print(f"the video: {video}")


def _hold(picture: Picture, show: Callable[[Picture], None], frames: int) -> None:
    """The end of an episode, for a second: how it ended is what one wants to see."""
    for _ in range(frames):
        show(picture)
