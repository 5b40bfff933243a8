"""Which environments are stepped in the program itself where nobody says how many workers there are."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import odd_envs

from trainer.config.find import SUITES, settings_of
from trainer.envs import quick
from trainer.envs.suite import SuiteRef

pytestmark = pytest.mark.trainer


def suite(name="gymnasium", **settings):
    return SuiteRef(settings_of(SUITES, name).model_validate({"name": name, **settings}))


class Timed:
    """A clock that goes on by what an environment takes."""

    def __init__(self, monkeypatch, step_s):
        self.now = 0.0
        step = odd_envs.Line.step

        def slow(env, action):
            self.now += step_s
            return step(env, action)

        monkeypatch.setattr(odd_envs.Line, "step", slow)
        monkeypatch.setattr(quick.time, "perf_counter", lambda: self.now)


@pytest.mark.parametrize(("step_s", "num_envs", "expected"), [(1e-4, 8, True), (1e-4, 32, False), (5e-3, 2, False)])
def test_workers_pay_where_a_step_of_all_takes_longer_than_waking_them(monkeypatch, step_s, num_envs, expected):
    Timed(monkeypatch, step_s)
    assert quick.is_quick(suite(id="odd_envs:Line"), num_envs) is expected


def test_what_is_known_is_not_measured_and_what_fails_is_told_later():
    assert quick.is_quick(suite("arm"), 8)
    assert not quick.is_quick(suite("arm"), 64)
    assert not quick.is_quick(suite("metaworld"), 10)
    assert not quick.is_quick(suite(id="odd_envs:Naughty", kwargs={"fault": "raises"}), 1)
