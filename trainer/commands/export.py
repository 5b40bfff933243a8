"""`trainer export`: a policy as one file for other programs."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainer.commands.options import (
    AveragedOption,
    BestOption,
    JsonOption,
    PolicyArgument,
    SharedDirOption,
    SlotOption,
)

if TYPE_CHECKING:
    from trainer.exporting.export import Exported

#: Task names that fit on a line.
_SHOWN_TASKS = 3

OutOption = Annotated[Path, typer.Option(help="The file: NAME.onnx, NAME.pt2 or NAME.safetensors.")]


def export(
    policy: PolicyArgument,
    out: OutOption = Path("policy.safetensors"),
    slot: SlotOption = None,
    best: BestOption = False,
    averaged: AveragedOption = False,
    shared_dir: SharedDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a policy as one file that runs without Anchorleg, and check that it does what the policy does.

    It takes observations as the environment gives them and the number of the task, and gives actions from -1 to 1,
    or a choice from 0 on. docs/export.md shows how to use it.
    """
    from rich.console import Console

    from trainer.evaluation.playable import find_playable
    from trainer.exporting.export import export as write
    from trainer.exporting.export import kind_of

    kind_of(out)  # before anything is read
    found = find_playable(policy, shared_dir, "cpu", best=best, averaged=averaged, slot=slot)
    for note in found.notes:
        print(note, file=sys.stderr)
    with Console(stderr=True).status(f"writing {out}"):  # on a terminal only
        done = write(found, out)
    if as_json:
        print(done.card.model_dump_json(indent=2))
    else:
        print(f"{found.name} · step {found.step:,}")
        for line in _lines(done):
            print(line)
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
