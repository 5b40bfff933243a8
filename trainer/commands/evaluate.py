"""`trainer evaluate`: how good a policy is."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from anchorleg.output import set_aside
from trainer.commands.options import AveragedOption, BestOption, DeviceOption, JsonOption
from trainer.config.training import SEEDS

CheckpointArgument = Annotated[Path, typer.Argument(help="A checkpoint, attempt, slot or run folder: its newest good.")]
GoalsOption = Annotated[int, typer.Option(min=1, max=50, help="Fixed goals a task; Meta-World's protocol has 50.")]
UnseenOption = Annotated[
    int, typer.Option(min=0, max=50, help="As many goals a task more that were not trained on, reported beside them.")
]
GoalSeedOption = Annotated[
    int | None,
    typer.Option(
        min=0, max=SEEDS - 1, help="Seed of the goals; left out: the training's own. Another gives unseen goals."
    ),
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
    """Play every task from its fixed goals with the deterministic policy.

    Success counts at any step, or at the last one where a suite says so (the arm).
    """
    from rich.console import Console

    from trainer.evaluation.checkpoints import evaluate_checkpoint

    aside = set_aside() if as_json else contextlib.nullcontext()
    with aside, Console(stderr=True).status("reading the checkpoint") as status:  # on a terminal only
        found = evaluate_checkpoint(
            checkpoint,
            goals=goals,
            goal_seed=goal_seed,
            unseen_goals=unseen_goals,
            device=device,
            best=best,
            averaged=averaged,
            progress=lambda done, total: status.update(f"{done:,} of {total:,} episodes"),
        )
    for note in found.notes:
        print(note, file=sys.stderr)
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
    print(summary)
