"""What a rehearsal says of many slots, and of what it cannot know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import parse_config
from orchestrator.hosts.dry import SLOTS_SHOWN, Rehearsal, dry_start
from orchestrator.run.begin import UNDRAWN, run_dir_of
from orchestrator.run.code import fix_code
from orchestrator.run.starting import StartRequest


@pytest.fixture
def rehearsed(tmp_path: Path) -> Any:
    def rehearse(**fields: object) -> Rehearsal:
        config = parse_config({"run_name": "toy", "executor": "local", "command": ["true"], **fields}, "c")
        path = tmp_path / "c.json"
        return dry_start(StartRequest(config, path, run_dir_of(config, path)))

    return rehearse


def test_the_script_names_the_code_that_the_run_will_have_and_no_made_up_hash(rehearsed: Any, tmp_path: Path) -> None:
    said = "\n".join(rehearsed().lines())

    assert f"code/{fix_code(tmp_path / 'code')}" in said
    assert f"s0-a0-{UNDRAWN}" in said
    assert "00000000" not in said
    assert f"{UNDRAWN} stands for" in said


@pytest.mark.parametrize(
    ("slots", "places", "last"),
    [
        (3, None, "would submit a job for slot 2 (attempt 0)"),
        (40, None, f"would submit 32 more jobs, for slots {SLOTS_SHOWN}-39"),
        (9, None, "would submit 1 more job, for slot 8"),
        (6, 4, "slots 4-5 would wait for room: slurm.max_jobs is 4"),
        (5, 4, "slot 4 would wait for room: slurm.max_jobs is 4"),
    ],
)
def test_every_slot_is_named(rehearsed: Any, slots: int, places: int | None, last: str) -> None:
    found = rehearsed(slots=slots, slurm={"max_jobs": places} if places else {})

    assert found.lines()[-2:] == [last, "Nothing was done."]
    assert [action["slot"] for action in json.loads(found.as_json())["actions"]] == list(range(places or slots))
