"""What a program reported may be anything: the page has numbers, or nothing."""

from __future__ import annotations

import json

import pytest

from orchestrator.screens.runview import SlotView
from viewer.sources.slotcards import card_of


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_finite_number_is_left_out(value: float) -> None:
    card = card_of(SlotView(slot=0, state="running", rate=value, best=value), [], 0.0)
    assert (card.rate, card.best) == (None, None)
    assert json.loads(card.model_dump_json())["rate"] is None
