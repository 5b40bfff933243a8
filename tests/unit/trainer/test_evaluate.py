"""How a policy is judged: lanes, intervals, scores, and what is said of an evaluation."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trainer.config.find import SUITES, settings_of
from trainer.config.suites import Gymnasium
from trainer.envs.suite import SuiteRef
from trainer.evaluation.protocol import Evaluation, _lanes, evaluate, iqm, iqm_interval, summarise, unseen_seed
from trainer.history.read import best_evaluation, evaluation_scalars, mean_return, score_of, success_of

ROOT = Path(__file__).parents[3]
TEN = tuple(f"task-{k}" for k in range(10))


def summed_up(tasks, solved, returns=None, lengths=None, seed=0):
    ones = np.ones(solved.shape)
    returns, lengths = (ones if each is None else each for each in (returns, lengths))
    return summarise(tasks, solved, returns, lengths, horizon=500, seed=seed, steps=1, wall_s=1.0)


def test_the_iqm_is_the_mean_of_the_middle_half_and_its_interval_never_a_false_certainty():
    assert iqm(np.arange(10.0)) == 4.5
    assert iqm(np.array([0, 0, 0.2, 0.4, 0.6, 0.8, 1, 100.0])) == pytest.approx(0.5)
    for tasks, goals, counted in ((1, 1, 1), (1, 10, 10), (3, 10, 30), (10, 10, 60)):  # six of ten are in the IQM
        least = counted / (counted + 1.96**2)
        assert iqm_interval(np.ones((tasks, goals), np.bool_)) == pytest.approx((least, 1.0))
        assert iqm_interval(np.zeros((tasks, goals), np.bool_)) == pytest.approx((0.0, 1 - least))
    few, many = np.tile([True, False], (10, 5)), np.tile([True, False], (10, 25))
    width = [high - low for low, high in (iqm_interval(few), iqm_interval(many))]
    assert width[1] < 0.6 * width[0]


def test_what_is_summed_up():
    solved = np.zeros((10, 4), np.bool_)
    for k in range(10):
        solved[k, : (k * 4) // 9] = True
    result = summed_up(TEN, solved)
    assert result.worst == TEN[:5]
    assert (result.mean_success, result.is_small) == (pytest.approx(solved.mean()), True)
    lengths = np.array([[10.0, 30.0, 500.0], [500.0] * 3])
    found = summed_up(TEN[:2], np.array([[True, True, False], [False] * 3]), lengths=lengths)
    assert found.steps_to_success == {"task-0": 20.0}
    returns = np.array([[1.0, 3.0], [5.0, 9.0]])
    assert summed_up(("a", "b"), returns > 9, returns).return_error == pytest.approx(np.sqrt(2 / 2 + 8 / 2) / 2)
    assert summed_up(("a",), returns[:1, :1] > 9, returns[:1, :1]).return_error == 0


def test_what_goes_into_files_comes_back_whole():
    one, other = (summed_up(TEN, np.eye(10, 50) > 0, seed=seed) for seed in (3, unseen_seed(3)))
    third = replace(one, unseen=other, averaged=other)
    for each in (one, third):
        assert Evaluation.from_json(json.loads(json.dumps(each.as_json()))) == each
    assert "; unseen goals 2.0 %; averaged 2.0 %" in third.summary()


@pytest.mark.parametrize(("tasks", "goals"), [(1, 50), (3, 5), (10, 50), (50, 7), (1, 1)])
def test_every_goal_is_played_once_and_a_lane_keeps_its_task(tasks, goals):
    lanes = _lanes(tasks, goals)
    episodes = [pair for lane in lanes for pair in lane.episodes]
    assert sorted(episodes) == [(task, goal) for task in range(tasks) for goal in range(goals)]
    assert all(len({task for task, _ in lane.episodes}) == 1 for lane in lanes)
    assert len(lanes) >= min(10, tasks * goals)


def test_a_learner_with_workers_loads_no_simulator():
    program = "import sys, trainer.evaluation.protocol; print({'metaworld', 'mujoco', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


@pytest.mark.trainer
def test_a_suite_is_played_from_different_starts_that_its_seed_decides_and_from_fixed_ones_once(monkeypatch):
    """Left to itself a point mass stays where its episode began; of each of three tasks there are four."""
    pytest.importorskip("torch")
    from anchorleg_toys.points import Points

    points = "anchorleg_toys.points:Points"
    settings = settings_of(SUITES, points).model_validate({"name": points})

    def begun_at(seed, goals=4):
        starts = set()

        def stay(obs, task):
            starts.update(obs["state"][:, 0].tolist())
            return np.zeros((len(task), 1), np.float32)

        return evaluate(stay, SuiteRef(settings, seed), goals), starts

    (_, first), (_, again), (_, other) = begun_at(7), begun_at(7), begun_at(unseen_seed(7))
    assert (len(first), first == again, bool(first & other)) == (3 * 4, True, False)
    monkeypatch.setattr(Points, "starts", 3)
    assert begun_at(0, 50)[0].goals_per_task == 3


@pytest.mark.trainer
def test_an_evaluation_says_what_it_is_judged_by():
    pytest.importorskip("gymnasium")

    def act(obs, task):
        return np.full((len(task), 1), -0.5, np.float32)

    told, silent = (evaluate(act, SuiteRef(Gymnasium(id=f"odd_envs:{name}"), 3), 4) for name in ("Teller", "Line"))
    assert (told.score, told.mean_success, told.summary()[:15]) == ("success", 1.0, "success 100.0 %")
    assert set(told.steps_to_success.values()) == {3.0}  # its episodes end at the first success
    assert (silent.score, silent.mean_success, silent.steps) == ("return", 0.0, 4 * 50)
    assert silent.return_error > 0
    for one in (told, silent):
        assert Evaluation.from_json(json.loads(json.dumps(one.as_json()))) == one


def row(step, success, earned, **more):
    found = {"step": step, "mean_success": success, "success": {"a": success}, "returns": {"a": earned}}
    return {**found, "iqm_success": success, "steps_to_success": {}, "goals_per_task": 4, **more}


def test_the_best_is_the_one_with_the_highest_score_and_the_later_of_equals():
    returns = [row(step, 0.0, earned, score="return") for step, earned in ((1, -9.0), (2, -3.5), (3, -8.0))]
    assert best_evaluation(returns)["step"] == 2
    assert (success_of(returns[1]), score_of(returns[1]), mean_return(returns[1])) == (None, -3.5, -3.5)
    by_success = [row(step, rate, 9.0 - step, score="success") for step, rate in ((1, 0.2), (2, 0.7), (3, 0.7))]
    assert best_evaluation(by_success)["step"] == 3
    assert (score_of(by_success[1]), success_of(None), best_evaluation([])) == (0.7, None, None)
    assert best_evaluation([row(1, 0.9, 1.0), row(2, 0.1, 99.0)])["step"] == 1  # of a time before scores


def test_each_number_of_an_evaluation_has_a_curve_and_what_has_none_has_not():
    result = row(400, 0.5, 2.0)
    beside = {"mean_success": 0.25, "success": {"a": 0.25}}
    values = evaluation_scalars(result | {"unseen": beside, "averaged": beside, "measures": {"distance": {"a": 0.3}}})
    assert set(values) - set(evaluation_scalars(result)) == {
        "evaluation/unseen", "evaluation/unseen/a", "evaluation/averaged_success", "evaluation/averaged_success/a",
        "evaluation/distance/a",
    }  # fmt: skip
    judged_so = result | {"score": "return"}
    assert evaluation_scalars(judged_so | {"unseen": judged_so | {"returns": {"a": 4.0}}}) == {
        "evaluation/return": 2.0, "evaluation/return/a": 2.0, "evaluation/unseen_return": 4.0,
        "evaluation/unseen_return/a": 4.0,
    }  # fmt: skip
