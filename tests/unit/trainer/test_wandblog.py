from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest
from long_history import with_its_peak, write_long_history
from typer.testing import CliRunner

from anchorleg.files import write_json
from syncd import store
from trainer.cli import app
from trainer.errors import ConfigError
from trainer.history.slots import History, find_histories
from trainer.wandb.destination import Destination
from trainer.wandb.points import points
from trainer.wandb.runfile import BLOCK_BYTES, HEADER, last_record
from trainer.wandb.upload import gaps, library, name_of, summed_up


def a_row(number, **more):
    tasks = {"reach-v3": {"episodes": 1, "temperature": 0.5, "success": 1.0, "return": 4.0}}
    return {"from": 100 * number, "to": 100 * (number + 1), "updates": 2, "q": 1.5, "tasks": tasks, "at": 7.0} | more


def an_evaluation(step):
    rates = {"reach-v3": 0.25}
    by_task = {"success": rates, "returns": rates, "steps_to_success": {}}
    return {"step": step, "mean_success": 0.25, "iqm_success": 0.25, **by_task, "at": 8.0}


def a_history(rows, evaluations=()):
    return History(Path("mt10"), "mt10-0123abcd", 3, rows, evaluations, {})


def a_run(folder, rows, evaluations=()):
    attempt = folder / "slots" / "0" / "attempts" / "0"
    attempt.mkdir(parents=True)
    write_json(attempt / "parent.json", {"attempt": None, "step": 0, "checkpoint": None})
    for name, values in (("metrics", rows), ("evaluations", evaluations)):
        (attempt / f"{name}.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
    return folder


def test_the_id_is_one_for_all_jobs_and_all_machines(tmp_path):
    rows, evaluations = [a_row(0)], [an_evaluation(100)]
    run = a_run(tmp_path / "mt10", rows, evaluations)
    write_json(run / "run.json", {"run_id": "mt10-0123abcd"})
    place = store.Shared(tmp_path / "mirror").slot("mt10-0123abcd", 0)
    store.write_metrics(place, "metrics", rows)
    store.write_metrics(place, "evaluations", evaluations)
    place.manifests.mkdir()
    paths = (run, run / "slots/0", tmp_path / "mirror", place.path)
    found = [history for path in paths for history in find_histories(path)]
    assert [name_of(history, Destination()) for history in found] == ["mt10-0123abcd-0"] * 4
    assert len({str(points(history.rows, history.evaluations)) for history in found}) == 1


def test_a_damaged_line_leaves_a_gap_that_can_be_named():
    assert gaps([a_row(0), a_row(1), a_row(2)]) == []
    assert gaps([a_row(0), a_row(3), a_row(4)]) == [(100, 300)]


def test_a_long_history_is_known_again_without_ever_being_in_memory(tmp_path):
    run = a_run(tmp_path / "mt10", [])
    written = write_long_history(run / "slots/0/attempts/0/metrics.jsonl")

    def told():
        (history,) = find_histories(run)
        return summed_up(history, Destination()), gaps(history.rows)

    ((sha256, steps, last_step), holes), peak = with_its_peak(told)
    assert (steps, last_step, holes) == (2000, 20_000, [])
    assert peak < written / 4
    assert told()[0][0] == sha256
    with open(run / "slots/0/attempts/0/metrics.jsonl", "a") as file:
        file.write(json.dumps(a_row(200)) + "\n")
    assert told()[0][1:] == (2001, 20_100)
    assert told()[0][0] != sha256


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "has no metrics yet"),
        ([{"step": 5}], "was not written by a training .no 'to'."),
        ([[1, 2]], "has no metrics yet"),  # a line that is no object costs itself
    ],
)
def test_what_is_no_history_is_one_sentence(tmp_path, rows, words):
    with pytest.raises(ConfigError, match=words):
        find_histories(a_run(tmp_path / "run", rows))


def test_where_there_is_no_run_and_where_its_beginning_is_damaged(tmp_path):
    with pytest.raises(ConfigError, match="there is no run at"):
        find_histories(tmp_path / "absent")
    run = a_run(tmp_path / "run", [a_row(0)])
    (run / "slots/0/attempts/0/parent.json").write_text("{")
    with pytest.raises(ConfigError, match=r"look at parent\.json"):
        find_histories(run)


def a_log(*records):
    """A log as LevelDB's format says it: chunks with a head of seven bytes, in blocks of 32 kB."""
    data = HEADER
    for record in records:
        kind_of = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}
        is_first, rest = True, record
        while is_first or rest:
            room = BLOCK_BYTES - len(data) % BLOCK_BYTES
            if room < 7:
                data += bytes(room)
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            data += struct.pack("<IHB", 0, len(part), kind_of[is_first, not rest]) + part
            is_first = False
    return data


@pytest.mark.parametrize("size", [10, BLOCK_BYTES - 14, BLOCK_BYTES - 17, BLOCK_BYTES - 20, 3 * BLOCK_BYTES])
def test_the_last_record_of_a_log_is_found_over_its_blocks(size):
    log = a_log(b"first", b"x" * size, b"the end")
    assert last_record(log) == b"the end"
    assert last_record(log[:-1]) is None
    assert last_record(a_log(b"first", b"x" * size)) == b"x" * size
    assert last_record(a_log(b"x" * 3 * BLOCK_BYTES)[: 2 * BLOCK_BYTES]) is None  # between two of its chunks
    with pytest.raises(ValueError, match="not a log"):
        last_record(b"else")


@pytest.mark.parametrize("module", [None, ModuleType("wandb")], ids=["absent", "a folder of that name"])
def test_without_wandb_the_first_word_is_what_to_install(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(ConfigError, match=r"pip install '\.\[wandb\]'"):
        library()
    done = CliRunner().invoke(app, ["wandb", str(tmp_path / "absent")])
    assert isinstance(done.exception, ConfigError)
    assert "wandb is not installed" in str(done.exception)
    assert done.exception.exit_code == 2
