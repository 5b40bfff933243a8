"""`trainer demos fit`: what a training would see is cloned, and the encoder of its pictures is left as a file for
`network.encoder.weights`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from pydantic import ValidationError

from anchorleg.files import make_folder, write_bytes
from trainer.config.network import licence_note
from trainer.config.read import sentences
from trainer.config.training import Training
from trainer.demos.matching import rows_of
from trainer.demos.store import Demos
from trainer.envs.spaces import IMAGE
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, FieldError, SaveError
from trainer.evaluation.playable import of_checkpoint
from trainer.nets.encoders.base import arch_of

_SUFFIX = ".safetensors"
#: What stands in the metadata of a file of ours.
_ABOUT = "about"


def cloning_of(asked: Training, demos: Demos, out: Path | None, *, steps: int, every: int, **settings: Any) -> Training:
    """The training that imitates `demos` for `asked`, with an encoder that learns, whatever it is to do later.
    `every`: steps between two measurements, each with a checkpoint; `settings`: of `Cloning`.

    Errors: ConfigError where demonstrations and training do not fit, or no weights can go to `out`.
    """
    value = asked.model_dump(mode="json")
    value["algorithm"] = {"name": "cloning", "demos": str(demos.folder.absolute()), **settings}
    value["network"]["encoder"]["freeze"] = False
    value |= {"total_steps": steps, "metrics_interval": every, "checkpoint_interval": every, "evaluation_goals": 0}
    value |= {"group": {}, "replay_on": "host"}
    try:
        training = Training.model_validate(value)
        spaces = spaces_of(training)
    except ValidationError as error:
        raise ConfigError("demos.cannot-imitate", why=FieldError.at("", *sentences(error, Training)[0])) from None
    except FieldError:
        raise
    except ValueError as error:
        raise ConfigError("demos.fit-refused", why=error) from None
    if out is not None and (out.suffix != _SUFFIX or os.path.isdir(out)):
        raise ConfigError("demos.out-suffix", out=out)
    if out is not None and IMAGE not in spaces.obs:
        raise ConfigError("demos.out-without-pictures")
    rows_of(demos.manifest, spaces, imitates=True)
    return training


def held_out(row: Mapping[str, Any]) -> float:
    """The mean error over tasks that a row of metrics tells."""
    told = [float(of_task["held_out"]) for of_task in row["tasks"].values()]
    return sum(told) / len(told)


def write_weights(out: Path, slot_dir: Path, demos: Demos, begun_with: str | None) -> Mapping[str, str]:
    """Leave the encoder of the newest checkpoint's policy in `out`, durably: tensors by their plain names, and in the
    file's metadata what it is, which is returned. Errors: SaveError; as `of_checkpoint`.
    """
    found = of_checkpoint(slot_dir, "cpu")
    net, source = found.policy.net, demos.manifest.source
    spec, network = net.spec.spaces.obs[IMAGE], net.spec.network
    about = {
        "arch": network.encoders.get(IMAGE) or arch_of(spec, network),
        "made_by": "trainer demos fit",
        "observation": json.dumps(spec.as_json()),
        "demos": demos.manifest.digest,
        "source": source.name,
        "licence": source.licence or "",
        "step": str(found.step),
    }
    if network.encoder.weights_sha256 is not None:
        licence = licence_note(network.encoder.arch, begun_with)
        about |= {"weights_sha256": network.encoder.weights_sha256, "weights_licence": licence or ""}
    tensors = {name: tensor.contiguous() for name, tensor in net.encoders[IMAGE].state_dict().items()}
    try:
        make_folder(out.absolute().parent)
        # In one entry: safetensors writes several in an order that is another in each process.
        write_bytes(out, safetensors.torch.save(tensors, metadata={_ABOUT: json.dumps(about)}))
    except OSError as error:
        raise SaveError("output.weights-unwritable", out=out, why=error.strerror) from error
    return about
