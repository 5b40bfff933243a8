from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import ModuleType

import pytest
from long_history import with_its_peak, write_long_history
from refused import refused
from typer.testing import CliRunner

from anchorleg.files import write_json
from syncd import store
from trainer.cli import app
from trainer.errors import ConfigError
from trainer.history.slots import find_histories
from trainer.wandb.lines import Destination, lines_of
from trainer.wandb.upload import library, write


def a_row(number, **more):
    tasks = {"reach-v3": {"episodes": 1, "temperature": 0.5, "success": 1.0, "return": 4.0}}
    return {"from": 100 * number, "to": 100 * (number + 1), "updates": 2, "q": 1.5, "tasks": tasks, "at": 7.0} | more


def an_evaluation(step):
    rates = {"reach-v3": 0.25}
    by_task = {"success": rates, "returns": rates, "steps_to_success": {}}
    return {"step": step, "mean_success": 0.25, "iqm_success": 0.25, **by_task, "at": 8.0}


def a_run(folder, rows, evaluations=()):
    attempt = folder / "slots" / "0" / "attempts" / "0"
    attempt.mkdir(parents=True)
    write_json(attempt / "parent.json", {"attempt": None, "step": 0, "checkpoint": None})
    for name, values in (("metrics", rows), ("evaluations", evaluations)):
        (attempt / f"{name}.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
    return folder


def test_a_slot_is_one_run_wherever_it_lies(tmp_path):
    rows, evaluations = [a_row(0)], [an_evaluation(100)]
    run = a_run(tmp_path / "mt10", rows, evaluations)
    write_json(run / "run.json", {"run_id": "mt10-0123abcd"})
    place = store.Shared(tmp_path / "mirror").slot("mt10-0123abcd", 0)
    store.write_metrics(place, "metrics", rows)
    store.write_metrics(place, "evaluations", evaluations)
    place.manifests.mkdir()
    paths = (run, run / "slots/0", tmp_path / "mirror", place.path)
    found = [history for path in paths for history in find_histories(path)]
    assert [(history.run_id, history.slot) for history in found] == [("mt10-0123abcd", 0)] * 4
    assert len({str(list(lines_of(history.rows, history.evaluations))) for history in found}) == 1


def test_a_long_history_is_never_in_memory(tmp_path):
    run = a_run(tmp_path / "mt10", [])
    size = write_long_history(run / "slots/0/attempts/0/metrics.jsonl")
    (history,) = find_histories(run)
    lines, peak = with_its_peak(lambda: sum(1 for _ in lines_of(history.rows, history.evaluations)))
    assert lines == 2000
    assert peak < size / 4


def test_a_history_without_news_is_not_written_again(tmp_path):
    pytest.importorskip("wandb")
    run = a_run(tmp_path / "mt10", [a_row(0), a_row(1)], [an_evaluation(200)])

    def written():
        (history,) = find_histories(run)
        return write(history, tmp_path / "out", Destination())

    first = written()
    assert (first.lines, first.last_step, first.gaps, first.is_new) == (3, 200, [], True)
    assert written() == replace(first, is_new=False)
    with open(run / "slots/0/attempts/0/metrics.jsonl", "a") as file:
        file.write(json.dumps(a_row(5)) + "\n")  # what was before it is damaged
    third = written()
    assert (third.lines, third.last_step, third.gaps, third.is_new) == (4, 600, [(200, 500)], True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [third.folder.name]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "run.no-metrics"),
        ([{"step": 5}], "history.foreign"),
        ([[1, 2]], "run.no-metrics"),  # a line that is no object costs itself
    ],
)
def test_what_is_no_history_is_one_sentence(tmp_path, rows, words):
    with refused(words):
        find_histories(a_run(tmp_path / "run", rows))


def test_where_there_is_no_run_and_where_its_beginning_is_damaged(tmp_path):
    with refused("run.none-there"):
        find_histories(tmp_path / "absent")
    run = a_run(tmp_path / "run", [a_row(0)])
    (run / "slots/0/attempts/0/parent.json").write_text("{")
    with refused("history.foreign"):
        find_histories(run)


@pytest.mark.parametrize("module", [None, ModuleType("wandb")], ids=["absent", "a folder of that name"])
def test_without_wandb_the_first_word_is_what_to_install(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, "wandb", module)
    with refused("wandb.not-installed"):
        library()
    done = CliRunner().invoke(app, ["wandb", str(tmp_path / "absent")])
    assert isinstance(done.exception, ConfigError)
    assert "wandb is not installed" in str(done.exception)
    assert done.exception.exit_code == 2
