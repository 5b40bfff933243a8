"""The file of weights that an encoder begins with: known by its sum, and kept in the slot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anchorleg.job import Job
from anchorleg.places import user_path
from trainer.config.training import Training
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, SaveError
from trainer.machine.group import Group
from trainer.nets import weights
from trainer.nets.encoders.base import arch_of, encoder_for
from trainer.training import copies

_SETTING = "network.encoder.weights_sha256"


def with_weights(job: Job, training: Training, group: Group) -> tuple[Training, Callable[[], None]]:
    """`training` with the sum of the file that its encoder comes from, and the slot's own copy as its place; and what
    makes that copy where it is not there yet. Writes nothing. Rank 0 alone looks at the file.

    Errors: ConfigError where the file is neither there nor kept, is none, or is not the one that the config names by
    its sum; UndecidedError where it cannot be read now; as `copies.chosen` and `Group`. Of what makes the copy:
    ConfigError where the file is of another net, and then nothing is kept; SaveError.
    """
    encoder = training.network.encoder
    if encoder.weights is None:
        return training, lambda: None
    path, folder = user_path(encoder.weights), job.slot_dir / weights.WEIGHTS
    sha256, is_there = _sum_of(job, path, folder, encoder.weights_sha256) if group.is_first else ("", False)
    sha256 = group.share(sha256.encode()).decode()
    kept = weights.place_of(folder, sha256)

    def keep() -> None:
        if not kept.exists():
            _must_fit(training, path)
        try:
            weights.kept_copy(path, folder, sha256)
        except OSError as error:
            raise SaveError(f"{folder} cannot take {path} ({error.strerror}): make room there") from error

    told = {**encoder.model_dump(mode="json"), "weights": str(kept), "weights_sha256": sha256}
    return training.changed(network={"encoder": told}), keep if is_there else lambda: None


def _sum_of(job: Job, path: Path, folder: Path, told: str | None) -> tuple[str, bool]:
    """Also whether it is that of the file itself. `told`: the one that the config names."""
    found = copies.looked_at(
        lambda: weights.sha256_of(path) if weights.is_there(path) else None,
        job,
        weights.sums_in(folder),
        setting=_SETTING,
        told=told,
    )
    sha256 = found or _kept_before(job, path, folder, told)
    if told not in {None, sha256}:
        raise ConfigError(
            f"{path} is not the file that network.encoder.weights_sha256 names ({told}): its sum is {sha256}"
        )
    return sha256, found is not None


def _kept_before(job: Job, path: Path, folder: Path, told: str | None) -> str:
    """The sum of the copy that an attempt before this one made."""
    return copies.chosen(
        job,
        folder,
        weights.sums_in(folder),
        setting=_SETTING,
        told=told,
        gone=f"there is no file of weights {path} (network.encoder.weights) on this machine",
        advice="give the path of a .safetensors or .pth file, or of a folder with shards",
    )


def _must_fit(training: Training, path: Path) -> None:
    """Errors: ConfigError where what `path` holds is not of the net that is to read pictures."""
    for key, spec in spaces_of(training).of_policy.obs.items():
        encoder = None if key in training.network.encoders else encoder_for(key, spec, training.network, None)
        if encoder is not None:
            weights.tensors_for(encoder, path, arch_of(spec, training.network))
