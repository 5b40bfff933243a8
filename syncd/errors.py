"""What can go wrong in syncd, and the exit code of each; the sentences are in `errors.toml`.

::

    SyncError (1)
    ├── ConfigError (2)        the command line or the stored settings; nothing was sent or written
    ├── UnreachableError (3)   no connection now; it says nothing about the account or the other side's files
    ├── HostKeyError (4)       the other side's host key is unknown or another one than was pinned; nothing was sent
    ├── LoginRefusedError (5)  the key was refused; tried once, because three strikes are a ban at many sites
    │   └── SecondFactorError  a key alone lets nobody in there
    ├── RemoteError (6)        connected, but the other side has no syncd, no such folder, or speaks another protocol
    │   ├── ProtocolError      the peer sent what the protocol does not know; the connection ends, no file is harmed
    │   └── GoneError          one offered file is not there any more; the connection lives
    │       └── ChangedError   another one is in its place
    ├── StorageError (7)       a file cannot be written here: disk full, quota, permission; the old one is untouched
    ├── ServiceError (8)       launchctl or systemctl refused, or the service does not run
    ├── ProblemsFoundError (11)  `syncd doctor` found something that stops the sync
    └── RefusedError (126)     the gate of a restricted key; it does not mean that the key is unknown

    NoRoomError                one offered file is beyond what a mirror takes (`syncd.laptop.capacity`); others come
    DamagedPolicyError         one policy cannot be used, and why; the last good one stays
    └── MissingBlobError       its weights are not here (yet, or any more)
    InvalidFieldError          one field of the settings or of a manifest; what reads it names the field

Other exit codes: 0 done; 1 a defect of this program (please report it); 130 interrupted.
"""

from __future__ import annotations

from anchorleg.errors import NamedError


class SyncError(NamedError):
    """Something that a user is told in one sentence, without a traceback."""


class ConfigError(SyncError):
    """The command line or the settings are wrong. It does not mean that anything was sent or changed."""

    exit_code = 2


class UnreachableError(SyncError):
    """No connection, or it broke. It does not mean that the other side refused; trying again later is right."""

    exit_code = 3


class HostKeyError(SyncError):
    """The host key is not the pinned one. It does not mean an attack for sure; a person must decide."""

    exit_code = 4


class LoginRefusedError(SyncError):
    """The key was refused. Never tried again by itself."""

    exit_code = 5


class SecondFactorError(LoginRefusedError):
    """The site asks for more than a key, or for something else. It does not mean that it knows the key, or does not."""


class RemoteError(SyncError):
    """The other side answers, and cannot serve. It does not mean that the network is at fault."""

    exit_code = 6


class ProtocolError(RemoteError):
    """The peer sent what this protocol does not know. The connection ends; no file is harmed."""


class GoneError(RemoteError):
    """One offered file is gone, or is another one now. It does not mean that the connection is broken: list again."""


class ChangedError(GoneError):
    """Another file is in the place of one that was offered. It does not mean that it is gone: news of it follow."""


class StorageError(SyncError):
    """A file cannot be written here. What was there before is untouched."""

    exit_code = 7


class ServiceError(SyncError):
    """The service manager refused, or what it started does not run. It does not mean that `watch` by hand would not."""

    exit_code = 8


class ProblemsFoundError(SyncError):
    """`doctor` found problems, and has said what to do about each. Nothing was changed."""

    exit_code = 11


class RefusedError(SyncError):
    """A restricted key may not do this. It does not mean that the key is unknown or the connection broken."""

    exit_code = 126


class NoRoomError(NamedError):
    """One offered file is beyond what a mirror takes. It does not mean that it is bad, or that the disk is full."""


class DamagedPolicyError(NamedError):
    """One policy cannot be used, and why. It does not mean that older ones are bad."""


class MissingBlobError(DamagedPolicyError):
    """A manifest is here and its weights are not: cleared away by now, or not here yet. Looking again is right."""


class InvalidFieldError(NamedError, ValueError):
    """A field holds what cannot be used; pydantic adds which one."""
