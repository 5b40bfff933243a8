"""Which W&B run belongs to a slot, which values of its rows are sent, and what is written for `wandb sync`."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from refused import refused
from typer.testing import CliRunner
from wandb_runs import Run, a_row, an_evaluation

from anchorleg.job import Job
from anchorleg.rollback import Rollback, roll_back
from syncd import store
from trainer.cli import app
from trainer.errors import ConfigError
from trainer.history.read import read_evaluations, rows_of
from trainer.history.slots import find_histories
from trainer.wandb import Destination, library, lines_of, send


def rows(*ends):
    return [a_row(to - 100, to, float(to)) for to in ends]


def evaluations(*steps):
    return [an_evaluation(step, float(step)) for step in steps]


class WandbRun:
    """As much of wandb's as is used: a resumed run has a summary, and the step behind its last one."""

    def __init__(self, summary=(), starting_step=0):
        self.summary = dict(summary)
        self.starting_step = starting_step
        self.axes = {}
        self.sent = []

    def define_metric(self, name, step_metric=None, hidden=None):
        self.axes[name] = step_metric

    def log(self, line, step, commit):
        assert commit
        self.sent.append((step, line["global_step"], "evaluation/step" in line))


def sent(run, lines):
    assert [line["global_step"] for line in send(run, lines)] == [step for _, step, _ in run.sent]
    assert run.axes["*"] == "global_step"
    return run.sent


def test_a_row_and_an_evaluation_of_one_step_are_two_lines_with_one_axis():
    first, second = rows(100, 200)
    lines = list(lines_of([first, second | {"contributed": {"rows": 5}}], evaluations(150, 200)))
    assert sent(WandbRun(), lines) == [(100, 100, False), (150, 150, True), (200, 200, False), (201, 200, True)]
    row, evaluation = lines[2], lines[3]
    assert row == {
        "global_step": 200,
        "train/step": 200,
        "train/q": 200 / 7,
        "train/updates": 10,
        "contributed/rows": 5,
        "success/reach-v3": 0.5,
        "return/reach-v3": 3.25,
        "temperature/reach-v3": 0.1,
        "_timestamp": 200.0,
    }
    assert (evaluation["global_step"], evaluation["evaluation/step"], evaluation["_timestamp"]) == (200, 200, 200.0)
    assert evaluation["evaluation/success/reach-v3"] == 0.75


def test_an_evaluation_that_is_late_is_counted_on_and_drops_nothing():
    late, row = lines_of([], evaluations(100)), lines_of(rows(300), [])
    assert sent(WandbRun(starting_step=201), [*late, *row]) == [(201, 100, True), (300, 300, False)]


def test_a_resumed_run_gets_what_it_lacks():
    lines = list(lines_of(rows(100, 200, 300), evaluations(100, 200)))
    begun = WandbRun({"train/step": 200, "evaluation/step": 100.0, "train/q": 7.0}, starting_step=201)
    assert sent(begun, [*lines, *lines]) == [(201, 200, True), (300, 300, False)]
    whole = WandbRun({"train/step": 300, "evaluation/step": 200}, starting_step=302)
    assert sent(whole, lines) == []


def test_where_the_curves_go_is_read_from_wandbs_variables_and_written_down(tmp_path):
    run = Run(tmp_path / "mt10")
    assert Destination.recorded(run.slot) == Destination("anchorleg")
    for number, parent in enumerate((None, (0, 100), (1, 200))):
        run.attempt(number, parent, rows(100 * number + 100))
    job = Job(run.folder, 0, 0)
    assert Destination.of_job(job, {"WANDB_PROJECT": "", "WANDB_TAGS": ""}) == Destination("anchorleg")
    named = {"WANDB_PROJECT": "mine", "WANDB_ENTITY": "us", "WANDB_RUN_GROUP": "all", "WANDB_TAGS": "one, two,"}
    there = Destination.of_job(Job(run.folder, 0, 1), named)
    assert there == Destination("mine", "us", "all", ("one", "two"))
    assert Destination.recorded(run.slot) == there
    assert there.of_slot("mt10-0123abcd", 3) == {
        "id": "mt10-0123abcd-3",
        "name": "mt10-0123abcd-3",
        "project": "mine",
        "entity": "us",
        "group": "all",
        "tags": ("one", "two"),
    }


def test_after_going_back_the_curve_is_another_run_and_has_all_that_still_counts(tmp_path):
    run = Run(tmp_path / "mt10")
    run.attempt(0, None, rows(100, 200, 300))
    first = Job(run.folder, 0, 0)
    before = Destination.of_job(first, {})
    assert before.of_slot("mt10-0123abcd", 0)["id"] == "mt10-0123abcd-0"
    roll_back(first.slot_dir, Rollback(0, 100, 7.0))
    assert Destination.of_job(first, {}) == before  # it goes on to its own end
    run.attempt(1, (0, 100), rows(200, 300))
    there = Destination.of_job(Job(run.folder, 0, 1), {})
    assert there.of_slot("mt10-0123abcd", 0)["id"] == "mt10-0123abcd-0-back1"
    assert Destination.recorded(run.slot) == there
    lines = lines_of(rows_of(run.slot), read_evaluations(run.slot))
    assert [step for _, step, _ in sent(WandbRun(), lines)] == [100, 200, 300]


def test_a_slot_is_one_run_wherever_it_lies(tmp_path):
    run = Run(tmp_path / "mt10")
    run.attempt(0, None, rows(100), evaluations(100))
    place = store.Shared(tmp_path / "mirror").slot("mt10-0123abcd", 0)
    store.write_metrics(place, "metrics", rows(100))
    store.write_metrics(place, "evaluations", evaluations(100))
    place.manifests.mkdir()
    found = [history for path in (run.folder, run.slot, place.path) for history in find_histories(path)]
    assert [(history.run_id, history.slot) for history in found] == [("mt10-0123abcd", 0)] * 3
    assert len({str(list(lines_of(history.rows, history.evaluations))) for history in found}) == 1


@pytest.mark.parametrize("module", [None, ModuleType("wandb")], ids=["absent", "a folder of that name"])
def test_without_wandb_the_first_word_is_what_to_install(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, "wandb", module)
    with refused("wandb.not-installed"):
        library()
    done = CliRunner().invoke(app, ["wandb", str(tmp_path / "absent")])
    assert isinstance(done.exception, ConfigError)
    assert "wandb is not installed" in str(done.exception)
    assert done.exception.exit_code == 2
