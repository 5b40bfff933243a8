from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, RUN_ID, a_job, a_run, a_slot, an_intent, blind, gone, seen, token
from refused import refused

from orchestrator.decisions.models import Ledger, SubmissionState, Verdict
from orchestrator.run.ledger import (
    EPOCHS_KEPT,
    append_event,
    control_at,
    drop_old_epochs,
    load_ledger,
    newest_epoch,
    read_control,
    read_events,
    save_ledger,
    write_control,
)
from orchestrator.run.rundir import RunDir


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def a_full_ledger() -> Ledger:
    slot = a_slot(jobs=3, hand_overs=2, step=500, total=1000, why="the queue is full")
    slot = slot.with_attempt(a_job(sighting=gone("TIMEOUT"), state=SubmissionState.ENDED), verdict=Verdict.TIMED_OUT)
    slot = slot.with_attempt(a_job(token(0, 1), sighting=seen()), an_intent(token(0, 1, 2), sighting=blind()))
    return a_run(slot, a_slot(1), blind_since=NOW, blind_error="down", control=4)


class TestTheLedger:
    def test_what_is_written_is_read_back(self, run_dir: RunDir) -> None:
        written = save_ledger(run_dir, a_full_ledger(), NOW)
        assert load_ledger(run_dir, RUN_ID) == written

    def test_every_write_is_a_beat(self, run_dir: RunDir) -> None:
        ledger = save_ledger(run_dir, a_run(), NOW)
        assert (ledger.beat, ledger.written_at) == (1, NOW)
        assert save_ledger(run_dir, ledger, NOW + 1).beat == 2

    def test_the_highest_epoch_wins_whoever_wrote_last(self, run_dir: RunDir) -> None:
        save_ledger(run_dir, a_run(epoch=10), NOW)
        save_ledger(run_dir, a_run(epoch=9), NOW + 100)
        found = load_ledger(run_dir, RUN_ID)
        assert found is not None
        assert found.epoch == 10

    @pytest.mark.parametrize(
        "text",
        [
            "",
            '{"version": 1, "run_id": "mt10-0123abcd", "ep',
            "[]",
            "null",
            json.dumps({"version": 2, "run_id": RUN_ID, "epoch": 5}),
            json.dumps({"run_id": RUN_ID, "epoch": 5}),
            json.dumps({"version": 1, "run_id": "other-00000000", "epoch": 5}),
            json.dumps({"version": 1, "run_id": RUN_ID, "epoch": "five"}),
            json.dumps({"version": 1, "run_id": RUN_ID, "epoch": 5, "surprise": 1}),
        ],
    )
    def test_a_damaged_one_is_named_with_the_last_good_copy_and_left_alone(self, run_dir: RunDir, text: str) -> None:
        for epoch in (2, 3):
            save_ledger(run_dir, a_run(epoch=epoch), NOW)
        run_dir.ledger(4).write_text("{")
        run_dir.ledger(5).write_text(text)
        with refused("ledger.damaged", path=run_dir.ledger(5), good=run_dir.ledger(3)):
            load_ledger(run_dir, RUN_ID)
        assert run_dir.ledger(5).read_text() == text

    def test_old_epochs_go_and_the_newest_stay(self, run_dir: RunDir) -> None:
        run_dir.disk.make_folder(run_dir.lease)
        for epoch in range(EPOCHS_KEPT + 3):
            run_dir.disk.create(run_dir.lease / str(epoch), b"{}")
            save_ledger(run_dir, a_run(epoch=epoch), NOW)
            append_event(run_dir, epoch, "started", NOW)
        drop_old_epochs(run_dir)
        kept = sorted(int(path.stem.removeprefix("ledger-")) for path in run_dir.path.glob("ledger-*.json"))
        assert kept == list(range(3, EPOCHS_KEPT + 3))
        assert len(read_events(run_dir)) == EPOCHS_KEPT + 3, "the history stays whole"

    def test_the_newest_ledger_outlives_any_number_of_ticks_that_failed_before_their_first_save(
        self, run_dir: RunDir
    ) -> None:
        run_dir.disk.make_folder(run_dir.lease)
        save_ledger(run_dir, a_run(epoch=0), NOW)
        for epoch in range(EPOCHS_KEPT + 3):
            run_dir.disk.create(run_dir.lease / str(epoch), b"{}")
            drop_old_epochs(run_dir)
        assert load_ledger(run_dir, RUN_ID) is not None
        save_ledger(run_dir, a_run(epoch=EPOCHS_KEPT + 2), NOW)
        drop_old_epochs(run_dir)
        assert not run_dir.ledger(0).exists()


def test_a_server_that_fails_for_a_moment_does_not_make_an_older_ledger_the_newest(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir.lease.mkdir()
    for epoch in (0, 1):
        (run_dir.lease / str(epoch)).touch()
        save_ledger(run_dir, a_run(epoch=epoch), NOW)
    stat = os.stat

    def stale(path: Any, **more: Any) -> os.stat_result:
        if str(path) == str(run_dir.ledger(1)):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", stale)
    with pytest.raises(OSError, match="Stale"):
        newest_epoch(run_dir)
    monkeypatch.undo()
    assert newest_epoch(run_dir) == 1
    assert not run_dir.disk.exists(run_dir.ledger(1) / "below a file")


class TestControl:
    def test_the_highest_number_counts_not_the_last_in_the_alphabet(self, run_dir: RunDir) -> None:
        for _ in range(11):
            write_control(run_dir, "stop", now=NOW, by="stop")
        write_control(run_dir, "run", now=NOW, by="start")
        assert (read_control(run_dir).number, read_control(run_dir).wish) == (12, "run")

    def test_a_writer_that_loses_its_number_takes_the_next(
        self, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_control(run_dir, "stop", now=NOW, by="a")
        monkeypatch.setattr("orchestrator.run.ledger.read_control", lambda _: type("Nothing", (), {"number": 0}))
        assert write_control(run_dir, "stop-now", now=NOW, by="b", grace_s=5).number == 2
        monkeypatch.undo()
        assert (read_control(run_dir).by, read_control(run_dir).grace_s) == ("b", 5)

    def test_a_wish_whose_time_is_over_becomes_a_stop_for_everybody(self, run_dir: RunDir) -> None:
        write_control(run_dir, "run", now=NOW, by="start", until=NOW + 60)
        assert control_at(run_dir, NOW + 59, 180.0).wish == read_control(run_dir).wish == "run"
        stop = control_at(run_dir, NOW + 60, 180.0)
        assert (stop.wish, stop.by, stop.grace_s, stop.until) == ("stop", "start --for", 180.0, None)
        assert read_control(run_dir) == stop == control_at(run_dir, NOW + 3600, 1.0)

    def test_a_new_wish_counts_more_than_a_time_that_is_over(
        self, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = write_control(run_dir, "run", now=NOW, by="start", until=NOW + 60)
        new = write_control(run_dir, "run", now=NOW + 60, by="start")
        answers = iter([old, new])
        monkeypatch.setattr("orchestrator.run.ledger.read_control", lambda _: next(answers))
        assert control_at(run_dir, NOW + 60, 180.0) == new


def test_a_copy_works_out_anew_what_the_change_may_have_changed() -> None:
    slot = a_slot().with_attempt(a_job(token(0, 0), sighting=seen())).built
    attempt = slot.attempts[0]
    assert (len(attempt.live), slot.occupied, slot.is_quiet, '"jobs":9' in slot.as_json) == (1, True, False, False)
    over = attempt.submissions[0].model_copy(update={"state": SubmissionState.ENDED})
    ended = attempt.model_copy(update={"submissions": (over,), "verdict": Verdict.FINISHED})
    assert ended.live == ()
    after = slot.model_copy(update={"attempts": (ended,), "jobs": 9})
    assert (after.occupied, after.is_quiet, '"jobs":9' in after.as_json) == (False, True, True)
    assert slot == a_slot().with_attempt(a_job(token(0, 0), sighting=seen())).built  # which has worked out nothing
