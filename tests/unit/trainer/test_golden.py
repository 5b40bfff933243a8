"""Golden rows of every space there is, and what of a large logit another machine need not reproduce."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from trainer.config.network import Network
from trainer.envs.spaces import ArraySpec, Box, Discrete, Spaces
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.sharing.policies import GoldenMismatchError, Policy, golden_of, golden_rows

pytestmark = pytest.mark.trainer

LARGEST = float(np.finfo(np.float32).max)
bounds = st.one_of(
    st.sampled_from([-np.inf, np.inf, 0.0, 1.0, 255.0, 1e38, -1e38, LARGEST, -LARGEST, 2.0**63]),
    st.floats(-LARGEST, LARGEST, width=32),
    st.floats(-300, 300, width=32),
)


@given(bounds, bounds)
@example(2.0, np.inf)
@example(-np.inf, -2.0)
@example(-LARGEST, LARGEST)
@example(0.3, 0.3)
@example(1e38, np.inf)
@example(5000.0, 6000.0)
def test_golden_observations_are_finite_and_within_their_bounds(one, other):
    low, high = min(one, other), max(one, other)
    if low == high and not np.isfinite(low):
        low, high = -np.inf, np.inf
    obs, _ = golden_rows(Spaces({"state": ArraySpec((3,), low=low, high=high)}, Box(1), ("t",), 5), 1, 8)
    assert np.isfinite(obs["state"]).all()
    assert (np.float32(low) <= obs["state"]).all()
    assert (obs["state"] <= np.float32(high)).all()


@pytest.mark.parametrize(("low", "high"), [(2.0, np.inf), (-LARGEST, LARGEST), (5000.0, 6000.0), (-np.inf, -7.0)])
def test_golden_observations_differ_where_bounds_leave_room(low, high):
    obs, _ = golden_rows(Spaces({"state": ArraySpec((3,), low=low, high=high)}, Box(1), ("t",), 5), 1, 8)
    assert len(np.unique(obs["state"])) == 24


@given(st.integers(0, 255), st.integers(0, 255))
def test_golden_pictures_are_within_their_bounds(one, other):
    low, high = min(one, other), max(one, other)
    obs, _ = golden_rows(Spaces({"image": ArraySpec((1, 4, 4), "uint8", low, high)}, Box(1), ("t",), 5), 1, 8)
    assert obs["image"].dtype == np.uint8
    assert low <= obs["image"].min()
    assert obs["image"].max() <= high


def test_large_logits_need_not_come_out_to_more_digits_than_float32_has():
    here, tensors = policy_of(ArraySpec((4,), low=-90.0, high=90.0), scale=1e3)
    golden = golden_of(here, 3, 1e-3)
    last = max(name for name in tensors if name.endswith("weight"))
    elsewhere, wrong = (
        Policy(here.spec, {**tensors, last: tensors[last] * np.array([[1], [1 + by], [1]], np.float32)})
        for by in (1e-5, 0.2)
    )
    obs, task = golden_rows(here.spec.spaces, 3, 8)
    log = [torch.log_softmax(policy._outputs(obs, task), -1) for policy in (here, elsewhere)]
    assert (log[0] - log[1]).abs().max() > 10 * golden.tolerance
    assert 0 < elsewhere.check_golden(golden) < golden.tolerance
    with pytest.raises(GoldenMismatchError):
        wrong.check_golden(golden)


def policy_of(array, scale):
    """One of three choices, its logits `scale` times as large as usual; (it, its tensors)."""
    spec = PolicySpec(Spaces({"state": array}, Discrete(3), ("t",), 10), Network(), "categorical")
    net = PolicyNet(spec, torch.Generator().manual_seed(0))
    tensors = {name: tensor.numpy().copy() for name, tensor in net.state_dict().items()}
    last = max(name for name in tensors if name.endswith("weight"))
    tensors[last] *= np.float32(scale)
    return Policy(spec, tensors), tensors
