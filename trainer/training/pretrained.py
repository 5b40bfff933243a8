"""The file of weights that an encoder begins with: known by its sum, and kept in the slot."""

from __future__ import annotations

from pathlib import Path

from anchorleg.job import Job
from trainer.config.training import Training
from trainer.errors import ConfigError, SaveError
from trainer.nets import weights


def with_weights(job: Job, training: Training) -> Training:
    """`training` with the slot's own copy of the file, and its sum, where its encoder comes from a file.

    Errors: ConfigError where the file is neither there nor kept, is none, or is not the one that the config names by
    its sum; SaveError where it cannot be kept.
    """
    encoder = training.network.encoder
    if encoder.weights is None:
        return training
    path, folder = Path(encoder.weights).expanduser(), job.slot_dir / weights.WEIGHTS
    try:
        kept = weights.kept_copy(path, folder) if path.exists() else _kept_before(path, folder)
    except OSError as error:
        raise SaveError(f"{folder} cannot take {path} ({error.strerror}): make room there") from error
    sha256 = kept.stem
    if encoder.weights_sha256 not in {None, sha256}:
        raise ConfigError(
            f"{path} is not the file that network.encoder.weights_sha256 names ({encoder.weights_sha256}): its sum is "
            f"{sha256}"
        )
    told = {**encoder.model_dump(mode="json"), "weights": str(kept), "weights_sha256": sha256}
    return training.changed(encoder=told)


def _kept_before(path: Path, folder: Path) -> Path:
    """The one copy that an attempt before this one made."""
    found = sorted(folder.glob("*.safetensors"))
    if len(found) != 1:
        raise ConfigError(
            f"there is no file of weights {path} (network.encoder.weights) on this machine, and {folder} has no "
            "copy of it: give the path of a .safetensors or .pth file, or of a folder with shards"
        )
    return found[0]
