"""Which of torch's two libraries computes float32 products on this CPU: MKL, or oneDNN by a documented setting.

MKL leaves part of some processors unused: on a Zen 5 oneDNN computes the products of an update 2.2 times as fast, on a
Zen 4 about as fast. `torch.backends.mkldnn.matmul.fp32_precision = "bf16"` ("MKLDNN backend" in torch's notes) lets
oneDNN do them, and permits it to round their inputs to bfloat16, which it does where the processor has faster
instructions for that. So the error is measured too, and rounded products are refused. The order of summation differs,
so the choice belongs to a run's numbers: it is recorded in its checkpoints and kept.

The trainer calls `choose_products` once, after `trainer.machine.device.set_deterministic` and before the first product.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PLAIN, ONEDNN = "plain", "onednn"
_ONEDNN: Any = torch.backends.mkldnn  # torch has no types for it
_SETTINGS = {PLAIN: "none", ONEDNN: "bf16"}
#: oneDNN must be this much faster. Well above what a busy machine makes of equals (1.0 to 1.2 on a Zen 4), well below
#: 2.2, so that every start on one machine comes to the same choice.
WORTH_IT = 1.4
#: Largest error, relative to the largest number of the product. Sums of 1,024 float32 terms are off by 3e-7 to 1e-6,
#: depending on their order; inputs rounded to bfloat16 by 3e-3.
MAX_ERROR = 2e-6
#: Nets narrower than this spend their time elsewhere, and oneDNN's calls cost more than MKL's.
MIN_WIDTH = 256
_NETS, _ROWS, _MAX_WIDTH, _TIMES = 2, 128, 1024, 5


@dataclass(frozen=True)
class Measured:
    """Seconds of the three products of a layer (forward, by weights, by inputs), and the largest relative error.

    Of two nets at once, as `trainer.nets.fused` computes them.
    """

    plain_s: float
    onednn_s: float
    plain_error: float
    onednn_error: float


def choose_products(
    width: int, recorded: str | None = None, measure: Callable[[int], Measured | None] | None = None
) -> tuple[str, str | None]:
    """Set the route for nets whose widest layer has `width`, on the CPU: (its name, a sentence for the user or None).

    `recorded`: what the checkpoint to go on from was trained with; it is taken again where it computes as it should,
    else the sentence says so. None: measured by `measure` (`time_products`), in at most 0.3 s. The name goes into the
    checkpoint's `numeric`.
    """
    if recorded == PLAIN or (recorded is None and width < MIN_WIDTH):
        use(PLAIN)
        return PLAIN, None
    measured = (measure or time_products)(width)
    if recorded is None:
        chosen = PLAIN if measured is None else pick(measured)
        use(chosen)
        return chosen, None
    if recorded == ONEDNN and measured is not None and measured.onednn_error <= MAX_ERROR:
        use(ONEDNN)
        return ONEDNN, None
    use(PLAIN)
    why = "rounds differently here" if measured is not None else "is not here"
    words = f"matrix products were computed by {recorded}, which {why}"
    return PLAIN, f"{words}: bits may differ from here on"


def pick(measured: Measured) -> str:
    """The name of the route: oneDNN where it is clearly faster and does not round its inputs. Pure."""
    is_exact = measured.onednn_error <= MAX_ERROR  # not: where it is NaN
    return ONEDNN if is_exact and measured.plain_s >= WORTH_IT * measured.onednn_s else PLAIN


def use(route: str) -> None:
    """Compute every float32 product on the CPU that way from now on. Errors: KeyError for another name."""
    _ONEDNN.matmul.fp32_precision = _SETTINGS[route]


def time_products(width: int) -> Measured | None:
    """Both routes by turns, the fastest of a few times each; None: oneDNN is not here.

    Leaves the setting as it was; takes no global noise.
    """
    if not _ONEDNN.is_available():
        return None
    width = min(width, _MAX_WIDTH)
    generator = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(_NETS, _ROWS, width, generator=generator) for _ in range(2))
    weight = torch.randn(_NETS, width, width, generator=generator)
    exact = [one() for one in _products(x.double(), gradient.double(), weight.double())]
    before = _ONEDNN.matmul.fp32_precision
    seconds = {PLAIN: 0.0, ONEDNN: 0.0}
    errors = {PLAIN: 0.0, ONEDNN: 0.0}
    try:
        for product, right in zip(_products(x, gradient, weight), exact, strict=True):
            best = {PLAIN: float("inf"), ONEDNN: float("inf")}
            for turn in range(_TIMES + 1):
                for route, so_far in best.items():
                    use(route)
                    start = time.thread_time()
                    found = product()
                    if turn:
                        best[route] = min(so_far, time.thread_time() - start)
                    else:  # the first call prepares
                        errors[route] = max(errors[route], float((found - right).abs().max() / right.abs().max()))
            for route, took in best.items():
                seconds[route] += took
    finally:
        _ONEDNN.matmul.fp32_precision = before
    return Measured(seconds[PLAIN], seconds[ONEDNN], errors[PLAIN], errors[ONEDNN])


def _products(x: Tensor, gradient: Tensor, weight: Tensor) -> list[Callable[[], Tensor]]:
    return [
        lambda: torch.bmm(x, weight.mT),
        lambda: torch.bmm(gradient.mT, x),
        lambda: torch.bmm(gradient, weight),
    ]
