"""`syncd gate WHO --shared DIR`: the forced command of a contributor's restricted key."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Annotated

import typer

from syncd.errors import RefusedError
from syncd.wire.protocol import REFUSED_EXIT_CODE, REFUSED_PREFIX

#: A stranger's connection is polite towards everybody else on a login node.
NICENESS = 10
#: No connection needs a quarter of this address space.
MOST_MEMORY_BYTES = 1024**3
#: When one that found all places taken may come again.
FULL_RETRY_S = 60.0


def gate(
    who: Annotated[str, typer.Argument(help="The contributor whose key this is.")],
    shared: Annotated[Path, typer.Option("--shared", help="The shared folder, absolute.")],
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Whole checkpoints of the run may be read.")
    ] = False,
) -> None:
    """Serve a contributor's restricted key. Runs from authorized_keys, never by hand; `setup --friend` writes it.

    Exit code 126: what was asked for is refused, with one sentence on stderr.
    """
    from syncd.access import gate as rules  # noqa: PLC0415 - `--help` stays quick
    from syncd.commands.serve import serve, turn_away  # noqa: PLC0415

    try:
        rules.check(os.environ.get("SSH_ORIGINAL_COMMAND"), who, str(shared))
    except RefusedError as error:
        print(f"{REFUSED_PREFIX} {error.with_id()}", file=sys.stderr)
        raise typer.Exit(REFUSED_EXIT_CODE) from None
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    if rules.take_place(who, shared) is None:  # the process's end gives it back
        full = f"{who} has {rules.CONNECTIONS} connections to this machine already: try again when one has ended"
        turn_away(1, full, FULL_RETRY_S)
        return
    serve(shared, who, checkpoints)
