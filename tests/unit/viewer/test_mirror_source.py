"""A laptop's mirror as the page shows it: what is in it, how it came, and what a stranger's files cannot do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import NOW
from policies import publish_one
from watched_runs import TASKS, write_rows

from syncd.laptop.status import ClientStatus, status_file
from syncd.store import Shared
from viewer.model import PageSnapshot, ViewChoice
from viewer.pacing import NO_END, Pacer
from viewer.sources.found import find_source
from viewer.sources.mirror import LACKS, NO_JOBS, MirrorFolder

RUN = "mt10-0123abcd"


def a_mirror(folder: Path, *slots: int, run_id: str = RUN) -> Path:
    for slot in slots:
        metrics = folder / "v1/runs" / run_id / str(slot) / "metrics"
        metrics.mkdir(parents=True)
        write_rows(metrics, slot, 0, 400_000, 40, TASKS, NOW - 900)
        for name in ("metrics", "evaluations"):
            (metrics / f"{name}.jsonl").rename(metrics / f"{name}-000000.jsonl")
    return folder


def look(folder: Path, **choice: str) -> PageSnapshot:
    return MirrorFolder(folder, pacer=Pacer(look_s=NO_END)).look(ViewChoice(**choice), NOW)


def test_a_mirror_has_curves_tasks_and_evaluations_and_says_what_it_lacks(tmp_path: Path) -> None:
    run = look(a_mirror(tmp_path, 0, 1)).run
    assert run is not None
    assert {line.kind for line in run.curves.lines} == {"mean", "slot", "evaluation"}
    assert [row.task for row in run.tasks] == list(TASKS)
    assert [row.slot for row in run.evaluations] == [0, 1]
    assert run.lacks == (LACKS,)
    assert [card.step for card in run.cards.values()] == [400_000, 400_000]


def test_a_training_without_the_orchestrator_is_shown_by_its_run_folder(tmp_path: Path) -> None:
    a_mirror(tmp_path / "runs/arm/shared", 0)
    run = find_source(str(tmp_path / "runs/arm")).look(ViewChoice(), NOW).run
    assert run is not None
    assert (run.state, run.troubles, run.lacks) == ("trained alone", (), (NO_JOBS,))
    assert run.cards["0"].step == 400_000


def test_two_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for run_id in (RUN, "mt10-11111111", "arm-0123abcd"):
        publish_one(Shared(tmp_path), 1, 1, run=run_id)
    found = look(tmp_path)
    assert found.run is not None
    assert {row.name for row in found.runs} == {RUN, "mt10-11111111", "arm"}
    assert found.run.name == next(row.name for row in found.runs if row.run_id == found.run.run_id)


def test_what_the_client_said_is_shown(tmp_path: Path) -> None:
    a_mirror(tmp_path, 0)
    word = ClientStatus(
        pid=7, started_at=NOW, written_at=NOW, state="live", since=NOW, remote="hpc:run", policies=3,
        troubles=("10:00:00 the mirror has 256 runs",),
    )  # fmt: skip
    status_file(tmp_path).parent.mkdir()
    status_file(tmp_path).write_text(word.model_dump_json())
    run = look(tmp_path).run
    assert run is not None
    assert any("256 runs" in one.words for one in run.troubles)


def test_rows_of_a_stranger_are_numbers_or_a_sentence(tmp_path: Path) -> None:
    place = a_mirror(tmp_path, 0, 1) / "v1/runs" / RUN / "0/metrics/metrics-000000.jsonl"
    rows = (
        '{"to": 1e999, "from": 0, "tasks": {}}',
        '{"tasks": [7], "to": 1}',
        '{"to": 5, "from": 0, "tasks": {"a": 7}}',
    )
    huge = json.dumps({"to": 10**400, "from": 0, "tasks": {"a": {"episodes": 1, "success": 10**400}}})
    endless = (
        '{"to": 5, "from": 0, "tasks": {"a": {"episodes": 10, "return": 1e308}}}',
        '{"to": 5, "from": 0, "tasks": {"a": {"episodes": 1, "success": 1e308}}}',
        '{"to": 5, "from": 0, "tasks": {"a": {"episodes": Infinity, "success": 1.0}}}',
        '{"to": -1.7e308, "from": 0, "tasks": {}}',
    )
    for line in (*rows, huge, *endless):
        place.write_text(line + "\n")
        found = look(tmp_path)
        assert found.run is not None, found.note
        assert json.loads(found.model_dump_json())
        assert {one.slot for one in found.run.curves.lines if one.kind == "slot"} == {1}


@pytest.mark.parametrize(
    "change",
    [
        {"step": None},
        {"success": 7},
        {"returns": {}},
        {"goals_per_task": "x"},
        {"steps_to_success": [1]},
        {"mean_success": 1e999},
        {"goals_per_task": 1e308},
    ],
)
def test_an_evaluation_of_a_stranger_takes_its_slot_only(tmp_path: Path, change: dict[str, object]) -> None:
    place = a_mirror(tmp_path, 0, 1) / "v1/runs" / RUN / "0/metrics/evaluations-000000.jsonl"
    row = json.loads(place.read_text())
    place.write_text(json.dumps(row | change) + "\n")
    run = look(tmp_path).run
    assert run is not None
    assert [one.slot for one in run.evaluations] == [1]
    assert any("Slot 0: its curves are damaged" in one.words for one in run.troubles)
