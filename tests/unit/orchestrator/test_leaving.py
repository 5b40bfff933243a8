"""After a notice: an exit code that has the same command typed again. `test_machine_taken.py` has the rest."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from one_run import World
from refused import refused

from orchestrator.decisions.models import Ledger
from orchestrator.hosts.leaving import report_leaving


@pytest.mark.parametrize(
    ("statuses", "goes_on"),
    [
        (["finished"], False),
        (["dropped"], False),
        (["behind"], False),
        (["active"], True),
        (["failed"], True),
        (["finished", "active"], False),  # of an older config with two slots
    ],
)
def test_only_what_is_not_finished_is_handed_over(tmp_path: Path, statuses: list[str], goes_on: bool) -> None:
    slots = [{"index": index, "status": status} for index, status in enumerate(statuses)]
    ledger = Ledger.model_validate({"run_id": "toy-0123abcd", "epoch": 0, "slots": slots})
    with refused("machine.taken") if goes_on else nullcontext():
        report_leaving(ledger, World(tmp_path).run)
