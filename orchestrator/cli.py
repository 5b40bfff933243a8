"""The `orchestrator` command. One function a verb; what they do lives in the modules that they call.

Exit codes: see `orchestrator.errors`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from orchestrator.errors import AnchorlegError, ConfigError, StorageError, UnknownRun
from orchestrator.rundir import RunDir

app = typer.Typer(
    help="Keep training alive on clusters that only give out short jobs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

DEFAULT_CONFIG = Path("cluster_config.json")

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Config file; default: cluster_config.json in this folder.")
]
NameArgument = Annotated[str | None, typer.Argument(help="Name or id of a run that was started from this account.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Any config field: --set training.seed=3. May be repeated.")
]
SlotsOption = Annotated[int | None, typer.Option("--slots", "--ddp-world-size", help="Jobs to keep going at once.")]
PartitionOption = Annotated[str | None, typer.Option(help="Slurm partition.")]
TimeOption = Annotated[str | None, typer.Option("--time-limit", help='Walltime of one job, e.g. "4:00:00".')]
ExecutorOption = Annotated[str | None, typer.Option(help="auto, slurm or local.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def parse_overrides(
    sets: list[str] | None, slots: int | None, partition: str | None, time_limit: str | None, executor: str | None
) -> dict[str, Any]:
    """Command-line options as dotted config paths. A value that is no JSON is taken as text. Errors: ConfigError."""
    named = {"slots": slots, "slurm.partition": partition, "slurm.time_limit": time_limit, "executor": executor}
    overrides: dict[str, Any] = {path: value for path, value in named.items() if value is not None}
    for item in sets or []:
        path, equals, text = item.partition("=")
        if not equals or not path:
            raise ConfigError(f'--set {item}: write it as "--set path.to.field=value".')
        try:
            overrides[path] = json.loads(text)
        except ValueError:
            overrides[path] = text
    return overrides


def config_path_of(config: Path | None) -> Path:
    """The config file to use, absolute."""
    return (config or DEFAULT_CONFIG).resolve()


def locate(name: str | None, config: Path | None) -> RunDir:
    """The run folder meant by a name, by --config, or by where we stand. Errors: UnknownRun, ConfigError."""
    from orchestrator.begin import run_dir_of  # noqa: PLC0415 - `--help` must stay quick
    from orchestrator.config import load_config  # noqa: PLC0415
    from orchestrator.registry import entries, find  # noqa: PLC0415

    if name is not None and config is not None:
        raise ConfigError("give either a run's name or --config, not both.")
    if name is not None:
        return find(name)
    if config is not None or DEFAULT_CONFIG.exists():
        path = config_path_of(config)
        run_dir = run_dir_of(load_config(path), path)
        if not run_dir.run_file.exists():
            raise UnknownRun(f"{path} has no run yet ({run_dir.path} holds none): begin it with `orchestrator start`.")
        return run_dir
    known = list(dict.fromkeys(entry.run_name for entry in entries()))
    if len(known) == 1:
        return find(known[0])
    hint = f"name one: {', '.join(known)}" if known else "none was started from this account yet"
    raise UnknownRun(f"which run? There is no cluster_config.json in this folder; {hint}.")


@app.command()
def start(
    name: NameArgument = None,
    config: ConfigOption = None,
    slots: SlotsOption = None,
    partition: PartitionOption = None,
    time_limit: TimeOption = None,
    executor: ExecutorOption = None,
    sets: SetOption = None,
    fork: Annotated[str | None, typer.Option(help="Begin a new run under this name with this config.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Go on in the background.")] = False,
) -> None:
    """Begin a run, or go on with it.

    Keeps every slot at one job until the training is done. Ctrl-C ends this controller, not the jobs.
    """
    from orchestrator import host  # noqa: PLC0415
    from orchestrator.starting import asked_for, command_line  # noqa: PLC0415

    if name is not None and config is not None:
        raise ConfigError("give either a run's name or --config, not both.")
    path = config_path_of(config)
    overrides = parse_overrides(sets, slots, partition, time_limit, executor)
    asked = asked_for(name, path, overrides, fork)
    if detach:
        host.start_detached(asked, command_line(name, path, overrides, fork), console())
    else:
        host.start(asked, console())


@app.command()
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


@app.command()
def stop(
    name: NameArgument = None,
    config: ConfigOption = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for a hand-over: cancel the jobs.")] = False,
    grace: Annotated[float | None, typer.Option(min=0, help="Seconds to hand over in; default: lead + 60.")] = None,
) -> None:
    """Have every job save and exit, and wait for it. `orchestrator start` goes on from there."""
    from orchestrator import host  # noqa: PLC0415

    host.stop(locate(name, config), at_once=now, grace_s=grace, out=console())


@app.command()
def tick(name: NameArgument = None, config: ConfigOption = None) -> None:
    """Look once, do what is due, and end: what `start` repeats."""
    from orchestrator import host  # noqa: PLC0415

    host.tick(locate(name, config), console())


@app.command()
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


@app.command()
def render(
    config: ConfigOption = None,
    slot: Annotated[int, typer.Option(min=0, help="Slot to render for.")] = 0,
    slots: SlotsOption = None,
    partition: PartitionOption = None,
    time_limit: TimeOption = None,
    executor: ExecutorOption = None,
    sets: SetOption = None,
) -> None:
    """Print the job script that `start` would submit. Nothing is submitted or written."""
    from orchestrator.begin import rendered  # noqa: PLC0415
    from orchestrator.config import load_config  # noqa: PLC0415

    path = config_path_of(config)
    loaded = load_config(path, parse_overrides(sets, slots, partition, time_limit, executor))
    print(rendered(loaded, path, slot, os.environ), end="")


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = DEFAULT_CONFIG,
    partition: PartitionOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a config for this machine.

    Reads Slurm's partitions, limits and GPU types from sinfo.
    """
    from orchestrator.init import write_config  # noqa: PLC0415

    write_config(path, partition, force=force, out=console())


@app.command()
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a table for people.")] = False,
) -> None:
    """Print the JSON schema of the config."""
    from orchestrator.config import RunConfig  # noqa: PLC0415
    from orchestrator.reference import config_reference  # noqa: PLC0415

    print(config_reference() if markdown else json.dumps(RunConfig.model_json_schema(), indent=2), end="")


@app.command()
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


def version(value: bool) -> None:
    """Print the version and end."""
    if value:
        from importlib.metadata import version as installed  # noqa: PLC0415

        print(f"anchorleg {installed('anchorleg')}")
        raise typer.Exit


@app.callback()
def common(
    _version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Version.")] = False,
) -> None:
    """Keep training alive on clusters that only give out short jobs."""


def console() -> Console:
    """Standard output, with colours only where they are wanted."""
    return Console(highlight=False)


def main() -> None:
    """Entry point: every known error becomes one sentence and its exit code."""
    try:
        app(standalone_mode=True)
    except AnchorlegError as error:
        words, code = str(error), error.exit_code
    except OSError as error:
        words, code = f"{error.filename or 'a file'}: {error.strerror or error}.", StorageError.exit_code
    except KeyboardInterrupt:
        words, code = "interrupted.", 130
    else:
        return
    print(f"orchestrator: {words}", file=sys.stderr)
    sys.exit(code)
