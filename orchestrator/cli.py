"""The `orchestrator` command: its verbs (`orchestrator.commands`), in the order in which one needs them.

Exit codes: see `orchestrator.errors`.
"""

from __future__ import annotations

from collections.abc import Callable

from anchorleg.cli import add_commands, new_app
from anchorleg.output import end_with_error, ending_well, words_of
from orchestrator.commands import control, queueing, screens, setup
from orchestrator.errors import AnchorlegError, Interrupted, StorageError

app = new_app("Keep training alive on clusters that only give out short jobs.")
add_commands(app, "Set up", setup.init, setup.doctor)
add_commands(app, "Run", control.start, control.stop)
add_commands(app, "Look", screens.status, screens.explain, screens.logs, screens.goodput, screens.runs)
add_commands(app, "Slots and queue", queueing.add, queueing.pause, queueing.resume, queueing.drop, queueing.rollback)
#: `orchestrator priority -1 slow`: -1 is no option.
add_commands(app, "Slots and queue", queueing.priority, context_settings={"ignore_unknown_options": True})
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
