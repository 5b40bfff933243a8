"""The file of weights that an encoder begins with: known by its sum, and kept in the slot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from anchorleg.job import Job
from trainer.config.training import Training
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, SaveError
from trainer.nets import weights
from trainer.nets.encoders.base import arch_of, encoder_for
from trainer.training import copies


def with_weights(job: Job, training: Training) -> tuple[Training, Callable[[], None]]:
    """`training` with the sum of the file that its encoder comes from, and the slot's own copy as its place; and what
    makes that copy where it is not there yet. Writes nothing.

    Errors: ConfigError where the file is neither there nor kept, is none, or is not the one that the config names by
    its sum; as `copies.chosen`. Of what makes the copy: ConfigError where the file is of another net, and then nothing
    is kept; SaveError.
    """
    encoder = training.network.encoder
    if encoder.weights is None:
        return training, lambda: None
    path, folder = Path(encoder.weights).expanduser(), job.slot_dir / weights.WEIGHTS
    is_there = os.path.exists(path)
    sha256 = weights.sha256_of(path) if is_there else _kept_before(job, path, folder, encoder.weights_sha256)
    if encoder.weights_sha256 not in {None, sha256}:
        raise ConfigError(
            f"{path} is not the file that network.encoder.weights_sha256 names ({encoder.weights_sha256}): its sum is "
            f"{sha256}"
        )
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


def _kept_before(job: Job, path: Path, folder: Path, told: str | None) -> str:
    """The sum of the copy that an attempt before this one made."""
    return copies.chosen(
        job,
        folder,
        weights.sums_in(folder),
        setting="network.encoder.weights_sha256",
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
