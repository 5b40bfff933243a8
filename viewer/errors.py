"""What can go wrong in viewer, and the exit code of each; the sentences are in `errors.toml`.

::

    ViewerError (1)
    ├── UsageError (2)      the command line cannot be used; nothing was opened
    ├── DamagedError (3)    what is there cannot be read, or is of another version; nothing was changed
    ├── BusyError (4)       somebody else has the port or the socket; that says nothing about the run
    ├── NotReachable (6)    it lies on another machine, which cannot be reached, or does not serve us
    │   └── LostError       the connection was lost, and is tried again
    ├── StorageError (7)    a file cannot be written here: disk full, quota, permission
    └── NothingThere (8)    no run of that name, and no run in that folder. It may live on another machine

    BadSceneError           one agent's scene cannot be drawn; the page says why, and goes on

Other exit codes: 0 done; 1 a defect of this program (please report it); 130 interrupted.
"""

from __future__ import annotations

from anchorleg.errors import NamedError


class ViewerError(NamedError):
    """Something that a user is told in one sentence, without a traceback."""


class UsageError(ViewerError):
    """The command line cannot be used, or the extra is not installed. Nothing was opened."""

    exit_code = 2


class DamagedError(ViewerError):
    """What is there cannot be read. It does not mean that the training is in trouble."""

    exit_code = 3


class BusyError(ViewerError):
    """Somebody else has the port or the socket. It does not mean that the run is watched already."""

    exit_code = 4


class NotReachable(ViewerError):  # noqa: N818 - names what is found
    """It lies on another machine, and that one does not show it now. It does not mean that it is not there."""

    exit_code = 6


class LostError(NotReachable):
    """The connection to the other machine was lost. It does not mean that a person must mend it."""


class StorageError(ViewerError):
    """A file cannot be written here. What was there before is untouched."""

    exit_code = 7


class NothingThere(ViewerError):  # noqa: N818 - names what is missing
    """There is no run where one was looked for. It may live on another machine."""

    exit_code = 8


class BadSceneError(NamedError, ValueError):
    """No scene, or one that nobody could draw."""
