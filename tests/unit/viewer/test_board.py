"""Slots and jobs on a laptop: what the controller tells, what a page makes of it, and what is no board."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, a_claim, an_exit, gone
from test_mirror_source import RUN, a_mirror
from watched_runs import a_watched_run

from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import SlotStatus
from orchestrator.decisions.verdicts import judge
from orchestrator.run.ledger import append_event, load_ledger, save_ledger
from orchestrator.run.rundir import load_run
from orchestrator.screens.board import BEAT_S, EVERY_S, FILE, MOST_BYTES, VERSION, BoardWriter, board_of, line_of
from orchestrator.screens.reading import run_view
from orchestrator.screens.runview import JobFacts, RunEvents, RunSource, RunView, SlotFacts
from viewer.model import PageSnapshot, ViewChoice
from viewer.pacing import NO_END, Pacer
from viewer.sources.mirror import LACKS, MirrorFolder
from viewer.sources.runs import RunFolders


class Told:
    """A run, its board, and a clock."""

    def __init__(self, folder: Path, slots: int = 4, jobs: int = 6) -> None:
        self.now = NOW
        self.run_dir = a_watched_run(folder / "mt10", NOW, slots=slots, jobs=jobs)
        self.run = load_run(self.run_dir)
        self.metrics = self.run_dir.path / "shared/v1/runs" / self.run.run_id / "0/metrics"
        self.writer = BoardWriter(self.run, self.run_dir, now=lambda: self.now, monotonic=lambda: self.now)

    @property
    def file(self) -> Path:
        return self.metrics / FILE

    def tell(self) -> bytes:
        self.metrics.mkdir(parents=True, exist_ok=True)
        self.writer.write()
        os.utime(self.file, (self.now, self.now))
        return self.file.read_bytes()


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def source_of(view: RunView) -> RunSource:
    assert view.source is not None
    return view.source


def look(folder: Path, now: float = NOW) -> PageSnapshot:
    return MirrorFolder(folder, pacer=Pacer(look_s=NO_END)).look(ViewChoice(), now)


def with_board(folder: Path, data: bytes, at: float = NOW) -> Path:
    """A mirror with one slot's curves and that board."""
    return with_board_alone(a_mirror(folder, 0), data, at)


def with_board_alone(mirror: Path, data: bytes, at: float = NOW) -> Path:
    """That board in a mirror that has curves already."""
    path = mirror / "v1/runs" / RUN / "0/metrics" / FILE
    path.write_bytes(data)
    os.utime(path, (at, at))
    return mirror


def test_a_mirror_shows_the_slots_and_jobs_that_the_run_folder_shows(tmp_path: Path, told: Told) -> None:
    there = RunFolders([told.run_dir.path], "mt10", pacer=Pacer(look_s=NO_END)).look(ViewChoice(), NOW).run
    mirror = with_board(tmp_path / "mirror", told.tell())
    here = look(mirror).run
    assert there is not None
    assert here is not None
    assert here.cards == {"0": there.cards["0"]}
    assert here.times == {"0": there.times["0"]}
    assert (here.state, here.executor, here.history.moments) == (there.state, "slurm", there.history.moments)
    assert {one.words for one in there.troubles} <= {one.words for one in here.troubles}
    assert here.lacks == ()
    assert here.curves.lines


def test_it_names_no_path_and_no_setting(tmp_path: Path, told: Told) -> None:
    text = told.tell().decode()
    assert str(tmp_path) not in text
    assert "/usr/bin" not in text
    assert "token" not in text
    assert "steps_per_s" not in text


def test_a_jobs_last_words_and_the_schedulers_paths_are_the_owners_alone(tmp_path: Path, told: Told) -> None:
    """An end is told in our words, and everything else without what looks like a path."""
    data = tmp_path / "data" / "secret"
    ended = Evidence(exit=an_exit(1), claim=a_claim(), log_tail=f"Traceback …\nValueError: hunter2 at {data}\n")
    verdict, cause = judge(ended, gone())
    assert "hunter2" in cause
    ledger = load_ledger(told.run_dir, told.run.run_id)
    assert ledger is not None
    slots = list(ledger.slots)
    crashed = slots[3].attempts[-1].model_copy(update={"verdict": verdict, "cause": cause})
    why = f"6 jobs in a row ended without a new checkpoint; the last one: {cause}"
    update = {"status": SlotStatus.FAILED, "why": why, "attempts": (*slots[3].attempts[:-1], crashed)}
    slots[3] = slots[3].model_copy(update=update)
    refused = f"sbatch: error: Unable to open file {data}/job.sh (the run had jobs before: it is tried again)"
    slots[2] = slots[2].model_copy(update={"why": refused, "attempts": slots[2].attempts[:-1]})
    save_ledger(told.run_dir, ledger.model_copy(update={"slots": tuple(slots)}), NOW)
    append_event(told.run_dir, 0, "ended", NOW - 5, slot=3, attempt=4, verdict=verdict, cause=cause, job_id="81305")
    text = told.tell().decode()
    assert "hunter2" not in text
    assert "ValueError" not in text
    assert str(tmp_path) not in text
    run = look(a_mirror(with_board(tmp_path / "mirror", text.encode()), 2, 3)).run
    assert run is not None
    assert run.cards["3"].why.endswith("the last one: exit code 1")
    assert run.cards["3"].last_cause == "exit code 1"
    assert run.cards["2"].why == "sbatch: error: Unable to open file … (the run had jobs before: it is tried again)"
    assert any("crashed (exit code 1)" in moment.words for moment in run.history.moments)


def test_the_runs_own_folder_is_left_out_whatever_its_name(told: Told) -> None:
    said = "sbatch: error: Unable to open file /scratch/ann/my project/mt10/jobs/s0/job.sh"
    view = run_view(told.run_dir, NOW).model_copy(update={"run_dir": "/scratch/ann/my project/mt10"})
    events = replace(source_of(view), events=RunEvents(({"kind": "refused", "cause": said},)))
    board = board_of(view.model_copy(update={"blind_error": said, "source": events}), NOW)
    assert board.view.blind_error == board.events[0]["cause"] == "sbatch: error: Unable to open file …"


@pytest.mark.parametrize(
    ("said", "told_of_it"),
    [
        ("see ~/x, ~ann/x.log; $HOME/y and ${SCRATCH}/z: no", "see …, …; … and …: no"),
        ("no '../data/x' in \"/a b\" (file:///c)", "no '…' in \"… b\" (file:…)"),
        ("the renderer (EGL/OpenGL) failed, 3/4 of N/A, / or", "the renderer (EGL/OpenGL) failed, 3/4 of N/A, / or"),
    ],
)
def test_what_looks_like_a_path_is_left_out(told: Told, said: str, told_of_it: str) -> None:
    view = run_view(told.run_dir, NOW).model_copy(update={"blind_error": said})
    assert board_of(view, NOW).view.blind_error == told_of_it


def test_it_is_told_when_something_changed_or_time_passed_and_never_often(told: Told) -> None:
    first = told.tell()
    (told.run_dir.attempt(0, 5) / "progress.json").write_text(
        json.dumps({"step": 1_500_000, "total": 2_000_000, "at": NOW})
    )
    told.now += EVERY_S / 2
    assert told.tell() == first, "too soon"
    told.now += EVERY_S
    second = told.tell()
    assert second != first
    told.now += EVERY_S
    assert told.tell() == second, "nothing changed"
    told.now += BEAT_S
    assert told.tell() != second, "a sign of life"


def test_of_a_large_run_comes_what_fits(told: Told) -> None:
    view = run_view(told.run_dir, NOW)
    many = view.model_copy(
        update={"slots": tuple(view.slots[0].model_copy(update={"slot": k, "why": "x" * 100}) for k in range(600))}
    )
    facts = tuple(SlotFacts(k, tuple(JobFacts(n, NOW + n, NOW + n) for n in range(50))) for k in range(600))
    events = ({"at": NOW, "kind": "started", "slot": 1},) * 500
    for slots in (1, 20, 60, 600):
        source = replace(source_of(view), jobs=facts[:slots], events=RunEvents(events))
        board = board_of(many.model_copy(update={"slots": many.slots[:slots], "source": source}), NOW)
        assert len(line_of(board)) <= MOST_BYTES
        assert board.view.slots
        if slots == 1:
            assert len(board.times[0].jobs) == 20


def spoilt(data: bytes, **change: Any) -> bytes:
    return json.dumps({**json.loads(data), **change}).encode()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda _: b"", "damaged"),
        (lambda _: b"[]", "damaged"),
        (lambda _: b"[" * 60_000, "damaged"),
        (lambda data: data[:2000], "damaged"),
        (lambda data: spoilt(data, version=VERSION + 1), "another version"),
        (lambda data: spoilt(data, at="soon"), "damaged"),
        (lambda data: re.sub(rb'"rate":[0-9.]+', b'"rate":1e999', data), "damaged"),
        (lambda data: spoilt(data, events=[{"at": "x", "kind": 7, "slot": []}]), "damaged"),
        (lambda data: data + b" " * MOST_BYTES, "too large"),
    ],
)
def test_what_is_no_board_is_said_and_the_curves_stay(tmp_path: Path, told: Told, spoil: Any, words: str) -> None:
    run = look(with_board(tmp_path / "mirror", spoil(told.tell()))).run
    assert run is not None
    assert [one for one in run.troubles if words in one.words]
    assert (run.times, run.lacks) == ({}, (LACKS,))
    assert run.curves.lines


def test_texts_of_strangers_are_text_and_bounded(tmp_path: Path, told: Told) -> None:
    value = json.loads(told.tell())
    value["view"]["slots"][0]["why"] = "\x1b[31m\ud800" + 5000 * "x"
    found = look(with_board(tmp_path / "mirror", json.dumps(value).encode()))
    assert found.run is not None
    why = found.run.cards["0"].why
    assert len(why) <= 501
    assert not re.search("[\x00-\x1f\ud800]", why)
    found.model_dump_json()


def test_an_old_board_and_a_clock_that_differs_are_said(tmp_path: Path, told: Told) -> None:
    mirror = with_board(tmp_path / "mirror", told.tell())
    for now, words in ((NOW + 4 * BEAT_S, "as they were 20 min ago"), (NOW - 600, "clock is 10 min ahead")):
        run = look(mirror, now).run
        assert run is not None
        assert [one for one in run.troubles if words in one.words]
