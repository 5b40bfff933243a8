"""What goes into an environment of Gymnasium's interface and comes out of it, and every way to name a wrong one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gymnasium import spaces
from pydantic import ValidationError
from refused import refused

from trainer.config.section import TrainingSection, resolve
from trainer.config.suites import Gymnasium
from trainer.envs.spaces import PRIVILEGED, ArraySpec, Box, Discrete
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.suites.gymnasium.arrays import ActionMap, Observations, WrongArrayError
from trainer.envs.suites.gymnasium.suite import Suite
from trainer.envs.vector import VectorEnv
from trainer.errors import ConfigError
from trainer.evaluation.protocol import evaluate
from trainer.training.memory import check

pytestmark = pytest.mark.trainer


def opened(env_id, **more):
    return SuiteRef(Gymnasium(id=env_id, **more)).open()


def stay(envs, steps):
    """Leave every mass about where it is."""
    for _ in range(steps):
        envs.step(np.full((envs.num_envs, 1), -0.5, np.float32))


# Settings


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"id": "no id"}, "'no id' is not an id: write CartPole-v1, module:Env-v0 or package.module:Name"),
        ({"id": "os.path:join(1)"}, "is not an id"),
        ({"id": "CartPole-v1", "tasks": ["a", "b"]}, "an id is one task"),
        ({"id": "CartPole-v1", "kwargs": [1]}, "kwargs"),
        ({"id": "CartPole-v1", "horizon": 0}, "horizon"),
    ],
)
def test_settings_that_cannot_be_are_refused_on_a_login_node(value, words):
    with pytest.raises(ValidationError, match="(?s)" + words.replace("(", r"\(").replace(")", r"\)")):
        TrainingSection.model_validate({"env": {"name": "gymnasium", **value}})


def test_what_multi_task_sac_cannot_learn_is_told_with_what_can():
    training = resolve(TrainingSection(env={"name": "gymnasium", "id": "CartPole-v1"}))
    with pytest.raises(ConfigError, match=r"gymnasium has other spaces: use ppo, a2c or sac \(training\.algorithm\)$"):
        check(training, "cpu", None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"id": "CartPole-v1"}, None),
        ({"id": "ALE/Pong-v5", "kwargs": {"obs_type": "ram", "frameskip": 4, "full_action_space": True}}, None),
        ({"id": "os:system", "kwargs": {}}, "foreign modules are not imported"),
        ({"id": "Hopper-v5", "kwargs": {"xml_file": "/etc/passwd"}}, "kwargs.xml_file is neither"),
        ({"id": "Hopper-v5", "kwargs": {"more": {"a": 1}}}, "kwargs.more is neither"),
        ({"id": "GymV21Environment-v0", "kwargs": {"env_id": "os:system"}}, "kwargs.env_id is neither"),
    ],
)
def test_what_comes_from_another_machine_names_no_module_and_no_file(value, words):
    why = Gymnasium(**value).distrusted()
    assert why is None if words is None else words in why


# Horizon


@pytest.mark.parametrize(("env_id", "asked", "horizon"), [("CartPole-v1", 1000, 500), ("CartPole-v1", 20, 20)])
def test_the_sooner_of_both_limits_cuts(env_id, asked, horizon, caplog):
    from trainer.envs.suites.gymnasium import suite

    suite._tell_of_horizon.cache_clear()
    assert opened(env_id, horizon=asked).spaces.horizon == horizon
    assert ("CartPole-v1 has episodes of 500 steps, but horizon truncates them at 20" in caplog.text) == (asked < 500)


@pytest.mark.parametrize("fits", [True, False])
def test_a_clip_is_not_longer_than_the_environments_own_limit_where_a_training_begins(fits):
    env = {"name": "gymnasium", "id": "odd_envs:Drawers-v0", "observation": "clips", "frame_stack": 8}
    training = resolve(TrainingSection(env={**env, "frame_stride": 1 if fits else 2}, algorithm="ppo"))
    assert opened(training.env.id).spaces.horizon == 14
    SuiteRef(training.env).open()  # as whoever plays a checkpoint does
    if fits:
        check(training, "cpu", None)
        return
    words = r"frame_stack: 8 frames that are 2 steps apart span 15 steps, and an episode has 14 \(the environment's own"
    with pytest.raises(ConfigError, match=words):
        check(training, "cpu", None)


def test_nothing_but_the_horizon_cuts_an_episode():
    """Pendulum's own limit is 200 steps, and the wrapper that cuts there is left out: the vector does it."""
    env = opened("Pendulum-v1").make(0)
    env.reset(0, 1)
    assert not any(env.step(np.zeros(1, np.float32)).truncated for _ in range(201))
    with VectorEnv(VectorSpec(SuiteRef(Gymnasium(id="Pendulum-v1", horizon=20)), 1, 0)) as envs:
        envs.reset()
        steps = [envs.step(np.zeros((1, 1), np.float32)) for _ in range(21)]
    assert [bool(step.truncated[0]) for step in steps] == [False] * 19 + [True, False]
    assert not any(step.terminated[0] for step in steps)


# Observations


def test_numbers_become_a_row_of_float32():
    space = spaces.Box(-2.0, 5.0, (2, 2), np.float64)
    found = Observations(space, "X-v0")
    assert found.specs == {"state": ArraySpec((4,), "float32", -2.0, 5.0)}
    given = np.array([[1, 2], [3, 1 / 3]])
    row = found.read(given)["state"]
    assert row.dtype == np.float32
    assert row.tolist() == given.ravel().astype(np.float32).tolist()
    given[:] = 0
    assert row[0] == 1  # its own memory


@pytest.mark.parametrize(
    ("shape", "channels_first"),
    [
        ((6, 8, 3), (3, 6, 8)),
        ((6, 8), (1, 6, 8)),
        ((4, 8, 9), (4, 8, 9)),
        ((8, 6, 12), (12, 8, 6)),  # more channels than rows
        ((7, 7, 20), (20, 7, 7)),
        ((6, 6, 6), (6, 6, 6)),
    ],
)
def test_a_picture_has_its_channels_first(shape, channels_first):
    picture = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    found = Observations(spaces.Box(0, 255, shape, np.uint8), "X-v0")
    assert found.specs == {"image": ArraySpec(channels_first, "uint8", 0.0, 255.0)}
    seen = found.read(picture)["image"]
    assert seen.shape == channels_first
    assert seen[0, 1, 2] == picture[(1, 2, 0)[: len(shape)] if shape != (4, 8, 9) else (0, 1, 2)]
    assert seen.flags.c_contiguous


@pytest.mark.parametrize("shape", [(10, 12, 16), (5, 8, 9)])
def test_a_picture_of_which_either_outer_axis_may_be_the_channels_is_one_sentence(shape):
    space = spaces.Dict({"eye": spaces.Box(0, 255, shape, np.uint8)})
    with refused("gym.picture-axes", id="X-v0"):
        Observations(space, "X-v0")


def test_parts_go_by_their_names_and_choices_are_ones_among_zeros():
    inner = spaces.Dict({"gear": spaces.Discrete(3, start=2), "on": spaces.MultiBinary(2)})
    found = Observations(
        spaces.Dict({"body": inner, "two": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(0, 1, ())))}), "X-v0"
    )
    assert set(found.specs) == {"body.gear", "body.on", "two.0", "two.1"}
    seen = found.read({"body": {"gear": 3, "on": [1, 0]}, "two": ([1, 2], 0.5)})
    assert {key: row.tolist() for key, row in seen.items()} == {
        "body.gear": [0, 1, 0],
        "body.on": [1, 0],
        "two.0": [0, 1, 0, 0, 1],
        "two.1": [0.5],
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": [1, 2, 3], "b": 0}, r"'a' has shape \(3,\), but its space says \(2,\)"),
        ({"a": ["x", "y"], "b": 0}, "'a' has type <U1"),
        ({"a": [1, np.inf], "b": 0}, "'a' contains NaN or infinity"),
        ({"a": [1, 1e300], "b": 0}, "'a' contains NaN or infinity"),
        ({"a": [1, 2], "b": 3}, "'b' is 3, but its space is"),
        ({"a": [1, 2], "b": -1}, "'b' is -1, but its space is"),
        ({"a": [1, 2], "b": 0.5}, r"'b' is 0\.5, but its space is"),
        ({"a": [1, 2]}, "lacks 'b'"),
        (None, "lacks 'a'"),
    ],
)
def test_what_the_space_does_not_say_is_told(given, words):
    found = Observations(spaces.Dict({"a": spaces.Box(-9, 9, (2,)), "b": spaces.Discrete(3)}), "X-v0")
    with pytest.raises(WrongArrayError, match=words):
        found.read(given)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(4),
        spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))}),
        spaces.Discrete(5000),
        spaces.Box(0, 255, (2, 3, 4, 5), np.uint8),
        spaces.Dict({}),
        spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)}), "a.b": spaces.Discrete(2)}),
    ],
)
def test_what_no_policy_can_read_is_one_sentence(space):
    with pytest.raises(ConfigError, match="observations of X-v0"):
        Observations(space, "X-v0")


def test_critics_may_see_the_numbers_alone_of_an_environment_that_gives_pictures_itself():
    suite = opened("odd_envs:Cameras", critic_sees="state")
    assert suite.spaces.obs[PRIVILEGED] == ArraySpec((11,), "float32", -9.0, 9.0, privileged=True)
    assert set(suite.spaces.of_policy.obs) == {"eye", "body.place", "body.gear", "rest.0", "rest.1"}
    assert suite.make(0).reset(0, 1)[PRIVILEGED].shape == (11,)
    with refused("gym.no-pictures", name="critic_sees", id="odd_envs:Line"):
        opened("odd_envs:Line", critic_sees="state")


# Actions


def test_actions_are_scaled_to_the_bounds_of_the_environment():
    space = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([6.0, 1.0], np.float32))
    actions = ActionMap(space, "X-v0")
    assert actions.space == Box(2)
    for given, wanted in (((-1, -1), (-2, 0)), ((1, 1), (6, 1)), ((0, 0), (2, 0.5)), ((7, -9), (6, 0))):
        found = actions.to_env(np.array(given, np.float32))
        assert found.dtype == np.float32
        assert found.tolist() == list(wanted)
        assert space.contains(found)


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (spaces.Discrete(4, start=-2), 4),
        (spaces.MultiDiscrete([2, 3], start=[0, 5]), 6),
        (spaces.MultiDiscrete([[2, 2], [3, 1]]), 12),
        (spaces.MultiBinary(3), 8),
        (spaces.MultiBinary((2, 2)), 16),
    ],
)
def test_every_choice_has_one_number(space, count):
    actions = ActionMap(space, "X-v0")
    assert actions.space == Discrete(count)
    found = [actions.to_env(np.int64(number)) for number in range(count)]
    assert all(space.contains(one) for one in found)
    assert len({np.asarray(one).tobytes() for one in found}) == count
    if not isinstance(space, spaces.Discrete):
        page = (Path(__file__).parents[3] / "docs/watching.md").read_text()
        (lines,) = re.findall(r"```python\n(def choices_of.*?)```", page, re.DOTALL)
        of_page = {"np": np}
        exec(lines, of_page)
        assert [of_page["choices_of"](number, space).tolist() for number in range(count)] == [a.tolist() for a in found]


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-np.inf, 1, (2,)), "gym.actions-unbounded"),
        (spaces.MultiDiscrete([100, 100]), "gym.too-many-choices"),
        (spaces.MultiBinary(13), "gym.too-many-choices"),
        (spaces.Dict({"a": spaces.Discrete(2)}), "gym.actions-unknown"),
    ],
)
def test_actions_that_nothing_can_choose_are_one_sentence(space, words):
    with refused(words):
        ActionMap(space, "X-v0")


# Opening


@pytest.mark.parametrize(
    ("settings", "wrong", "fields"),
    [
        ({"id": "CartPol-v1"}, "gym.unknown", {"name": "CartPol-v1", "hint": 'did you mean "CartPole-v1"?'}),
        ({"id": "CartPole"}, "gym.unknown", {"hint": 'did you mean "CartPole-v1"?'}),
        ({"id": "no_such_module:Env-v0"}, "gym.not-imported", {"why": re.compile("^ModuleNotFoundError")}),
        ({"id": "broken_module:Env-v0"}, "gym.not-imported", {"why": re.compile(r"^RuntimeError: no licence \(/")}),
        ({"id": "odd_envs:Drawer-v0"}, "gym.unknown-in-module", {"hint": 'did you mean "Drawers-v0"?'}),
        ({"id": "odd_envs:Lina"}, "gym.unknown-in-module", {"hint": 'did you mean "Line"?'}),
        ({"id": "odd_envs:Old"}, "gym.no-env", {"kind": "object"}),
        ({"id": "odd_envs:Line", "kwargs": {"speed": 3}}, "gym.not-made", {"why": re.compile("^TypeError")}),
        ({"id": "odd_envs:Naughty", "kwargs": {"fault": "made"}}, "gym.not-made", {"why": re.compile("no display")}),
        ({"id": "odd_envs:Naughty", "kwargs": {"fault": "text"}}, "gym.observations-unreadable", {}),
        ({"id": "odd_envs:Naughty", "kwargs": {"fault": "no bounds"}}, "gym.actions-unbounded", {}),
        ({"id": "odd_envs:Naughty", "kwargs": {"fault": "many"}}, "gym.too-many-choices", {"choices": 10_000}),
        ({"id": "odd_envs:Undecided", "kwargs": {"lacks": "action_space"}}, "gym.space-missing", {}),
        ({"id": "odd_envs:Undecided", "kwargs": {"lacks": "observation_space"}}, "gym.space-missing", {}),
    ],
)
def test_an_id_that_opens_nothing_is_one_sentence(settings, wrong, fields, tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    with refused(wrong, **fields) as found:
        opened(settings["id"], kwargs=settings.get("kwargs", {}))
    assert "\n" not in str(found.value)


# What an environment does wrong


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raises", "ZeroDivisionError: division by nothing (/"),
        ("exits", "SystemExit: 3 (/"),
        ("nan", "the observation 'state' contains NaN or infinity"),
        ("nan reward", "the reward is nan"),
        ("large reward", "the reward is 1e+300, too large for single precision"),
        ("shape", "the observation 'state' has shape (1,), but its space says (2,)"),
        ("words", "the observation 'state' has type <U1, which is not a number"),
        ("no reward", "the reward is None, not a number"),
        ("flag", "terminated is 'no', neither true nor false"),
        ("four", "step() must return (observation, reward, terminated, truncated, info)"),
    ],
)
def test_a_fault_is_told_with_its_environment_and_step(fault, words):
    suite = SuiteRef(Gymnasium(id="odd_envs:Naughty", kwargs={"fault": fault}))
    with VectorEnv(VectorSpec(suite, 2, 3), 2 if fault == "raises" else 0) as envs:
        envs.reset()
        with pytest.raises(EnvError) as found:
            stay(envs, 4)
    assert str(found.value).startswith("environment 0 (Naughty) failed: at step 3 of its episode with seed ")
    assert words in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_all_are_closed_in_mid_episode_and_one_that_fails_in_it_keeps_no_other(workers, tmp_path):
    note = tmp_path / "note"
    suite = SuiteRef(Gymnasium(id="odd_envs:Closer", kwargs={"note": str(note)}))
    with VectorEnv(VectorSpec(suite, 3, 3), workers) as envs:
        envs.reset()
        note.touch()
    assert note.read_text() == 3 * "closed\n"


# Success


def test_where_success_is_told_only_when_it_is_reached_an_evaluation_plays_on():
    """It goes by the return, which would be cut where the better ones succeed."""
    suite = SuiteRef(Gymnasium(id="odd_envs:SeldomTeller", horizon=8))
    found = evaluate(lambda obs, task: np.ones((len(task), 1), np.float32), suite, 3)
    assert (found.score, found.steps) == ("return", 3 * 8)
    assert found.steps_to_success == {}


@pytest.mark.parametrize(("env_id", "tells"), [("odd_envs:Teller", True), ("odd_envs:Line", False)])
def test_success_is_what_the_environment_tells_of_it(env_id, tells):
    suite = Suite(Gymnasium(id=env_id))
    assert suite.tells_success == tells
    env = suite.make(0)
    env.reset(0, 5)
    assert [env.step(np.zeros(1, np.float32)).success for _ in range(4)] == [False, False, tells, tells]


@pytest.mark.parametrize(("times", "told"), [(1, 0), (2.9, 0), (3.1, 1), (-3.1, 1)])
def test_observations_far_outside_their_space_are_told_once(times, told, caplog):
    suite = SuiteRef(Gymnasium(id="odd_envs:Outside", kwargs={"times": times}))
    with VectorEnv(VectorSpec(suite, 2, 0)) as envs:
        envs.reset()
        stay(envs, 40)
    assert [record.args[1] for record in caplog.records if record.name == "trainer.envs.group"] == ["state"] * told
