"""A program of ours on another machine, through the system's `ssh`: the door for who shows what lies there.

It is started as `syncd` starts its own server there: with what ~/.ssh/config says, and what `syncd setup` stored of
that host (port, key, where our programs are).
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syncd.access.settings import parse_remote
from syncd.access.survey import program_line
from syncd.errors import ConfigError, RemoteError, SyncError
from syncd.remote import Remote, is_absolute_path
from syncd.transports.openssh import explain, ssh_words, typed_ssh
from syncd.wire.streams import ChildStream


@dataclass(frozen=True)
class FarProgram:
    """`name`: of ours; `command`: its absolute path over there, None: it is looked for."""

    remote: Remote
    name: str
    command: str | None = None

    @property
    def path(self) -> str:
        """What the user named over there."""
        return self.remote.path

    @property
    def place(self) -> str:
        """The machine, as a person would write it."""
        return self.remote.account

    def start(
        self, words: Sequence[str], ended: Callable[[str, int, Sequence[str]], SyncError], *, asks: bool
    ) -> ChildStream:
        """Start it with these words. `ended`: (place, exit code, its lines on stderr) → what its end means. `asks`: ssh
        may ask on the terminal.

        Errors: RemoteError where there is no `ssh` here.
        """
        there = [self.command, *words] if self.command else None
        line = shlex.join(there) if there else program_line(self.name, self.path, words)
        command = [*ssh_words(self.remote, asks=asks), "--", self.remote.account, line]
        typed = typed_ssh(self.remote)
        try:
            return ChildStream(
                command, lambda code, said: explain(self.place, code, said, ended, typed=typed), asks=asks
            )
        except OSError as error:
            raise RemoteError(f"ssh cannot be started ({error.strerror}): install it") from None


def far_program(text: str, name: str, command: str | None = None) -> FarProgram:
    """Our program `name` on the machine of `[user@]host:path` ("host:": its home). Errors: ConfigError."""
    if command is not None and not is_absolute_path(command):
        raise ConfigError(f"--remote-command {command}: the absolute path of {name} over there, please")
    remote = parse_remote(f"{text}." if text.endswith(":") else text)
    beside = posixpath.join(posixpath.dirname(remote.command), name) if remote.command else None
    return FarProgram(remote, name, command or beside)
