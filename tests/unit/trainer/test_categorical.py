"""Every expected number here was worked out by hand; the grid is -2, -1, 0, 1, 2 unless it says otherwise."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch

from trainer.algorithms.common import categorical

pytestmark = pytest.mark.trainer
GRID = categorical.grid(2.0, 5, torch.device("cpu"))


def target(probabilities, shift, scale):
    found = categorical.target(torch.tensor([probabilities]), torch.tensor([shift]), torch.tensor([scale]), GRID)
    return found[0].tolist()


def test_the_mean_weighs_the_values_by_their_probabilities():
    # softmax of (0, 0, ln 2, 0, 0) is (1, 1, 2, 1, 1) / 6; of (0, 0, 0, 0, ln 4) it is (1, 1, 1, 1, 4) / 8
    logits = torch.tensor([[0, 0, math.log(2), 0, 0], [0, 0, 0, 0, math.log(4)]])
    assert categorical.mean(logits, GRID).tolist() == pytest.approx([0.0, (-2 - 1 + 0 + 1 + 8) / 8], abs=1e-6)


@pytest.mark.parametrize(("limit", "bins"), [(10.0, 101), (10.0, 1001), (350.0, 101), (2.5, 51)])
def test_what_is_beyond_an_end_lies_on_it(limit, bins):
    """Neighbours on the grid are rounded, so their distance is no measure."""
    grid = categorical.grid(limit, bins, torch.device("cpu"))
    likely = torch.eye(bins)
    for shift, end in ((3 * limit, -1), (-3 * limit, 0)):
        found = categorical.target(likely, torch.full((bins,), shift), torch.ones(bins), grid)
        assert found.min() >= 0
        assert (found[:, end] == 1).all()
    same = categorical.target(likely, torch.zeros(bins), torch.ones(bins), grid)
    assert torch.allclose(same, likely, atol=1e-4)


def test_of_two_distributions_the_one_with_the_smaller_mean_counts():
    noise = torch.Generator().manual_seed(0)
    grid, logits = categorical.grid(350.0, 101, torch.device("cpu")), torch.randn(2, 64, 101, generator=noise)
    logits[1, :5] = logits[0, :5]
    chosen = categorical.mean(logits, grid).argmin(0)
    assert set(chosen.tolist()) == {0, 1}
    expected = torch.softmax(logits[chosen, torch.arange(64)], dim=-1)
    assert torch.equal(categorical.smaller(logits, grid), expected)
    logits[0, 7] = logits[1, 8] = math.nan
    assert categorical.smaller(logits, grid).isnan().all(-1).nonzero().flatten().tolist() == [7, 8]
