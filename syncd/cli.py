"""The `syncd` command: its verbs live in `syncd.commands`, and load what they need when they are called.

Exit codes: see `syncd.errors`.
"""

from __future__ import annotations

import logging
import sys

from anchorleg.cli import add_commands, new_app
from anchorleg.output import end_with_error, ending_well, words_of
from syncd.commands import inbox, serve, service, setup, sync
from syncd.errors import StorageError, SyncError

app = new_app("Bring policies from a cluster to other machines, and their experience back.")
add_commands(app, "Set up", setup.setup, service.doctor, service.install, service.uninstall)
add_commands(app, "Sync", sync.watch, sync.pull, sync.push, sync.bidirectional, service.status)
add_commands(app, "Contributors", inbox.contributors, inbox.drop, inbox.readmit)
add_commands(app, None, service.agent_status, serve.gate, serve.serve, service.run_agent)


def main() -> None:
    """Entry point: every known error becomes one sentence and its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        ending_well(app)
    except SyncError as error:
        end_with_error("syncd", error, error.exit_code)
    except OSError as error:
        end_with_error("syncd", words_of(error), StorageError.exit_code)
    except KeyboardInterrupt:
        end_with_error("syncd", "interrupted", 130)
