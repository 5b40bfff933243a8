"""What is sent to W&B: the lines of a history, how far one is, and how the journals are followed."""

from __future__ import annotations

import json

import pytest

from anchorleg.files import write_json
from anchorleg.job import Job
from anchorleg.rollback import Rollback, roll_back
from trainer.config.wandb import wandb_mode
from trainer.wandb.destination import Destination, of_job, recorded, write_down
from trainer.wandb.journals import Journals, Tail
from trainer.wandb.points import START, Cursor, numbered, points
from trainer.wandb.request import Patience, UploadRequest


def a_row(to, **more):
    tasks = {"reach-v3": {"episodes": 1, "temperature": 0.5, "success": 1.0, "return": 4.0}}
    return {"from": to - 100, "to": to, "updates": 2, "q": 1.5, "tasks": tasks, "at": 7.0} | more


def an_evaluation(step):
    rates = {"reach-v3": 0.25}
    by_task = {"success": rates, "returns": rates, "steps_to_success": {}}
    return {"step": step, "mean_success": 0.25, "iqm_success": 0.25, **by_task, "at": 8.0}


def steps(lines):
    return [(line.step, line.is_evaluation) for line in lines]


def test_a_row_and_an_evaluation_of_one_step_are_two_lines_with_one_axis():
    lines = points([a_row(100), a_row(200, contributed={"rows": 5})], [an_evaluation(150), an_evaluation(200)])
    assert steps(lines) == [(100, False), (150, True), (200, False), (200, True)]
    assert [number for number, _ in numbered(lines)] == [100, 150, 200, 201]
    row, evaluation = lines[2].values, lines[3].values
    assert row == {
        "global_step": 200,
        "train/step": 200,
        "train/q": 1.5,
        "train/updates": 2,
        "contributed/rows": 5,
        "success/reach-v3": 1.0,
        "return/reach-v3": 4.0,
        "temperature/reach-v3": 0.5,
        "_timestamp": 7.0,
    }
    assert (evaluation["global_step"], evaluation["evaluation/step"], evaluation["_timestamp"]) == (200, 200, 8.0)
    assert evaluation["evaluation/success/reach-v3"] == 0.25


def test_an_evaluation_that_is_late_is_counted_on_and_drops_nothing():
    late, row = points([], [an_evaluation(100)]), points([a_row(300)], [])
    assert [number for number, _ in numbered([*late, *row], first=201)] == [201, 300]
    assert [number for number, _ in numbered([*late, *row], first=300)] == [300, 301]


def test_what_a_run_has_is_told_by_its_summary():
    assert Cursor.of({}) == START
    assert Cursor.of({"train/step": 200, "global_step": 200}) == Cursor(200, -1)
    after = Cursor.of({"train/step": 200, "evaluation/step": 100.0})
    rows, evaluations = [a_row(to) for to in (100, 200, 300)], [an_evaluation(step) for step in (100, 200)]
    lacking = points(rows, evaluations, after)
    assert steps(lacking) == [(200, True), (300, False)]
    assert not any(after.has(point) for point in lacking)
    for point in lacking:
        after = after.after(point)
    assert after == Cursor(300, 200)
    assert all(after.has(point) for point in points(rows, evaluations))


@pytest.mark.parametrize(
    ("words", "mode"),
    [("", "disabled"), ("online", "online"), ("ONLINE", "online"), ("dryrun", "offline"), ("sometimes", "sometimes")],
)
def test_the_mode_is_wandbs_own_word(words, mode):
    assert wandb_mode({"WANDB_MODE": words}) == mode
    assert wandb_mode({}) == "disabled"


def test_where_the_curves_go_is_read_from_wandbs_variables_and_written_down(tmp_path):
    assert Destination.from_environment({"WANDB_PROJECT": "", "WANDB_TAGS": ""}) == Destination("anchorleg")
    named = {"WANDB_PROJECT": "mine", "WANDB_ENTITY": "us", "WANDB_RUN_GROUP": "all", "WANDB_TAGS": "one, two,"}
    there = Destination.from_environment(named)
    assert there == Destination("mine", "us", "all", ("one", "two"))
    assert recorded(tmp_path) == Destination()
    for number in (0, 1, 2):
        (tmp_path / "attempts" / str(number)).mkdir(parents=True)
    write_down(Destination("before"), tmp_path / "attempts" / "0")
    write_down(there, tmp_path / "attempts" / "1")
    assert recorded(tmp_path) == there


def test_a_tail_gives_complete_lines_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    tail = Tail(path)
    assert list(tail.rows()) == []
    path.write_bytes(b'{"a":1}\n{"a":2}\n{"a"')
    assert list(tail.rows()) == [{"a": 1}, {"a": 2}]
    assert list(tail.rows()) == []
    with open(path, "ab") as file:
        file.write(b":3}\nnonsense\n")
    assert list(tail.rows()) == [{"a": 3}]


class Slot:
    """A slot's folder whose attempts write."""

    def __init__(self, run_dir):
        self.run_dir = run_dir

    def attempt(self, number, parent=None):
        """`parent`: (attempt, step)."""
        job = Job(self.run_dir, 0, number)
        job.attempt_dir.mkdir(parents=True)
        attempt, step = parent or (None, 0)
        write_json(
            job.attempt_dir / "parent.json",
            {"attempt": attempt, "step": step, "checkpoint": str(step) if parent else None},
        )
        return job

    def write(self, job, name, *rows):
        with open(job.attempt_dir / f"{name}.jsonl", "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def test_a_job_tells_what_its_elders_wrote_and_then_what_it_writes(tmp_path):
    slot = Slot(tmp_path)
    first = slot.attempt(0)
    slot.write(first, "metrics", *(a_row(to) for to in (100, 200, 300)))
    slot.write(first, "evaluations", an_evaluation(100))
    second = slot.attempt(1, parent=(0, 200))
    journals = Journals(second)
    assert steps(journals.news(START)) == [(100, False), (100, True), (200, False)]  # not the row to 300
    slot.write(second, "metrics", a_row(300), a_row(400))
    slot.write(second, "evaluations", an_evaluation(200))
    assert steps(journals.news(Cursor(200, 100))) == [(200, True), (300, False), (400, False)]
    assert steps(journals.news(Cursor(300, 200))) == [(400, False)]
    assert journals.news(Cursor(400, 200)) == []


def test_a_long_history_is_told_in_pieces_and_then_followed(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.wandb.journals.MOST_LINES", 4, raising=False)
    slot = Slot(tmp_path)
    first = slot.attempt(0)
    slot.write(first, "metrics", *(a_row(100 * k) for k in range(1, 8)))
    slot.write(first, "evaluations", *(an_evaluation(step) for step in (300, 600)))
    second = slot.attempt(1, parent=(0, 700))
    journals, told, at = Journals(second), [], Cursor(100, -1)
    for more in ((), (), (a_row(800), a_row(900)), (a_row(1000),)):
        slot.write(second, "metrics", *more)
        told.append(journals.news(at))
        for point in told[-1]:
            at = at.after(point)
    assert list(map(len, told)) == [4, 4, 2, 1]
    whole = points([a_row(100 * k) for k in range(2, 11)], [an_evaluation(300), an_evaluation(600)])
    assert [point for piece in told for point in piece] == whole


def test_rows_that_a_dead_elder_sent_beyond_its_successors_parent_are_not_sent_again(tmp_path):
    slot = Slot(tmp_path)
    first = slot.attempt(0)
    slot.write(first, "metrics", *(a_row(to) for to in (100, 200, 300)))
    journals = Journals(slot.attempt(1, parent=(0, 200)))
    assert journals.news(Cursor(300, -1)) == []
    slot.write(Job(tmp_path, 0, 1), "metrics", a_row(300), a_row(400))
    assert steps(journals.news(Cursor(300, -1))) == [(400, False)]


def test_before_it_is_decided_where_an_attempt_begins_there_is_nothing_to_tell(tmp_path):
    slot = Slot(tmp_path)
    slot.write(slot.attempt(0), "metrics", a_row(100))
    job = Job(tmp_path, 0, 1)
    job.attempt_dir.mkdir()
    assert Journals(job).news(START) == []


def test_after_going_back_the_curve_is_another_run_and_has_all_that_still_counts(tmp_path):
    slot = Slot(tmp_path)
    first = slot.attempt(0)
    slot.write(first, "metrics", *(a_row(to) for to in (100, 200, 300)))
    before = of_job(first, {}).of_slot("mt10-0123abcd", 0)["id"]
    roll_back(first.slot_dir, Rollback(0, 100, 7.0))
    assert of_job(first, {}).of_slot("mt10-0123abcd", 0)["id"] == before  # it goes on to its own end
    assert recorded(first.slot_dir) == Destination()
    second = slot.attempt(1, parent=(0, 100))
    slot.write(second, "metrics", a_row(200), a_row(300))
    there = of_job(second, {})
    assert there.of_slot("mt10-0123abcd", 0)["id"] == f"{before}-back1"
    assert recorded(second.slot_dir) == there
    assert steps(Journals(second).news(START)) == [(100, False), (200, False), (300, False)]
    (tmp_path / "scratch").mkdir()
    told = UploadRequest.of(second, tmp_path / "scratch", there, {}, Patience())
    assert UploadRequest.read(told.write()) == told
