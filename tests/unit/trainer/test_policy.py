from __future__ import annotations

import numpy as np
import pytest
import torch
from suites import learner_of, state_of

pytest.importorskip("metaworld")

from published import RUN, draft_of, nets_for, publish, training_of

from syncd import store
from trainer.algorithms.mtsac import learner as sac
from trainer.sharing.policies import (
    GoldenMismatchError,
    IncompatiblePolicyError,
    Policy,
    architecture_of,
    differences,
    load,
    must_fit,
)

pytestmark = pytest.mark.trainer


@pytest.fixture(scope="module")
def training():
    return training_of()


def some_observations(count=50):
    rng = np.random.default_rng(1)
    return state_of(rng.normal(0, 0.5, (count, 39)).astype(np.float32)), rng.integers(0, 2, count)


def test_a_policy_acts_as_the_learner_that_it_was_cut_from(training):
    learner = learner_of(training)
    policy = Policy(architecture_of(training), nets_for(training, training.seed))
    obs, task = some_observations()
    assert np.array_equal(policy.act_greedily(obs, task), sac.act_greedily(learner, obs, task))


def test_what_is_published_is_played_and_its_golden_actions_come_out(tmp_path, training):
    manifest = publish(tmp_path, training=training)
    policy = load(store.Shared(tmp_path).slot(RUN, 0), manifest)
    assert policy.check_golden(manifest.golden) <= 1e-6
    obs, task = some_observations()
    exact = Policy(architecture_of(training), nets_for(training))
    assert 0 < np.abs(policy.act_greedily(obs, task) - exact.act_greedily(obs, task)).max() < 0.02  # bf16


def test_sampled_actions_explore_and_come_from_the_generator_alone(training):
    policy = Policy(architecture_of(training), nets_for(training))
    obs, task = some_observations()
    first, second = (policy.act(obs, task, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert np.array_equal(first, policy.act(obs, task, torch.Generator().manual_seed(1)))
    assert np.abs(first - second).max() > 0.1
    assert np.abs(first).max() <= 1


def test_golden_actions_that_do_not_come_out_are_told_with_the_largest_deviation(tmp_path, training):
    def spoil(draft):
        action = tuple(tuple(value + 0.25 * (i == 3) for value in row) for i, row in enumerate(draft.golden.action))
        return draft.model_copy(update={"golden": draft.golden.model_copy(update={"action": action})})

    manifest = publish(tmp_path, training=training, change=spoil)
    with pytest.raises(GoldenMismatchError, match=r"0\.25 off") as caught:
        load(store.Shared(tmp_path).slot(RUN, 0), manifest)
    assert caught.value.deviation == pytest.approx(0.25, abs=1e-3)


def test_golden_without_observations_checks_nothing_and_is_refused(training):
    golden = store.Golden(obs=(), task=(), action=(), tolerance=1e-3)
    with pytest.raises(IncompatiblePolicyError, match="golden"):
        Policy(architecture_of(training), nets_for(training)).check_golden(golden)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "transformer"),
        ("obs_dim", 40),
        ("act_dim", 5),
        ("tasks", ("reach-v3", "juggle-v9")),
        ("hidden", (4, 4)),
        ("hidden", (30_000,)),
    ],
)
def test_another_architecture_is_refused_and_its_field_named(training, field, value):
    architecture = architecture_of(training).model_copy(update={field: value})
    with pytest.raises(IncompatiblePolicyError, match=rf"architecture\.{field}"):
        Policy(architecture, nets_for(training))


@pytest.mark.parametrize("change", [lambda t: t.pop("body.layers.0.bias"), lambda t: t.update(more=np.zeros(3))])
def test_tensors_that_the_architecture_does_not_have_are_named(training, change):
    tensors = nets_for(training)
    change(tensors)
    with pytest.raises(IncompatiblePolicyError, match=r"tensor (body\.layers\.0\.bias|more) is"):
        Policy(architecture_of(training), tensors)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reward", "v1"),
        ("horizon", 501),
        ("metaworld", "3.9.0"),
        ("metaworld", "2.0"),
        ("goal_seed", -1),
        ("goal_seed", 2**32),
    ],
)
def test_another_spec_is_refused_and_its_field_named(training, field, value):
    draft = draft_of(training, nets_for(training))
    with pytest.raises(IncompatiblePolicyError, match=rf"spec\.{field}") as caught:
        must_fit(draft.model_copy(update={"spec": draft.spec.model_copy(update={field: value})}))
    assert "install '" not in str(caught.value), "no command is made of what a manifest says"


def test_another_mujoco_is_worth_a_word_and_no_more(training):
    draft = draft_of(training, nets_for(training))
    assert differences(draft.spec) is None
    spec = draft.spec.model_copy(update={"mujoco": "3.99.0"})
    must_fit(draft.model_copy(update={"spec": spec}))
    assert "mujoco 3.99.0 (here" in differences(spec)
