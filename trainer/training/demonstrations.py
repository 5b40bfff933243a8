"""The demonstrations that a training learns from beside its own rows: known by their sum, and kept in the slot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from anchorleg.job import Job
from anchorleg.places import user_path
from trainer.algorithms.common.observations import FeatureCache
from trainer.buffers.demonstrated import ShownEpisode
from trainer.config.training import Training
from trainer.demos.matching import episodes_of, must_pay_alike, rows_of
from trainer.demos.store import MANIFEST, Demos
from trainer.envs.spaces import I64, Spaces
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, SaveError
from trainer.machine.group import Group
from trainer.nets.encoders.base import kept_spaces
from trainer.nets.policy import PolicyNet
from trainer.training import copies

#: The folder in a slot that has them, each under its sum.
DEMOS = "demos"
_SETTING = "algorithm.demos_sha256"
_UNTOLD = (
    "the demonstrations (algorithm.demos) do not say by which settings their rewards and ends came: nobody can tell "
    "whether they are those of the training's env"
)


class Offered(NamedTuple):
    """`training` with their sum, and the slot's own copy as their place; `rows` that are learned from. `keep` makes
    that copy where it is not there yet. `doubt`: what nobody can tell of them, a sentence; None: all is known.

    Errors of `keep`: SaveError; DamagedDemosError.
    """

    training: Training
    rows: int
    keep: Callable[[], None]
    doubt: str | None = None


def with_demos(job: Job, training: Training, group: Group) -> Offered:
    """What comes of `algorithm.demos`; writes nothing. Rank 0 alone looks at them.

    Errors: ConfigError where they are neither there nor kept, are not those that the config names by their sum, or show
    something else than this training needs; UndecidedError where they cannot be read now; as `copies.chosen` and
    `Group`.
    """
    if training.demos is None:
        return Offered(training, 0, lambda: None)
    if not group.is_first:
        rows, sha256 = group.share().decode().split()
        return Offered(_kept(training, job.slot_dir / DEMOS / sha256), int(rows), lambda: None)
    offered = _looked_at(job, training)
    group.share(f"{offered.rows} {Path(str(offered.training.demos)).name}".encode())
    return offered


def _looked_at(job: Job, training: Training) -> Offered:
    folder, path = job.slot_dir / DEMOS, user_path(str(training.demos))
    told: str | None = training.algorithm.demos_sha256  # type: ignore[attr-defined]
    copied = [each.parent.name for each in folder.glob(f"*/{MANIFEST}")]
    found = copies.looked_at(lambda: Demos.find(path), job, copied, setting=_SETTING, told=told)
    demos = found or Demos.open(_kept_before(job, path, folder, copied, told))
    sha256 = demos.manifest.digest
    if told not in {None, sha256}:
        raise ConfigError(
            f"{path} has other demonstrations than algorithm.demos_sha256 names ({told}): their sum is {sha256}"
        )
    rows = int(rows_of(demos.manifest, spaces_of(training), imitates=not training.uses_experience).sum())
    if training.uses_experience:
        must_pay_alike(demos.manifest, training.env)
    kept = folder / sha256

    def keep() -> None:
        try:
            demos.copy_to(kept)
        except OSError as error:
            raise SaveError(f"{folder} cannot take {path} ({error.strerror}): make room there") from error

    doubt = _UNTOLD if training.uses_experience and demos.manifest.source.paid_by is None else None
    return Offered(_kept(training, kept), rows, keep, doubt)


def _kept(training: Training, copy: Path) -> Training:
    return training.changed(algorithm={"demos": str(copy), "demos_sha256": copy.name})


def lay_down(
    lay: Callable[[Spaces, Iterable[ShownEpisode], I64], None],
    training: Training,
    spaces: Spaces,
    policy: PolicyNet,
    device: torch.device,
) -> None:
    """Have `lay` take the demonstrations of `training`, which sees `spaces`; what `policy`'s frozen encoders read is
    read by them now. Errors: ConfigError; DamagedDemosError.
    """
    demos, imitates = Demos.open(user_path(str(training.demos))), not training.uses_experience
    rows, seen = rows_of(demos.manifest, spaces, imitates=imitates), spaces.of_policy if imitates else spaces
    kept = kept_spaces(seen, training.network)
    lay(kept, episodes_of(demos, seen, kept, FeatureCache(policy, device).read, imitates=imitates), rows)


def _kept_before(job: Job, path: Path, folder: Path, copied: Sequence[str], told: str | None) -> Path:
    """The copy that an attempt before this one made."""
    sha256 = copies.chosen(
        job,
        folder,
        copied,
        setting=_SETTING,
        told=told,
        gone=f"there are no demonstrations in {path} (algorithm.demos)",
        advice="give the folder that `trainer demos record` or `import` made",
    )
    return folder / sha256
