"""A run folder as the page shows it: everything that is there, and a sentence for what cannot be read."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from builders import NOW
from watched_runs import TASKS, a_watched_run

from orchestrator.decisions.edits import after_refusal
from orchestrator.run.ledger import load_ledger, save_ledger
from orchestrator.run.rundir import load_run
from orchestrator.screens.reading import Keeper
from viewer.lines import lines_of
from viewer.model import SLOTS_A_PAGE, PageSnapshot, RunPage, ViewChoice, utc_offsets
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


def everything_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_a_run_has_its_slots_jobs_curves_and_history(tmp_path: Path) -> None:
    run = page(a_watched_run(tmp_path / "mt10", NOW).path)
    assert [card.state for card in run.cards.values()] == ["running", "running", "running", "paused"]
    assert run.cards["0"].job == "81005"
    assert run.cards["1"].steps_lost == 12_000
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


def test_troubles_say_what_to_type(tmp_path: Path) -> None:
    troubles = page(a_watched_run(tmp_path / "mt10", NOW).path).troubles
    assert [(one.command, one.urgent) for one in troubles] == [("orchestrator start mt10", True)]


def test_slots_that_are_put_off_for_ever_are_a_trouble_with_slurms_reason(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=1)
    run = load_run(folder)
    ledger = load_ledger(folder, run.run_id)
    assert ledger is not None
    slots = []
    for slot in ledger.slots:
        limit = f"job 8100{slot.index} can never run: lower slurm.time_limit (Slurm says PartitionTimeLimit)"
        update = {"attempts": (), "failures": 0, **after_refusal(limit, NOW, had_jobs=True)}
        slots.append(slot.model_copy(update=update))
    save_ledger(folder, ledger.model_copy(update={"slots": tuple(slots)}), NOW)
    (trouble,) = [one for one in page(folder.path).troubles if "put off" in one.words]
    assert trouble.words == (
        "Slots 0-1: put off: its job can never run: lower slurm.time_limit (Slurm says PartitionTimeLimit) "
        "(the run had jobs before: it is tried again)"
    )
    assert (trouble.command, trouble.urgent) == ("orchestrator explain 0 mt10", True)


def test_looking_writes_nothing(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2).path
    before = everything_in(tmp_path)
    look(folder)
    assert everything_in(tmp_path) == before


def test_a_quiet_run_sends_nothing_new(tmp_path: Path) -> None:
    source = RunFolders(
        [a_watched_run(tmp_path / "mt10", NOW).path], "here", pacer=Pacer(0.0, NO_END, monotonic=lambda: 0.0)
    )
    first, second = (source.look(ViewChoice(), NOW + after).model_dump(mode="json") for after in (0.0, 2.0))
    assert changes(first, second) == []


def test_a_chosen_task_has_intervals_and_a_chosen_measure_is_shown(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=1, jobs=2).path
    one = page(folder, task=TASKS[0]).curves
    assert one.task == TASKS[0]
    assert one.lines[0].low
    assert page(folder, measure="entropy").curves.measure == "entropy"
    assert "critic_loss" in one.measures


def test_the_page_of_another_run_is_chosen_by_its_id(tmp_path: Path) -> None:
    first = a_watched_run(tmp_path / "a", NOW, name="a", slots=1, jobs=1).path
    second = a_watched_run(tmp_path / "b", NOW, name="b", slots=2, jobs=1).path
    found = look(first, second)
    assert [row.name for row in found.runs] == ["a", "b"]
    assert page(first, second, run=found.runs[1].run_id).name == "b"
    gone = look(first, second, run="gone-0000")
    assert (gone.run, gone.note) == (None, "The run gone-0000 is not here any more: choose another one.")


def test_a_copy_of_a_run_goes_by_its_folder(tmp_path: Path) -> None:
    first = a_watched_run(tmp_path / "a", NOW, name="a", slots=1, jobs=1).path
    second = shutil.copytree(first, tmp_path / "b")
    rows = look(first, second).runs
    assert [row.name for row in rows] == ["a in a", "a in b"]
    for folder, row in zip((first, second), rows, strict=True):
        run = page(first, second, run=row.run_id)
        assert (run.folder, run.run_id) == (str(folder), row.run_id)


def test_a_line_that_was_clicked_before_it_was_read_stays_chosen(tmp_path: Path) -> None:
    folders = [a_watched_run(tmp_path / name, NOW, name=name, slots=1, jobs=1).path for name in ("a", "b")]
    source = RunFolders(folders, "here", pacer=Pacer(look_s=NO_END))
    for _ in range(2):
        run = source.look(ViewChoice(run=str(folders[1])), NOW).run
        assert run is not None
        assert run.name == "b"


@pytest.mark.long
def test_a_hundred_runs_and_a_thousand_jobs_are_read_a_part_at_each_look(tmp_path: Path) -> None:
    big = a_watched_run(tmp_path / "big", NOW, slots=100, jobs=10, rows=4).path
    others = [a_watched_run(tmp_path / f"r{k}", NOW, name=f"r{k}", slots=1, jobs=1, tree=False).path for k in range(99)]
    ticks = iter(range(10**9))
    source = RunFolders([big, *others], "here", pacer=Pacer(look_s=300, monotonic=lambda: float(next(ticks))))
    first = source.look(ViewChoice(), NOW)
    assert len(first.runs) == 100
    assert first.run is not None
    assert (len(first.run.cards), first.run.pages) == (SLOTS_A_PAGE, 2)
    assert "" in {row.state for row in first.runs}, "the time of this look was over"
    assert len(first.model_dump_json()) < 400_000
    for _ in range(200):
        last = source.look(ViewChoice(), NOW)
    assert "" not in {row.state for row in last.runs}
    assert last.run is not None
    assert last.run.curves.partial == 0
    assert sum(len(row.jobs) for row in last.run.times.values()) == SLOTS_A_PAGE * 10
    assert look(big, slots=1).run != last.run


def test_experiments_are_ranked_and_have_no_mean(tmp_path: Path) -> None:
    rows = [{"name": f"rate={rate}", "learning_rate": rate} for rate in (0.001, 0.0003)]
    queue = {"metric": "success", "goal": "max"}
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2, experiments=rows, queue=queue).path
    run = page(folder)
    assert run.experiments is not None
    assert [row.name for row in run.experiments.rows] == ["rate=0.001", "rate=0.0003"]
    assert "mean" not in {line.kind for line in run.curves.lines}


@pytest.mark.parametrize(
    ("own", "are_seeds"),
    [({}, True), ({"0": {"seed": 7}, "1": {"seed": 9}}, True), ({"1": {"total_steps": 3_000_000}}, False)],
)
def test_slots_with_settings_of_their_own_have_no_mean(tmp_path: Path, own: dict[str, Any], are_seeds: bool) -> None:
    run = page(a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2, slot_overrides=own).path)
    assert ("mean" in {line.kind for line in run.curves.lines}) is are_seeds


def test_actors_have_no_agents(tmp_path: Path) -> None:
    actors = {"role": "actors", "actors": {"shared_dir": str(tmp_path)}}
    assert page(a_watched_run(tmp_path / "play", NOW, slots=1, jobs=1, **actors).path).live is None


def test_times_are_told_with_the_offsets_that_held_then(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        found = utc_offsets(1_700_000_000)  # November 2023
    time.tzset()
    assert found[0] == (0, 7200)
    assert found[-2:] == ((1_679_792_400, 7200), (1_698_541_200, 3600))  # 01:00 UTC on the last Sundays
    assert len(found) == 6


# --- what cannot be read ---------------------------------------------------------------------------------------------


def test_a_damaged_run_json_is_one_sentence_and_the_other_runs_stay(tmp_path: Path) -> None:
    bad = a_watched_run(tmp_path / "bad", NOW, name="bad", slots=1, jobs=1).path
    good = a_watched_run(tmp_path / "good", NOW, name="good", slots=1, jobs=1).path
    (bad / "run.json").write_text("{")
    found = look(bad, good)
    assert found.run is None
    assert "run.json cannot be read" in found.note
    assert [row.state for row in found.runs] == ["unreadable", "running"]


@pytest.mark.parametrize("name", ["run.json", "events-0.jsonl"])
def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    path = a_watched_run(tmp_path / "mt10", NOW, slots=1, jobs=1).path / name
    path.unlink()
    path.mkdir()
    assert look(path.parent).note == f"{path} cannot be read: Is a directory."


def test_a_run_of_another_version_says_so(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "old", NOW, slots=1, jobs=1).path
    value = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(value | {"colour": "blue"}))
    assert "written by another version" in look(folder).note


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


def test_rows_that_no_training_wrote_are_a_sentence(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=1).path
    (folder / "slots/1/attempts/0/metrics.jsonl").write_text('{"to": "many"}\n')
    run = page(folder)
    assert any("Slot 1: its curves cannot be read" in one.words for one in run.troubles)
    assert {line.slot for line in run.curves.lines if line.kind == "slot"} == {0}


def test_torn_and_foreign_lines_of_the_history_are_passed_over(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=1, jobs=2).path
    with (folder / "events-0.jsonl").open("a") as file:
        for at in ('"x"', "NaN", "null", 400 * "9", f'5, "step": {400 * "9"}', 100_000 * "["):
            file.write(f'{{"slot": 0, "kind": "ended", "at": {at}}}\n')
        file.write('[1]\n{"kind": "ended"}\n{"slot": 0, "kind": "ended", "at": 5}\n{"at": 1, "ki')
    assert page(folder).cards["0"].jobs == 2


def test_a_run_folder_that_vanishes_is_a_sentence(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=1, jobs=1).path
    clock = [0.0]
    source = RunFolders([folder], "here", pacer=Pacer(look_s=NO_END, monotonic=lambda: clock[0]))
    assert source.look(ViewChoice(), NOW).run is not None
    os.rename(folder, tmp_path / "elsewhere")
    clock[0] = 60.0
    assert "holds no run" in source.look(ViewChoice(), NOW + 60).note


def test_a_run_before_its_first_look_is_empty_and_not_blank(tmp_path: Path) -> None:
    folder = a_watched_run(tmp_path / "mt10", NOW, slots=1, jobs=1).path
    for path in folder.glob("ledger-*.json"):
        path.unlink()
    assert page(folder).cards == {}


def test_lines_for_a_terminal_tell_each_slot_in_one(tmp_path: Path) -> None:
    lines = lines_of(look(a_watched_run(tmp_path / "mt10", NOW, slots=2, jobs=2).path), NOW)
    assert lines[0].startswith("mt10 slot 0, running, job 81001, step 416,000/2,000,000, 18.3 steps/s, job ends in 2 h")
    assert "success " in lines[1]


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
    assert gone.note == f"The run {shown.run_id} is not here any more: choose another one."
    assert source.look(ViewChoice(), NOW + 180).run is not None


def test_the_port_is_that_of_the_runs_settings(tmp_path: Path) -> None:
    run_dir = a_watched_run(tmp_path / "mt10", NOW, slots=1, jobs=1)
    assert RunFolders([run_dir.path], "mt10").port is None
    value = json.loads(run_dir.run_file.read_text())
    value["config"]["training"]["stream_port"] = 9876
    run_dir.run_file.write_text(json.dumps(value))
    assert RunFolders([run_dir.path], "mt10").port == 9876
    assert RunFolders([run_dir.path, run_dir.path], "both").port is None
    assert RunFolders([tmp_path / "none"], "none").port is None
    assert RunFolders([], "none").port is None
