"""docs/watching.md names what `--json` has, and the made page of errors what each of Slurm's reasons means."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from orchestrator.decisions.reasons import REASONS
from orchestrator.screens.explain import Explanation
from orchestrator.screens.runview import ExcludedNode, Forecast, QueueView, RunView, SlotScore, SlotView, SuccessorView

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "watching.md").read_text()


@pytest.mark.parametrize(
    "model", [RunView, SlotView, SuccessorView, Forecast, ExcludedNode, Explanation, QueueView, SlotScore]
)
def test_every_field_of_the_json_is_on_the_page(model: type[RunView]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.exclude and f"`{name}`" not in PAGE] == []


def test_every_reason_is_on_the_page() -> None:
    rows = [f"| `{code}` | {reason.kind} | {reason.words} |\n" for code, reason in REASONS.items()]
    page = runpy.run_path(str(DOCS / "errors.py"))["page"]()
    assert [row for row in rows if row not in page] == []
