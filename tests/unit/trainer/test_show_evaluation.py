from __future__ import annotations

from trainer.evaluation.checkpoints import show_evaluation
from trainer.history.scalars import evaluation_scalars

RESULT = {
    "step": 400,
    "mean_success": 0.5,
    "iqm_success": 0.5,
    "success": {"reach-v3": 1.0, "push-v3": 0.0},
    "returns": {"reach-v3": 20.0, "push-v3": 3.0},
    "steps_to_success": {"reach-v3": 12.5},
}
UNSEEN = {"unseen": {"mean_success": 0.25, "success": {"reach-v3": 0.5, "push-v3": 0.0}}}


def test_an_evaluation_is_plain_lines_in_a_pipe(capsys):
    show_evaluation(RESULT, "the summary")
    assert capsys.readouterr().out == "reach-v3\t1.000\t20.0\t12.5\npush-v3\t0.000\t3.0\t\nthe summary\n"
    show_evaluation(RESULT | UNSEEN, "the summary")
    assert capsys.readouterr().out.splitlines()[:2] == [
        "reach-v3\t1.000\t20.0\t12.5\t0.500", "push-v3\t0.000\t3.0\t\t0.000",
    ]  # fmt: skip
    show_evaluation(RESULT | {"averaged": UNSEEN["unseen"]}, "the summary")
    assert capsys.readouterr().out.splitlines()[0] == "reach-v3\t1.000\t20.0\t12.5\t0.500"


def test_the_moving_average_has_curves_of_its_own():
    values = evaluation_scalars(RESULT | {"averaged": UNSEEN["unseen"]})
    assert values["evaluation/averaged_success"] == 0.25
    assert values["evaluation/averaged_success/reach-v3"] == 0.5
    assert values["evaluation/success"] == 0.5
    judged = RESULT | {"score": "return"}
    values = evaluation_scalars(judged | {"averaged": judged | {"returns": {"reach-v3": 4.0}}})
    assert values["evaluation/averaged_return"] == 4.0
    assert "evaluation/averaged_success" not in values


def test_what_has_no_number_makes_no_curve():
    assert "evaluation/unseen" not in evaluation_scalars(RESULT)
    values = evaluation_scalars(RESULT | UNSEEN)
    assert values["evaluation/unseen"] == 0.25
    assert values["evaluation/unseen/reach-v3"] == 0.5
    assert [name for name in values if name.startswith("evaluation/steps")] == ["evaluation/steps/reach-v3"]


def test_what_is_judged_by_its_return_has_curves_of_what_stands_beside_it_too():
    judged = RESULT | {"score": "return", "measures": {"distance": {"push-v3": 0.3}}}
    values = evaluation_scalars(judged | {"unseen": judged | {"returns": {"reach-v3": 4.0, "push-v3": 1.0}}})
    assert values == {
        "evaluation/return": 11.5, "evaluation/return/reach-v3": 20.0, "evaluation/return/push-v3": 3.0,
        "evaluation/unseen_return": 2.5,
        "evaluation/unseen_return/reach-v3": 4.0, "evaluation/unseen_return/push-v3": 1.0,
        "evaluation/distance/push-v3": 0.3,
    }  # fmt: skip


def test_what_else_is_told_of_episodes_has_a_curve_each():
    told = {"measures": {"distance": {"reach-v3": 0.02, "push-v3": 0.3}, "steps_to_reach": {}}}
    values = evaluation_scalars(RESULT | told)
    assert values["evaluation/distance/push-v3"] == 0.3
    assert set(values) - set(evaluation_scalars(RESULT)) == {
        f"evaluation/distance/{task}" for task in RESULT["success"]
    }
