"""The command lines of the four programs: `--help` in groups, and `--version`.

Plain text by typer's formatter: importing rich takes longer than printing `--help`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup


def _by_name(words: dict[str, str]) -> dict[str, str]:
    return {name: word for word, names in words.items() for name in names.split()}


#: Panels and metavars by the names of parameters. Default: "Options", and the name in capitals.
_PANELS = _by_name(
    {
        "Config": "config executor partition preset sets settings slots time_limit world_size",
        "Which policy": "averaged best policy",
        "Contribute": "contribute direct stream",
        "Agents at play": "height top_k width",
        "Connection": "allow_host key no_open port remote_command socket_at yes_host_key",
        "A friend's key": "friend friend_checkpoints friend_key",
    }
)
_METAVARS = _by_name(
    {
        "FILE": "config file friend_key key out path remote_command socket_at",
        "DIR": "checkpoint demos folder run_dir shared shared_dir source",
        "N": "batch_size episodes goal goals last lines measure_every num_envs priority ranks slots steps top_k "
        "unseen_goals world_size",
        "NAME": "contributor entity fork friend project user_id who",
        "SECONDS": "budget grace probe_wait",
        "PIXELS": "height size width",
        "FIELD=VALUE": "fields sets settings",
        "RUN": "runs what",
        "TIME": "run_for time_limit",
    }
)
_METAVARS |= {"allow_host": "HOST", "goal_seed": "SEED", "learning_rate": "RATE", "to": "STEP", "why": "TEXT"}
#: Options of typer that are too long for the list.
_UNLISTED = {"install_completion", "show_completion"}


class Command(TyperCommand):
    """Lists its arguments, and its options in panels."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for param in self.params:
            name = str(param.name)
            param.metavar = param.metavar or _METAVARS.get(name, name.upper())

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Without typer's braces around what must be given."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """As `TyperCommand`."""
        _write_params(self, ctx, formatter)


class CommandGroup(TyperGroup):
    """Lists its commands in the groups that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """As `TyperGroup`."""
        width = max(map(len, self.commands))
        _write_panels(
            formatter,
            [
                (getattr(command, "rich_help_panel", ""), name.ljust(width), command.get_short_help_str(200))
                for name, command in self.commands.items()
                if not command.hidden
            ],
        )
        _write_params(self, ctx, formatter)


def _write_params(command: Any, ctx: Any, formatter: Any) -> None:
    rows = []
    for param in command.get_params(ctx):
        if (record := param.get_help_record(ctx)) is None or param.name in _UNLISTED:
            continue
        if param.param_type_name == "argument":
            rows.append(("Arguments", param.metavar + "..." * (param.nargs == -1), record[1]))
        else:
            rows.append((_PANELS.get(param.name, "Options"), *record))
    _write_panels(formatter, sorted(rows, key=lambda row: {"Arguments": 0, "Options": 2}.get(row[0], 1)))


def _write_panels(formatter: Any, rows: list[tuple[str, str, str]]) -> None:
    for panel in dict.fromkeys(row[0] for row in rows):
        with formatter.section(panel):
            formatter.write_dl([row[1:] for row in rows if row[0] == panel])


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"anchorleg {version('anchorleg')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
]
_ALIKE: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


def new_app(about: str) -> typer.Typer:
    """A program of several commands (`add_commands`)."""
    app = typer.Typer(cls=CommandGroup, help=about, no_args_is_help=True, **_ALIKE)

    @app.callback()
    def _common(_show: VersionOption = False) -> None: ...

    return app


def add_commands(app: typer.Typer, group: str | None, *acts: Callable[..., None], **more: Any) -> None:
    """Add each function as a command of its name to a `group` of `--help`; None hides it."""
    for act in acts:
        name = act.__name__.strip("_").replace("_", "-")
        app.command(name, cls=Command, rich_help_panel=group, hidden=group is None, **more)(act)


def one_command(act: Callable[..., None]) -> typer.Typer:
    """A program with a single command."""
    app = typer.Typer(add_completion=False, **_ALIKE)
    app.command(cls=Command)(act)
    return app
