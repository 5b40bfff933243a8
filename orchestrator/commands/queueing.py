"""The verbs for single slots of a run that goes on: add, drop, pause, resume, priority, rollback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.output import say
from orchestrator.commands.options import ConfigOption, locate, run_names

if TYPE_CHECKING:
    from orchestrator.decisions.requests import Kind

SlotsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SLOT...", help='Numbers, ranges ("0-3") or names of slots; * stands for any letters.'
    ),
]  # fmt: skip
RunOption = Annotated[
    str | None,
    typer.Option("--run", help="Name or id of the run; default: this folder's.", autocompletion=run_names),
]


def add(
    fields: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="The experiment's fields, as in the config.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--from", help="A file of JSON lines, an experiment each.")] = None,
    name: Annotated[str | None, typer.Option(help="Its name; default: its fields.")] = None,
    priority: Annotated[int | None, typer.Option(help="A larger one comes first.")] = None,
    run: RunOption = None,
    config: ConfigOption = None,
) -> None:
    """Add experiments to a run that goes on. Each is a slot of its own, behind those that are there."""
    from orchestrator.hosts.asking import add_experiments, experiments_of

    rows = experiments_of(fields or [], file, name, priority)
    say(add_experiments(locate(run, config), rows))


def drop(slots: SlotsArgument, run: RunOption = None, config: ConfigOption = None) -> None:
    """Have no more jobs for these slots: what runs saves and ends. Their files stay; `resume` goes on."""
    _ask("drop", slots, run, config)


def pause(slots: SlotsArgument, run: RunOption = None, config: ConfigOption = None) -> None:
    """Have these slots save and wait for `resume`: others get their place."""
    _ask("pause", slots, run, config)


def resume(slots: SlotsArgument, run: RunOption = None, config: ConfigOption = None) -> None:
    """Go on with slots that were paused, dropped or given up."""
    _ask("resume", slots, run, config)


def priority(
    value: Annotated[int, typer.Argument(metavar="PRIORITY", help="A larger one comes first; -1 after 0.")],
    slots: SlotsArgument,
    run: RunOption = None,
    config: ConfigOption = None,
) -> None:
    """Change whose turn comes first, from the next free job on. It counts with `queue.order`: priority."""
    _ask("priority", slots, run, config, value)


def rollback(
    slots: SlotsArgument,
    to: Annotated[
        int, typer.Option("--to", min=0, metavar="STEP", help="The newest checkpoint at or before this step.")
    ],
    without: Annotated[
        str, typer.Option(metavar="CONTRIBUTOR", help="Whose experience is not taken in again on the way.")
    ] = "",
    why: Annotated[str, typer.Option(help="Kept beside the decision, for later readers.")] = "",
    run: RunOption = None,
    config: ConfigOption = None,
) -> None:
    """Go on from an older checkpoint with the next job. Newer ones stay until it begins, and can be had back."""
    from orchestrator.hosts.asking import roll_back_slots

    say(*roll_back_slots(locate(run, config), slots, to, why=why, without=without).splitlines())


def _ask(kind: Kind, slots: list[str], run: str | None, config: Path | None, value: int | None = None) -> None:
    from orchestrator.hosts.asking import ask_slots

    say(ask_slots(locate(run, config), kind, slots, value))
