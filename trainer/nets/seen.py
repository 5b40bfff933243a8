"""Whether a training's settings fit to what its policy sees: only an environment itself knows all of it."""

from __future__ import annotations

from anchorleg.words import did_you_mean
from trainer.config.network import Network
from trainer.config.pictures import PictureSettings
from trainer.config.training import Training
from trainer.envs.spaces import Spaces


def check_seen(training: Training, spaces: Spaces) -> None:
    """Errors: ValueError, a sentence, where there is an encoder for a key that the policy does not see, a file of
    weights for none, or more frames are asked for than an episode has.
    """
    _check_encoders(training.network, spaces)
    if isinstance(training.env, PictureSettings):
        why = training.env.longer_than_an_episode(spaces.horizon, "the environment's own limit")
        if why is not None:
            raise ValueError(f"training.env.frame_stack: {why}")


def _check_encoders(network: Network, spaces: Spaces) -> None:
    seen = spaces.of_policy.obs
    for key in network.encoders:
        if key not in seen:
            raise ValueError(f"training.network.encoders.{key}: the policy sees no {key!r}; {did_you_mean(key, seen)}")
    reads = any(len(spec.shape) != 1 for key, spec in seen.items() if key not in network.encoders)
    if network.encoder.weights is not None and not reads:
        raise ValueError(
            "training.network.encoder.weights: nothing reads this file, as what the policy sees "
            f"({', '.join(sorted(seen))}) is rows of numbers, or has an encoder of its own (network.encoders): leave "
            "it out"
        )
