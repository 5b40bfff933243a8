"""Settings that do something else than whoever wrote them can have meant: told, and done."""

from __future__ import annotations

from trainer.config.encoders import ARCHES, AUTO
from trainer.config.pictures import PictureSettings
from trainer.config.training import Training

#: The encoder that reads a clip's frames one by one.
_OVER_TIME = "simple2dcnn"


def doubts_about(training: Training) -> list[tuple[str, str]]:
    """(field, what it comes to) where that can hardly be meant: it is told, and done."""
    found: list[tuple[str, str]] = []
    if 0 < training.falling_steps < training.total_steps:
        why = (
            f"the learning rate is 0 from step {training.falling_steps:,} on, and nothing is learned until "
            f'{training.total_steps:,} (total_steps); "total" falls until there'
        )
        found.append(("learning_rate_steps", why))
    env = training.env
    if isinstance(env, PictureSettings) and env.frame_stack == 1 and env.frame_stride > 1:
        found.append(("frame_stride", "it lies between several frames that are seen, and frame_stack is 1"))
    algorithm, encoder = training.algorithm, training.network.encoder
    if getattr(algorithm, "critic_loss", "") == "squared":
        said = algorithm.model_dump(include={"value_limit", "value_bins"}, exclude_defaults=True)
        found += [(name, "only critic_loss categorical reads it, and this one is squared") for name in said]
    reading = {encoder.arch, *training.network.encoders.values()}
    if encoder.over_time != "gru" and reading <= {*ARCHES, AUTO} - {_OVER_TIME}:
        found.append(("encoder.over_time", f"only {_OVER_TIME} reads it; set encoder.arch to that"))
    if getattr(algorithm, "demos", "") is None:
        said = algorithm.model_dump(include={"demos_share"}, exclude_defaults=True)
        found += [(name, "there are no demonstrations (demos)") for name in said]
    if encoder.is_frozen and encoder.lr_scale != 1:
        found.append(("encoder.lr_scale", "the encoder is frozen, and learns nothing"))
    return found
