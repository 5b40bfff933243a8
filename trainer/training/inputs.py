"""What a training begins with beside its config: demonstrations, and weights of its encoder. Each is known by its sum,
and kept in the slot, because where it came from may go. Rank 0 alone looks at it; nothing is written before `keep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from anchorleg.job import Job
from anchorleg.places import user_path
from trainer.algorithms.common.observations import FeatureCache
from trainer.buffers.demonstrated import ShownEpisode
from trainer.checkpoints.resume import begun_with
from trainer.config.training import Training
from trainer.demos.matching import episodes_of, must_pay_alike, rows_of
from trainer.demos.store import MANIFEST, Demos
from trainer.envs.spaces import I64, Spaces
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, SaveError, UndecidedError
from trainer.machine.group import Group
from trainer.nets import weights
from trainer.nets.encoders.base import arch_of, encoder_for, kept_spaces
from trainer.nets.policy import PolicyNet

#: The folder in a slot that has demonstrations, each under its sum.
DEMOS = "demos"
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Copies:
    """The copies, by their `sums`, that the attempts before have made in `folder` of what lies at `path`. `told`: the
    sum that the config names by `setting`.
    """

    job: Job
    path: Path
    folder: Path
    sums: Sequence[str]
    setting: str
    told: str | None

    def found(self, look: Callable[[], _T | None], sum_of: Callable[[Any], str]) -> tuple[_T | None, str]:
        """What `look` finds and its sum. None: it is not there, or cannot be read now; then the sum of the copy that
        the config tells, else that the newest checkpoint names (a copy of something else must not be taken for it),
        else of the only one.

        Errors: those of `look`; as `begun_with`; ConfigError where there is no copy, nobody says which, or what was
        found is not what the config names.
        """
        try:
            found = look()
        except UndecidedError:
            if (self.told or begun_with(self.job, self.setting)) not in self.sums:
                raise
            found = None
        if found is not None:
            if self.told not in {None, sum_of(found)}:
                sums = {"wanted": self.told, "found": sum_of(found)}
                raise ConfigError("start.other-sum", path=self.path, setting=self.setting, **sums)
            return found, sum_of(found)
        wanted = self.told or begun_with(self.job, self.setting)
        left = sorted(each for each in self.sums if wanted in {None, each})
        if not left:
            of_demos = self.setting.startswith("algorithm.")
            raise ConfigError("start.no-demos" if of_demos else "start.no-weights", path=self.path, folder=self.folder)
        if len(left) > 1:
            several = {"setting": self.setting, "sums": ", ".join(left)}
            raise ConfigError("start.several-copies", path=self.path, folder=self.folder, **several)
        return None, left[0]


def with_demos(job: Job, training: Training, group: Group) -> tuple[Training, Callable[[], None]]:
    """`training` with the sum of its demonstrations, and the slot's own copy as their place; and what makes that copy
    where it is not there yet.

    Errors: ConfigError where they are neither there nor kept, are not those that the config names by their sum, or show
    something else than this training needs; UndecidedError where they cannot be read now; as `Group`. Of what makes
    the copy: SaveError; DamagedDemosError.
    """
    if training.demos is None:
        return training, lambda: None
    if not group.is_first:
        return _at(training, job.slot_dir / DEMOS / group.share().decode()), lambda: None
    folder, path = job.slot_dir / DEMOS, user_path(str(training.demos))
    found, sha256 = _Copies(
        job,
        path,
        folder,
        [each.parent.name for each in folder.glob(f"*/{MANIFEST}")],
        "algorithm.demos_sha256",
        training.algorithm.demos_sha256,  # type: ignore[attr-defined]
    ).found(lambda: Demos.find(path), lambda demos: demos.manifest.digest)
    group.share(sha256.encode())
    kept = folder / sha256
    demos = found or Demos.open(kept)
    rows_of(demos.manifest, spaces_of(training), imitates=not training.uses_experience)  # refuses what is not seen
    if training.uses_experience:
        must_pay_alike(demos.manifest, training.env)

    def keep() -> None:
        try:
            demos.copy_to(kept)
        except OSError as error:
            raise SaveError("start.not-copied", folder=folder, path=path, why=error.strerror) from error

    return _at(training, kept), keep


def _at(training: Training, copy: Path) -> Training:
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


def with_weights(job: Job, training: Training, group: Group) -> tuple[Training, Callable[[], None]]:
    """`training` with the sum of the file that its encoder comes from, and the slot's own copy as its place; and what
    makes that copy where it is not there yet.

    Errors: ConfigError where the file is neither there nor kept, is none, or is not the one that the config names by
    its sum; UndecidedError where it cannot be read now; as `Group`. Of what makes the copy: ConfigError where the file
    is of another net, and then nothing is kept; SaveError.
    """
    encoder = training.network.encoder
    if encoder.weights is None:
        return training, lambda: None
    path, folder = user_path(encoder.weights), job.slot_dir / weights.WEIGHTS
    found, sha256 = None, ""
    if group.is_first:
        found, sha256 = _Copies(
            job,
            path,
            folder,
            weights.sums_in(folder),
            "network.encoder.weights_sha256",
            encoder.weights_sha256,
        ).found(lambda: weights.sha256_of(path) if weights.is_there(path) else None, str)
    sha256 = group.share(sha256.encode()).decode()
    kept = weights.place_of(folder, sha256)

    def keep() -> None:
        if found is None:
            return
        if not kept.exists():
            _must_fit(training, path)
        try:
            weights.kept_copy(path, folder, sha256)
        except OSError as error:
            raise SaveError("start.not-copied", folder=folder, path=path, why=error.strerror) from error

    told = {**encoder.model_dump(mode="json"), "weights": str(kept), "weights_sha256": sha256}
    return training.changed(network={"encoder": told}), keep


def _must_fit(training: Training, path: Path) -> None:
    """Errors: ConfigError where what `path` holds is not of the net that is to read pictures."""
    for key, spec in spaces_of(training).of_policy.obs.items():
        encoder = None if key in training.network.encoders else encoder_for(key, spec, training.network, None)
        if encoder is not None:
            weights.tensors_for(encoder, path, arch_of(spec, training.network))
