"""What can go wrong in viewer, and the exit code of each.

::

    ViewerError (1)
    ├── UsageError (2)      the command line cannot be used; nothing was opened
    ├── DamagedError (3)    what is there cannot be read, or is of another version; nothing was changed
    ├── BusyError (4)       somebody else has the port or the socket; that says nothing about the run
    ├── NotReachable (6)    it lies on another machine, which cannot be reached, or does not serve us
    ├── StorageError (7)    a file cannot be written here: disk full, quota, permission
    └── NothingThere (8)    no run of that name, and no run in that folder. It may live on another machine

Other exit codes: 0 done; 1 a defect of this program (please report it); 130 interrupted. Every message is one sentence.
"""

from __future__ import annotations

from anchorleg.printable import printable


class ViewerError(Exception):
    """Something that a user is told in one sentence, without a traceback."""

    exit_code = 1

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))


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


class StorageError(ViewerError):
    """A file cannot be written here. What was there before is untouched."""

    exit_code = 7


class NothingThere(ViewerError):  # noqa: N818 - names what is missing
    """There is no run where one was looked for. It may live on another machine."""

    exit_code = 8
