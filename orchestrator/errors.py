"""What can go wrong, and the exit code that says so.

::

    AnchorlegError
    ├── ConfigError         2  the config cannot be used: file, field, what to do
    ├── RunFolderError      3  something in the run folder is damaged or not ours. Nothing was overwritten
    ├── LeaseHeld           4  a living controller owns the run. It does not mean that the run is in trouble
    ├── IdentityMismatch    5  the folder holds another training. It does not mean that either is wrong
    ├── SchedulerRefused    6  Slurm said no for good, in its own words. It does not mean that other jobs ended
    ├── StorageError        7  a file could not be written (disk full, quota, permission). The old one is untouched
    ├── UnknownRun          8  no run of that name is known here. It may live on another machine
    ├── LeaseLost           9  a newer owner took over while we were away. Its ledger is the true one
    ├── RunFailed           10  slots were given up after jobs that failed. It does not mean that checkpoints are lost
    ├── CheckFailed         11  `doctor` found a problem. It changed nothing, and a run that is under way goes on
    ├── RunPaused           12  slots wait for `start` after a person cancelled their jobs. Nothing has failed
    ├── StopUnfinished      13  `stop` waited long enough. The wish stands: whoever ticks next goes on with it
    ├── HandedOver          75  this machine is taken away: its jobs were asked to save, and have ended. Nothing failed
    └── Interrupted         130  the controller was told to end. It does not mean that the jobs have ended

Exit code 0: done. 1: a defect of this program (please report it).
"""

from __future__ import annotations

from anchorleg.errors import NamedError
from anchorleg.job import HANDED_OVER


class AnchorlegError(Exception):
    """Base of all errors with a sentence for the user. `exit_code` is documented in this module."""

    exit_code = 1


class ConfigError(AnchorlegError):
    """The config cannot be used."""

    exit_code = 2


class FieldError(NamedError, ValueError):
    """One field of a config cannot be used: validators raise it, a ConfigError tells of it."""


class RunFolderError(AnchorlegError):
    """Something in the run folder is damaged or is not ours."""

    exit_code = 3


class LeaseHeld(AnchorlegError):  # noqa: N818 - a state of affairs, not a fault
    """A living controller owns the run."""

    exit_code = 4


class IdentityMismatch(AnchorlegError):  # noqa: N818 - names what is found
    """The run folder holds another training."""

    exit_code = 5


class SchedulerRefused(AnchorlegError):  # noqa: N818 - names what happened
    """The scheduler refused for good."""

    exit_code = 6


class StorageError(AnchorlegError):
    """A file could not be written."""

    exit_code = 7


class UnknownRun(AnchorlegError):  # noqa: N818 - names what is missing
    """No run of that name is registered on this machine."""

    exit_code = 8


class LeaseLost(AnchorlegError):  # noqa: N818 - names what happened
    """A newer owner has the run."""

    exit_code = 9


class RunFailed(AnchorlegError):  # noqa: N818 - names what happened
    """Slots were given up after jobs that failed."""

    exit_code = 10


class CheckFailed(AnchorlegError):  # noqa: N818 - names what happened
    """`doctor` found a problem."""

    exit_code = 11


class RunPaused(AnchorlegError):  # noqa: N818 - names what happened
    """Slots wait for a person, and nothing else is left to do."""

    exit_code = 12


class StopUnfinished(AnchorlegError):  # noqa: N818 - names what happened
    """`stop` gave up waiting; its wish stands."""

    exit_code = 13


class HandedOver(AnchorlegError):  # noqa: N818 - names what happened
    """The jobs have ended because their machine goes; the same command goes on, here or elsewhere."""

    exit_code = HANDED_OVER


class Interrupted(AnchorlegError):  # noqa: N818 - names what happened
    """The controller was told to end; its jobs go on."""

    exit_code = 130
