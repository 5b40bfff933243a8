"""The process of an evaluation: real ones, on Meta-World."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from daemons import PATIENCE_S, WORK_S, started_at, wait_for
from point_run import PointRun
from refused import refused
from suites import act_deterministic, metaworld

from trainer.evaluation import process
from trainer.evaluation.playable import evaluate_checkpoint
from trainer.evaluation.process import EvaluationRequest, EvaluatorProcess
from trainer.evaluation.protocol import evaluate, unseen_seed

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path):
    return PointRun(tmp_path)


def request_of(run, **fields):
    (folder,) = run.checkpoints(1)
    return EvaluationRequest(
        **{"checkpoint": folder, "goals": 3, "goals_dir": run.job.run_dir / "goals", "workers": 0, **fields}
    )


def result_of(running):
    return wait_for(running.poll, "an evaluation", WORK_S)


@pytest.mark.long
def test_it_gives_the_same_bits_as_an_evaluation_in_the_trainer_and_no_signal_of_the_job_ends_it(run):
    asked = request_of(run, unseen_goals=2)
    running = EvaluatorProcess(asked)
    for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):
        os.kill(running.pid, number)
    learner, tasks = run.state.algorithm, run.training.env.tasks
    seed, horizon = run.training.seed, run.training.env.horizon
    here, unseen = (
        replace(evaluate(partial(act_deterministic, learner), metaworld(tasks, horizon, goals), count), wall_s=0.0)
        for count, goals in ((3, seed), (2, unseen_seed(seed)))
    )
    there = result_of(running)
    assert replace(there, wall_s=0.0, unseen=None) == here
    assert replace(there.unseen, wall_s=0.0) == unseen
    assert running.words == f"{5 * len(tasks)} of {5 * len(tasks)} episodes"
    assert sum(there.returns.values()) > 0


@pytest.mark.long
def test_the_moving_average_is_played_on_the_same_goals_where_there_is_one(run, tmp_path):
    beside = result_of(EvaluatorProcess(request_of(run, averaged=True)))
    folder = run.job.attempt_dir / "checkpoints" / f"{run.state.step:012d}"
    raw, averaged = (
        replace(
            evaluate_checkpoint(folder, goals=3, goal_seed=None, device="cpu", averaged=each).evaluation, wall_s=0.0
        )
        for each in (False, True)
    )
    assert replace(beside, wall_s=0.0, averaged=None) == raw
    assert replace(beside.averaged, wall_s=0.0) == averaged
    assert averaged.returns != raw.returns
    without = PointRun(tmp_path / "without", averaging=0)
    assert result_of(EvaluatorProcess(request_of(without, averaged=True))).averaged is None


def test_a_killed_one_says_of_what_it_died(run):
    running = EvaluatorProcess(request_of(run))
    assert running.poll() is None
    os.kill(running.pid, signal.SIGKILL)
    running.wait(PATIENCE_S)
    with refused("evaluator.ended", how="was killed by SIGKILL"):
        running.poll()


@pytest.mark.long
def test_one_that_fails_says_its_last_words(run):
    asked = request_of(run)
    (asked.checkpoint / "manifest.json").write_text("{")
    running = EvaluatorProcess(asked)
    with refused("evaluator.ended", how=re.compile("^exited with status 1: no checkpoint .*manifest.json is ")):
        result_of(running)


@pytest.fixture
def endless(tmp_path):
    """A request whose evaluation comes to no end: it waits for somebody who writes the manifest."""
    folder = tmp_path / "000000000100"
    folder.mkdir()
    os.mkfifo(folder / "manifest.json")
    return EvaluationRequest(folder, 1, tmp_path, 0)


def test_it_ends_with_its_learner(endless):
    program = (
        "import time\nfrom pathlib import Path\n"
        "from trainer.evaluation.process import EvaluationRequest, EvaluatorProcess\n"
        f"running = EvaluatorProcess(EvaluationRequest(Path({str(endless.checkpoint)!r}), 1, Path('/'), 0))\n"
        "print(running.pid, flush=True)\ntime.sleep(600)\n"
    )
    learner = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    with learner.stdout as out:
        pid = int(out.readline())
    assert started_at(pid) is not None
    learner.kill()
    learner.wait()
    wait_for(lambda: started_at(pid) is None, "its end")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such a place")
def test_where_memory_is_short_the_kernel_ends_it_and_not_its_learner(endless):
    running = EvaluatorProcess(endless)
    score = Path(f"/proc/{running.pid}/oom_score_adj")
    wait_for(lambda: score.read_text() == "1000\n", "its place in the queue")
    running.end()


def test_one_that_hangs_is_ended_and_says_so(endless, monkeypatch):
    running = EvaluatorProcess(endless)
    assert running.poll() is None
    monkeypatch.setattr(process, "SILENCE_S", 0.0)
    with refused("evaluator.silent"):
        running.poll()
    assert started_at(running.pid) is None
