from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch

from trainer.machine import products
from trainer.machine.products import ONEDNN, PLAIN, Measured

pytestmark = pytest.mark.trainer
EXACT = 5e-7


@pytest.fixture(autouse=True)
def the_setting_is_put_back():
    torch.set_num_threads(1)
    before = torch.backends.mkldnn.matmul.fp32_precision
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


def setting():
    return torch.backends.mkldnn.matmul.fp32_precision


@pytest.mark.parametrize(
    ("measured", "route"),
    [
        (Measured(2.2, 1.0, EXACT, EXACT), ONEDNN),  # a Zen 5
        (Measured(1.2, 1.0, EXACT, 2 * EXACT), PLAIN),  # a Zen 4
        (Measured(1.0, 2.0, EXACT, EXACT), PLAIN),
        (Measured(9.0, 1.0, EXACT, 3e-3), PLAIN),  # it rounds to bfloat16
        (Measured(9.0, 1.0, EXACT, math.nan), PLAIN),
    ],
)
def test_onednn_is_taken_where_it_is_clearly_faster_and_does_not_round(measured, route):
    assert products.pick(measured) == route
    assert products.choose_products(1024, measure=lambda width: measured) == (route, None)
    assert setting() == {PLAIN: "none", ONEDNN: "bf16"}[route]


def test_a_resumed_run_keeps_its_route_however_fast_it_is():
    fast, slow = Measured(9.0, 1.0, EXACT, EXACT), Measured(1.0, 9.0, EXACT, EXACT)
    assert products.choose_products(1024, PLAIN, lambda width: fast) == (PLAIN, None)
    assert products.choose_products(64, ONEDNN, lambda width: slow) == (ONEDNN, None)
    assert setting() == "bf16"


def test_a_resumed_run_whose_route_would_round_here_says_so():
    route, sentence = products.choose_products(1024, ONEDNN, lambda width: Measured(9.0, 1.0, EXACT, 3e-3))
    assert route == PLAIN
    assert "rounds differently here" in sentence
    assert setting() == "none"


def test_measuring_finds_float32_exact_and_leaves_the_setting():
    products.use(PLAIN)
    noise = torch.get_rng_state()
    measured = products.time_products(256)
    assert measured.plain_s > 0
    assert measured.onednn_s > 0
    assert 0 < measured.plain_error < products.MAX_ERROR
    assert setting() == "none"
    assert torch.equal(noise, torch.get_rng_state())
