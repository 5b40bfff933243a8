"""`syncd gate WHO --shared DIR`: the forced command of a contributor's restricted key."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncd.errors import SyncError

if TYPE_CHECKING:
    from syncd.gate import Rsync

#: One file that a client may write through rsync. An honest segment is below 200 kB; the inbox judges the rest.
LONGEST_FILE_BYTES = 4 * 1024 * 1024


def gate(
    who: Annotated[str, typer.Argument(help="The contributor whose key this is.")],
    shared: Annotated[Path, typer.Option("--shared", help="The shared folder, absolute.")],
) -> None:
    """Let a contributor's key do what it is for. Runs from authorized_keys, never by hand; `setup --friend` writes it.

    Exit code 126: what was asked for is refused, with one sentence on stderr.
    """
    from syncd import gate as rules  # noqa: PLC0415 - `--help` stays quick

    os.umask(0o027)
    try:
        wanted = rules.decide(os.environ.get("SSH_ORIGINAL_COMMAND"), who, str(shared))
        if isinstance(wanted, rules.Serve):
            _serve(shared, who)
            return
        code = _rsync(wanted, shared)
    except rules.RefusedError as error:
        print(f"{rules.REFUSED_PREFIX} {error}", file=sys.stderr)
        code = rules.REFUSED_EXIT_CODE
    except SyncError as error:
        print(f"{rules.REFUSED_PREFIX} {error}", file=sys.stderr)
        code = error.exit_code
    # Not sys.exit: a thread may still wait for a client that says nothing more.
    sys.stderr.flush()
    os._exit(code)


def _serve(shared: Path, who: str) -> None:
    words = [sys.executable, "-m", "syncd", "serve", "--shared", str(shared), "--contributor", who]
    os.execv(words[0], words)  # noqa: S606 - a list, no shell


def _rsync(wanted: Rsync, shared: Path) -> int:
    from syncd import jail  # noqa: PLC0415 - `--help` stays quick

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    folder = jail.open_folder(shared, wanted.folder, make=not wanted.reads)
    return jail.run_rsync(wanted, folder, longest_bytes=LONGEST_FILE_BYTES)
