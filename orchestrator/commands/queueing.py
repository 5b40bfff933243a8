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
    typer.Argument(metavar="SLOT", help="Slots by number, range (0-3) or name; * matches any characters."),
]
RunOption = Annotated[
    str | None, typer.Option("--run", autocompletion=run_names, help="Name or id of the run. Default: this folder's.")
]


def add(
    fields: Annotated[list[str] | None, typer.Argument(help="Fields of one experiment, as in the config.")] = None,
    file: Annotated[Path | None, typer.Option("--from", help="JSON Lines file, one experiment per line.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the experiment. Default: its fields.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher gets a job first.")] = None,
    run: RunOption = None,
    config: ConfigOption = None,
) -> None:
    """Add experiments to a run. Each becomes a slot behind the existing ones."""
    from orchestrator.hosts.asking import add_experiments, experiments_of

    rows = experiments_of(fields or [], file, name, priority)
    say(add_experiments(locate(run, config), rows))


def drop(slots: SlotsArgument, run: RunOption = None, config: ConfigOption = None) -> None:
    """Drop slots: each saves and gets no more jobs. Their files stay, and `resume` continues them."""
    _ask("drop", slots, run, config)


def pause(slots: SlotsArgument, run: RunOption = None, config: ConfigOption = None) -> None:
    """Pause slots: each saves, and others take its place."""
    _ask("pause", slots, run, config)


def resume(slots: SlotsArgument, run: RunOption = None, config: ConfigOption = None) -> None:
    """Resume slots that were paused, dropped or given up."""
    _ask("resume", slots, run, config)


def priority(
    value: Annotated[int, typer.Argument(metavar="PRIORITY", help="Higher gets a job first; 0 at the start.")],
    slots: SlotsArgument,
    run: RunOption = None,
    config: ConfigOption = None,
) -> None:
    """Change the order in which slots get jobs. Takes effect with `queue.order` priority."""
    _ask("priority", slots, run, config, value)


def rollback(
    slots: SlotsArgument,
    to: Annotated[int, typer.Option("--to", min=0, help="Use the newest checkpoint at or before this step.")],
    without: Annotated[str, typer.Option(metavar="CONTRIBUTOR", help="Leave out this contributor's experience.")] = "",
    why: Annotated[str, typer.Option(help="Reason, kept in the run's records.")] = "",
    run: RunOption = None,
    config: ConfigOption = None,
) -> None:
    """Continue slots from an older checkpoint. The newer ones stay until the next job begins."""
    from orchestrator.hosts.asking import roll_back_slots

    say(*roll_back_slots(locate(run, config), slots, to, why=why, without=without).splitlines())


def _ask(kind: Kind, slots: list[str], run: str | None, config: Path | None, value: int | None = None) -> None:
    from orchestrator.hosts.asking import ask_slots

    say(ask_slots(locate(run, config), kind, slots, value))
