"""What an evaluation is judged by: success where the suite tells of it, else the mean return."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("gymnasium")

pytest.importorskip("matplotlib")

from rich.console import Console

from trainer.commands import plot
from trainer.config.suites import Gymnasium
from trainer.envs.suite import SuiteRef
from trainer.evaluation.checkpoints import show_evaluation
from trainer.evaluation.protocol import Evaluation, evaluate
from trainer.history.read import best_evaluation, mean_return, score_of, success_of
from trainer.history.scalars import evaluation_scalars
from trainer.showing import canvas
from trainer.showing.learning import curves_of
from trainer.showing.plot import draw_curves
from trainer.showing.summary import summaries
from trainer.showing.tables import runs_as_json, show_runs

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


def test_the_table_of_an_evaluation_without_success_has_its_returns(capsys):
    show_evaluation(row(1, 0.0, -3.5, score="return"), "that was it")
    assert capsys.readouterr().out == "a\t-3.5\nthat was it\n"


def test_a_plot_says_which_runs_are_judged_by_their_return(capsys):
    metrics = [{"from": 0, "to": 10, "tasks": {"a": {"episodes": 2, "success": 0.0, "return": -4.0}}}]
    evaluations = [row(10, 0.0, -2.0, score="return"), row(20, 0.0, -6.0, score="return")]
    found = summaries([curves_of("mine", 0, metrics, evaluations)])
    assert found[0].best.steps == (10,)
    show_runs(found, Console(emoji=False))
    assert "mine, slot 0: judged by its return, for its environments tell of no success; last -6.0, best -2.0" in (
        capsys.readouterr().out
    )


METRICS = [
    {"from": 0, "to": 20, "tasks": {task: {"episodes": 2, "success": 0.0, "return": -4.0} for task in ("a", "b")}}
]


def judged_by_return(run="mine"):
    evaluations = [row(10, 0.0, -2.0, score="return"), row(20, 0.0, -6.0, score="return")]
    return [curves_of(run, slot, METRICS, evaluations) for slot in range(3)]


def judged_by_success(run="other"):
    return [curves_of(run, 0, METRICS, [row(20, 0.5, -6.0, score="success")])]


@pytest.fixture
def drawn(monkeypatch):
    """Axes of the last picture by what is written beside them, and its caption."""
    found = {}

    def keep(picture, out, caption):
        found.clear()
        found.update({axes.get_ylabel(): axes for axes in picture.axes}, caption=caption)

    monkeypatch.setattr(canvas, "save_picture", keep)
    return found


def marks(axes):
    return [tuple(point) for dots in axes.collections for point in np.asarray(dots.get_offsets()).tolist()]


def test_a_plot_shows_returns_and_no_share_where_no_success_is_told(tmp_path, drawn, capsys):
    (run,) = found = summaries(judged_by_return())
    draw_curves(found, tmp_path / "curves.png", "mine")
    assert drawn.keys() == {"return of an episode", "caption"}
    assert {(10.0, -2.0), (20.0, -6.0)} <= set(marks(drawn["return of an episode"]))
    assert "%" not in drawn["caption"].partition("Marks")[2]
    assert plot._draw(found, tmp_path / "curves.png") == [tmp_path / "curves.png"]  # nothing of single tasks
    show_runs(found, Console(emoji=False))
    said = capsys.readouterr().out
    assert "%" not in said
    assert "mine\t3\t20\t-4.0\t-6.0\t-\t-2.0\t-4.0" in said
    (told,) = json.loads(json.dumps(runs_as_json(found)))["runs"]
    assert (told["judged_by"], told["intervals_over"], told["mean_of_last_5"]) == ("return", None, -4.0)
    assert told["last"] == {"steps": [20] * 3, "goals_per_task": 4, "return": -6.0, "slots": [-6.0] * 3}
    assert [one["return"] for one in told["evaluations"]] == [-2.0, -6.0]
    assert "success" not in told["slots"][0]
    assert run.best.mean_return == -2.0


def test_a_plot_of_both_kinds_has_each_where_it_belongs(tmp_path, drawn, capsys):
    found = summaries([*judged_by_return(), *judged_by_success()])
    draw_curves(found, tmp_path / "curves.png", "both")
    success, returns = drawn["success"], drawn["return of an episode"]
    assert marks(success) == [(20.0, 0.5)]
    assert {(10.0, -2.0), (20.0, -6.0)} == {mark for mark in marks(returns) if mark[0] > 0}
    assert [line for line in success.lines if line.get_label().startswith("mine")] == []
    intervals = next(axes for name, axes in drawn.items() if name == "")
    assert {text.get_text() for text in intervals.get_yticklabels()} == {"other: mean", "other: IQM"}
    assert "among the returns are of runs that tell of no success" in drawn["caption"]
    assert len(plot._draw(found, tmp_path / "curves.png")) == 3
    show_runs(found, Console(emoji=False))
    said = capsys.readouterr().out
    assert "mine\t3\t20\t-4.0" in said
    assert "a\t50 %" in said
