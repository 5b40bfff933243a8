"""Settings that do something else than whoever wrote them can have meant: told, and done."""

from __future__ import annotations

from trainer.config.asked import has_no_pictures
from trainer.config.encoders import ARCHES, AUTO
from trainer.config.pictures import PictureSettings
from trainer.config.settings import OffPolicySettings
from trainer.config.training import Training

#: The numbers that a training reports of itself (`progress.json`): by its evaluations, and all the time.
BY_EVALUATIONS = ("success", "return")
ALL_THE_TIME = ("steps_per_s", "updates_per_s", "gpu_percent", "save_s")
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
    found += _never_learned(training)
    env = training.env
    if isinstance(env, PictureSettings) and env.frame_stack == 1 and env.frame_stride > 1:
        found.append(("frame_stride", "it lies between several frames that are seen, and frame_stack is 1"))
    algorithm = training.algorithm
    if getattr(algorithm, "critic_loss", "") == "squared":
        said = algorithm.model_dump(include={"value_limit", "value_bins"}, exclude_defaults=True)
        found += [(name, "only critic_loss categorical reads it, and this one is squared") for name in said]
    if getattr(algorithm, "demos", "") is None:
        said = algorithm.model_dump(include={"demos_share"}, exclude_defaults=True)
        found += [(name, "there are no demonstrations (demos)") for name in said]
    return found + _of_encoders(training)


def _never_learned(training: Training) -> list[tuple[str, str]]:
    """A training that is over before its first update."""
    steps = -(-training.total_steps // training.num_envs) * training.num_envs
    algorithm = training.algorithm
    but = f"and there are {training.total_steps:,} (total_steps): nothing is learned"
    if isinstance(algorithm, OffPolicySettings) and algorithm.random_steps >= steps:
        return [("random_steps", f"the first {algorithm.random_steps:,} steps are without updates, {but}")]
    if training.rollout > steps:
        return [("rollout_steps", f"a rollout is {training.rollout:,} steps of all environments, {but}")]
    return []


def _of_encoders(training: Training) -> list[tuple[str, str]]:
    """What is said of encoders, and does nothing."""
    encoder, others = training.network.encoder, training.network.encoders
    if has_no_pictures(training) and not others:
        usual = training.algorithm.NETWORK.get("encoder", {})
        said = encoder.model_dump(exclude_defaults=True).items() - usual.items()
        why = "the policy sees no pictures, and nothing reads it"
        return [(f"encoder.{name}", why) for name in type(encoder).model_fields if name in dict(said)]
    found = []
    if encoder.over_time != "gru" and {encoder.arch, *others.values()} <= {*ARCHES, AUTO} - {_OVER_TIME}:
        found.append(("encoder.over_time", f"only {_OVER_TIME} reads it; set encoder.arch to that"))
    if encoder.freeze and "image" in others:
        found.append(("encoder.freeze", f"{others['image']} reads image (network.encoders), and learns"))
    if encoder.is_frozen and encoder.lr_scale != 1 and not others:
        found.append(("encoder.lr_scale", "the encoder is frozen, and learns nothing"))
    return found
