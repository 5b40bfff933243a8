"""The `orchestrator` command: its verbs (`orchestrator.commands`), in the order in which one needs them.

Exit codes: see `orchestrator.errors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from anchorleg.output import end_with_error, ending_well, words_of
from orchestrator.commands import control, queueing, screens, setup
from orchestrator.errors import AnchorlegError, Interrupted, StorageError

app = typer.Typer(
    help="Keep training alive on clusters that only give out short jobs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

#: `orchestrator priority -1 slow`: -1 is no option.
NEGATIVE = {"ignore_unknown_options": True}

for verb in (
    control.start,
    screens.status,
    control.stop,
    control.tick,
    queueing.add,
    queueing.drop,
    queueing.pause,
    queueing.resume,
    queueing.priority,
    queueing.rollback,
    screens.explain,
    screens.logs,
    screens.goodput,
    setup.render,
    setup.init,
    setup.doctor,
    setup.schema,
    screens.runs,
):
    app.command(context_settings=NEGATIVE if verb is queueing.priority else None)(verb)


def version(value: bool) -> None:
    """Print the version and end."""
    if value:
        from importlib.metadata import version as installed

        print(f"anchorleg {installed('anchorleg')}")
        raise typer.Exit


@app.callback()
def common(
    _version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Version.")] = False,
) -> None:
    """Keep training alive on clusters that only give out short jobs."""


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
