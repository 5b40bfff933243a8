"""Which environments are stepped in the program itself where nobody says how many workers there are."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("torch")

from trainer.config.find import SUITES, settings_of
from trainer.envs.suite import SuiteRef
from trainer.envs.workers import is_quick

pytestmark = pytest.mark.trainer


def suite(name="gymnasium", **settings):
    return SuiteRef(settings_of(SUITES, name).model_validate({"name": name, **settings}))


@pytest.mark.parametrize(("step_s", "num_envs", "expected"), [(1e-4, 8, True), (1e-4, 32, False), (5e-3, 2, False)])
def test_workers_pay_where_a_step_of_all_takes_longer_than_waking_them(step_s, num_envs, expected):
    clock = itertools.count(0, step_s).__next__
    assert is_quick(suite(id="odd_envs:Line"), num_envs, clock) is expected


@pytest.mark.parametrize("fault", ["raises", "exits"])
def test_what_fails_is_told_later_by_its_training(fault):
    assert not is_quick(suite(id="odd_envs:Naughty", kwargs={"fault": fault}), 1)


@pytest.mark.parametrize(
    ("name", "settings", "num_envs", "expected"),
    [
        ("arm", {}, 8, True),
        ("arm", {}, 64, False),
        ("metaworld", {}, 10, False),
        ("arm", {"observation": "both"}, 8, False),  # three cameras
        ("metaworld", {"observation": "cameras"}, 1, False),
    ],
)
def test_what_is_known_is_not_measured(name, settings, num_envs, expected):
    assert is_quick(suite(name, **settings), num_envs, lambda: pytest.fail("it is known")) is expected
