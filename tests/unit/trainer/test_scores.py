"""What an evaluation is judged by: success where the suite tells of it, else the mean return."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from rich.console import Console

from trainer.config.suites import Gymnasium
from trainer.envs.suite import SuiteRef
from trainer.evaluation.protocol import Evaluation, evaluate
from trainer.history.read import best_evaluation, mean_return, score_of, success_of
from trainer.history.tensorboard import evaluation_scalars
from trainer.showing.learning import curves_of
from trainer.showing.summary import summaries
from trainer.showing.tables import show
from trainer.training.progress import TrainingProgress, show_evaluation

pytestmark = pytest.mark.trainer


def played(env_id):
    def act(obs, task):
        return np.full((len(task), 1), -0.5, np.float32)

    return evaluate(act, SuiteRef(Gymnasium(id=env_id), 3), 4)


def row(step, success, earned, **more):
    found = {"step": step, "mean_success": success, "success": {"a": success}, "returns": {"a": earned}}
    return {**found, "iqm_success": success, "steps_to_success": {}, "goals_per_task": 4, **more}


def test_an_evaluation_says_what_it_is_judged_by():
    told, silent = played("odd_envs:Teller"), played("odd_envs:Line")
    assert (told.score, told.mean_success, told.summary()[:15]) == ("success", 1.0, "success 100.0 %")
    assert set(told.steps_to_success.values()) == {3.0}  # its episodes end at the first success
    assert (silent.score, silent.mean_success) == ("return", 0.0)
    assert silent.steps == 4 * 50
    said = f"return {silent.returns['Line']:,.1f} ± {silent.return_error:,.1f} (4 episodes a task)"
    assert silent.summary() == said
    assert silent.return_error > 0
    for one in (told, silent):
        assert Evaluation.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_the_best_is_the_one_with_the_highest_score():
    by_return = [row(step, 0.0, earned, score="return") for step, earned in ((1, -9.0), (2, -3.5), (3, -8.0))]
    assert best_evaluation(by_return)["step"] == 2
    by_success = [row(step, rate, 9.0 - step, score="success") for step, rate in ((1, 0.2), (2, 0.7), (3, 0.7))]
    assert best_evaluation(by_success)["step"] == 3
    before_scores = [row(1, 0.9, 1.0), row(2, 0.1, 99.0)]
    assert best_evaluation(before_scores)["step"] == 1
    assert best_evaluation([]) is None


def test_success_is_shown_where_it_was_told_and_the_return_else():
    silent, told = row(1, 0.0, -3.5, score="return"), row(1, 0.4, 2.0, score="success")
    assert (success_of(silent), success_of(told), success_of(None)) == (None, 0.4, None)
    assert (score_of(silent), mean_return(silent), score_of(told)) == (-3.5, -3.5, 0.4)
    assert evaluation_scalars(silent) == {"evaluation/return": -3.5, "evaluation/return/a": -3.5}
    assert evaluation_scalars(told)["evaluation/success"] == 0.4
    assert "return -3.5" in TrainingProgress(1, 2, 0, mean_return=-3.5).words()


def test_the_table_of_an_evaluation_without_success_has_its_returns(capsys):
    show_evaluation(row(1, 0.0, -3.5, score="return"), "that was it")
    assert capsys.readouterr().out == "a\t-3.5\nthat was it\n"


def test_a_plot_says_which_runs_are_judged_by_their_return(capsys):
    metrics = [{"from": 0, "to": 10, "tasks": {"a": {"episodes": 2, "success": 0.0, "return": -4.0}}}]
    evaluations = [row(10, 0.0, -2.0, score="return"), row(20, 0.0, -6.0, score="return")]
    found = summaries([curves_of("mine", 0, metrics, evaluations)])
    assert found[0].best.steps == (10,)
    show(found, Console(emoji=False))
    assert "mine, slot 0: judged by its return, for its environments tell of no success; last -6.0, best -2.0" in (
        capsys.readouterr().out
    )
