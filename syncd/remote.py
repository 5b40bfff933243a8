"""The other side: which `$SHARED`, on which host, as whom, by which program."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from syncd.errors import InvalidFieldError

#: A name that ssh can never take for an option, a shell for more than a word, or a path for a folder.
#: Backslash and @ inside: accounts of a domain (`AD\me`, `me@site`).
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@\\-]{0,80}")
#: A host name, an alias of ~/.ssh/config, an IPv4 or (without its brackets) IPv6 address with a zone.
_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,254}")
#: Longer than any system allows a path to be.
_LONGEST_PATH = 4096


def _is_plain(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_PATH and text.isprintable()


def is_absolute_path(text: str) -> bool:
    """Whether `text` can be the absolute path of a folder or a program over there."""
    return text.startswith("/") and _is_plain(text)


class Remote(BaseModel):
    """One `$SHARED` and how to get there. Without `host` it is a folder that this machine mounts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(
        description="$SHARED over there: absolute, or relative to the login folder. Absolute where host is None."
    )
    user: str | None = Field(default=None, description="Account over there; None: what ssh's own config says.")
    host: str | None = Field(default=None, description="Host name, address, or alias of ~/.ssh/config.")
    port: int | None = Field(default=None, ge=1, le=65535, description="None: what ssh's own config says, else 22.")
    command: str | None = Field(default=None, description="Absolute path of `syncd` over there; None: on its PATH.")
    key: Path | None = Field(default=None, description="Private key file; None: ssh's own choice.")
    known_hosts: Path | None = Field(default=None, description="Our file of pinned host keys, asked first.")
    ssh_config: Path | None = Field(default=None, description="Instead of ~/.ssh/config.")

    @field_validator("user", "host", "path", "command")
    @classmethod
    def _is_what_it_says(cls, value: str | None, field: ValidationInfo) -> str | None:
        if value is None:
            return value
        is_one: dict[str, Callable[[str], object]] = {
            "user": _USER.fullmatch,
            "host": _HOST.fullmatch,
            "path": lambda text: _is_plain(text) and not text.startswith("-"),
            "command": is_absolute_path,
        }
        if not is_one[str(field.field_name)](value):
            raise InvalidFieldError("remote.bad-field", value=value)
        return value

    @property
    def is_local(self) -> bool:
        """Whether the folder is mounted here, so that nothing goes through ssh."""
        return self.host is None

    @property
    def account(self) -> str:
        """`user@host`, or `host`; "" where it is local. As ssh takes it on its command line."""
        if self.host is None:
            return ""
        return f"{self.user}@{self.host}" if self.user else self.host

    def __str__(self) -> str:
        """As a person writes it: `user@host:path`."""
        if self.host is None:
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.path}" if self.user else f"{host}:{self.path}"
