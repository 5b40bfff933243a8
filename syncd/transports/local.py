"""A folder that this machine mounts: `syncd serve` as a child of ours. The same frames, no ssh."""

from __future__ import annotations

import sys

from syncd.errors import RemoteError, SyncError, UnreachableError
from syncd.remote import Remote
from syncd.wire.session import Session
from syncd.wire.streams import ChildStream


class LocalTransport(Session):
    """See `Transport`. `remote` has no host."""

    def __init__(self, remote: Remote, client: str, bwlimit: int = 0) -> None:
        command = [sys.executable, "-P", "-m", "syncd", "serve", "--shared", remote.path]
        try:
            stream = ChildStream(command, _explain)
        except OSError as error:
            raise RemoteError(
                f"{sys.executable} cannot be started ({error.strerror}): install Anchorleg's checkout again"
            ) from error
        super().__init__("local", stream, client, place=remote.path, logins=0, bwlimit=bwlimit)
        self.server_pid = stream.pid


def _explain(code: int | None, said: str) -> SyncError:
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
    if code in {0, None} or code < 0:
        return UnreachableError("the server on this machine ended")
    return RemoteError(f"the server on this machine does not start: {last or f'exit code {code}'}")
