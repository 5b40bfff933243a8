from __future__ import annotations

import re
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch
from suites import act_deterministic, learner_of, state_of
from torch import nn

pytest.importorskip("metaworld")

from published import RUN, draft_of, nets_for, publish, spec_of, training_of
from refused import refused

from syncd import store
from trainer.config.network import Network
from trainer.config.section import TrainingSection, resolve
from trainer.envs.spaces import ArraySpec, Box, Spaces
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.sharing import policies
from trainer.sharing.policies import (
    IncompatiblePolicyError,
    Policy,
    actor_tensors,
    differences,
    golden_of,
    golden_rows,
    load,
    must_fit,
    policy_spec,
)

pytestmark = pytest.mark.trainer
SCALAR = {"shape": [], "dtype": "float32", "low": None, "high": None}


@pytest.fixture(scope="module")
def training():
    return training_of()


def some_observations(count=50):
    rng = np.random.default_rng(1)
    return state_of(rng.normal(0, 0.5, (count, 39)).astype(np.float32)), rng.integers(0, 2, count)


def test_a_policy_acts_as_the_learner_that_it_was_cut_from(training):
    learner = learner_of(training)
    policy = Policy(spec_of(training), nets_for(training, training.seed))
    obs, task = some_observations()
    assert np.array_equal(policy.act_deterministic(obs, task), act_deterministic(learner, obs, task))


def test_what_is_published_is_played_and_its_golden_actions_come_out(tmp_path, training):
    manifest = publish(tmp_path, training=training)
    policy = load(store.Shared(tmp_path).slot(RUN, 0), manifest)
    assert policy.check_golden(manifest.golden) <= 1e-6
    obs, task = some_observations()
    exact = Policy(spec_of(training), nets_for(training))
    assert 0 < np.abs(policy.act_deterministic(obs, task) - exact.act_deterministic(obs, task)).max() < 0.02  # bf16


def test_sampled_actions_explore_and_come_from_the_generator_alone(training):
    policy = Policy(spec_of(training), nets_for(training))
    obs, task = some_observations()
    first, second = (policy.act(obs, task, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert np.array_equal(first, policy.act(obs, task, torch.Generator().manual_seed(1)))
    assert np.abs(first - second).max() > 0.1
    assert np.abs(first).max() <= 1


class Levelled(nn.BatchNorm1d):
    """An encoder that looks at all rows of a batch while it is trained."""

    features = 3

    def __init__(self, spec, network, generator):
        super().__init__(self.features, device="meta" if generator is None else "cpu")


def test_a_policy_acts_alone_as_it_does_among_others_and_changes_nothing():
    network = Network(actor_hidden=(8,), encoders={"state": f"{__name__}:Levelled"})
    spec = PolicySpec(Spaces({"state": ArraySpec((3,))}, Box(2), ("t",), 10), network, "normal")
    tensors = actor_tensors(PolicyNet(spec, torch.Generator().manual_seed(0)))
    policy = Policy(spec, tensors)
    obs, task = golden_rows(spec.spaces, 1, 4)
    together = policy.act_deterministic(obs, task)
    for row in range(4):
        one = slice(row, row + 1)
        alone = policy.act_deterministic({"state": obs["state"][one]}, task[one])
        assert np.allclose(alone, together[one], atol=1e-6)
    after = actor_tensors(policy.net)
    assert all(np.array_equal(tensor, after[name]) for name, tensor in tensors.items())


def test_golden_actions_that_do_not_come_out_are_told_with_the_largest_deviation(tmp_path, training):
    def spoil(draft):
        action = tuple(tuple(value + 0.25 * (i == 3) for value in row) for i, row in enumerate(draft.golden.action))
        return draft.model_copy(update={"golden": draft.golden.model_copy(update={"action": action})})

    manifest = publish(tmp_path, training=training, change=spoil)
    with refused("policy.golden-mismatch") as caught:
        load(store.Shared(tmp_path).slot(RUN, 0), manifest)
    assert caught.value.fields["deviation"] == pytest.approx(0.25, abs=1e-3)


def test_golden_rows_of_unequal_length_are_refused(tmp_path, training):
    def shorten(draft):
        first, *others = draft.golden.action
        golden = draft.golden.model_copy(update={"action": (first[:-1], *others)})
        return draft.model_copy(update={"golden": golden})

    manifest = publish(tmp_path, training=training, change=shorten)
    with refused("policy.part-odd", what="golden"):
        load(store.Shared(tmp_path).slot(RUN, 0), manifest)


def test_golden_observations_fill_no_memory(training, monkeypatch):
    policy = Policy(spec_of(training), nets_for(training))
    many = golden_of(policy, 1, 1e-3)
    assert len(many.action) == policies.GOLDEN_ROWS
    monkeypatch.setattr(policies, "_MAX_NUMBERS", 39 * 4 - 1)
    few = golden_of(policy, 1, 1e-3)
    assert len(few.action) == 3
    assert policy.check_golden(few) <= 1e-6
    monkeypatch.setattr(policies, "golden_rows", lambda *_: pytest.fail("they are drawn"))
    with refused("policy.golden-rows", rows=8):
        policy.check_golden(many)
    monkeypatch.setattr(policies, "_MAX_NUMBERS", 38)
    assert policies._most_rows(policy.spec.spaces) == 1


def test_golden_observations_are_the_same_on_every_machine():
    spaces = Spaces(
        {"b": ArraySpec((2,), low=0.0, high=4.0), "a": ArraySpec((2, 2), "uint8", 0, 255)}, Box(1), ("x", "y"), 5
    )
    obs, task = golden_rows(spaces, 7, 3)
    assert task.tolist() == [0, 1, 0]
    assert obs["a"][0].tolist() == [[139, 74], [229, 241]]
    assert obs["b"][0].tolist() == pytest.approx([3.102743, 0.900829], abs=1e-6)
    assert obs["a"].dtype == np.uint8
    assert obs["b"].dtype == np.float32


def with_policy(draft, **changes):
    return draft.model_copy(update={"policy": draft.policy.model_copy(update=changes)})


def with_suite(draft, **changes):
    return draft.model_copy(update={"suite": draft.suite.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"distribution": "normal-ish"}, "distribution is 'normal-ish'"),
        ({"spaces": {}}, "policy"),
        ({"spaces": {"obs": [], "action": {"box": 4}, "tasks": ["a"], "horizon": 5}}, "policy"),
        ({"spaces": {"obs": {"state": SCALAR}, "action": {"box": 4}, "tasks": ["a"], "horizon": 5}}, "policy"),
        ({"network": {"actor_hidden": [0]}}, "policy"),
        (
            {"network": {"actor_hidden": [4], "encoders": {"state": "os:system"}}},
            "that no installed package provides",
        ),
        ({"network": {"actor_hidden": [4], "encoders": {"state": "mlp9"}}}, "there is no encoder"),
    ],
)
def test_a_policy_that_cannot_be_built_is_refused_and_its_field_named(training, changes, words):
    draft = with_policy(draft_of(training, nets_for(training)), **changes)
    with pytest.raises(IncompatiblePolicyError, match=words):
        Policy(policy_spec(draft), nets_for(training))


@pytest.mark.parametrize(
    "action", [{"box": 5}, {"box": 0}, {"box": 10**9}, {"discrete": 3}, {"sphere": 1}, {}], ids=str
)
def test_spaces_of_something_else_are_refused(training, action):
    draft = draft_of(training, nets_for(training))
    spaces = {**draft.policy.spaces, "action": action}
    with pytest.raises(IncompatiblePolicyError, match="polic"):
        must_fit(with_policy(draft, spaces=spaces))


@pytest.mark.parametrize("shapes", [([2**30] * 40,), ([2**23 + 1], [2**23])], ids=["one", "two together"])
def test_an_observation_of_more_numbers_than_can_be_counted_is_refused(training, shapes):
    draft = draft_of(training, nets_for(training))
    obs = {f"part {number}": {**SCALAR, "shape": shape} for number, shape in enumerate(shapes)}
    spaces = {**draft.policy.spaces, "obs": obs}
    with refused("policy.spaces-bad"):
        must_fit(with_policy(draft, spaces=spaces))


@pytest.mark.parametrize("change", [lambda t: t.pop("body.layers.0.bias"), lambda t: t.update(more=np.zeros(3))])
def test_tensors_that_the_net_does_not_have_are_named(training, change):
    tensors = nets_for(training)
    change(tensors)
    with refused("policy.tensor", tensor=re.compile(r"^(body\.layers\.0\.bias|more)$")):
        Policy(spec_of(training), tensors)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"name": "mars"}, "policy.suite-unknown"),
        ({"name": "antigravity:Suite"}, "policy.suite-unknown"),
        ({"version": "0"}, "policy.suite-version"),
        ({"seed": 2**32}, "policy.suite-seed"),
        ({"settings": {"name": "metaworld", "tasks": ["reach-v3"], "horizon": 501}}, "policy.suite-settings"),
        ({"settings": {"name": "metaworld", "tasks": ["juggle-v9"]}}, "policy.suite-settings"),
        ({"settings": {"name": "other"}}, "policy.suite-of-others"),
        ({"settings": {"name": "metaworld", "tasks": ["reach-v3"]}}, "policy.spaces-differ"),
        ({"packages": {"metaworld": "3.9.0"}}, "policy.package"),
        ({"packages": {"metaworld": "2.0"}}, "policy.package"),
        ({"packages": {}}, "policy.package"),
    ],
)
def test_another_suite_is_refused_and_its_field_named(training, changes, wrong):
    draft = draft_of(training, nets_for(training))
    with refused(wrong) as caught:
        must_fit(with_suite(draft, **changes))
    assert "install '" not in str(caught.value), "no command is made of what a manifest says"


def test_nothing_that_a_manifest_names_is_imported_but_what_is_installed_for_it(training):
    draft = with_suite(draft_of(training, nets_for(training)), name="this:Suite", settings={"name": "this:Suite"})
    with refused("policy.suite-unknown"):
        must_fit(draft)
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, r"^suite\.name: the suite 'broken' cannot be loaded"),
        ({"broken": "trainer.config.settings:EnvSettings"}, "made here: the suite 'broken' cannot be loaded"),
    ],
)
def test_an_installed_suite_that_cannot_be_loaded_is_refused(training, monkeypatch, settings, words):
    named = {"anchorleg.suites": {"broken": "no_such_module:Suite"}, "anchorleg.suites.settings": settings}
    points = {
        group: {name: EntryPoint(name, value, group) for name, value in each.items()} for group, each in named.items()
    }
    monkeypatch.setattr("trainer.config.find._points", lambda group, _path: points.get(group, {}))
    told = {"name": "broken", "tasks": ["a"], "horizon": 5}
    draft = with_suite(draft_of(training, nets_for(training)), name="broken", version="1", settings=told)
    with pytest.raises(IncompatiblePolicyError, match=words):
        must_fit(draft)


def test_a_package_that_cannot_be_is_not_installed(training):
    draft = draft_of(training, nets_for(training))
    assert "(here not installed)" in differences(with_suite(draft, packages={"": "1.0"}).suite)


def test_another_mujoco_is_worth_a_word_and_no_more(training):
    draft = draft_of(training, nets_for(training))
    assert differences(draft.suite) is None
    other = with_suite(draft, packages={**draft.suite.packages, "mujoco": "3.99.0"})
    must_fit(other)
    assert "mujoco 3.99.0 (here" in differences(other.suite)


@pytest.mark.parametrize(
    ("env", "here", "words"),
    [
        ({"id": "odd_envs:Line"}, {}, "suite.settings: id is 'odd_envs:Line': foreign modules are not imported"),
        ({"id": "Pendulum-v1"}, {"id": "Pendulum-v99"}, "its environments cannot be made here: env.id: there is no"),
        ({"id": "Pendulum-v1"}, {"kwargs": {"file": "/etc"}}, "suite.settings: kwargs.file is neither"),
    ],
)
def test_environments_that_a_manifest_must_not_open_or_cannot_are_named(tmp_path, env, here, words):
    section = {"preset": "tiny", "env": {"name": "gymnasium", **env}, "actor_hidden": [16]}
    manifest = publish(tmp_path, training=resolve(TrainingSection.model_validate(section)))
    told = manifest.suite.model_copy(update={"settings": {**manifest.suite.settings, **here}})
    with pytest.raises(IncompatiblePolicyError) as found:
        must_fit(manifest.model_copy(update={"suite": told}))
    assert words in str(found.value)


@pytest.mark.parametrize("key", ["body.gear", "type", "values", "training", "a name", "state"])
def test_an_observation_may_be_called_anything(key):
    spec = PolicySpec(Spaces({key: ArraySpec((3,))}, Box(2), ("t",), 10), Network(), "normal", True)
    net = PolicyNet(spec, torch.Generator().manual_seed(0))
    assert key in net.scales
    assert "other" not in net.scales
    other = Policy(spec, {name: tensor.numpy() for name, tensor in net.state_dict().items()})
    obs, task = golden_rows(spec.spaces, 1, 4)
    assert np.isfinite(other.act_deterministic(obs, task)).all()


def test_that_memory_is_short_now_is_no_fault_of_a_policy(tmp_path, training, monkeypatch):
    def short(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    manifest = publish(tmp_path, training=training)
    monkeypatch.setattr(policies, "Policy", short)
    with pytest.raises(OSError, match="out of memory: CUDA out of memory"):
        load(store.Shared(tmp_path).slot(RUN, 0), manifest)
