"""What `trainer demos fit` begins with, and what it leaves: from demonstrations and a training's settings to a learner,
and from the best encoder to a file for `network.encoder.weights`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import safetensors.torch
import torch
from torch import nn

from anchorleg.files import make_folder, write_bytes
from anchorleg.places import user_path
from trainer.algorithms.common.tensors import torch_generator
from trainer.buffers.frames import is_picture
from trainer.config.encoders import AUTO, AUTO_CLIPS, AUTO_PICTURES, told
from trainer.config.settings import Network
from trainer.config.training import Training
from trainer.demos.cloning import Cloning
from trainer.demos.contrast import FRAMES, TimeContrast
from trainer.demos.fit import Fit, FitPlan, Lesson
from trainer.demos.footage import BatchNeed, Footage, held_out
from trainer.demos.matching import must_act, must_show, tasks_of
from trainer.demos.store import Demos, DemosManifest
from trainer.envs.spaces import IMAGE, ArraySpec, Spaces
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, SaveError
from trainer.machine import device as machine
from trainer.machine.host import read_host
from trainer.nets import weights
from trainer.nets.encoders.base import encoder_for
from trainer.nets.kept import kept_bytes
from trainer.nets.seen import check_seen
from trainer.streams import RandomStream

_WAY_OUT = "learn --without-actions"
#: The episodes that are held out: one in ten.
HELD_OUT = 0.1
_SUFFIX = ".safetensors"
#: What stands in the metadata of a file of ours.
_ABOUT = "about"


def check_out(out: Path | None, training: Training, *, by_actions: bool) -> None:
    """Errors: ConfigError for a path that no weights can go to, and where there are none, or nothing but these."""
    if out is None:
        if not by_actions:
            raise ConfigError("--out is missing: the encoder that is learned goes there, and there is no policy")
        return
    if out.suffix != _SUFFIX or os.path.isdir(out):
        raise ConfigError(f"--out {out}: give the name of a file that ends in {_SUFFIX}")
    spaces = _spaces_of(training)
    if IMAGE not in spaces.obs:
        raise ConfigError(f"{_no_image(spaces)}, or leave --out out: then the policy alone is learned")


def _no_image(spaces: Spaces) -> str:
    """Why there is no encoder to be kept, and what to do."""
    others = ", ".join(_pictures(spaces))
    seen = f"no pictures called {IMAGE}, but {others}" if others else "no pictures"
    settings = "cameras or both" if others else "cameras, both or clips"
    return f"this training sees {seen}: set env.observation to {settings} (--set env.observation=both)"


def _pictures(spaces: Spaces) -> dict[str, ArraySpec]:
    """Those that the policy sees, by their keys."""
    return {key: spec for key, spec in spaces.of_policy.obs.items() if is_picture(spec)}


def _spaces_of(training: Training) -> Spaces:
    """What its policy sees and gives. Errors: ConfigError where its suite cannot be opened."""
    try:
        return spaces_of(training)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def learner_of(demos: Demos, training: Training, *, by_actions: bool, batch_size: int = 0) -> Lesson:
    """What is taught, on the training's device. Weights and held-out episodes are drawn from the training's seed.
    `batch_size`: what memory must do for; 0: nobody knows yet.

    Errors: ConfigError where demonstrations and training do not fit; OutOfMemoryError; DamagedDemosError.
    """
    device = machine.choose_device(training.device)
    machine.set_deterministic(training.threads)
    spaces = _spaces_of(training)
    try:
        check_seen(training, spaces)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    must_fit(demos.manifest, spaces, by_actions=by_actions)
    tasks = tasks_of(demos.manifest, spaces, _WAY_OUT) if by_actions else []
    network, generator = _taught(training.network), torch_generator(training.seed, RandomStream.NETS)
    pictures = _pictures(spaces) if by_actions else {IMAGE: spaces.obs[IMAGE]}
    batch = None
    if pictures and device.type != "cuda":  # a GPU has memory of its own
        batch = _batch_need(pictures, network, batch_size, by_actions=by_actions)
    footage = Footage.of(demos, read_host().free_bytes, pictures=pictures, batch=batch)
    usable = [e for e, episode in enumerate(footage.episodes) if not by_actions or _is_imitated(episode.success)]
    learned, held = held_out(len(usable), HELD_OUT, np.random.default_rng([training.seed, 2]))
    chosen, out = [usable[i] for i in learned], [usable[i] for i in held]
    learner: Lesson
    if by_actions:
        taught = training.model_copy(update={"network": network})
        learner = Cloning(taught, spaces, footage, tasks, chosen, out, generator)
    else:
        encoder = _encoder(IMAGE, spaces.obs[IMAGE], network, generator)
        learner = TimeContrast(encoder, spaces.obs[IMAGE], footage, chosen, out, training.seed)
    learner.module.to(device)
    return learner


def _encoder(key: str, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> nn.Module:
    """Of the pictures `key`. Errors: ConfigError."""
    try:
        return cast("nn.Module", encoder_for(key, spec, network, generator))
    except ValueError as error:
        raise ConfigError(f"network.encoder: {error}") from None


def _batch_need(pictures: Mapping[str, ArraySpec], network: Network, size: int, *, by_actions: bool) -> BatchNeed:
    """By time three frames of each film are read, each with its stack. Errors: ConfigError."""
    each = sum(kept_bytes(_encoder(key, spec, network, None), spec) for key, spec in pictures.items())
    return BatchNeed(size, (1 if by_actions else FRAMES) * each)


def must_fit(manifest: DemosManifest, spaces: Spaces, *, by_actions: bool) -> None:
    """Whether what the demonstrations show is what a policy of `spaces` sees; by actions, that may be without pictures.

    Errors: ConfigError.
    """
    if IMAGE in spaces.obs:
        must_show(manifest, spaces)
    elif not by_actions:
        raise ConfigError(_no_image(spaces))
    if by_actions:
        must_act(manifest, spaces.of_policy, _WAY_OUT)


def plan_of(
    demos: Demos, training: Training, learner: Lesson, *, steps: int, batch_size: int, learning_rate: float, every: int
) -> FitPlan:
    """Errors: ConfigError, as `learner_of`."""
    deciding = {
        "demos": demos.manifest.digest,
        "way": learner.name,
        "version": 3,
        "network": training.network.model_dump(mode="json", exclude={"encoder": {"weights", "weights_sha256"}}),
        "weights": _weights_of(training.network),
        "spaces": spaces_of(training).digest,
        "held_out": HELD_OUT,
    }
    text = json.dumps(deciding, sort_keys=True, separators=(",", ":"))
    part = training.network.encoder.lr_scale
    return FitPlan(
        hashlib.sha256(text.encode()).hexdigest(), steps, batch_size, learning_rate, part, every, training.seed
    )


def begun_with(training: Training) -> dict[str, str]:
    """Of the file of weights that the encoder of pictures begins with: its sum, and what is known of its licence; empty
    where there is none. Errors: ConfigError.
    """
    seen, network = next(iter(_pictures(spaces_of(training)).values()), None), training.network
    sha256 = None if seen is None else _weights_of(network)
    if seen is None or sha256 is None:
        return {}
    return {
        "weights_sha256": sha256,
        "weights_licence": told(_arch_of(network, seen), network.encoder.weights) or "",
    }


def write_weights(
    out: Path, fit: Fit, demos: Demos, training: Training, begun: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Leave the best encoder in `out`, durably: tensors by their plain names, and in the file's metadata what it is,
    which is returned. `begun`: what `begun_with` said before the fit, as the file may be gone; None: it is asked now.

    Errors: SaveError; as `begun_with`.
    """
    best, source, seen = fit.best_row, demos.manifest.source, spaces_of(training).obs[IMAGE]
    about = {
        "arch": _arch_of(training.network, seen),
        "made_by": "trainer demos fit",
        "way": fit.learner.name,
        "observation": json.dumps(seen.as_json()),
        "demos": demos.manifest.digest,
        "source": source.name,
        "licence": source.licence or "",
        "step": str(best.step),
        "held_out": repr(best.held_out),
        **(begun_with(training) if begun is None else begun),
    }
    try:
        make_folder(out.absolute().parent)
        # In one entry: safetensors writes several in an order that is another in each process.
        write_bytes(out, safetensors.torch.save(fit.best, metadata={_ABOUT: json.dumps(about)}))
    except OSError as error:
        raise SaveError(f"{out} cannot be written: {error.strerror}; the same command writes it again") from error
    return about


def _arch_of(network: Network, spec: ArraySpec) -> str:
    """By name, also where the settings leave the choice to the observation."""
    name = network.encoders.get(IMAGE, network.encoder.arch)
    return name if name != AUTO else AUTO_CLIPS if spec.is_clip else AUTO_PICTURES


def _taught(network: Network) -> Network:
    """With an encoder that learns, whatever it is to do later; where it has weights, it begins with them."""
    return network.model_copy(update={"encoder": network.encoder.model_copy(update={"freeze": False})})


def _weights_of(network: Network) -> str | None:
    """The sha256 of what the encoder begins with. Errors: ConfigError."""
    path = network.encoder.weights
    return None if path is None or IMAGE in network.encoders else weights.sha256_of(user_path(path))


def _is_imitated(success: bool | None) -> bool:
    """What is known to have failed is no example."""
    return success is not False
