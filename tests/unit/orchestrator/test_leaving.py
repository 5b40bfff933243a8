"""What a notice makes of a run: a wish to stop, and an exit code that has the same command typed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import NOW
from refused import refused

from orchestrator.config import parse_config
from orchestrator.decisions.models import Ledger, SlotStatus
from orchestrator.executors.notice import Notice
from orchestrator.hosts import leaving
from orchestrator.hosts.leaving import PREEMPTED, report_leaving
from orchestrator.run.begin import begin, prepare_folder, run_dir_of
from orchestrator.run.ledger import read_control, write_control
from orchestrator.run.rundir import Run, RunDir

CONFIG = {"run_name": "toy", "executor": "local", "slots": 2, "lead_seconds": 30, "command": ["true"]}
NOTICE = Notice("AWS takes this machine away (terminate)")


@pytest.fixture
def place(tmp_path: Path) -> tuple[Run, RunDir]:
    path = tmp_path / "toy.json"
    config = parse_config(CONFIG, "toy.json")
    run_dir = run_dir_of(config, path)
    prepare_folder(run_dir)
    return begin(config, path, run_dir, {}, NOW), run_dir


def test_a_notice_is_a_wish_to_stop_with_time_to_save(place: tuple[Run, RunDir]) -> None:
    said: list[str] = []
    leaving._stop(*place, NOTICE, said.append)
    control = read_control(place[1])
    assert (control.wish, control.by, control.grace_s) == ("stop", PREEMPTED, 90.0)
    assert said == ["AWS takes this machine away (terminate): every job is asked to save and end"]


@pytest.mark.parametrize("wish", ["stop", "stop-now"])
def test_what_a_person_wished_before_stands(place: tuple[Run, RunDir], wish: str) -> None:
    before = write_control(place[1], wish, now=NOW, by=wish, grace_s=5.0)  # type: ignore[arg-type]
    leaving._stop(*place, NOTICE, lambda _line: None)
    assert read_control(place[1]) == before


@pytest.mark.parametrize(
    ("statuses", "goes_on"),
    [
        ((SlotStatus.FINISHED, SlotStatus.FINISHED), False),
        ((SlotStatus.FINISHED, SlotStatus.ACTIVE), True),
        ((SlotStatus.FINISHED, SlotStatus.DROPPED), False),
        ((SlotStatus.FAILED, SlotStatus.ACTIVE), True),
        ((SlotStatus.FINISHED, SlotStatus.FINISHED, SlotStatus.ACTIVE), False),  # of an older config with three slots
    ],
)
def test_only_what_is_not_finished_is_handed_over(
    place: tuple[Run, RunDir], statuses: tuple[SlotStatus, ...], goes_on: bool
) -> None:
    slots = [{"index": index, "status": status} for index, status in enumerate(statuses)]
    ledger = Ledger.model_validate({"run_id": "toy-0123abcd", "epoch": 0, "slots": slots})
    if goes_on:
        with refused("machine.taken"):
            report_leaving(ledger, place[0])
    else:
        report_leaving(ledger, place[0])
