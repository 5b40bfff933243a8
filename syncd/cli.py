"""The `syncd` command: its verbs live in `syncd.commands`, and load what they need when they are called.

Exit codes: see `syncd.errors`.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from anchorleg.output import end_with_error, ending_well, words_of
from syncd.commands import inbox, serve, service, setup, sync
from syncd.errors import ConfigError, StorageError, SyncError

app = typer.Typer(
    help="Bring policies from a cluster's shared folder to other machines, and their experience back.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# In the order in which `--help` shows them: get there, move files, run in the background, look after contributors.
app.command()(setup.setup)
app.command()(sync.pull)
app.command()(sync.push)
app.command()(sync.bidirectional)
app.command()(sync.watch)
app.command()(service.status)
app.command()(service.doctor)
app.command()(service.install)
app.command()(service.uninstall)
app.command("agent-status")(service.agent_status)
app.command()(inbox.contributors)
app.command()(inbox.drop)
app.command()(inbox.readmit)
app.command(hidden=True)(serve.gate)
app.command(hidden=True)(serve.serve)
app.command("run-agent", hidden=True)(service.run_agent)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"anchorleg {version('anchorleg')}")
        raise typer.Exit


@app.callback()
def _common(
    _show: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Version.")] = False,
) -> None:
    """Bring policies from a cluster's shared folder to other machines, and their experience back."""


def _run() -> None:
    """Errors: ConfigError for an option that is no more; all of the commands."""
    if any(word.partition("=")[0] == "--transport" for word in sys.argv):
        raise ConfigError("command.no-transport")
    app()


def main() -> None:
    """Entry point: every known error becomes one sentence and its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        ending_well(_run)
    except SyncError as error:
        end_with_error("syncd", error, error.exit_code)
    except OSError as error:
        end_with_error("syncd", words_of(error), StorageError.exit_code)
    except KeyboardInterrupt:
        end_with_error("syncd", "interrupted", 130)
