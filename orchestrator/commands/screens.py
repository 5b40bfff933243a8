"""The verbs that show what is going on: status, logs, runs."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from orchestrator.commands.options import ConfigOption, JsonOption, NameArgument, console, locate
from orchestrator.errors import ConfigError


def status(name: NameArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what each slot is doing.

    Its job, how far the training is, and why it waits, where it does.
    """
    from orchestrator.status import run_view  # noqa: PLC0415
    from orchestrator.views import plain_lines, run_table  # noqa: PLC0415

    view = run_view(locate(name, config))
    out = console()
    if as_json:
        print(view.model_dump_json(indent=2))
    elif out.is_terminal:
        out.print(run_table(view, time.time(), out.width))
    else:
        print("\n".join(plain_lines(view, time.time())))


def logs(
    slot: Annotated[str, typer.Argument(help="Number of the slot.")],
    name: NameArgument = None,
    config: ConfigOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows, over all later jobs.")] = False,
) -> None:
    """Print the output of a slot's newest job."""
    from orchestrator.logs import show_logs  # noqa: PLC0415

    if name is not None and name.isdigit() and not slot.isdigit():
        slot, name = name, slot  # the other commands take the run's name first
    if not slot.isdigit():
        raise ConfigError(f'"{slot}" is no slot: slots are numbers, the first is 0.')
    show_logs(locate(name, config), int(slot), follow=follow)


def runs(as_json: JsonOption = False) -> None:
    """List the runs that were started from this account."""
    from orchestrator.registry import entries  # noqa: PLC0415
    from orchestrator.views import runs_table  # noqa: PLC0415

    known = entries()
    if as_json:
        print(json.dumps([entry.model_dump() for entry in known], indent=2))
    elif not known:
        print("No run was started from this account yet: begin one with `orchestrator start`.")
    elif (out := console()).is_terminal:
        out.print(runs_table(known))
    else:
        for entry in known:
            print(f"{entry.run_name}\t{entry.run_id}\t{entry.run_dir}")
