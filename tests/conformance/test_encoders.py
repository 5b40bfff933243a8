"""What every encoder must keep, run over all that there are: a new file is tested by being there."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from refused import refused

from trainer.config.find import ENCODERS, find, names
from trainer.config.network import ARCHES, EncoderSettings, Network
from trainer.envs.spaces import ArraySpec, Box, Spaces
from trainer.nets.encoders.base import encoder_for
from trainer.nets.policy import PolicyNet, PolicySpec

pytestmark = pytest.mark.trainer
#: Of the large ones: the same nets with fewer and narrower layers. `test_video_nets.py` has them whole.
SMALLER = {
    "r3d18": {"WIDTHS": (4, 6, 8, 10)},
    "timesformer": {"WIDTH": 24, "LAYERS": 2, "HEADS": 3},
    "timesformer_tiny": {"WIDTH": 24, "LAYERS": 2, "HEADS": 3},
}


def pictures(channels, height, width, stack=1):
    return ArraySpec((channels, height, width), "uint8", 0, 255, stack)


def clips(frames, channels, height, width):
    return ArraySpec((frames, channels, height, width), "uint8", 0, 255, frames, 2)


#: What is shown to each: one camera, several, a stack, no square. Colours alone where an encoder reads nothing else.
PICTURES = [
    pictures(3, 64, 64),
    pictures(1, 40, 48),
    pictures(4 * 9, 48, 48, 4),
    ArraySpec((3, 64, 64), "float32", 0, 1),
]
CLIPS = [clips(4, 3, 64, 64), clips(2, 9, 32, 48), clips(3, 3, 128, 112)]
CASES = [
    *((name, array) for name, arch in ARCHES.items() for array in (PICTURES if arch.reads == "pictures" else CLIPS)),
    *((name, clips(3, 1, 32, 32)) for name, arch in ARCHES.items() if arch.reads == "clips" and not arch.is_rgb),
    *((name, pictures(3, 64, 64)) for name in names(ENCODERS) if name not in ARCHES),
    ("anchorleg_toys.waves:Waves", ArraySpec((5,))),
]
NETWORK = Network(actor_hidden=(8,), critic_hidden=(8,))


@pytest.fixture(autouse=True)
def _smaller(monkeypatch):
    for name, attributes in SMALLER.items():
        for attribute, value in attributes.items():
            monkeypatch.setattr(find(ENCODERS, name), attribute, value)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{'x'.join(map(str, case[1].shape))}")
def case(request):
    return request.param


@pytest.fixture
def name(case):
    return case[0]


@pytest.fixture
def array(case):
    return case[1]


def made(name, array, seed, network=NETWORK):
    return find(ENCODERS, name)(array, network, None if seed is None else torch.Generator().manual_seed(seed))


def drawn(array, rows):
    generator = torch.Generator().manual_seed(3)
    if array.dtype == "uint8":
        return torch.randint(0, 256, (rows, *array.shape), generator=generator, dtype=torch.uint8)
    return torch.rand(rows, *array.shape, generator=generator)


def test_every_encoder_that_stands_here_is_described():
    assert {name for name in names(ENCODERS) if ":" not in name} >= set(ARCHES)


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
    assert all(tensor.is_meta for tensor in shapes.state_dict().values())
    assert all(bool(torch.isfinite(tensor).all()) for tensor in real.state_dict().values())


def test_it_makes_as_many_features_as_it_says_of_each_row_alone(name, array):
    encoder = made(name, array, 0)
    seen = drawn(array, 4)
    features = encoder(seen)
    assert features.shape == (4, encoder.features)
    assert features.dtype == torch.float32
    assert torch.allclose(encoder(seen[2:3]), features[2:3], atol=1e-5)
    assert not torch.allclose(features[0], features[1], atol=1e-4), "it does not look at what it is shown"


def test_it_makes_the_same_bits_of_the_same_pictures_in_training_too_and_keeps_its_state(name, array):
    encoder, seen = made(name, array, 0), drawn(array, 2)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    one = encoder.train()(seen)
    assert torch.equal(one, encoder.eval()(seen))
    assert torch.equal(one, encoder(seen))
    assert all(torch.equal(before[key], value) for key, value in encoder.state_dict().items())


@pytest.mark.parametrize("name", [name for name, arch in ARCHES.items() if arch.reads == "clips"])
def test_cameras_of_a_clip_are_read_by_one_net_each_for_itself(name):
    two = clips(3, 6, 32, 48)
    encoder, seen = made(name, two, 0), drawn(two, 1)
    swapped = torch.cat([seen[:, :, 3:], seen[:, :, :3]], 2)
    first, second = encoder(seen)[0].chunk(2)
    assert torch.allclose(encoder(swapped)[0], torch.cat([second, first]), atol=1e-5)
    assert not torch.allclose(first, second, atol=1e-4)


@pytest.mark.parametrize("over_time", ["gru", "mean"])
def test_the_order_of_frames_is_seen_by_a_gru_and_not_by_a_mean(over_time):
    network = NETWORK.model_copy(update={"encoder": EncoderSettings(arch="simple2dcnn", over_time=over_time)})
    encoder, seen = made("simple2dcnn", CLIPS[0], 0, network), drawn(CLIPS[0], 1)
    assert torch.allclose(encoder(seen), encoder(seen.flip(1)), atol=1e-4) == (over_time == "mean")


def test_a_policy_reads_through_it_and_learns_it(name, array):
    spaces = Spaces({"seen": array}, Box(2), ("a", "b"), 10)
    network = NETWORK.model_copy(update={"encoders": {"seen": name}})
    policy = PolicyNet(PolicySpec(spaces, network, "squashed-normal"), torch.Generator().manual_seed(0))
    policy.train()
    obs = {"seen": drawn(array, 3)}
    outputs = policy(obs, torch.tensor([0, 1, 0]))
    assert outputs.shape == (3, 4)
    outputs.square().sum().backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())
    assert PolicySpec.from_json(policy.spec.as_json()) == policy.spec


@pytest.mark.parametrize("name", [name for name, arch in ARCHES.items() if arch.chosen])
def test_where_it_may_be_chosen_how_many_features_it_makes_of_a_camera_it_makes_so_many(name):
    network = NETWORK.model_copy(update={"encoder": EncoderSettings(arch=name, features=7)})
    is_clips = ARCHES[name].reads == "clips"
    array = clips(2, 6, 40, 40) if is_clips else pictures(6, 40, 40)
    encoder = made(name, array, 0, network)
    assert encoder.features == (14 if is_clips else 7)
    assert encoder(drawn(array, 1)).shape == (1, encoder.features)


@pytest.mark.parametrize("name", ARCHES)
def test_what_it_cannot_read_is_refused(name):
    is_clips = ARCHES[name].reads == "clips"
    wrong = pictures(3, 64, 64) if is_clips else clips(4, 3, 64, 64)
    with refused("encoder.other-kind", arch=name, reads=ARCHES[name].reads):
        made(name, wrong, 0)
    small = ARCHES[name].least - 1
    with refused("encoder.picture-too-small", height=small, width=64):
        made(name, clips(4, 3, small, 64) if is_clips else pictures(3, small, 64), 0)
    least = ARCHES[name].least
    encoder = made(name, clips(2, 3, least, least) if is_clips else pictures(3, least, least), None)
    assert encoder.features > 0, "the least size can be read"
    with refused("encoder.reads-no-numbers", arch=name):
        made(name, ArraySpec((5,)), 0)


def test_a_picture_is_read_by_one_where_none_is_named_and_so_is_a_clip():
    assert type(encoder_for("image", pictures(3, 64, 64), NETWORK, None)) is find(ENCODERS, "nature")
    assert type(encoder_for("image", clips(4, 3, 64, 64), NETWORK, None)) is find(ENCODERS, "simple3dcnn")
    assert encoder_for("state", ArraySpec((5,)), NETWORK, None) is None
