"""What autograd keeps of a row, beforehand: by arithmetic, and as it is with numbers."""

from __future__ import annotations

import pytest
import torch
from autograd_keeps import really_kept
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec
from trainer.nets.encoders.base import encoder_for, kept_bytes

_CLIP = ArraySpec((4, 3, 32, 32), "uint8", 0.0, 255.0, stack=4)
_STACK = ArraySpec((9, 84, 84), "uint8", 0.0, 255.0, stack=3)


def test_of_plain_layers_their_inputs_are_kept_and_no_weights() -> None:
    net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    # The first layer's input and the second one's, which is also what the ReLU remembers.
    assert kept_bytes(net, ArraySpec((10,))) == 4 * (10 + 20)


def test_where_nothing_learns_nothing_is_kept() -> None:
    net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)).requires_grad_(requires_grad=False)
    assert kept_bytes(net, ArraySpec((10,))) == 0


def test_of_a_module_that_reads_numbers_nothing_is_said() -> None:
    class Reads(nn.Module):
        def forward(self, seen: Tensor) -> Tensor:
            return seen * float(seen.max())

    assert kept_bytes(Reads(), ArraySpec((10,))) == 0


@pytest.mark.parametrize(
    ("arch", "spec"),
    [("nature", _STACK), ("drq", _STACK), ("simple2dcnn", _CLIP), ("r3d18", _CLIP), ("timesformer_tiny", _CLIP)],
)
def test_with_numbers_as_much_is_kept_and_the_measure_leaves_the_encoder_as_it_was(arch: str, spec: ArraySpec) -> None:
    network = Network.model_validate({"encoder": {"arch": arch}})
    encoder = encoder_for("image", spec, network, torch.Generator().manual_seed(1))
    assert encoder is not None
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    measured = kept_bytes(encoder, spec)
    assert measured == kept_bytes(encoder_for("image", spec, network, None) or encoder, spec)
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())
    assert all(parameter.grad is None for parameter in encoder.parameters())
    assert measured == pytest.approx(really_kept(encoder, spec), rel=0.02)
