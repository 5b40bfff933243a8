"""The real controller over simulated days and months, with 4 slots, and what must hold after each event."""

from __future__ import annotations

import pytest
from mutations import MUTATIONS, QUEUE_MUTATIONS
from profiles import QUICK_SEEDS, SEEDS, Profile
from world import all_seeds, simulate


@pytest.mark.long
@pytest.mark.parametrize("seed", range(QUICK_SEEDS))
def test_ten_days_on_a_bad_cluster(seed: int) -> None:
    measured = simulate(Profile.drawn(seed, days=10.0))
    assert measured["ticks"] > 1_500


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_month_on_a_bad_cluster(seed: int) -> None:
    assert simulate(Profile.drawn(seed))["jobs"] > 100


@pytest.mark.long
def test_a_seed_tells_the_same_story_twice() -> None:
    profile = Profile.drawn(3, days=2.0)
    assert simulate(profile) == simulate(profile)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_an_hour_of_jobs_that_are_over_before_the_folder_shows_that_they_began(seed: int) -> None:
    short = {"poll_s": 10.0, "walltime_s": 130.0, "lead_s": 120.0, "lag_s": 60.0, "days": 1 / 24}
    assert simulate(Profile(seed, **short))["jobs"] > 20


@pytest.mark.long
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_found_within_the_seeds(name: str) -> None:
    story = r"invariant \d+ broken[\s\S]*python bench/simulator.py --seed \d+"
    with MUTATIONS[name](), pytest.raises(AssertionError, match=story):
        all_seeds(Profile.drawn, days=10.0, no_claim_fence=name == "no claim fence")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_five_days_of_experiments(seed: int) -> None:
    assert simulate(Profile.of_experiments(seed, days=5.0))["jobs"] > 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_month_of_experiments(seed: int) -> None:
    assert simulate(Profile.of_experiments(seed))["jobs"] > 100


@pytest.mark.long
@pytest.mark.parametrize("halving", [0, 3])
def test_five_hundred_experiments_over_four_jobs(halving: int) -> None:
    measured = simulate(Profile.of_experiments(1, slots=500, max_jobs=4, halving=halving, days=5.0))
    assert measured["jobs"] > 50


@pytest.mark.long
@pytest.mark.parametrize("name", QUEUE_MUTATIONS)
def test_a_broken_rule_of_the_queue_is_found_within_the_seeds(name: str) -> None:
    broken, fixed = QUEUE_MUTATIONS[name]
    with broken(), pytest.raises(AssertionError, match=r"invariant 1[3-7] broken"):
        all_seeds(Profile.of_experiments, days=5.0, **fixed)
