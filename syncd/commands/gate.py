"""`syncd gate WHO --shared DIR`: the forced command of a contributor's restricted key."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncd.errors import StorageError, SyncError, UnreachableError
from syncd.shared.inbox import Inbox
from syncd.wire.refusals import FOR_NOW, REFUSED_EXIT_CODE, REFUSED_PREFIX, SOME_REFUSED_EXIT_CODE

if TYPE_CHECKING:
    from syncd.access.gate import Rsync

#: A stranger's connection is polite towards everybody else on a login node.
NICENESS = 10
#: No connection needs a quarter of this (address space of ours, or of rsync with all the files that may come).
MOST_MEMORY_BYTES = 1024**3
#: When one that found all places taken may come again.
FULL_RETRY_S = 60.0
#: Refused files are told one by one up to here.
MOST_TOLD = 1000


def gate(
    who: Annotated[str, typer.Argument(help="The contributor whose key this is.")],
    shared: Annotated[Path, typer.Option("--shared", help="The shared folder, absolute.")],
) -> None:
    """Let a contributor's key do what it is for. Runs from authorized_keys, never by hand; `setup --friend` writes it.

    Exit code 126: what was asked for is refused, with one sentence on stderr.
    """
    from syncd.access import gate as rules  # noqa: PLC0415 - `--help` stays quick
    from syncd.access import places  # noqa: PLC0415

    os.umask(0o027)
    try:
        wanted = rules.decide(os.environ.get("SSH_ORIGINAL_COMMAND"), who, str(shared))
        os.nice(NICENESS)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
        is_full = places.take(who, shared, "connection", places.CONNECTIONS) is None  # the process's end gives it back
        full = f"{who} has {places.CONNECTIONS} connections to this machine already: {FOR_NOW} one has ended"
        if isinstance(wanted, rules.Serve):
            _serve(shared, who, full if is_full else "")
            return
        if is_full:
            raise UnreachableError(full)
        code = _rsync(wanted, shared, who)
    except rules.RefusedError as error:
        print(f"{REFUSED_PREFIX} {error}", file=sys.stderr)
        code = REFUSED_EXIT_CODE
    except SyncError as error:
        print(f"{REFUSED_PREFIX} {error}", file=sys.stderr)
        code = error.exit_code
    except OSError as error:
        print(f"{REFUSED_PREFIX} the inbox cannot be written now: {error.strerror}", file=sys.stderr)
        code = StorageError.exit_code
    # Not sys.exit: a thread may still wait for a client that says nothing more.
    sys.stderr.flush()
    os._exit(code)


def _serve(shared: Path, who: str, full: str) -> None:
    from syncd.commands.serve import serve, turn_away  # noqa: PLC0415 - `--help` stays quick

    if full:
        turn_away(1, full, FULL_RETRY_S)
        return
    serve(shared, who)


def _rsync(wanted: Rsync, shared: Path, who: str) -> int:
    from syncd.access import sandbox  # noqa: PLC0415 - `--help` stays quick
    from syncd.access.staging import Staging  # noqa: PLC0415
    from syncd.shared.inbox import MAX_SEGMENT_BYTES  # noqa: PLC0415
    from syncd.shared.layout import Shared  # noqa: PLC0415

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if wanted.reads:
        return sandbox.run_rsync(wanted, sandbox.open_folder(shared, wanted.folder), longest_bytes=0)
    inbox = Inbox.of(Shared(shared), who)
    # Nothing is made by a stranger where there is no shared folder, nor behind a link.
    sandbox.open_folder(shared, ("v1", "inbox", who) if os.path.lexists(inbox.path) else ("v1",))
    with Staging(inbox) as staging:
        (staging.path / wanted.name).mkdir(parents=True, exist_ok=True)
        code = sandbox.run_rsync(wanted, staging.path, longest_bytes=MAX_SEGMENT_BYTES, is_overfull=staging.is_overfull)
        refused = staging.take_in()
    for name, refusal in refused[:MOST_TOLD]:
        print(f"{REFUSED_PREFIX} refused {name!a} {refusal.reason}: {refusal.sentence}", file=sys.stderr)
    return end_code(code, some_refused=bool(refused))


def end_code(code: int, *, some_refused: bool) -> int:
    """What the client hears: with refusals, 23 says that all others are stored, which rsync's own 23 does not."""
    if some_refused and code == SOME_REFUSED_EXIT_CODE:
        return StorageError.exit_code
    return code or (SOME_REFUSED_EXIT_CODE if some_refused else 0)
