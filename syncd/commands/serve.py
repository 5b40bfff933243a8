"""`syncd serve`: the server's end of one connection. Started by clients through ssh, by the gate, or locally.

`syncd gate WHO --shared DIR` is the forced command of a contributor's restricted key.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from syncd.errors import ConfigError, RefusedError, RemoteError, UnreachableError
from syncd.wire.protocol import PREAMBLE, REFUSED_EXIT_CODE, REFUSED_PREFIX, encode, goaway


def serve(
    shared: Annotated[Path, typer.Option("--shared", help="Shared folder, or a run folder.")],
    contributor: Annotated[
        str | None, typer.Option("--contributor", help="Owner of the inbox. Default: the client.")
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Offer whole checkpoints too. Default without --contributor.")
    ] = False,
) -> None:
    """Serve one client over standard input and output.

    `syncd` on other machines starts it through ssh.
    """
    from syncd.shared.layout import NAME

    if contributor is not None and not NAME.fullmatch(contributor):
        raise ConfigError("name.unusable", name=contributor)
    if sys.stdin.isatty() or sys.stdout.isatty():
        raise ConfigError("serve.at-terminal")
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else prints must not fall between the frames
    serve_connection(shared, contributor, 0, out, checkpoints=checkpoints or contributor is None)


def serve_connection(
    shared: Path, contributor: str | None, fd_in: int, fd_out: int, *, checkpoints: bool = False
) -> None:
    """Serve one client until it goes. Errors: RemoteError where no such folder can be read; the client was told."""
    from syncd.shared.layout import run_folder_of
    from syncd.wire.server import Server

    os.umask(0o027)  # the group may read what arrives, nobody else
    try:
        folder = _located(shared)
    except RemoteError as error:
        os.write(fd_out, PREAMBLE + encode(goaway(error)))
        raise
    server = Server(folder, contributor, fd_in, fd_out, run_folder_of(folder) if checkpoints else None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: server.stop(signal.Signals(number).name))
    server.run()


def _located(start: Path) -> Path:
    """The shared folder that `start` means; it may be without runs yet. Errors: RemoteError with one sentence."""
    try:
        if not start.is_dir():
            raise RemoteError("serve.no-folder", path=start)
        is_run = not (start / "v1").is_dir() and ((start / "shared").is_dir() or (start / "run.json").is_file())
        folder = start / "shared" if is_run else start
        for path in (folder, folder / "v1", folder / "v1" / "runs"):
            if path.exists():
                os.listdir(path)
    except OSError as error:
        raise RemoteError("serve.unreadable", path=error.filename or start, why=error.strerror) from error
    return folder


#: A stranger's connection is polite towards everybody else on a login node.
NICENESS = 10
#: No connection needs a quarter of this address space.
MOST_MEMORY_BYTES = 1024**3
#: When one that found all places taken may come again.
FULL_RETRY_S = 60.0


def gate(
    who: Annotated[str, typer.Argument(help="Contributor of the key.")],
    shared: Annotated[Path, typer.Option("--shared", help="Shared folder, absolute.")],
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Offer whole checkpoints too.")] = False,
) -> None:
    """Serve a contributor's restricted key.

    The forced command in authorized_keys, as `syncd setup --friend` prints it. Exit code 126: the request is refused.
    """
    from syncd.access import gate as rules

    try:
        rules.check(os.environ.get("SSH_ORIGINAL_COMMAND"), who, str(shared))
    except RefusedError as error:
        print(f"{REFUSED_PREFIX} {error.with_id()}", file=sys.stderr)
        raise typer.Exit(REFUSED_EXIT_CODE) from None
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    if rules.take_place(who, shared) is None:  # the process's end gives it back
        full = UnreachableError("gate.full", name=who, most=rules.CONNECTIONS)
        os.write(1, PREAMBLE + encode(goaway(full, FULL_RETRY_S)))
        return
    serve(shared, who, checkpoints)
