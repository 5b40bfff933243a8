"""The process beside the training, with wandb's real library and service, against a server of our own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from daemons import WORK_S, wait_for
from wandb_runs import Run, a_row, an_evaluation, processes_of, run_command, serving_alone
from wandb_server import API_KEY

from anchorleg.job import Job
from trainer.wandb import process as live
from trainer.wandb.process import LOG, LiveProcess, beside
from trainer.wandb.request import Patience

pytest.importorskip("wandb")

NAME = "mt10-0123abcd-0"
#: For a server that answers: an interpreter's start and wandb's service take minutes on a busy machine.
CALM = Patience(
    look_s=0.1, transmit_s=1, request_s=WORK_S, check_s=0.5, stuck_s=WORK_S, retry_s=0.5, longest_retry_s=2.0,
    flush_s=WORK_S,
)  # fmt: skip
#: Outages are noticed within seconds; so a slow machine has some that nobody made.
HASTY = replace(CALM, request_s=3.0, stuck_s=3.0)
LOST, BACK = "no curves are sent for now", "curves are sent again"
LONG = pytest.mark.long


def rows(*ends):
    return [a_row(to - 100, to, 1_700_000_000.0 + to) for to in ends]


class Watched:
    """A server, a run, and what the process has said."""

    def __init__(self, server, run, monkeypatch):
        self.server = server
        self.run = run
        self.said = []
        self.processes = []
        started = LiveProcess.__init__

        def remember(process, *words):
            started(process, *words)
            self.processes.append(process)

        monkeypatch.setattr(LiveProcess, "__init__", remember)

    def env(self, **more):
        return {**os.environ, **self.server.env(), "WANDB_MODE": "online", **more}

    def beside(self, number, patience=CALM, **env):
        job = Job(self.run.folder, 0, number, run_id="mt10-0123abcd")
        return beside(job, {"batch_size": 64}, self.env(**env), self.said.append, patience=patience)

    def steps(self):
        """(step, whether it is an evaluation's), in the order of the history."""
        lines = self.server.history(NAME)
        return [(line["global_step"], "evaluation/step" in line) for line in lines]

    def wait_for_steps(self, *expected):
        """Rows at `expected`; evaluations where the step is given as -step."""
        wanted = sorted((abs(step), step < 0) for step in expected)
        wait_for(lambda: sorted(self.steps()) == wanted, f"{wanted}; said: {self.said}", WORK_S)

    def wait_for_word(self, words, after=0):
        """In a sentence after so many others."""
        wait_for(lambda: any(words in one for one in self.said[after:]), f"{words!r} in {self.said}", WORK_S)

    def wait_for_peace(self):
        """Returns how much was said until then."""
        wait_for(lambda: self.said and LOST not in self.said[-1], f"no outage; said: {self.said}", WORK_S)
        return len(self.said)

    def alive(self):
        return processes_of(self.server)

    def wait_for_silence(self):
        wait_for(lambda: self.alive() == [], f"the end of {self.alive()}", WORK_S)


@pytest.fixture
def watched(tmp_path, monkeypatch) -> Iterator[Watched]:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    with serving_alone() as server:
        yield Watched(server, Run(tmp_path / "mt10"), monkeypatch)


def test_three_jobs_are_one_run_in_which_every_row_is_once(watched, tmp_path):
    run = watched.run
    run.attempt(0, None, rows(100, 200))
    with watched.beside(0):
        watched.wait_for_steps(100, 200)
        run.add(0, "metrics", *rows(300))
        watched.wait_for_steps(100, 200, 300)
        run.add(0, "evaluations", an_evaluation(100, 1_700_000_400.0))  # late: rows of later steps are there
        watched.wait_for_steps(100, 200, 300, -100)
    watched.wait_for_silence()
    # Attempt 0 died, and left a checkpoint at 200: the next one writes the row to 300 again.
    run.attempt(1, (0, 200), rows(300, 400))
    with watched.beside(1):
        pass
    watched.wait_for_steps(100, 200, 300, 400, -100)
    run.attempt(2, (1, 400), rows(500), [an_evaluation(400, 1_700_000_500.0)])
    with watched.beside(2):
        watched.wait_for_steps(100, 200, 300, 400, 500, -100, -400)

    assert list(watched.server.files) == [NAME]
    assert watched.server.projects == {NAME: "anchorleg"}
    history = watched.server.history(NAME)
    numbers = [line["_step"] for line in history]
    assert numbers == sorted(set(numbers))  # W&B drops what does not ascend
    late = next(line for line in history if line.get("evaluation/step") == 100)
    assert (late["global_step"], late["_step"], late["evaluation/success/reach-v3"]) == (100, 301, 0.75)
    sentences = [sentence for sentence in watched.said if "curves go to" not in sentence]
    assert sentences == []
    assert len(watched.said) == 3

    # Afterwards as before: what `trainer wandb` and `wandb sync` send is the same run, with the same lines.
    run_command(tmp_path, watched.server.env(), "trainer", "wandb", "mt10")
    [folder] = (tmp_path / "wandb").glob("offline-run-*")
    run_command(tmp_path, watched.server.env(), "wandb", "sync", str(folder))
    assert list(watched.server.files) == [NAME]
    again = watched.server.history(NAME)
    clock = {"_step", "_runtime"}
    assert sorted(without(line, clock) for line in again) == sorted(without(line, clock) for line in history)


def without(line, names):
    return json.dumps({name: value for name, value in line.items() if name not in names}, sort_keys=True)


@pytest.mark.parametrize("fault", [401, pytest.param(403, marks=LONG), pytest.param(500, marks=LONG), "hang"])
def test_an_outage_is_said_once_and_everything_arrives_when_the_server_is_back(watched, fault):
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0, HASTY):
        watched.wait_for_steps(100)
        before = watched.wait_for_peace()
        break_down(watched.server, fault)
        watched.run.add(0, "metrics", *rows(200, 300))
        watched.wait_for_word(LOST, before)
        watched.run.add(0, "metrics", *rows(400))
        watched.server.answer_again()
        watched.wait_for_steps(100, 200, 300, 400)
        watched.wait_for_word(BACK, before)
        watched.run.add(0, "metrics", *rows(500))
        watched.wait_for_steps(100, 200, 300, 400, 500)
    told = [sentence for sentence in watched.said if "curves go to http" not in sentence]
    kinds = [sentence.split(":")[1].split("(")[0].strip() for sentence in told]
    assert kinds == [(LOST, BACK)[k % 2] for k in range(len(kinds))]
    assert any(("(no proper answer from the server in time)" in one) == (fault in {500, "hang"}) for one in told[::2])
    watched.wait_for_silence()


@pytest.mark.parametrize("fault", [pytest.param(500, marks=LONG), "hang"])
def test_a_server_that_is_away_from_the_beginning_has_everything_later(watched, fault):
    break_down(watched.server, fault)
    watched.run.attempt(0, None, rows(100, 200))
    with watched.beside(0, HASTY):
        watched.wait_for_word(LOST)
        watched.run.add(0, "metrics", *rows(300))
        watched.server.answer_again()
        watched.wait_for_steps(100, 200, 300)
        watched.wait_for_word(BACK)


def break_down(server, fault):
    if fault == "hang":
        server.hang()
    else:
        server.status = fault


def test_a_hung_server_keeps_no_job_from_its_end_and_the_next_job_sends_the_rest(watched):
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0, replace(HASTY, flush_s=1.0)):
        watched.wait_for_steps(100)
        watched.server.hang()
        watched.run.add(0, "metrics", *rows(200))
    assert "not all curves were sent" in watched.said[-1]
    watched.wait_for_silence()
    watched.server.answer_again()
    watched.run.attempt(1, (0, 200), rows(300))
    with watched.beside(1):
        watched.wait_for_steps(100, 200, 300)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_stopped_is_no_matter_and_leaves_nothing_behind(watched, number):
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0, replace(CALM, flush_s=0.5)):
        watched.wait_for_steps(100)
        [process] = watched.processes
        service = set(watched.alive()) - {process.pid}
        assert len(service) == 1
        os.kill(process.pid, number)
        if number == signal.SIGKILL:
            watched.wait_for_word("was killed by SIGKILL; the training goes on without it")
            watched.wait_for_silence()
    assert "not all curves were sent" in watched.said[-1]
    watched.wait_for_silence()
    assert not process._request.folder.exists()


def test_wandbs_service_does_not_outlive_it_even_where_it_was_stopped(watched):
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0, replace(CALM, flush_s=0.5)):
        watched.wait_for_steps(100)
        for pid in watched.alive():
            os.kill(pid, signal.SIGSTOP)
    watched.wait_for_silence()


def test_a_job_that_another_one_has_replaced_sends_nothing_more(watched):
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0):
        watched.wait_for_steps(100)
        watched.run.attempt(1, (0, 100), [])
        (watched.run.slot / "attempts" / "1" / "claim").write_text("{}")
        watched.run.add(0, "metrics", *rows(200))
        watched.wait_for_word("attempt 1 sends them")
        watched.wait_for_silence()
    assert watched.steps() == [(100, False)]


def test_the_key_is_in_no_file(watched):
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0):
        watched.wait_for_steps(100)
        [process] = watched.processes
        files = [path for folder in (watched.run.folder, process._request.folder) for path in folder.rglob("*")]
        assert any(path.name.startswith("debug") for path in files)
        assert [path for path in files if path.is_file() and API_KEY.encode() in path.read_bytes()] == []
    assert API_KEY not in str(watched.said)


def test_a_key_that_wandb_login_has_left_in_netrc_is_enough(watched, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    told = {**watched.server.env(), "HOME": str(home), "WANDB_API_KEY": ""}
    run_command(tmp_path, told, "wandb", "login", API_KEY, "--host", watched.server.url)
    assert API_KEY in (home / ".netrc").read_text()
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0, HOME=str(home), WANDB_API_KEY=""):
        watched.wait_for_steps(100)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"WANDB_API_KEY": ""}, "no curves are sent: No API key configured. Use `wandb login` to log in"),
        ({"WANDB_MODE": "sometimes"}, "WANDB_MODE is 'sometimes', and none of online, offline, disabled"),
    ],
)
def test_what_keeps_it_from_sending_anything_is_one_sentence(watched, tmp_path, env, words):
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0, HOME=str(tmp_path), NETRC=str(tmp_path / "absent"), **env):
        watched.wait_for_word(words)
    assert words in watched.said[0]
    assert "Traceback" not in log_of(watched)


def test_without_wandb_it_says_what_to_install(watched, tmp_path, monkeypatch):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "wandb.py").write_text("")
    monkeypatch.setattr(live.sys, "path", [str(tmp_path / "hidden"), *live.sys.path])
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0):
        watched.wait_for_word("wandb is not installed here: in Anchorleg's checkout, run pip install '.[wandb]'")
    assert [sentence for sentence in watched.said if "the next job sends" in sentence] == []


@pytest.mark.parametrize("mode", ["", "offline", "disabled"])
def test_it_runs_only_where_it_is_asked_for(watched, mode):
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0, WANDB_MODE=mode, WANDB_PROJECT="mine"):
        assert watched.processes == []
    assert watched.said == []
    assert (watched.run.slot / "attempts" / "0" / "wandb.json").exists() == (mode == "offline")


def test_where_no_process_can_be_started_the_training_goes_on(watched, monkeypatch):
    def refused(*_words, **_more):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(live.subprocess, "Popen", refused)
    watched.run.attempt(0, None, rows(100))
    with watched.beside(0):
        went_on = True
    assert went_on
    assert "Resource temporarily unavailable; the training goes on" in watched.said[0]


def log_of(watched):
    path = watched.run.slot / "attempts" / "0" / LOG
    return path.read_text() if path.exists() else ""
