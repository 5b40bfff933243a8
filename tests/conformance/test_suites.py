"""What every suite must keep, run over all that there are: a new file is tested by being there."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from needs import need_package
from safetensors.numpy import load, save
from vector_bytes import as_bytes, through_files, to_bytes

pytest.importorskip("metaworld")

from trainer.config.find import SUITES, names, settings_of
from trainer.envs.spaces import Box, Spaces
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.evaluation.protocol import evaluate
from trainer.state import State

pytestmark = pytest.mark.trainer
#: Settings that keep a test short; a suite that is not named here has defaults.
SETTINGS = {
    "arm": {"horizon": 12, "randomize": True},
    "metaworld": {"tasks": ("reach-v3", "push-v3", "door-unlock-v3"), "horizon": 12},
    "gymnasium": {"id": "CartPole-v1"},
}
#: One suite of many kinds: each of its environments has its state elsewhere. `odd_envs` lies in tests/support.
IDS = (
    {"id": "Pendulum-v1", "horizon": 13},
    {"id": "Hopper-v5"},
    {"id": "ALE/Alien-v5", "horizon": 40},
    {"id": "Taxi-v4", "horizon": 15},
    {"id": "Blackjack-v1"},
    {"id": "odd_envs:Cameras", "horizon": 9},
    {"id": "odd_envs:Drawers-v0"},
    {"id": "odd_envs:Keeper", "horizon": 11},
    {"id": "odd_envs:Handheld", "horizon": 11},
    {"id": "odd_envs:Teller", "horizon": 11, "observation": "cameras", "frame_stack": 3, "critic_sees": "state"},
    {"id": "odd_envs:Keeper", "horizon": 11, "observation": "clips", "frame_stack": 2, "image_size": 20},
    {"id": "Hopper-v5", "horizon": 9, "observation": "both", "image_size": 32, "kwargs": {"width": 96, "height": 96}},
    {"id": "ALE/Alien-v5", "horizon": 40, "kwargs": {"obs_type": "grayscale"}, "image_size": 84, "frame_stack": 4},
)
#: Policies that see: by MuJoCo's cameras, stacked, over time, with other light, with critics that see more.
SEEN = (
    {"name": "arm", "observation": "cameras", "frame_stack": 3, "image_size": 32, "horizon": 12},
    {"name": "arm", "observation": "both", "critic_sees": "state", "randomize_view": True, "randomize": True,
     "cameras": ("side",), "horizon": 12},
    {"name": "arm", "observation": "clips", "frame_stack": 3, "frame_stride": 2, "cameras": ("top", "front"),
     "image_size": 32, "horizon": 12},
    {"name": "metaworld", "tasks": ("reach-v3",), "observation": "both", "image_size": 32, "frame_stack": 2,
     "critic_sees": "state", "horizon": 12},
    {"name": "metaworld", "tasks": ("push-v3", "door-open-v3"), "observation": "clips", "frame_stack": 2,
     "image_size": 32, "cameras": ("corner2", "gripperPOV"), "randomize_view": True, "horizon": 12},
)  # fmt: skip
ALL = [
    *({"name": name, **SETTINGS.get(name, {})} for name in names(SUITES)),
    {"name": "anchorleg_toys.points:Points"},
    *({"name": "gymnasium", **settings} for settings in IDS),
    *SEEN,
]


def called(settings):
    """How a case is called."""
    seen = settings.get("observation", "")
    return " ".join(filter(None, [settings.get("id", settings["name"]), seen])).replace(" ", "-")


@pytest.fixture(params=ALL, ids=called)
def ref(request):
    if request.param.get("id", "").startswith("ALE/"):
        need_package("ale_py")
    if request.param.get("observation") in {"cameras", "both", "clips"}:
        request.getfixturevalue("eyes_here")
    return SuiteRef(settings_of(SUITES, request.param["name"]).model_validate(request.param), seed=7)


@pytest.fixture
def suite(ref):
    return ref.open()


def actions_of(spaces, count, seed=0):
    rng = np.random.default_rng(seed)
    if isinstance(spaces.action, Box):
        return rng.uniform(-1, 1, (count, spaces.action.size)).astype(np.float32)
    return rng.integers(0, spaces.action.n, count)


def told(outcome):
    return to_bytes(dict(outcome.obs)), float(outcome.reward), outcome.terminated, outcome.truncated, outcome.success


def acted(env, actions):
    """What `actions` give, to the end of the episode at most."""
    seen = []
    for action in actions:
        outcome = env.step(action)
        seen.append(told(outcome))
        if outcome.terminated or outcome.truncated:
            break
    return seen


def start_of(suite):
    return {"start": 0 if suite.starts is None else suite.starts - 1, "seed": 2**32 - 1}


def test_its_spaces_go_through_json_and_name_themselves(suite):
    again = Spaces.from_json(json.loads(json.dumps(suite.spaces.as_json(), allow_nan=False)))
    assert again == suite.spaces
    assert again.digest == suite.spaces.digest
    assert len(set(suite.spaces.tasks)) == len(suite.spaces.tasks)
    assert suite.tells_success in {True, False}


def test_an_evaluation_plays_the_same_episodes_each_time_and_others_for_another_seed(ref):
    def played(seed):
        rng = np.random.default_rng(0)

        def act(obs, task):
            return actions_of(ref.open().spaces, len(task), int(rng.integers(2**31)))

        return evaluate(act, replace(ref, seed=seed), 2)

    one, same, other = played(7), played(7), played(8)
    tasks = ref.open().spaces.tasks
    assert set(one.success) == set(tasks)
    assert one.returns == same.returns
    assert one.returns != other.returns


def test_another_process_opens_the_same(ref, suite):
    again = SuiteRef.from_json(json.loads(json.dumps(ref.as_json()))).open()
    assert (again.spaces, again.describe(), again.starts) == (suite.spaces, suite.describe(), suite.starts)


def test_what_it_gives_is_what_its_spaces_say(suite):
    for task in range(len(suite.spaces.tasks)):
        env = suite.make(task)
        obs = env.reset(**start_of(suite))
        outcome = env.step(actions_of(suite.spaces, 1)[0])
        for seen in (obs, outcome.obs):
            assert set(seen) == set(suite.spaces.obs)
            for key, spec in suite.spaces.obs.items():
                assert (seen[key].shape, seen[key].dtype) == (spec.frame, np.dtype(spec.dtype))
                assert spec.low <= seen[key].min()
                assert seen[key].max() <= spec.high
        env.close()


def test_an_episode_depends_on_task_start_and_seed_alone(suite):
    used, fresh = suite.make(0), suite.make(0)
    used.reset(0, 1)
    acted(used, actions_of(suite.spaces, 8, seed=1))
    assert to_bytes(dict(used.reset(**start_of(suite)))) == to_bytes(dict(fresh.reset(**start_of(suite))))
    actions = actions_of(suite.spaces, 5)
    assert acted(used, actions) == acted(fresh, actions)


def test_a_state_goes_through_files_into_another_instance_in_mid_episode(suite):
    last = len(suite.spaces.tasks) - 1
    one, other = suite.make(last), suite.make(last)
    one.reset(**start_of(suite))
    other.reset(0, 3)
    for number, action in enumerate(actions_of(suite.spaces, 5, seed=2)):
        outcome = one.step(action)
        if outcome.terminated or outcome.truncated:
            one.reset(**{**start_of(suite), "seed": number})
    state = one.snapshot()
    kept = {name: array.tobytes() for name, array in state.tensors.items()}
    other.restore(State(load(save(dict(state.tensors))), json.loads(json.dumps(state.numbers, allow_nan=False))))
    actions = actions_of(suite.spaces, 5, seed=3)
    assert acted(one, actions) == acted(other, actions)
    assert {name: array.tobytes() for name, array in state.tensors.items()} == kept  # it owns its memory


def played(ref, workers, stepper, interrupted_at=None):
    """The bytes of 30 steps of five environments; all are put into new ones after so many."""
    spec, seen, envs = VectorSpec(ref, 5, 11), [], None
    for step in range(30):
        if envs is None or step == interrupted_at:
            state = None if envs is None else through_files(envs.snapshot())
            if envs is not None:
                envs.close()
            envs = VectorEnv(spec, workers, stepper)
            observed = envs.reset() if state is None else envs.restore(state)
            if state is None:
                seen.append(as_bytes(observed))
        seen.append(as_bytes(envs.step(actions_of(envs.spaces, 5, seed=step))))
    envs.close()
    return seen


@pytest.mark.long
def test_workers_steppers_and_interruptions_change_no_bit(ref):
    plain = played(ref, 0, "python")
    assert played(ref, 2, "python", interrupted_at=17) == plain
    assert played(ref, 0, "auto", interrupted_at=13) == plain


def test_an_episode_that_ends_was_either_over_or_cut(ref):
    with VectorEnv(VectorSpec(ref, 5, 11)) as envs:
        envs.reset()
        ages = np.zeros(5, np.int64)
        for number in range(3 * envs.spaces.horizon if envs.spaces.horizon < 50 else 60):
            step = envs.step(actions_of(envs.spaces, 5, seed=number))
            ages += 1
            assert not (step.terminated & step.truncated).any()
            assert (step.finished == (step.terminated | step.truncated)).all()
            assert (ages[step.finished] == step.episode_length[step.finished]).all()
            assert (ages <= envs.spaces.horizon).all()
            ages[step.finished] = 0
