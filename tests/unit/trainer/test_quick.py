"""Which environments are stepped in the program itself where nobody says how many workers there are."""

from __future__ import annotations

import pytest
from daemons import PATIENCE_S

pytest.importorskip("torch")

import odd_envs
from refused import refused

from trainer.config.find import SUITES, settings_of
from trainer.envs import quick, workers
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
    monkeypatch.setattr(quick, "_measured", lambda found: quick.step_seconds(found.open(), lambda _: None))
    assert quick.is_quick(suite(id="odd_envs:Line"), num_envs) is expected


@pytest.mark.long
def test_what_is_known_is_not_measured_and_what_fails_is_told_later(monkeypatch):
    assert 0 < quick._measured(suite(id="odd_envs:Line")) < float("inf")
    for fault in ("raises", "exits", "made"):
        assert quick._measured(suite(id="odd_envs:Naughty", kwargs={"fault": fault})) == float("inf")
    monkeypatch.setattr(workers, "spawn_worker", lambda *_: pytest.fail("it is known"))
    assert quick.is_quick(suite("arm"), 8)
    assert not quick.is_quick(suite("arm"), 64)
    assert not quick.is_quick(suite("metaworld"), 10)
    assert not quick.is_quick(suite("arm", observation="both"), 8)  # three cameras
    assert not quick.is_quick(suite("metaworld", observation="cameras"), 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "more", "doing"),
    [("step", 5, "making step 5"), ("reset", 1, "beginning its first episode"), ("step", None, "being made")],
)
def test_one_that_hangs_is_ended_and_named_with_what_it_did(monkeypatch, where, more, doing, capfd):
    """Before the first episode its own states are tried, in steps and resets that are counted here."""
    monkeypatch.setattr(quick, "_limit_s", lambda now: 2.0 if now == doing else 300.0)
    monkeypatch.setattr(workers, "_STACKS_S", PATIENCE_S)
    monkeypatch.setattr(odd_envs.Stuck, "made", {"step": 0, "reset": 0})
    # Named after the case: what was tried of an id with its arguments is not tried again in the same process.
    never = suite(id="odd_envs:Stuck", kwargs={"where": f"never, for {where} {more}", "at": 0})
    never.open().make(0).close()
    at = 1 if more is None else odd_envs.Stuck.made[where] + more
    with refused("env.silent", task="Stuck"):
        quick.is_quick(suite(id="odd_envs:Stuck", kwargs={"where": where, "at": at}), 1)
    assert more is None or "odd_envs.py" in capfd.readouterr().err  # its program may not have begun
