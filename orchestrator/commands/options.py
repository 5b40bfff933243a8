"""What the verbs share: options, which run is meant, and what the shell can complete.

Imports stay inside: `--help` must be quick. Completion never fails: a shell that waits for words gets none.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.errors import AnchorlegError, ConfigError, UnknownRun
from orchestrator.notation import typed_fields

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.run.rundir import RunDir

DEFAULT_CONFIG = Path("cluster_config.json")


def run_names(incomplete: str) -> list[str]:
    """Names of the runs that were started from this account, newest first."""
    from orchestrator.run.rundir import entries

    with suppress(AnchorlegError, OSError):
        return [name for name in dict.fromkeys(entry.run_name for entry in entries()) if name.startswith(incomplete)]
    return []


ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Config file. Default: cluster_config.json in this folder.")
]
NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="Run name, id or folder. Default: this folder's run.", autocompletion=run_names),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Any field, such as training.seed=3. Repeat for more.")
]
SlotsOption = Annotated[int | None, typer.Option("--slots", help="Number of slots.")]
WorldSizeOption = Annotated[
    int | None, typer.Option("--ddp-world-size", min=1, help="Number of slots that share experience.")
]
PartitionOption = Annotated[str | None, typer.Option(help="Slurm partition.")]
TimeOption = Annotated[str | None, typer.Option("--time-limit", help="Walltime of one job: 4:00:00.")]
ExecutorOption = Annotated[str | None, typer.Option(metavar="[auto|slurm|local]", help="Where jobs run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_overrides(
    sets: list[str] | None,
    slots: int | None = None,
    partition: str | None = None,
    time_limit: str | None = None,
    executor: str | None = None,
    world_size: int | None = None,
) -> dict[str, Any]:
    """Command-line options as dotted config paths. A value that is no JSON is taken as text.

    Errors: ConfigError, also where --ddp-world-size and another option ask for different numbers of slots.
    """
    if world_size is not None:
        asked = [f"--slots {slots}"] if slots is not None else []
        asked += [f"--set {item}" for item in sets or [] if item.startswith("slots=")]
        same = {f"--slots {world_size}", f"--set slots={world_size}"}
        if other := next((option for option in asked if option not in same), ""):
            raise ConfigError("cli.two-numbers-of-slots", world_size=world_size, other=other)
        slots = world_size
    named = {"slots": slots, "slurm.partition": partition, "slurm.time_limit": time_limit, "executor": executor}
    overrides: dict[str, Any] = {path: value for path, value in named.items() if value is not None}
    return overrides | typed_fields(sets or [])


def config_path_of(config: Path | None) -> Path:
    """The config file to use, absolute."""
    return (config or DEFAULT_CONFIG).resolve()


def locate(name: str | None, config: Path | None) -> RunDir:
    """The run folder meant by a name or path, by --config, or by where we stand. Errors: UnknownRun, ConfigError."""
    from orchestrator.config import load_config
    from orchestrator.run.begin import run_dir_of
    from orchestrator.run.rundir import entries, find_run

    if name is not None and config is not None:
        raise ConfigError("cli.name-and-config")
    if name is not None:
        return find_run(name)
    if config is not None or DEFAULT_CONFIG.exists():
        path = config_path_of(config)
        run_dir = run_dir_of(load_config(path), path)
        if not run_dir.run_file.exists():
            raise UnknownRun("run.not-begun", path=run_dir.path)
        return run_dir
    known = list(dict.fromkeys(entry.run_name for entry in entries()))
    if len(known) == 1:
        return find_run(known[0])
    hint = f"name one: {', '.join(known)}" if known else "this account has started none yet"
    raise UnknownRun("run.not-named", known=hint)


def console() -> Console:
    """Standard output, with colours only where they are wanted."""
    from rich.console import Console

    return Console(emoji=False, highlight=False)
