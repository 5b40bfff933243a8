"""What can go wrong, and the exit code that says so; the sentences are in `errors.toml`.

Exit code 0: done. 1: a defect of this program (please report it).
"""

from __future__ import annotations

from anchorleg.errors import NamedError


class AnchorlegError(NamedError):
    """Base of all errors with a sentence for the user."""


class ConfigError(AnchorlegError):
    """The config cannot be used: file, field, what to do."""

    exit_code = 2


class RunFolderError(AnchorlegError):
    """Something in the run folder is damaged or not ours. Nothing was overwritten."""

    exit_code = 3


class LeaseHeld(AnchorlegError):  # noqa: N818 - a state of affairs, not a fault
    """A living controller owns the run. It does not mean that the run is in trouble."""

    exit_code = 4


class IdentityMismatch(AnchorlegError):  # noqa: N818 - names what is found
    """The folder holds another training. It does not mean that either is wrong."""

    exit_code = 5


class SchedulerRefused(AnchorlegError):  # noqa: N818 - names what happened
    """Slurm said no for good, in its own words. It does not mean that other jobs ended."""

    exit_code = 6


class StorageError(AnchorlegError):
    """A file could not be written (disk full, quota, permission). The old one is untouched."""

    exit_code = 7


class UnknownRun(AnchorlegError):  # noqa: N818 - names what is missing
    """No run of that name is known here. It may live on another machine."""

    exit_code = 8


class LeaseLost(AnchorlegError):  # noqa: N818 - names what happened
    """A newer owner took over while we were away. Its ledger is the true one."""

    exit_code = 9


class RunFailed(AnchorlegError):  # noqa: N818 - names what happened
    """Slots were given up after jobs that failed. It does not mean that checkpoints are lost."""

    exit_code = 10


class CheckFailed(AnchorlegError):  # noqa: N818 - names what happened
    """`doctor` found a problem. It changed nothing, and a run that is under way goes on."""

    exit_code = 11


class RunPaused(AnchorlegError):  # noqa: N818 - names what happened
    """Slots wait for `start` after a person cancelled their jobs. Nothing has failed."""

    exit_code = 12


class StopUnfinished(AnchorlegError):  # noqa: N818 - names what happened
    """`stop` waited long enough. The wish stands: the next tick goes on with it."""

    exit_code = 13


class HandedOver(AnchorlegError):  # noqa: N818 - names what happened
    """This machine is taken away: its jobs were asked to save, and have ended. Nothing failed."""

    exit_code = 75  # anchorleg.job.HANDED_OVER, whose import would be a quarter of `--help`


class Interrupted(AnchorlegError):  # noqa: N818 - names what happened
    """The controller was told to end. It does not mean that the jobs have ended."""

    exit_code = 130


class FieldError(NamedError, ValueError):
    """A field of a config cannot be used: validators raise it, and a ConfigError tells of it."""

    exit_code = 2


class RecordError(NamedError, ValueError):
    """A record in the run folder cannot be used: part of a RunFolderError's sentence."""
