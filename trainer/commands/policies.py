"""`trainer evaluate`, `export` and `play`: how good a policy is, a policy as one file, and a film of it."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorleg.output import Waiting, say, set_aside
from trainer.commands import (
    AveragedOption,
    BestOption,
    DeviceOption,
    JsonOption,
    PolicyArgument,
    SharedDirOption,
    SlotOption,
)

if TYPE_CHECKING:
    from trainer.exporting.export import Exported

CheckpointArgument = Annotated[Path, typer.Argument(help="A checkpoint, attempt, slot or run folder.")]
GoalsOption = Annotated[int, typer.Option(min=1, max=50, help="Fixed goals per task.")]
UnseenOption = Annotated[int, typer.Option(min=0, max=50, help="Further goals per task that were not trained on.")]
GoalSeedOption = Annotated[
    int | None, typer.Option(min=0, max=2**32 - 1, help="Default: the training's. Another seed gives unseen goals.")
]


def evaluate(
    checkpoint: CheckpointArgument,
    goals: GoalsOption = 50,
    goal_seed: GoalSeedOption = None,
    unseen_goals: UnseenOption = 0,
    device: DeviceOption = "auto",
    best: BestOption = False,
    averaged: AveragedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a policy from fixed goals.

    Plays without exploration. Success counts at any step, or at the last one if the suite says so (the arm).
    """
    aside = set_aside() if as_json else contextlib.nullcontext()
    with aside, Waiting("reading the checkpoint") as line:
        from trainer.evaluation.playable import evaluate_checkpoint

        found = evaluate_checkpoint(
            checkpoint,
            goals=goals,
            goal_seed=goal_seed,
            unseen_goals=unseen_goals,
            device=device,
            best=best,
            averaged=averaged,
            progress=lambda done, total: line.count(done, total, "episodes"),
        )
    for note in found.notes:
        say(note, file=sys.stderr)
    value: dict[str, Any] = {"checkpoint": str(found.path), "step": found.step, **found.evaluation.as_json()}
    if averaged:
        value["is_averaged"] = True
    if as_json:
        print(json.dumps(value, indent=2))
    else:
        show_evaluation(
            value, f"{found.path}\nstep {found.step:,}{', averaged' * averaged}: {found.evaluation.summary()}"
        )


def show_evaluation(result: Mapping[str, Any], summary: str) -> None:
    """The table of one evaluation, on standard output, and in a line what it comes to."""
    from rich.console import Console

    from trainer.history.read import tells_success
    from trainer.showing.tables import print_table

    beside = {"unseen goals": "unseen", "averaged": "averaged"}
    beside = {words: name for words, name in beside.items() if name in result and tells_success(result)}
    rows = []
    for task, earned in result["returns"].items():
        row = [task, f"{earned:.1f}"]
        if tells_success(result):
            steps = result["steps_to_success"].get(task)
            row = [task, f"{result['success'][task]:.3f}", row[1], "" if steps is None else f"{steps:.1f}"]
        rows.append([*row, *(f"{result[name]['success'][task]:.3f}" for name in beside.values())])
    heads = ["task", "success", "return", "solved in steps"] if tells_success(result) else ["task", "return"]
    console = Console(emoji=False, highlight=False)
    if console.is_terminal:
        print_table(console, [*heads, *beside], rows)
    else:
        print(*("\t".join(row) for row in rows), sep="\n")
    say(*summary.splitlines())


#: Task names that fit on a line.
_SHOWN_TASKS = 3

FileOption = Annotated[Path, typer.Option(help="NAME.onnx, NAME.pt2 or NAME.safetensors.")]


def export(
    policy: PolicyArgument,
    out: FileOption = Path("policy.safetensors"),
    slot: SlotOption = None,
    best: BestOption = False,
    averaged: AveragedOption = False,
    shared_dir: SharedDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a policy as one file for other programs.

    Inputs are observations as the environment gives them and the task's number; outputs are actions from -1 to 1, or
    choices from 0. The file is read back and compared with the policy. docs/watching.md shows how to use it.
    """
    with Waiting(f"writing {out}"):
        from trainer.evaluation.playable import find_playable
        from trainer.exporting.export import export as write
        from trainer.exporting.export import kind_of

        kind_of(out)  # before anything is read
        found = find_playable(policy, shared_dir, "cpu", best=best, averaged=averaged, slot=slot)
        done = write(found, out)
    for note in found.notes:
        say(note, file=sys.stderr)
    if as_json:
        print(done.card.model_dump_json(indent=2))
    else:
        print(f"{found.name} · step {found.step:,}")
        for line in _lines(done):
            say(line)
        print(f"the policy: {done.path}")


def _lines(done: Exported) -> list[str]:
    card = done.card
    names = [f"{number} {name}" for number, name in enumerate(card.tasks)]
    shown = names if len(names) <= _SHOWN_TASKS else [*names[: _SHOWN_TASKS - 1], "…", names[-1]]
    low, high = min(card.action.low or (-math.inf,)), max(card.action.high or (math.inf,))
    shape = ", ".join(map(str, ("N", *card.action.shape)))
    off = f"at most {done.deviation:.0e} off" if done.deviation else "equal"
    return [
        f"input   observation [N, {card.observation.shape[0]}] float32, task [N] int64",
        f"tasks   {', '.join(shown)}",
        f"output  action [{shape}] {card.action.dtype} from {low:g} to {high:g}",
        f"checked {len(card.golden.task)} golden actions, read back from the file: {off}",
    ]


TaskOption = Annotated[str | None, typer.Option(help="Required if the policy has several.")]
EpisodesOption = Annotated[int, typer.Option(min=1, max=50, help="Episodes, each from the next goal.")]
GoalOption = Annotated[int, typer.Option(min=0, max=49, help="Fixed goal of the first episode.")]
FilmOption = Annotated[Path | None, typer.Option(help="An .mp4 or .gif. Default: TASK.mp4.")]
CameraOption = Annotated[
    str | None, typer.Option(help="Meta-World: corner2 (default), corner, corner3, corner4, topview, behindGripper.")
]
SizeOption = Annotated[int | None, typer.Option(help="Meta-World: side of the film. Default: 480.")]


def play(
    policy: PolicyArgument,
    task: TaskOption = None,
    episodes: EpisodesOption = 1,
    goal: GoalOption = 0,
    out: FilmOption = None,
    camera: CameraOption = None,
    size: SizeOption = None,
    shared_dir: SharedDirOption = None,
    device: DeviceOption = "auto",
    best: BestOption = False,
    averaged: AveragedOption = False,
    slot: SlotOption = None,
) -> None:
    """Film a policy as it plays, without exploration."""
    with Waiting("loading the policy"):
        from trainer.showing.film import check_place, film

        if out is not None:
            check_place(out)
        from trainer.errors import ConfigError
        from trainer.evaluation.playable import find_playable
        from trainer.machine import drawing

        found = find_playable(policy, shared_dir, device, best=best, averaged=averaged, slot=slot)
    found.task_index(task)
    for note in found.notes:
        say(note, file=sys.stderr)
    is_metaworld = found.env.name == "metaworld"
    if not is_metaworld and (camera is not None or size is not None):
        raise ConfigError("play.size-of-other-suite", suite=found.env.name)
    # Before anything loads mujoco. Not all others are MuJoCo's, and those say themselves what is missing.
    with contextlib.nullcontext() if is_metaworld else contextlib.suppress(ConfigError):
        drawing.prepare()
    solved = 0
    with Waiting("making the scene") as line, contextlib.ExitStack() as stack:
        from trainer.showing.play import PlayedTask, WatchedTask

        made: PlayedTask | WatchedTask = (
            PlayedTask(found, task, camera or "corner2", size or 480) if is_metaworld else WatchedTask(found, task)
        )
        stage = stack.enter_context(made)
        video = out or Path(f"{stage.task}.mp4")
        say(f"{stage.task} · {found.name} · step {found.step:,}")
        stage.reset(goal)
        height, width, _ = stage.picture().shape
        show = stack.enter_context(film(video, (width, height), stage.fps))
        for number in range(goal, goal + episodes):
            line.words = f"filming episode {number}"
            episode = stage.film(number, show)
            say(episode.words())
            solved += bool(episode.success)
    print(f"{f'solved {solved} of {episodes}; ' * is_metaworld}the video: {video}")
