"""Numbers of a comparison, against their definitions."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from trainer.showing.comparetable import comparison_as_json, judged_at
from trainer.showing.comparison import (
    Contender,
    Seeded,
    as_far_as_all,
    at_step,
    probability_of_improvement,
    rising,
    shared_steps,
)
from trainer.showing.contenders import seconds_of
from trainer.showing.learning import Evaluated

pytestmark = pytest.mark.trainer


def seeded(scores, seed=0, *, seconds=10.0, every=100, late=0):
    """`late`: as many steps each evaluation comes late, which is one less than there are environments."""
    found = tuple(Evaluated((i + 1) * every + late, {"a": score}, 10) for i, score in enumerate(scores))
    return Seeded(seed, found, tuple(scores), len(scores) * every + late, seconds, 1000, late + 1)


def evaluated_at(name, num_envs, *steps):
    found = tuple(Evaluated(step, {"a": 0.5}, 10) for step in steps)
    return Contender(name, (Seeded(0, found, (0.5,) * len(steps), steps[-1], 10.0, 1000, num_envs),))


def contender(name, *curves, **more):
    return Contender(name, tuple(seeded(scores, seed, **more) for seed, scores in enumerate(curves)))


def test_what_a_contender_came_to():
    one = contender("ppo", [0.0, 0.5, 1.0], [0.2, 0.9, 0.6], [0.0, 0.0, 0.9])
    assert one.final.value == pytest.approx(np.mean([1.0, 0.6, 0.9]))  # of three none is cut
    assert one.worst == 0.6
    assert one.largest_drop == pytest.approx(0.3)
    assert one.area == pytest.approx(np.mean([0.5, (0.55 + 0.75) / 2, 0.225]))
    assert (one.steps_to(0.5), one.steps_to(0.8), one.steps_to(0.95)) == (200, 300, None)
    assert one.steps_per_second == 30
    assert shared_steps(one) == [100, 200, 300]
    assert at_step(one, 200).value == pytest.approx(1.4 / 3)


def test_who_is_better_is_first_and_how_likely_is_said():
    strong, weak = contender("b", [0.9], [0.8], [0.7]), contender("a", [0.1], [0.2], [0.75])
    assert [one.name for one in rising([weak, strong])] == ["b", "a"]
    found = probability_of_improvement(strong, weak)
    assert found.value == pytest.approx(8 / 9)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert probability_of_improvement(strong, strong).value == 0.5


@pytest.mark.parametrize(("count", "least"), [(3, 0.5), (5, 0.64), (20, 0.9)])
def test_a_few_seeds_that_are_all_better_are_no_certainty(count, least):
    """`least`: what its authors' formula gives, solved by hand on a grid of hundredths."""
    strong, weak = (contender(name, *([value] for _ in range(count))) for name, value in (("a", 0.9), ("b", 0.1)))
    found = probability_of_improvement(strong, weak)
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(least, abs=0.01)
    back = probability_of_improvement(weak, strong)
    assert (back.low, back.value, back.high) == (0.0, 0.0, pytest.approx(1 - found.low))


RISING = [0.1, 0.3, 0.5, 0.7, 0.9]


def test_who_is_further_is_judged_where_all_were_evaluated():
    """Two with the same curve, of which one still trains and one has a seed that failed."""
    ppo, sac = as_far_as_all(
        [contender("ppo", RISING, RISING, RISING), contender("sac", RISING[:2], RISING[:3], RISING)]
    )
    assert probability_of_improvement(ppo, sac).value == 0.5
    for one in (ppo, sac):
        assert (one.step, one.worst, one.steps_to(0.5)) == (200, 0.3, None)
        assert (one.final.value, one.mean_return, one.area) == pytest.approx((0.3, 0.3, 0.2))
    assert (shared_steps(ppo), shared_steps(sac)) == ([100, 200, 300, 400, 500], [100, 200])
    said = "judged at step 200, the last at which all were evaluated: sac (seed 0) came no further"
    assert judged_at([ppo, sac]) == said
    told = {one["algorithm"]: one for one in comparison_as_json([ppo, sac])["contenders"]}
    assert (told["ppo"]["judged_at"], told["sac"]["steps"]) == (200, [200, 300, 500])
    assert [len(rows) for rows in told["sac"]["evaluations"]] == [2, 3, 5]


def test_where_all_came_as_far_the_last_evaluation_decides():
    all_alike = as_far_as_all([contender("a", RISING, RISING), contender("b", RISING[::-1], RISING)])
    assert [one.final.value for one in all_alike] == [pytest.approx(0.9), pytest.approx(0.5)]
    assert judged_at(all_alike) == "judged at step 500"


def test_evaluations_of_other_intervals_and_environments_are_those_of_the_same_step():
    """Each second one of `often` is one of `seldom`, whose vector steps end a little later."""
    often, seldom = as_far_as_all(
        [contender("often", RISING, every=100), contender("seldom", [0.3, 0.7, 0.9], every=200, late=7)]
    )
    assert (often.step, seldom.step) == (400, 407)
    for one in (often, seldom):
        assert (one.final.value, one.area) == pytest.approx((0.7, 0.5))
    assert judged_at([often, seldom]) == "judged at step 400, the last at which all were evaluated"


def test_who_steps_many_environments_is_judged_at_what_was_due_at_the_same_step_in_whatever_order_they_are_named():
    """An evaluation is made at the first step of all environments that reaches the step at which it was due."""
    few = evaluated_at("few", 8, 1000, 2000, 3000, 4000)
    many = evaluated_at("many", 1280, 1280, 2560, 3840, 5120)
    further = evaluated_at("further", 8, 1000, 2000, 3000, 4000, 5000)
    for order in permutations([few, many, further]):
        judged = {one.name: one for one in as_far_as_all(order)}
        assert {name: one.step for name, one in judged.items()} == {"few": 4000, "many": 5120, "further": 4000}
        said = judged_at([judged["few"], judged["further"], judged["many"]])
        assert said.startswith(
            "judged at step 4,000, the last at which all were evaluated: few (seed 0), many (seed 0) "
        )


@pytest.mark.parametrize("is_turned", [False, True])
def test_an_evaluation_that_may_be_of_several_steps_is_of_the_nearest(is_turned):
    pair = [evaluated_at("often", 1, *range(100, 1000, 100)), evaluated_at("seldom", 256, 256, 512, 768)]
    judged = {one.name: one for one in as_far_as_all(pair[::-1] if is_turned else pair)}
    assert {name: (one.since, one.step) for name, one in judged.items()} == {"often": (200, 700), "seldom": (256, 768)}


def test_an_evaluation_that_no_due_step_can_share_is_of_another_step():
    """`late` was due after 3,900 at the earliest."""
    with refused("compare.no-common-step"):
        as_far_as_all([evaluated_at("early", 2000, 3900), evaluated_at("late", 8, 4000)])


def test_of_many_that_are_behind_three_are_named():
    many = as_far_as_all([contender("a", RISING), *(contender(f"b{i}", RISING[:1]) for i in range(5))])
    assert judged_at(many).endswith("b0 (seed 0), b1 (seed 0), b2 (seed 0) and 2 others came no further")


def test_where_no_step_is_shared_nothing_is_judged():
    with refused("compare.no-common-step", evaluated="a at 100 to 500, b at 50"):
        as_far_as_all([contender("a", RISING), contender("b", [0.5], every=50)])


@pytest.mark.long
@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_one_of_two_is_better_or_the_other(mine, theirs):
    one, other = contender("a", *([x] for x in mine)), contender("b", *([x] for x in theirs))
    total = probability_of_improvement(one, other).value + probability_of_improvement(other, one).value
    assert total == pytest.approx(1)


def test_the_time_between_two_jobs_is_nobodys():
    at = [0, 10, 20, 30, 5030, 5040]
    assert seconds_of(at) == 60
    assert seconds_of(at[:1]) == 0


def test_a_row_before_which_the_clock_was_set_back_took_the_usual_time():
    assert seconds_of([0, 10, 20, 30, -3570, -3560]) == 60
    assert seconds_of([100, 50]) == 0


def test_where_no_success_is_told_returns_are_compared():
    def by_return(name, *ends):
        found = [
            Seeded(
                seed, (Evaluated(100, {"a": 0.0}, 10, 5.0), Evaluated(200, {"a": 0.0}, 10, end)), (5.0, end), 200, 9, 10
            )
            for seed, end in enumerate(ends)
        ]
        return Contender(name, tuple(found))

    good, bad = by_return("a", 400, 500, 450), by_return("b", 100, 420, 90)
    assert not good.tells_success
    assert good.final.value == pytest.approx(450)
    assert (good.worst, bad.largest_drop) == (400, 0)
    assert good.steps_to(0.5) is None
    assert probability_of_improvement(good, bad).value == pytest.approx(8 / 9)
    few = by_return("c", 1, 3)
    assert (few.final.value, few.final.low, few.final.high) == (2, 1, 3)
    assert (few.interval, good.interval) == ("from the lowest seed to the highest", "95 % over seeds")
    assert contender("d", [0.5]).interval == "95 % over episodes"
