"""docs/status.md shows what the commands show."""

from __future__ import annotations

import time

import pytest
from status_screens import PAGE, page_with, screens

from orchestrator.screens.explain import Explanation
from orchestrator.screens.runview import ExcludedNode, Forecast, QueueView, RunView, SlotScore, SlotView, SuccessorView


@pytest.fixture
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.long
@pytest.mark.usefixtures("_greenwich")
def test_the_pages_screens_are_what_is_shown() -> None:
    page = PAGE.read_text()
    made = screens()
    assert all(f"<!-- {name} -->" in page for name in made)
    assert page_with(made, page) == page, "run: python tests/support/status_screens.py"


@pytest.mark.parametrize(
    "model", [RunView, SlotView, SuccessorView, Forecast, ExcludedNode, Explanation, QueueView, SlotScore]
)
def test_every_field_of_the_json_is_on_the_page(model: type[RunView]) -> None:
    page = PAGE.read_text()
    assert [name for name, field in model.model_fields.items() if not field.exclude and f"`{name}`" not in page] == []
