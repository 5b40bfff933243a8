"""`explain`: the facts behind a slot's state, why no new job is submitted, and the history in sentences."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, a_job, a_run, a_slot, blind, no_code, token
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from orchestrator.config import parse_config
from orchestrator.decisions.models import BadNode, Death, Ledger, Seen, Slot, SlotStatus
from orchestrator.executors.base import JobState
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.history import append_event
from orchestrator.run.ledger import save_ledger
from orchestrator.run.rundir import RunDir
from orchestrator.screens.explain import Explanation, explain, explanation_lines, withheld
from orchestrator.screens.status import RunView, SlotView
from orchestrator.screens.timeline import KINDS, clock, sentence

TOY: dict[str, Any] = {"run_name": "toy", "executor": "local", "slots": 2, "command": ["python3", "toy.py"]}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    folder = RunDir(tmp_path / "runs" / "toy")
    prepare_folder(folder)
    return folder


def explained(run_dir: RunDir, ledger: Ledger, index: int = 0, **more: Any) -> Explanation:
    config = parse_config(TOY, "c.json")
    run = begin(config, run_dir.path.parent.parent / "c.json", run_dir, {"PATH": os.environ["PATH"]}, NOW, fix=no_code)
    save_ledger(run_dir, ledger.model_copy(update={"run_id": run.run_id}), NOW - 3)
    return explain(run_dir, index, now=NOW, **more)


def pending(reason: str) -> Seen:
    return Seen(state=JobState.PENDING, raw_state="PENDING", at=NOW - 5, reason=reason)


def text_of(found: Explanation) -> str:
    return "\n".join(explanation_lines(found, NOW))


def test_a_waiting_job_is_explained_from_slurms_own_words(run_dir: RunDir) -> None:
    found = explained(run_dir, a_run(a_slot().with_attempt(a_job(sighting=pending("Priority")))))
    assert "waits for its turn" in found.now
    assert "(Slurm's reason: Priority)" in found.now
    assert any("PENDING, reason Priority" in fact for fact in found.facts)
    assert "never has two" in found.withheld


def test_a_blind_slot_says_since_when_and_why_nothing_is_done(run_dir: RunDir) -> None:
    run = a_run(a_slot().with_attempt(a_job(sighting=blind())), blind_since=NOW - 60, blind_error="no answer")
    found = explained(run_dir, run)
    assert "may run" in found.withheld
    assert any("has not been seen since" in fact and "no answer" in fact for fact in found.facts)


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
    assert len(explained(run_dir, a_run(a_slot(0)), last=2).history) == 2
    assert explained(run_dir, a_run(a_slot(0)), last=0).history == ()


def test_the_json_has_the_events_themselves(run_dir: RunDir) -> None:
    append_event(run_dir, 0, "submission", NOW, slot=0, attempt=0, job_id="100")
    value = json.loads(explained(run_dir, a_run(a_slot(0))).model_dump_json())
    assert value["history"][0]["event"]["job_id"] == "100"
    assert value["slot"]["state"] == "waiting"


def test_avoided_nodes_are_facts(run_dir: RunDir) -> None:
    bad = BadNode(node="gpu07", deaths=(Death(slot=0, at=NOW), Death(slot=1, at=NOW)), excluded_until=NOW + 60)
    assert "node gpu07 is avoided until" in text_of(explained(run_dir, a_run(a_slot(0), nodes=(bad,))))


@pytest.mark.parametrize("index", [2, 99])
def test_a_slot_that_is_none_is_one_sentence(run_dir: RunDir, index: int) -> None:
    with refused("slot.unknown", slot=index, last=1):
        explained(run_dir, a_run(a_slot(0), a_slot(1)), index)


def test_a_run_without_a_ledger_is_one_sentence(run_dir: RunDir) -> None:
    begin(parse_config(TOY, "c.json"), run_dir.path / "c.json", run_dir, {"PATH": os.environ["PATH"]}, NOW, fix=no_code)
    with refused("slot.none-yet"):
        explain(run_dir, 0, now=NOW)


class TestWhyNoNewJob:
    def view(self, **more: Any) -> RunView:
        known = {"run_id": "r", "run_name": "toy", "run_dir": "/r", "executor": "local", "state": "running"}
        known |= {"controller": "me", "controller_epoch": 0, "wish": "run", "written_at": NOW}
        return RunView.model_validate(known | more)

    @pytest.mark.parametrize(
        ("slot", "view", "words"),
        [
            ({"status": SlotStatus.FINISHED}, {}, "its training is done"),
            ({"status": SlotStatus.PAUSED}, {}, "paused"),
            ({"status": SlotStatus.FAILED}, {}, "failed"),
            ({}, {"controller": None}, "no controller"),
            ({}, {"blind_since": NOW - 60, "blind_error": "no answer"}, "no answer"),
            ({"not_before": NOW + 60, "why": "job 12 failed"}, {}, "job 12 failed; until "),
            ({"why": "waits for room: slurm.max_jobs is 4"}, {}, "slurm.max_jobs is 4"),
            ({}, {}, "next look"),
        ],
    )
    def test_each_reason_has_its_words(self, slot: dict[str, Any], view: dict[str, Any], words: str) -> None:
        state = str(slot.get("status", "waiting"))
        shown = SlotView(slot=0, state=state)
        assert words in withheld(Slot(index=0, **slot), shown, self.view(**view), NOW)


class TestSentences:
    @given(
        st.dictionaries(
            st.sampled_from(["at", "kind", "slot", "attempt", "job_id", "step", "verdict", "outcome", "after", "x"]),
            st.one_of(st.none(), st.integers(0, 10**9), st.text(max_size=20)),
        )
    )
    def test_any_line_of_a_log_is_a_sentence(self, event: dict[str, Any]) -> None:
        assert sentence(event, NOW)

    @pytest.mark.parametrize("kind", sorted(KINDS))
    @given(
        st.fixed_dictionaries(
            {},
            optional={
                "job_id": st.sampled_from(["12", None, ""]),
                "step": st.one_of(st.none(), st.integers()),
                "start_step": st.one_of(st.none(), st.integers(), st.just("x")),
                "checkpoint_step": st.one_of(st.none(), st.integers()),
                "ended_at": st.one_of(st.none(), st.floats(0, 2e9)),
                "exclude": st.text(max_size=3),
                "until": st.one_of(st.none(), st.floats(0, 2e9)),
                "blind_s": st.one_of(st.none(), st.floats(0, 2e9)),
                "at": st.floats(0, 2e9),
            },
        )
    )
    def test_known_kinds_with_odd_facts_are_sentences_too(self, kind: str, facts: dict[str, Any]) -> None:
        assert sentence({**facts, "kind": kind}, NOW)

    def test_steps_that_are_done_again_are_counted(self) -> None:
        event = {"kind": "ended", "job_id": "12", "verdict": "crashed", "cause": "out of memory", "attempt": 3}
        words = sentence({**event, "step": 1234, "checkpoint_step": 1000}, NOW)
        assert (
            words == "job 12 ended: crashed (out of memory) at step 1,234; 234 steps after its last save are done again"
        )

    def test_a_refused_submission_says_what_was_answered(self) -> None:
        words = sentence({"kind": "submission", "attempt": 3, "outcome": "not submitted: over quota"}, NOW)
        assert words == "tried to submit attempt 3: not submitted: over quota"

    def test_a_queued_successor_names_the_job_before_it(self) -> None:
        words = sentence({"kind": "submission", "attempt": 4, "job_id": "124", "after": "123"}, NOW)
        assert words == "submitted attempt 4 as job 124, queued behind job 123"

    def test_times_of_another_day_have_their_date(self) -> None:
        assert len(clock(NOW - 60, NOW)) == len("08:52:20")
        assert len(clock(NOW - 200_000, NOW)) == len("08 Oct 08:52:20")


def test_a_token_is_not_shown_to_people(run_dir: RunDir) -> None:
    run = a_run(a_slot().with_attempt(a_job(sighting=pending("Priority"))))
    assert token() not in text_of(explained(run_dir, run))


def test_every_kind_that_the_controller_writes_has_its_sentence() -> None:
    package = Path(__file__).parents[3] / "orchestrator"
    text = "".join(
        (package / f"{name}.py").read_text()
        for name in ("controller", "decisions/fold", "decisions/adoption", "decisions/requests")
    )
    written = re.findall(r"""(?:_event\(|\bevent\(|"kind": )"([a-z ]+)\"""", text)
    assert len(written) > 9
    assert set(written) <= KINDS
