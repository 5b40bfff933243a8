from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from suites import metaworld

from trainer.evaluation.protocol import Evaluation, _lanes, evaluate, iqm, iqm_interval, summarise, unseen_seed
from trainer.showing.learning import Evaluated
from trainer.showing.summary import judged

ROOT = Path(__file__).parents[3]
TEN = tuple(f"task-{k}" for k in range(10))


def test_iqm_is_the_mean_of_the_middle_half():
    assert iqm(np.arange(10.0)) == 4.5
    assert iqm(np.array([0, 0, 0.2, 0.4, 0.6, 0.8, 1, 100.0])) == pytest.approx(0.5)
    assert iqm(np.array([0.25])) == 0.25


def test_the_interval_of_one_task_is_the_binomial_one():
    solved = np.zeros((1, 400), np.bool_)
    solved[0, :200] = True
    low, high = iqm_interval(solved)
    half_width = 1.96 * 0.5 / np.sqrt(400)
    assert low == pytest.approx(0.5 - half_width, abs=0.006)
    assert high == pytest.approx(0.5 + half_width, abs=0.006)


def test_more_goals_make_the_interval_narrower():
    few, many = np.tile([True, False], (10, 5)), np.tile([True, False], (10, 25))
    width = [high - low for low, high in (iqm_interval(few), iqm_interval(many))]
    assert width[1] < 0.6 * width[0]


def test_the_worst_five_are_named_worst_first_and_a_small_evaluation_says_so():
    solved = np.zeros((10, 4), np.bool_)
    for k in range(10):
        solved[k, : (k * 4) // 9] = True
    result = summarise(TEN, solved, *np.ones((2, 10, 4)), horizon=500, seed=0, steps=1, wall_s=1.0)
    assert result.worst == TEN[:5]
    assert result.mean_success == pytest.approx(solved.mean())
    assert result.iqm_low <= result.iqm_success <= result.iqm_high
    assert "4 goals a task: a small evaluation" in result.summary()
    assert json.loads(json.dumps(result.as_json()))["success"]["task-9"] == 1.0


def test_a_full_evaluation_does_not_call_itself_small():
    result = summarise(
        TEN, np.ones((10, 50), np.bool_), *np.ones((2, 10, 50)), horizon=500, seed=0, steps=1, wall_s=1.0
    )
    assert "small" not in result.summary()
    assert result.iqm_high == 1.0


def test_solved_goals_alone_are_no_certainty():
    for tasks, goals, counted in ((1, 1, 1), (1, 10, 10), (3, 10, 30), (10, 10, 60)):  # six of ten are in the IQM
        least = counted / (counted + 1.96**2)
        assert iqm_interval(np.ones((tasks, goals), np.bool_)) == pytest.approx((least, 1.0))
        assert iqm_interval(np.zeros((tasks, goals), np.bool_)) == pytest.approx((0.0, 1 - least))
    # Two of ten were never met, which the IQM leaves out: the others say no more than before.
    assert iqm_interval(np.repeat(np.arange(10) > 1, 10).reshape(10, 10)) == iqm_interval(np.ones((10, 10), np.bool_))


def test_plot_and_evaluate_give_the_same_episodes_the_same_interval():
    rng = np.random.default_rng(1)
    for tasks, goals in ((1, 10), (1, 1), (4, 10), (10, 5)):
        solved = rng.random((tasks, goals)) < rng.random((tasks, 1))
        names = TEN[:tasks][::-1]  # those who plot have them by name
        result = summarise(names, solved, *np.ones((2, tasks, goals)), horizon=9, seed=7, steps=1, wall_s=1.0)
        plotted = judged([Evaluated(1, result.success, goals)])
        assert (plotted.iqm().low, plotted.iqm().high) == (result.iqm_low, result.iqm_high)
        if tasks == 1:
            assert plotted.iqm() == plotted.mean() == plotted.task(names[0])


def test_one_goal_is_one_goal():
    result = summarise(TEN, np.ones((10, 1), np.bool_), *np.ones((2, 10, 1)), horizon=500, seed=0, steps=1, wall_s=1.0)
    assert "; 1 goal a task: a small evaluation" in result.summary()


def test_steps_to_success_are_those_of_the_goals_that_were_solved():
    solved, lengths = np.array([[True, True, False], [False] * 3]), np.array([[10.0, 30.0, 500.0], [500.0] * 3])
    result = summarise(TEN[:2], solved, np.ones((2, 3)), lengths, horizon=500, seed=0, steps=1, wall_s=1.0)
    assert result.steps_to_success == {"task-0": 20.0}


def test_a_mean_return_comes_with_its_standard_error():
    returns = np.array([[1.0, 3.0], [5.0, 9.0]])
    found = summarise(("a", "b"), returns > 9, returns, returns, horizon=9, seed=0, steps=4, wall_s=0.0)
    assert found.return_error == pytest.approx(np.sqrt(2 / 2 + 8 / 2) / 2)
    assert "return 4.5 ± 1.1 (2 episodes a task)" in replace(found, score="return").summary()
    alone = summarise(
        ("a",), returns[:1, :1] > 9, returns[:1, :1], returns[:1, :1], horizon=9, seed=0, steps=1, wall_s=0.0
    )
    assert alone.return_error == 0


def test_what_goes_into_files_comes_back_whole():
    one, other = (
        summarise(TEN, np.eye(10, 50) > 0, *np.ones((2, 10, 50)), horizon=500, seed=seed, steps=1, wall_s=1.0)
        for seed in (3, unseen_seed(3))
    )
    both = replace(one, unseen=other)
    assert Evaluation.from_json(json.loads(json.dumps(both.as_json()))) == both
    assert Evaluation.from_json(json.loads(json.dumps(one.as_json()))) == one
    assert "; unseen goals 2.0 %" in both.summary()
    assert "unseen" not in one.summary()
    third = replace(both, averaged=other)
    assert Evaluation.from_json(json.loads(json.dumps(third.as_json()))) == third
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


def test_more_goals_than_meta_world_fixes_are_refused():
    with pytest.raises(ValueError, match="50 goals a task"):
        evaluate(lambda obs, task: obs, metaworld(["reach-v3"]), goals_per_task=51)


POINTS = "anchorleg_toys.points:Points"


@pytest.mark.trainer
def test_a_suite_without_fixed_starts_is_played_from_as_many_different_ones_that_its_seed_decides():
    """Left to itself a point mass stays where its episode began; of each of three tasks there are four."""
    pytest.importorskip("torch")
    from trainer.config.find import SUITES, settings_of
    from trainer.envs.suite import SuiteRef

    class Stays:
        def __init__(self):
            self.begun_at = set()

        def __call__(self, obs, task):
            self.begun_at |= set(obs["state"][:, 0].tolist())
            return np.zeros((len(task), 1), np.float32)

    def begun_at(seed):
        act = Stays()
        evaluate(act, SuiteRef(settings_of(SUITES, POINTS).model_validate({"name": POINTS}), seed), 4)
        return act.begun_at

    assert len(begun_at(7)) == 3 * 4
    assert begun_at(7) == begun_at(7)
    assert not begun_at(7) & begun_at(unseen_seed(7))


@pytest.mark.trainer
def test_a_suite_with_fewer_fixed_starts_than_goals_is_played_from_each_once(monkeypatch):
    pytest.importorskip("torch")
    from anchorleg_toys.points import Points

    from trainer.config.find import SUITES, settings_of
    from trainer.envs.suite import SuiteRef

    monkeypatch.setattr(Points, "starts", 3)
    suite = SuiteRef(settings_of(SUITES, POINTS).model_validate({"name": POINTS}), 0)
    found = evaluate(lambda _obs, task: np.zeros((len(task), 1), np.float32), suite)
    assert found.goals_per_task == 3
