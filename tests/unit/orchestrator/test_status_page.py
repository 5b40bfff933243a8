"""docs/status.md names what `--json` has, and what each of Slurm's reasons means."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.decisions.reasons import REASONS
from orchestrator.screens.explain import Explanation
from orchestrator.screens.runview import ExcludedNode, Forecast, QueueView, RunView, SlotScore, SlotView, SuccessorView

PAGE = (Path(__file__).parents[3] / "docs" / "status.md").read_text()


@pytest.mark.parametrize(
    "model", [RunView, SlotView, SuccessorView, Forecast, ExcludedNode, Explanation, QueueView, SlotScore]
)
def test_every_field_of_the_json_is_on_the_page(model: type[RunView]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.exclude and f"`{name}`" not in PAGE] == []


def test_every_reason_is_on_the_page() -> None:
    rows = [f"| `{code}` | {reason.kind} | {reason.words} |\n" for code, reason in REASONS.items()]
    assert [row for row in rows if row not in PAGE] == []
