"""The `orchestrator` command: its verbs (`orchestrator.commands`). Exit codes: `orchestrator.errors`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from anchorleg.cli import VersionOption, add_commands, new_app
from anchorleg.output import end_with_error, ending_well, words_of
from orchestrator.commands import control, screens, setup
from orchestrator.errors import AnchorlegError, ConfigError, Interrupted, StorageError

app = new_app("Keep training alive on clusters that only give out short jobs.")


@app.callback()
def _there(
    _show: VersionOption = False,
    host: Annotated[
        str | None, typer.Option("-H", "--host", metavar="HOST:DIR", help="Type the command there, through your ssh.")
    ] = None,
) -> None:
    """Keep training alive on clusters that only give out short jobs."""
    if host is None:
        return
    there, _, folder = host.partition(":")
    first, *words = sys.argv[1:]
    typed = shlex.join(["orchestrator", *words[first in {"-H", "--host"} :]])
    # A login shell: only that has the PATH which a person has there.
    line = f'cd {shlex.quote(folder or ".")} && exec "${{SHELL:-sh}}" -lc {shlex.quote(typed)}'
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    try:
        os.execvp("ssh", ["ssh", *terminal, "--", there, line])  # noqa: S606
    except FileNotFoundError:
        raise ConfigError("cli.no-ssh") from None


add_commands(app, "Set up", setup.init, setup.doctor)
add_commands(app, "Run", control.start, control.stop, control.clean)
add_commands(app, "Look", screens.status, screens.explain, screens.logs, screens.goodput, screens.runs)
add_commands(app, "Slots and queue", control.add, control.pause, control.resume, control.drop, control.rollback)
#: `orchestrator priority -1 slow`: -1 is no option.
add_commands(app, "Slots and queue", control.priority, context_settings={"ignore_unknown_options": True})
add_commands(app, None, control.tick, setup.render, setup.schema)


def main(act: Callable[[], object] = app) -> None:
    """Entry point: every known error becomes one sentence and its exit code."""
    try:
        ending_well(act)
    except AnchorlegError as error:
        end_with_error("orchestrator", error, error.exit_code)
    except OSError as error:
        end_with_error("orchestrator", StorageError("storage.failed", what=words_of(error)), StorageError.exit_code)
    except KeyboardInterrupt:
        end_with_error("orchestrator", Interrupted("command.interrupted"), Interrupted.exit_code)
