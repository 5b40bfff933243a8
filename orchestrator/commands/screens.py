"""The verbs that show what is going on and what it came to: status, goodput, explain, logs, runs."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from anchorleg.output import say
from anchorleg.words import lines_shown, table_lines
from orchestrator.commands.options import ConfigOption, JsonOption, NameArgument, console, locate
from orchestrator.errors import ConfigError

SlotArgument = Annotated[str, typer.Argument(help="Number of the slot.")]


def status(
    name: NameArgument = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    again: Annotated[bool, typer.Option("--watch", "-w", help="Keep the screen up to date until Ctrl-C.")] = False,
    disk: Annotated[bool, typer.Option("--disk", help="Show what the run folder takes, and what can go.")] = False,
    price: Annotated[
        float | None, typer.Option(help="Cost of all running jobs per hour; shows the cost of steps.")
    ] = None,
) -> None:
    """Show the state of each slot.

    Shows its job, progress and expected end, and why it waits.
    """
    from orchestrator.screens.forecast import cost_of, cost_words
    from orchestrator.screens.reading import run_view
    from orchestrator.screens.status import plain_lines, run_table, watch

    if price is not None and (again or not 0 < price < float("inf")):
        raise ConfigError("cli.price")
    run_dir, out = locate(name, config), console()
    if disk:
        from orchestrator.run.leftovers import disk_view
        from orchestrator.screens.usage import usage_lines

        used = disk_view(run_dir)
        print(used.model_dump_json(indent=2)) if as_json else say(*usage_lines(used, out.width))
        return
    if again:
        watch(run_dir, out, as_json=as_json)
        return
    view = run_view(run_dir)
    cost = cost_of(view, price) if price is not None else None
    if as_json:
        more = {"cost": cost.model_dump(mode="json") if cost is not None else None} if price is not None else {}
        print(json.dumps({**view.model_dump(mode="json"), **more}, indent=2))
        return
    if out.is_terminal:
        out.print(run_table(view, time.time(), out.width))
    else:
        say(*plain_lines(view, time.time()))
    if price is not None:
        say(cost_words(cost, price))


def explain(
    slot: SlotArgument,
    name: NameArgument = None,
    config: ConfigOption = None,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Number of past events.")] = 15,
    as_json: JsonOption = False,
) -> None:
    """Explain the state of a slot. Shows the last decisions, the facts behind them, and what comes next."""
    from orchestrator.screens import explain as screen
    from orchestrator.screens.reading import run_view

    index, name = slot_and_name(slot, name)
    now = time.time()
    found = screen.explain(run_view(locate(name, config), now, events=True), index, now, last=last)
    if as_json:
        print(found.model_dump_json(indent=2))
        return
    say(*screen.explanation_lines(found, now))


def logs(
    slot: SlotArgument,
    name: NameArgument = None,
    config: ConfigOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output through later jobs.")] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=0, help="Begin with the last N lines.")] = None,
) -> None:
    """Print the output of a slot's newest job."""
    from orchestrator.screens.logs import show_logs

    index, name = slot_and_name(slot, name)
    show_logs(locate(name, config), index, follow=follow, lines=lines)


def slot_and_name(slot: str, name: str | None) -> tuple[int, str | None]:
    """In whichever order they were typed: the other commands take the run's name first. Errors: ConfigError."""
    if name is not None and name.isdigit() and not slot.isdigit():
        slot, name = name, slot
    if not slot.isdecimal():
        raise ConfigError("slot.no-number", slot=slot)
    return int(slot), name


def goodput(name: NameArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show how the time was spent.

    Lists the time in the queue, at start-up, productive, lost and saving, for each slot and the run.
    """
    from orchestrator.screens.goodput import goodput_lines, goodput_of, goodput_table
    from orchestrator.screens.reading import run_view

    now = time.time()
    view = goodput_of(run_view(locate(name, config), now, jobs=None), now)
    out = console()
    if as_json:
        print(view.model_dump_json(indent=2))
    elif out.is_terminal:
        out.print(goodput_table(view, out.width))
    else:
        say(*goodput_lines(view))


def runs(as_json: JsonOption = False) -> None:
    """List the runs started from this account."""
    from orchestrator.run.rundir import entries

    known = entries()
    if as_json:
        print(json.dumps([entry.model_dump() for entry in known], indent=2))
    elif not known:
        say("This account has started no run yet: start one with `orchestrator start`.")
    elif (out := console()).is_terminal:
        names = ["run", "id", "started", "folder"]
        starts = [time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.registered_at)) for entry in known]
        cells = [(e.run_name, e.run_id, start, e.run_dir) for e, start in zip(known, starts, strict=True)]
        say(*table_lines(names, cells, out.width))
    else:
        print(lines_shown(f"{entry.run_name}\t{entry.run_id}\t{entry.run_dir}" for entry in known))
