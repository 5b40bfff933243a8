"""Makes r3d18_torchvision.safetensors: what torchvision's R3D-18 makes of drawn weights and clips.

`python tests/golden/r3d18_torchvision.py`, in an environment of its own with torchvision, which the tests' environment
cannot have: beside a torch for CPUs it can only be imported after two operators are defined by hand, and while it is
installed there, `transformers` cannot be imported at all. The script compares with our own net in the same process as
well, and ends in an error where one bit differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_suffix(".safetensors")
#: Rows, frames, colours, pixels.
CLIPS = (2, 6, 3, 40, 48)


def weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Numbers of the size that trained ones have, the same wherever NumPy is."""
    rng = np.random.default_rng(18)
    made = {}
    for name, shape in sorted(shapes.items()):
        drawn = rng.random(shape, np.float32)
        if name.endswith("num_batches_tracked"):
            made[name] = torch.tensor(7)
        elif name.endswith(("running_var", "weight")) and len(shape) == 1:
            made[name] = torch.from_numpy(drawn + np.float32(0.5))
        elif len(shape) > 1:
            bound = np.float32((6 / np.prod(shape[1:])) ** 0.5)
            made[name] = torch.from_numpy((2 * drawn - 1) * bound)
        else:
            made[name] = torch.from_numpy((drawn - np.float32(0.5)) / 5)
    return made


def clips() -> Tensor:
    """[B, T, C, H, W] uint8."""
    return torch.from_numpy(np.random.default_rng(3).integers(0, 256, CLIPS, dtype=np.uint8))


def main() -> None:
    """Write the file."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision
    from torchvision.models.video import R3D_18_Weights, r3d_18

    sys.path.insert(0, str(ROOT))
    from trainer.config.network import Network
    from trainer.envs.spaces import ArraySpec
    from trainer.nets.encoders.r3d18 import Encoder

    theirs = r3d_18().eval()
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.state_dict().items()}
    state = weights(shapes)
    theirs.load_state_dict(state)
    theirs.fc = torch.nn.Identity()
    constants = R3D_18_Weights.DEFAULT.transforms()
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (constants.mean, constants.std))
    ours = Encoder(ArraySpec(CLIPS[1:], "uint8", 0, 255, CLIPS[1]), Network(), torch.Generator().manual_seed(0))
    ours.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith("fc.")})
    with torch.no_grad():
        features = theirs(((clips().float() / 255 - mean) / deviation).transpose(1, 2))
        difference = float((ours(clips()) - features).abs().max())
    print(f"features up to {float(features.abs().max()):.3f}; ours differ by {difference}")
    if difference:
        sys.exit("our net makes other features")
    save_file(
        {"features": features},
        GOLDEN,
        metadata={"torchvision": torchvision.__version__, "shapes": json.dumps(shapes, sort_keys=True)},
    )


if __name__ == "__main__":
    main()
