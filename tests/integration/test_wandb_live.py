"""Curves on W&B while it trains, with wandb's real library and service, against a server of our own."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator

import pytest
from daemons import WORK_S, wait_for
from wandb_runs import Run, a_row, an_evaluation, processes_of, run_command, serving_alone
from wandb_server import API_KEY

from anchorleg.job import Job
from trainer.training.features import wandb as live
from trainer.training.features.base import EndReason
from trainer.training.features.wandb import curves_of

pytest.importorskip("wandb")

RUN, NAME = "mt10-0123abcd", "mt10-0123abcd-0"


def rows(*ends):
    return [a_row(to - 100, to, 1_700_000_000.0 + to) for to in ends]


class Watched:
    """A server, a run, and what its user was told. `training(n)`: attempt n, as long as the block lasts."""

    def __init__(self, server, run, monkeypatch):
        self.server = server
        self.run = run
        self.said = []
        self._env = monkeypatch.setenv

    @contextlib.contextmanager
    def training(self, number, scratch=None, **env):
        environ = {**self.server.env(), "WANDB_MODE": "online", **env}
        for name, value in environ.items():
            self._env(name, value)
        job = Job(self.run.folder, 0, number, run_id=RUN, scratch=scratch)
        [self.curves] = curves_of(job, {"batch_size": 64}, environ, self.said.append)
        self.curves.begin(None)
        try:
            yield self
        finally:
            self.curves.end(None, EndReason.FAILED)
            self.curves.tell(self.said.append)

    def write(self, number, *values):
        """What the loop does with a new row: the journal has it, then W&B."""
        for value in values:
            is_row = "tasks" in value
            self.run.add(number, "metrics" if is_row else "evaluations", value)
            (self.curves.on_row if is_row else self.curves.on_evaluation)(None, value)

    def wait_for_steps(self, *expected):
        """Rows at `expected`; evaluations where the step is given as -step."""
        wanted = sorted((abs(step), step < 0) for step in expected)
        wait_for(lambda: sorted(self.steps()) == wanted, f"{wanted}; said: {self.said}", WORK_S)

    def steps(self):
        """(step, whether it is an evaluation's), in the order of the history."""
        return [(line["global_step"], "evaluation/step" in line) for line in self.server.history(NAME)]

    def wait_for_word(self, words):
        def is_said():
            self.curves.tell(self.said.append)
            return any(words in one for one in self.said)

        wait_for(is_said, f"{words!r} in {self.said}", WORK_S)

    def wait_for_silence(self):
        wait_for(lambda: processes_of(self.server) == [], "the end of wandb's service", WORK_S)

    def service(self):
        [pid] = processes_of(self.server)
        return pid


@pytest.fixture
def watched(tmp_path, monkeypatch) -> Iterator[Watched]:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name in ("exit", "excepthook"):  # wandb puts its own there
        monkeypatch.setattr(sys, name, getattr(sys, name))
    with serving_alone() as server:
        yield Watched(server, Run(tmp_path / "mt10"), monkeypatch)


@pytest.fixture
def calm(monkeypatch):
    """A server that answers gets all the time that a busy machine needs."""
    monkeypatch.setattr(live, "FLUSH_S", WORK_S)


def without_clock(lines):
    clock = {"_step", "_runtime", "_timestamp"}
    return sorted(json.dumps({k: v for k, v in line.items() if k not in clock}, sort_keys=True) for line in lines)


@pytest.mark.long
@pytest.mark.usefixtures("calm")
def test_three_jobs_are_one_run_in_which_every_row_is_once(watched, tmp_path):
    run = watched.run
    run.attempt(0, None, rows(100, 200))
    with watched.training(0):
        watched.write(0, *rows(300))
        watched.wait_for_steps(100, 200, 300)
        watched.write(0, an_evaluation(100, 1_700_000_400.0))  # late: rows of later steps are there
    # Attempt 0 left a checkpoint at 200: the next one writes the row to 300 again.
    run.attempt(1, (0, 200), [])
    with watched.training(1):
        watched.write(1, *rows(300, 400))
    watched.wait_for_steps(100, 200, 300, 400, -100)
    run.attempt(2, (1, 400), rows(500))
    with watched.training(2):
        watched.write(2, an_evaluation(400, 1_700_000_500.0))
    watched.wait_for_steps(100, 200, 300, 400, 500, -100, -400)
    watched.wait_for_silence()

    assert list(watched.server.files) == [NAME]
    assert watched.server.projects == {NAME: "anchorleg"}
    history = watched.server.history(NAME)
    numbers = [line["_step"] for line in history]
    assert numbers == sorted(set(numbers))  # W&B drops what does not ascend
    late = next(line for line in history if line.get("evaluation/step") == 100)
    assert (late["global_step"], late["_step"], late["evaluation/success/reach-v3"]) == (100, 301, 0.75)
    assert len(watched.said) == 3
    assert all("curves go to" in sentence for sentence in watched.said)

    # Afterwards as before: what `trainer wandb` and `wandb sync` send is the same run, with the same lines.
    run_command(tmp_path, watched.server.env(), "trainer", "wandb", "mt10")
    [folder] = (tmp_path / "wandb").glob("offline-run-*")
    run_command(tmp_path, watched.server.env(), "wandb", "sync", str(folder))
    assert list(watched.server.files) == [NAME]
    assert without_clock(watched.server.history(NAME)) == without_clock(history)


@pytest.mark.long
@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize(("fault", "is_new"), [(500, True), ("hang", False)])
def test_all_arrives_when_a_server_that_was_away_is_back(watched, fault, is_new):
    watched.run.attempt(0, None, rows(100))
    if is_new:
        break_down(watched.server, fault)
    with watched.training(0):
        if not is_new:
            watched.wait_for_steps(100)
            break_down(watched.server, fault)
        watched.write(0, *rows(200, 300))
        wait_for(lambda: watched.server.refused + watched.server.hung, "a try", WORK_S)
        watched.server.answer_again()
        watched.wait_for_steps(100, 200, 300)
        watched.write(0, *rows(400))
    watched.wait_for_steps(100, 200, 300, 400)


def break_down(server, fault):
    if fault == "hang":
        server.hang()
    else:
        server.status = fault


@pytest.mark.long
@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize("is_new", [True, False], ids=["at the beginning", "later"])
def test_what_a_server_refused_the_next_job_sends(watched, is_new):
    watched.run.attempt(0, None, rows(100))
    watched.server.status = 401 if is_new else None
    with watched.training(0):
        if not is_new:
            watched.wait_for_steps(100)
            watched.server.status = 401
        watched.write(0, *rows(200))
        watched.wait_for_word("no more curves" if not is_new else "no curves")  # and nobody interrupts the training
    watched.server.answer_again()
    watched.run.attempt(1, (0, 200), [])
    with watched.training(1):
        watched.write(1, *rows(300))
    watched.wait_for_steps(100, 200, 300)


@pytest.mark.long
def test_a_job_that_another_one_has_replaced_sends_nothing_more(watched):
    watched.run.attempt(0, None, rows(100))
    with watched.training(0):
        watched.wait_for_steps(100)
        watched.run.attempt(1, (0, 100), [])
        (watched.run.slot / "attempts" / "1" / "claim").write_text("{}")
        watched.write(0, *rows(200))
        watched.wait_for_word("attempt 1 of this slot")
        watched.wait_for_silence()
    assert watched.steps() == [(100, False)]


def test_without_a_key_or_wandb_itself_nothing_is_sent(watched, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    watched.run.attempt(0, None, rows(100))
    with watched.training(0, WANDB_API_KEY="", NETRC=str(tmp_path / "absent")):
        watched.wait_for_word("No API key configured")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with watched.training(0):
        watched.wait_for_word("pip install '.[wandb]'")
    assert len(watched.said) == 2


@pytest.mark.parametrize("mode", ["", "offline", "disabled", "sometimes"])
def test_it_runs_only_where_it_is_asked_for(watched, mode):
    watched.run.attempt(0, None, rows(100))
    job = Job(watched.run.folder, 0, 0, run_id=RUN)
    assert curves_of(job, {}, {"WANDB_MODE": mode, "WANDB_PROJECT": "mine"}, watched.said.append) == []
    assert len(watched.said) == (mode == "sometimes")
    assert (job.attempt_dir / "wandb.json").exists() == (mode == "offline")


@pytest.mark.long
@pytest.mark.usefixtures("calm")
def test_the_key_is_in_no_file_and_in_no_word(watched, tmp_path, capfd):
    (tmp_path / "scratch").mkdir()
    watched.run.attempt(0, None, rows(100))
    with watched.training(0, scratch=tmp_path / "scratch"):
        watched.wait_for_steps(100)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(path.name.startswith("debug") for path in files)
        assert [path for path in files if API_KEY.encode() in path.read_bytes()] == []
    assert API_KEY not in f"{watched.said} {capfd.readouterr()}"
    assert list((tmp_path / "scratch").iterdir()) == []
