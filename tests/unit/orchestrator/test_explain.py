"""`explain`: the facts behind a slot's state, why no new job is submitted, and the history in sentences."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, a_run, a_slot, no_code
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from orchestrator.config import parse_config
from orchestrator.decisions.models import Ledger
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.ledger import append_event, save_ledger
from orchestrator.run.rundir import RunDir
from orchestrator.screens.explain import Explanation, explain
from orchestrator.screens.reading import run_view
from orchestrator.screens.timeline import KINDS, sentence

TOY: dict[str, Any] = {"run_name": "toy", "executor": "local", "slots": 2, "command": ["python3", "toy.py"]}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    folder = RunDir(tmp_path / "runs" / "toy")
    prepare_folder(folder)
    return folder


def explained(run_dir: RunDir, ledger: Ledger | None, index: int = 0, **more: Any) -> Explanation:
    config = parse_config(TOY, "c.json")
    run = begin(config, run_dir.path.parent.parent / "c.json", run_dir, {"PATH": os.environ["PATH"]}, NOW, fix=no_code)
    if ledger is not None:
        save_ledger(run_dir, ledger.model_copy(update={"run_id": run.run_id}), NOW - 3)
    return explain(run_view(run_dir, NOW, events=True), index, NOW, **more)


def test_history_is_told_in_order_for_this_slot_and_the_run(run_dir: RunDir) -> None:
    for slot, kind in ((0, "submission"), (1, "submission"), (0, "started"), (0, "ended"), (None, "node avoided")):
        place = {} if slot is None else {"slot": slot, "attempt": 0, "job_id": f"10{slot}"}
        more = {"verdict": "handed over", "step": 1200, "checkpoint_step": 1200} if kind == "ended" else {}
        append_event(run_dir, 0, kind, NOW - 100, **place, **more)
    found = explained(run_dir, a_run(a_slot(0), a_slot(1)))
    assert [moment.words for moment in found.history] == [
        "submitted attempt 0 as job 100",
        "job 100 began attempt 0",
        "job 100 ended: handed over at step 1,200",
        "node avoided",
    ]
    assert json.loads(found.model_dump_json())["history"][0]["event"]["job_id"] == "100"
    assert [len(explained(run_dir, a_run(a_slot(0)), last=last).history) for last in (2, 0)] == [2, 0]


@pytest.mark.parametrize("status", ["finished", "dropped", "behind", "paused", "failed"])
def test_a_slot_that_is_over_names_one_next_step_at_most(run_dir: RunDir, status: str) -> None:
    found = explained(run_dir, a_run(a_slot(0, status=status), a_slot(1)))
    assert found.withheld == f"the slot is {status}"
    assert ("`orchestrator" in found.next) == (status not in {"finished", "behind"})


@pytest.mark.parametrize(
    ("ledger", "index", "name"),
    [
        (a_run(a_slot(0), a_slot(1)), 2, "slot.unknown"),
        (a_run(a_slot(0), a_slot(1)), 99, "slot.unknown"),
        (a_run(a_slot(0)), 1, "slot.new"),
        (None, 0, "slot.none-yet"),
    ],
)
def test_a_slot_that_is_none_is_one_sentence(run_dir: RunDir, ledger: Ledger | None, index: int, name: str) -> None:
    with refused(name):
        explained(run_dir, ledger, index)


ODD = st.one_of(st.none(), st.integers(0, 10**9), st.text(max_size=20))
FACTS = ("slot", "attempt", "job_id", "step", "start_step", "checkpoint_step", "verdict", "cause", "outcome", "after",
         "exclude", "node", "until", "ended_at", "blind_s", "x")  # fmt: skip


@given(
    st.one_of(ODD, st.sampled_from(sorted(KINDS))),
    st.dictionaries(st.sampled_from(FACTS), st.one_of(ODD, st.floats(0, 2e9))),
    st.one_of(st.none(), st.floats(0, 2e9)),
)
def test_any_line_of_a_log_is_a_sentence(kind: Any, facts: dict[str, Any], at: float | None) -> None:
    assert sentence({**facts, "kind": kind, "at": at}, NOW)


def test_every_kind_that_the_controller_writes_has_its_sentence() -> None:
    package = Path(__file__).parents[3] / "orchestrator"
    names = ("controller", "decisions/fold", "decisions/adoption", "decisions/requests")
    text = "".join((package / f"{name}.py").read_text() for name in names)
    written = re.findall(r"""(?:_event\(|\bevent\(|"kind": )"([a-z ]+)\"""", text)
    assert len(written) > 9
    assert set(written) <= KINDS
