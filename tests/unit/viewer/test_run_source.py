"""A run folder as the page shows it: everything that is there, and a sentence for what cannot be read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from builders import NOW
from watched_runs import TASKS, a_watched_run

from orchestrator.decisions.edits import after_refusal
from orchestrator.decisions.requests import Request, with_request
from orchestrator.run.ledger import load_ledger, save_ledger
from orchestrator.run.rundir import load_run
from orchestrator.screens.reading import Keeper
from viewer.lines import lines_of
from viewer.model import PageSnapshot, RunPage, ViewChoice
from viewer.pacing import NO_END, Pacer
from viewer.server.watchers import changes
from viewer.sources.found import find_source
from viewer.sources.runs import RunFolders


@pytest.fixture(autouse=True)
def a_controller_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "orchestrator.screens.reading.keeper", lambda *_: Keeper("process 7 on login1 (`start`, since 06:12:05)")
    )


def look(*folders: Path, at: float = NOW, **choice: Any) -> PageSnapshot:
    source = RunFolders(folders, "here", pacer=Pacer(look_s=NO_END))
    return source.look(ViewChoice(**choice), at)


def page(*folders: Path, **choice: Any) -> RunPage:
    found = look(*folders, **choice)
    assert found.run is not None, found.note
    return found.run


def test_a_run_has_its_slots_jobs_curves_and_history(tmp_path: Path) -> None:
    run = page(a_watched_run(tmp_path / "mt10", NOW).path)
    assert [card.state for card in run.cards.values()] == ["running", "running", "running", "paused"]
    assert run.cards["0"].job_id == "81005"
    assert (run.times["1"].lost, run.times["1"].last_end) == (12_000, "handed over (its time was nearly over)")
    assert [bar.verdict for bar in run.times["1"].jobs] == ["handed over"] * 3 + ["crashed", "handed over", ""]
    assert [one.part for one in run.times["0"].jobs[1].parts] == ["waiting", "queue", "start-up", "running", "saving"]
    assert run.goodput is not None
    assert run.goodput.goodput is not None
    assert 0.9 < run.goodput.goodput < 1.0
    assert {line.kind for line in run.curves.lines} == {"mean", "slot", "evaluation"}
    assert [row.task for row in run.tasks] == list(TASKS)
    assert len(run.evaluations) == 4
    assert run.history.moments[0].words.startswith("job 81305 began attempt 5")
    assert run.history.older > 0


def test_slots_of_one_mind_share_a_trouble_which_says_once_what_to_type(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=3, jobs=1)
    ledger = load_ledger(folder, load_run(folder).run_id)
    assert ledger is not None
    update = {"attempts": (), "failures": 0, **after_refusal("its job can never run", NOW, had_jobs=True)}
    put_off = ledger.model_copy(update={"slots": tuple(slot.model_copy(update=update) for slot in ledger.slots)})
    save_ledger(folder, with_request(put_off, Request(number=1, kind="pause", at=NOW, slots=(2,))), NOW)
    never, paused = page(folder.path).troubles
    assert never.words == "Slots 0-1: put off: its job can never run (tried again, because the run had jobs before)"
    assert [never.command, paused.command] == ["orchestrator explain 0 mt10", "orchestrator resume 2 --run mt10"]
    assert "orchestrator" not in paused.words


def test_a_quiet_run_sends_nothing_new(tmp_path: Path) -> None:
    source = RunFolders(
        [a_watched_run(tmp_path / "mt10", NOW).path], "here", pacer=Pacer(0.0, NO_END, monotonic=lambda: 0.0)
    )
    first, second = (source.look(ViewChoice(), NOW + after).model_dump(mode="json") for after in (0.0, 2.0))
    assert changes(first, second) == []


def test_the_page_of_another_run_is_chosen_by_its_id(tmp_path: Path) -> None:
    first = a_watched_run(tmp_path / "a", NOW, name="a", slots=1, jobs=1).path
    second = a_watched_run(tmp_path / "b", NOW, name="b", slots=2, jobs=1).path
    found = look(first, second)
    assert [row.name for row in found.runs] == ["a", "b"]
    assert page(first, second, run=found.runs[1].run_id).name == "b"
    gone = look(first, second, run="gone-0000")
    assert (gone.run, gone.note) == (None, "The run gone-0000 no longer exists here: choose another.")


def test_a_copy_of_a_run_goes_by_its_folder(tmp_path: Path) -> None:
    first = a_watched_run(tmp_path / "a", NOW, name="a", slots=1, jobs=1).path
    second = shutil.copytree(first, tmp_path / "b")
    rows = look(first, second).runs
    assert [row.name for row in rows] == ["a in a", "a in b"]
    for folder, row in zip((first, second), rows, strict=True):
        run = page(first, second, run=row.run_id)
        assert (run.folder, run.run_id) == (str(folder), row.run_id)


def test_experiments_are_ranked_and_have_no_mean(tmp_path: Path) -> None:
    rows = [{"name": f"rate={rate}", "learning_rate": rate} for rate in (0.001, 0.0003)]
    queue = {"metric": "success", "goal": "max"}
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2, experiments=rows, queue=queue).path
    run = page(folder)
    assert run.queue is not None
    assert run.queue.metric == "success"
    assert "mean" not in {line.kind for line in run.curves.lines}


@pytest.mark.parametrize(
    ("own", "are_seeds"),
    [({}, True), ({"0": {"seed": 7}, "1": {"seed": 9}}, True), ({"1": {"total_steps": 3_000_000}}, False)],
)
def test_slots_with_settings_of_their_own_have_no_mean(tmp_path: Path, own: dict[str, Any], are_seeds: bool) -> None:
    run = page(a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2, slot_overrides=own).path)
    assert ("mean" in {line.kind for line in run.curves.lines}) is are_seeds


# --- what cannot be read ---------------------------------------------------------------------------------------------


def test_a_damaged_run_json_is_one_sentence_and_the_other_runs_stay(tmp_path: Path) -> None:
    bad = a_watched_run(tmp_path / "bad", NOW, name="bad", slots=1, jobs=1).path
    good = a_watched_run(tmp_path / "good", NOW, name="good", slots=1, jobs=1).path
    (bad / "run.json").write_text("{")
    found = look(bad, good)
    assert found.run is None
    assert "run.json cannot be read" in found.note
    assert [row.state for row in found.runs] == ["unreadable", "running"]


@pytest.mark.parametrize("text", ['{"attempt": 0}', pytest.param(100_000 * "[", id="nested")])
def test_a_damaged_parent_takes_one_slots_jobs_and_curves_and_no_more(tmp_path: Path, text: str) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2).path
    (folder / "slots/0/attempts/1/parent.json").write_text(text)
    run = page(folder)
    assert list(run.times) == ["1"]
    assert len(run.cards) == 2
    words = " ".join(one.words for one in run.troubles)
    assert "Slot 0: its jobs cannot be shown" in words
    assert "Slot 0: its curves cannot be read" in words


def test_a_number_in_a_jobs_record_that_no_run_comes_to_takes_one_slots_jobs(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2).path
    record = folder / "slots/0/attempts/0/exit.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"at": 10**400}))
    run = page(folder)
    assert (list(run.times), len(run.cards), len(run.tasks)) == (["1"], 2, len(TASKS))
    assert any("Slot 0: its jobs cannot be shown" in one.words for one in run.troubles)


def test_torn_and_foreign_lines_of_the_history_are_passed_over(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=1, jobs=2).path
    with (folder / "events-0.jsonl").open("a") as file:
        for at in ('"x"', "NaN", "null", 400 * "9", f'5, "step": {400 * "9"}', 100_000 * "["):
            file.write(f'{{"slot": 0, "kind": "ended", "at": {at}}}\n')
        file.write('[1]\n{"kind": "ended"}\n{"slot": 0, "kind": "ended", "at": 5}\n{"at": 1, "ki')
    assert page(folder).cards["0"].jobs == 2


def test_lines_for_a_terminal_tell_each_slot_in_one(tmp_path: Path) -> None:
    lines = lines_of(look(a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2).path), NOW)
    assert lines[0].startswith("mt10 slot 0, running, job 81001, step 416,000/2,000,000, saved at 407,000, 18 steps/s")


def test_runs_come_and_go_and_the_one_that_is_shown_stays(tmp_path: Path) -> None:
    for name in ("a", "b"):
        a_watched_run(tmp_path / name, NOW, name=name, slots=1, jobs=1)
    source = find_source(str(tmp_path), pacer=Pacer(look_s=NO_END, least_s=0.0, monotonic=lambda: 0.0))
    shown = source.look(ViewChoice(), NOW).run
    assert shown is not None
    a_watched_run(tmp_path / "c", NOW, name="c", slots=1, jobs=1)
    os.utime(tmp_path / "c/run.json", (NOW + 1e6, NOW + 1e6))
    later = source.look(ViewChoice(), NOW + 60)
    assert {row.name for row in later.runs} == {"a", "b", "c"}
    assert later.run is not None
    assert later.run.name == shown.name
    shutil.rmtree(tmp_path / shown.name)
    gone = source.look(ViewChoice(run=shown.run_id), NOW + 120)
    assert (gone.run, len(gone.runs)) == (None, 2)
    assert gone.note == f"The run {shown.run_id} no longer exists here: choose another."
    assert source.look(ViewChoice(), NOW + 180).run is not None
