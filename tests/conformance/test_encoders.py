"""What every encoder must keep, run over all that there are: a new file is tested by being there."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from trainer.config.find import ENCODERS, find, names
from trainer.config.settings import Network
from trainer.envs.spaces import ArraySpec, Box, Spaces
from trainer.nets.encoders.base import encoder_for
from trainer.nets.policy import PolicyNet, PolicySpec

pytestmark = pytest.mark.trainer
#: What each reads in these tests; one that is not named here reads pictures of 64 by 64 in colour.
SHAPES = {"anchorleg_toys.waves:Waves": ArraySpec((5,))}
PICTURE = ArraySpec((3, 64, 64), "uint8", 0, 255)
ALL = [*names(ENCODERS), *SHAPES]
NETWORK = Network(actor_hidden=(8,), critic_hidden=(8,))


@pytest.fixture(params=ALL)
def name(request):
    return request.param


@pytest.fixture
def array(name):
    return SHAPES.get(name, PICTURE)


def made(name, array, seed):
    return find(ENCODERS, name)(array, NETWORK, None if seed is None else torch.Generator().manual_seed(seed))


def test_its_seed_alone_decides_its_weights(name, array):
    torch.manual_seed(1)
    one = made(name, array, 7).state_dict()
    torch.manual_seed(2)
    same, other = made(name, array, 7).state_dict(), made(name, array, 8).state_dict()
    assert one
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_without_a_generator_it_takes_no_memory_and_has_as_many_numbers(name, array):
    real, shapes = made(name, array, 0), made(name, array, None)
    assert {key: value.shape for key, value in shapes.state_dict().items()} == {
        key: value.shape for key, value in real.state_dict().items()
    }
    assert all(parameter.is_meta for parameter in shapes.parameters())


def test_it_makes_as_many_features_as_it_says_of_each_row_alone(name, array):
    encoder = made(name, array, 0)
    generator = torch.Generator().manual_seed(3)
    if array.dtype == "uint8":
        seen = torch.randint(0, 256, (4, *array.shape), generator=generator, dtype=torch.uint8)
    else:
        seen = torch.rand(4, *array.shape, generator=generator)
    features = encoder(seen)
    assert features.shape == (4, encoder.features)
    assert features.dtype == torch.float32
    assert torch.allclose(encoder(seen[2:3]), features[2:3], atol=1e-6)


def test_a_policy_reads_through_it_and_learns_it(name, array):
    spaces = Spaces({"seen": array}, Box(2), ("a", "b"), 10)
    network = NETWORK.model_copy(update={"encoders": {"seen": name}})
    policy = PolicyNet(PolicySpec(spaces, network, "tanh-normal"), torch.Generator().manual_seed(0))
    obs = {key: torch.as_tensor(values) for key, values in spaces.zeros(3).items()}
    outputs = policy(obs, torch.tensor([0, 1, 0]))
    assert outputs.shape == (3, 4)
    outputs.square().sum().backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())
    assert PolicySpec.from_json(policy.spec.as_json()) == policy.spec


def test_a_picture_without_an_encoder_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="name an encoder for it"):
        encoder_for("image", PICTURE, NETWORK, None)


def test_an_encoder_that_there_is_not_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="there is no encoder 'natur'"):
        encoder_for("image", PICTURE, NETWORK.model_copy(update={"encoders": {"image": "natur"}}), None)
