"""What can go wrong in the trainer, and the exit code of each: 1 where a class says nothing.

Other exit codes: 0 complete; 1 a defect of this program (please report it); 75 handed over: checkpointed, or superseded
by a newer attempt: give it another job; 130 interrupted before the training listened.
The sentences (what, where, what to do) stand in `errors.toml`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

from anchorleg.errors import NamedError
from anchorleg.job import DO_NOT_REQUEUE

#: Another try at reading would come to the same.
_FOR_GOOD = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENAMETOOLONG)


def may_pass(error: OSError) -> bool:
    """Whether another try may come to something else, so that what could not be read is neither gone nor damaged.
    What passes by itself is less (`trainer.machine.shortage`).
    """
    return error.errno not in {None, *_FOR_GOOD}


#: The identifier of a plain sentence.
UNCONVERTED = "trainer.unconverted"


class _NamedHereError(NamedError):
    """An error of this catalogue, or the plain sentence of a plug-in; no folder of ours may raise one."""

    def __init__(self, name: str, /, **fields: Any) -> None:
        if " " in name:
            name, fields = UNCONVERTED, {"sentence": name, **fields}
        super().__init__(name, **fields)

    def _template(self) -> str:
        return "{sentence}" if self.id == UNCONVERTED else super()._template()

    def with_id(self) -> str:
        """As `NamedError`; a plain sentence alone."""
        return str(self) if self.id == UNCONVERTED else super().with_id()


class TrainerError(_NamedHereError):
    """Something that a user is told in one sentence, without a traceback."""


class ConfigError(TrainerError):
    """The configuration or the command line is wrong. It does not mean that anything was changed."""

    exit_code = 2


class FieldError(ConfigError, ValueError):
    """One setting is wrong. pydantic takes it as a ValueError of a validator, and adds its place."""


class NoGoodCheckpointError(TrainerError):
    """No checkpoint can be loaded although there are some, or which one counts is not known. None was touched."""

    exit_code = 3


class OtherIdentityError(TrainerError):
    """The run was trained with other values of the training identity. It does not mean that either is wrong."""

    exit_code = 4


class SaveError(TrainerError):
    """A checkpoint could not be written. The one before it is still good, and no part of the new one remains."""

    exit_code = 5


class UnreadCheckpointError(TrainerError):
    """A checkpoint cannot be read now. It does not mean that it is damaged. Nothing was decided or written."""

    exit_code = 5


class UndecidedError(TrainerError):
    """What a training begins with cannot be read or built now. It does not mean that it cannot be later."""

    exit_code = 5


def unread(what: str, error: OSError) -> UndecidedError:
    """`what`, which a training begins with, cannot be read now."""
    return UndecidedError("start.unread", what=what, why=error.strerror or error)


class EnvironmentFailedError(TrainerError):
    """An environment cannot go on (`trainer.envs.step.EnvError` is one). The last checkpoint is good."""

    exit_code = 6


class OutOfMemoryError(TrainerError):
    """Memory that was asked for was not there. It does not mean that the last checkpoint is damaged."""

    exit_code = 7


class RanksError(TrainerError):
    """The ranks of a training do not go on together. It does not mean that the last checkpoint is damaged."""

    exit_code = 8


class DeviceError(TrainerError):
    """The GPU cannot be used, or not any more. It does not mean that the last checkpoint is damaged."""

    exit_code = 9


class DroppedError(TrainerError):
    """The owner of the shared folder takes nothing from this contributor. It does not mean that anything was lost."""

    exit_code = DO_NOT_REQUEUE


class NotFiniteError(TrainerError):
    """A loss, a parameter or an action is not finite. Nothing of it was published; the last checkpoint is from before.

    `what`: names of the losses or parameters. `update`: the first update whose loss it was, None where it was no loss.
    """

    exit_code = DO_NOT_REQUEUE

    def __init__(self, name: str, /, *, what: Sequence[str], update: int | None = None, **fields: Any) -> None:
        super().__init__(name, what=", ".join(what), update=update, **fields)
        self.what, self.update = tuple(what), update


class DamagedCheckpointError(_NamedHereError):
    """One checkpoint cannot be loaded, and why. The loader goes on to the one before it."""

    @property
    def unread(self) -> int | None:
        """The errno where it could not be read now (a network folder, too many open files), so that nothing is known
        of it; None: it is damaged, or gone.
        """
        cause = self.__cause__
        return cause.errno if isinstance(cause, OSError) and may_pass(cause) else None


class SupersededError(Exception):
    """A newer attempt of this slot has been claimed: end, publish nothing, delete nothing."""

    def __init__(self, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of this slot has taken over; this one ends without publishing")
        self.attempt = attempt
