"""`trainer play`: watch a policy."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainer.commands.options import (
    AveragedOption,
    BestOption,
    DeviceOption,
    PolicyArgument,
    SharedDirOption,
    SlotOption,
)

TaskOption = Annotated[str | None, typer.Option(help="Which of the policy's tasks; may be left out where it has one.")]
EpisodesOption = Annotated[int, typer.Option(min=1, max=50, help="Episodes, each from the next goal.")]
GoalOption = Annotated[int, typer.Option(min=0, max=49, help="The first episode's fixed goal.")]
OutOption = Annotated[Path | None, typer.Option(help="The film, an .mp4 or a .gif; default: TASK.mp4 in this folder.")]
CameraOption = Annotated[
    str | None,
    typer.Option(help="Of Meta-World: corner2 (default), corner, corner3, corner4, topview, behindGripper"),
]
SizeOption = Annotated[int | None, typer.Option(help="Of Meta-World: pixels a side; default: 480.")]


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
    from trainer.showing.film import check_place, film

    if out is not None:
        check_place(out)
    from trainer.errors import ConfigError
    from trainer.evaluation.playable import find_playable
    from trainer.machine import drawing

    found = find_playable(policy, shared_dir, device, best=best, averaged=averaged, slot=slot)
    found.task_index(task)
    for note in found.notes:
        print(note, file=sys.stderr)
    is_metaworld = found.env.name == "metaworld"
    if not is_metaworld and (camera is not None or size is not None):
        raise ConfigError("play.size-of-other-suite", suite=found.env.name)
    # Before anything loads mujoco. Not all others are MuJoCo's, and those say themselves what is missing.
    with contextlib.nullcontext() if is_metaworld else contextlib.suppress(ConfigError):
        drawing.prepare()
    from trainer.showing.play import PlayedTask, WatchedTask

    solved = 0
    made: PlayedTask | WatchedTask = (
        PlayedTask(found, task, camera or "corner2", size or 480) if is_metaworld else WatchedTask(found, task)
    )
    with made as stage:
        video = out or Path(f"{stage.task}.mp4")
        print(f"{stage.task} · {found.name} · step {found.step:,}")
        stage.reset(goal)
        height, width, _ = stage.picture().shape
        with film(video, (width, height), stage.fps) as show:
            for number in range(goal, goal + episodes):
                episode = stage.film(number, show)
                for _ in range(stage.fps):  # its end for a second: how it ended is what one wants to see
                    show(stage.picture())
                print(episode.words(), flush=True)
                solved += bool(episode.success)
    print(f"{f'solved {solved} of {episodes}; ' * is_metaworld}the video: {video}")
