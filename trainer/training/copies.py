"""Which of the copies that a slot keeps a training goes on with, where what they were made of has gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

from anchorleg.job import Job
from trainer.checkpoints.resume import begun_with
from trainer.errors import ConfigError, UndecidedError

_T = TypeVar("_T")


def looked_at(
    look: Callable[[], _T | None], job: Job, sums: Collection[str], *, setting: str, told: str | None
) -> _T | None:
    """What `look` finds; None: it is not there, or it cannot be read now and a copy is enough: one of those with
    `sums`, which the config tells or the newest checkpoint names. A copy of something else must not be taken for it.

    Errors: those of `look`; as `begun_with`.
    """
    try:
        return look()
    except UndecidedError:
        if (told or begun_with(job, setting)) in sums:
            return None
        raise


def chosen(
    job: Job, folder: Path, sums: Iterable[str], *, setting: str, told: str | None, gone: str, advice: str
) -> str:
    """Of `sums`, those of the copies in `folder`, the one that the config tells; else that of the newest checkpoint;
    else the only one. `setting`: where both say it. `gone`: what is not there, and `advice` what to do, for the user.

    Errors: ConfigError where there is none, or where nobody says which; as `begun_with`.
    """
    wanted = told or begun_with(job, setting)
    left = sorted(each for each in sums if wanted in {None, each})
    if not left:
        raise ConfigError(f"{gone}, and {folder} has no copy: {advice}")
    if len(left) > 1:
        raise ConfigError(f"{gone}, and {folder} has copies of several: name one by {setting} ({', '.join(left)})")
    return left[0]
