"""The verbs that make a run go and stop, as a whole (start, stop, clean, tick) or by slots (add, drop, pause, …)."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.output import say
from orchestrator.commands import options
from orchestrator.errors import ConfigError
from orchestrator.notation import parse_duration_s

if TYPE_CHECKING:
    from orchestrator.decisions.requests import Kind

#: `--for` bounds a run. A longer time is a slip of the hand, and far longer ones have no date that could be shown.
LONGEST_FOR_S = 10 * 365 * 24 * 3600
SlotsArgument = Annotated[
    list[str], typer.Argument(metavar="SLOT", help="Slots by number, range (0-3) or name; * matches any characters.")
]
RunOption = Annotated[
    str | None,
    typer.Option("--run", autocompletion=options.run_names, help="Name or id of the run. Default: this folder's."),
]


def start(
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    slots: options.SlotsOption = None,
    world_size: options.WorldSizeOption = None,
    partition: options.PartitionOption = None,
    time_limit: options.TimeOption = None,
    executor: options.ExecutorOption = None,
    sets: options.SetOption = None,
    fork: Annotated[str | None, typer.Option(help="Start a new run of this name with this config.")] = None,
    via: Annotated[
        str, typer.Option(metavar="[foreground|daemon]", help="Where the controller runs: here, or in the background.")
    ] = "foreground",
    run_for: Annotated[str | None, typer.Option("--for", help="Save and stop after this time: 6:00:00.")] = None,
    probe_first: Annotated[
        bool, typer.Option("--probe-first", help="Start one slot; the others once it has done 20 steps.")
    ] = False,
    renew_code: Annotated[bool, typer.Option("--renew-code", help="Copy your program again (code.snapshot).")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the first actions without doing them.")] = False,
) -> None:
    """Start a run, or continue it.

    Keeps one job in each slot until the training is done. Ctrl-C ends this controller; the jobs go on.
    """
    from orchestrator.config import load_config
    from orchestrator.doctor.visit import look_before_first_job
    from orchestrator.run.starting import Typed, as_group, asked_for, with_world_size

    if via not in {"foreground", "daemon"}:
        raise ConfigError("cli.via", via=via)
    path = options.config_path_of(config)
    overrides = options.parse_overrides(sets, slots, partition, time_limit, executor, world_size)
    overrides |= {"queue.probe_first": True} if probe_first else {}
    if name is not None and config is not None:
        if (own := load_config(path, overrides).run_name) != name:
            raise ConfigError("start.other-name", path=path, own=own, name=name)
        name = None
    for_s = None
    if run_for is not None:
        if not (for_s := _seconds_of(run_for)):
            raise ConfigError("cli.for", time=run_for)
        if for_s > LONGEST_FOR_S:
            raise ConfigError("cli.for-too-long", time=run_for)
    typed = Typed(name, path, overrides, fork, for_s, renew_code)
    asked = asked_for(typed)
    if world_size is not None:
        typed = replace(typed, overrides=as_group(asked, overrides))
        asked = with_world_size(asked_for(typed))
    look_before_first_job(asked, options.console(), offer=not dry_run)
    if dry_run:
        from orchestrator.hosts.dry import dry_start

        say(*dry_start(asked))
    elif via == "daemon":
        from orchestrator.hosts.detached import start_in_background

        start_in_background(asked, typed.words)
    else:
        from orchestrator.hosts import host

        host.start(asked, options.console())


def _seconds_of(time: str) -> int | None:
    """None where it is no time, or one without an end."""
    with suppress(ValueError):
        return parse_duration_s(time)
    return None


def stop(
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    now: Annotated[bool, typer.Option("--now", help="Cancel the jobs without waiting for them to save.")] = False,
    grace: Annotated[float | None, typer.Option(min=0, help="Time to save. Default: lead_seconds + 60.")] = None,
) -> None:
    """Stop a run: every job saves and exits. `orchestrator start` continues it."""
    if grace is not None and not math.isfinite(grace):
        raise ConfigError("cli.grace")
    from orchestrator.hosts import stopping

    stopping.stop(options.locate(name, config), at_once=now, grace_s=grace, out=options.console())


def clean(
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Only what is older: 7-0 is seven days.")] = "7-0",
    larger_than: Annotated[str, typer.Option(metavar="SIZE", help="Only what is at least this large: 100M.")] = "0",
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also checkpoints of your program, but for the newest N.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and remove nothing.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Remove what no job needs any more.

    Scripts and output of ended jobs, and copies of code. `status --disk` shows what the run folder takes.
    """
    from orchestrator.run import leftovers
    from orchestrator.screens.usage import leftover_lines
    from orchestrator.sections import in_mb

    if not re.fullmatch(r"\d+[KMGT]?", larger_than):
        raise ConfigError("cli.size", size=larger_than)
    run_dir, out = options.locate(name, config), options.console()
    size = round(in_mb(larger_than) * 2**20) if larger_than[-1] in "KMGT" else int(larger_than)
    if (older_than_s := _seconds_of(older_than)) is None:
        raise ConfigError("cli.age", time=older_than)
    view = leftovers.disk_view(run_dir, older_than_s=older_than_s, larger_than=size, keep=keep)
    if not dry_run:
        leftovers.clean(run_dir, view.leftovers)
    if as_json:
        print(json.dumps([one.model_dump() for one in view.leftovers], indent=2))
    else:
        say(*leftover_lines(view, out.width, is_done=not dry_run))


def tick(
    name: options.NameArgument = None,
    config: options.ConfigOption = None,
    run_dir: Annotated[Path | None, typer.Option(help="The run's folder, in place of its name.")] = None,
    failover: Annotated[bool, typer.Option("--failover", help="As a job does when it ends.", hidden=True)] = False,
) -> None:
    """Check the run once, do what is due, and exit. `start` repeats this."""
    if run_dir is not None and (name is not None or config is not None):
        raise ConfigError("cli.several-runs")
    from orchestrator.hosts import ticking
    from orchestrator.run.rundir import RunDir

    folder = RunDir(run_dir.resolve()) if run_dir is not None else options.locate(name, config)
    if failover:
        ticking.tick_for_job(folder)
    else:
        ticking.tick(folder)


def add(
    fields: Annotated[list[str] | None, typer.Argument(help="Fields of one experiment, as in the config.")] = None,
    file: Annotated[Path | None, typer.Option("--from", help="JSON Lines file, one experiment per line.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the experiment. Default: its fields.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher gets a job first.")] = None,
    run: RunOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Add experiments to a run. Each becomes a slot behind the existing ones."""
    from orchestrator.hosts.asking import add_experiments, experiments_of

    rows = experiments_of(fields or [], file, name, priority)
    say(add_experiments(options.locate(run, config), rows))


def drop(slots: SlotsArgument, run: RunOption = None, config: options.ConfigOption = None) -> None:
    """Drop slots: each saves and gets no more jobs. Their files stay, and `resume` continues them."""
    _ask("drop", slots, run, config)


def pause(slots: SlotsArgument, run: RunOption = None, config: options.ConfigOption = None) -> None:
    """Pause slots: each saves, and others take its place."""
    _ask("pause", slots, run, config)


def resume(slots: SlotsArgument, run: RunOption = None, config: options.ConfigOption = None) -> None:
    """Resume slots that were paused, dropped or given up."""
    _ask("resume", slots, run, config)


def priority(
    value: Annotated[int, typer.Argument(metavar="PRIORITY", help="Higher gets a job first; 0 at the start.")],
    slots: SlotsArgument,
    run: RunOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Change the order in which slots get jobs. Takes effect with `queue.order` priority."""
    _ask("priority", slots, run, config, value)


def rollback(
    slots: SlotsArgument,
    to: Annotated[int, typer.Option("--to", min=0, help="Use the newest checkpoint at or before this step.")],
    without: Annotated[str, typer.Option(metavar="CONTRIBUTOR", help="Leave out this contributor's experience.")] = "",
    why: Annotated[str, typer.Option(help="Reason, kept in the run's records.")] = "",
    run: RunOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Continue slots from an older checkpoint. The newer ones stay until the next job begins."""
    from orchestrator.hosts.asking import roll_back_slots

    say(*roll_back_slots(options.locate(run, config), slots, to, why=why, without=without).splitlines())


def _ask(kind: Kind, slots: list[str], run: str | None, config: Path | None, value: int | None = None) -> None:
    from orchestrator.hosts.asking import ask_slots

    say(ask_slots(options.locate(run, config), kind, slots, value))
