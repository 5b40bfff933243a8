"""Updates in C against those of torch: the same formulas, over shapes, settings and what is not finite."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from daemons import PATIENCE_S
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import is_missing
from suites import learner_of, state_of

pytest.importorskip("torch")

import torch
from refused import refused

from trainer.algorithms.common.cuda_graph import GRAPH, KERNELS, NATIVE
from trainer.algorithms.common.multitask import inputs_of
from trainer.algorithms.common.native import library
from trainer.algorithms.common.native.library import ThreadPair
from trainer.algorithms.common.native.update import NativeUpdates
from trainer.algorithms.common.sharding import Sample
from trainer.algorithms.mtsac import MTSAC
from trainer.buffers.rows import Batch
from trainer.config.section import TrainingSection, resolve
from trainer.machine import products
from trainer.machine.building import NoLibraryError, find_or_build
from trainer.nets import distributions

try:
    library.load()
except NoLibraryError as error:
    is_missing(str(error))

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3", "door-open-v3")
KINDS = {
    "plain": {},
    "decayed": {"weight_decay": 0.1, "adam_eps": 1e-4},
    "clipped": {"grad_clip": 0.01},
    "heads": {"critic_net": "heads", "grad_clip": 1.0},
    "one temperature": {"shared_temperature": True},
}


def a_training(**fields):
    values = {"tasks": TASKS, "actor_hidden": (16,), "critic_hidden": (16, 24), "learning_rate": 1e-2, **fields}
    return resolve(TrainingSection(preset="debug", **values))


def a_batch(seed=0, n=12):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.standard_normal((2, n, 39), np.float32)
    action, reward = rng.uniform(-1, 1, (n, 4)).astype(np.float32), rng.random(n, np.float32)
    ended = (rng.random(n) < 0.2).astype(np.float32)
    return Batch(state_of(obs), action, reward, state_of(next_obs), ended, rng.integers(0, 3, n))


def read(learner, batch):
    return inputs_of(Sample(batch, learner.draw(batch, learner.noise)), learner.device)


def both(training, batches):
    """(metrics, tensors) after updates of the same batches by torch and natively."""
    found = []
    for way in (lambda learner: learner.update_of, lambda each: NativeUpdates(each).learn):
        learner = learner_of(training)
        learn = way(learner)
        measured = torch.stack([learn(read(learner, batch)) for batch in batches])
        found.append((measured, learner.state().tensors))
    return found


def assert_alike(found, atol):
    (measured, ours), (other, theirs) = found
    torch.testing.assert_close(measured, other, rtol=1e-5, atol=1e-5)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(
            ours[name], theirs[name], rtol=1e-5, atol=atol, msg=lambda why, at=name: f"{at}: {why}"
        )


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 70),
    actor=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    critic=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    heads=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_gradients_of_any_shape_are_those_of_torch(rows, actor, critic, heads, seed):
    """Moments show gradients; weights do not, for the tiniest gradient makes a whole step: so steps are tiny."""
    training = a_training(
        actor_hidden=tuple(actor), critic_hidden=tuple(critic), critic_net="heads" if heads else "mlp", seed=seed,
        learning_rate=1e-6,
    )  # fmt: skip
    assert_alike(both(training, [a_batch(seed, rows)]), 2e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 8.0, 1e4])
def test_actions_and_their_density_are_exact_from_tiny_to_saturated(scale):
    rng, rows = np.random.default_rng(0), 130
    outputs, noise = (torch.from_numpy(rng.standard_normal((rows, n), np.float32)) for n in (8, 4))
    outputs, bias = outputs * scale, torch.from_numpy(rng.standard_normal(8, np.float32)) * scale
    mean, log_std = distributions.gaussian(outputs.double() + bias.double())
    expected = distributions.sample(mean, log_std, noise.double())
    action, step, within = torch.zeros(3, rows, 4)
    log_prob = torch.zeros(rows)
    places = [tensor.data_ptr() for tensor in (outputs, bias, noise, action)]
    library.load().draw_actions(rows, 4, *places, 4, log_prob.data_ptr(), step.data_ptr(), within.data_ptr())
    for found, right in zip((action, log_prob), expected, strict=True):
        torch.testing.assert_close(found, right.float(), rtol=2e-7, atol=1e-30)
    assert within.tolist() == (log_std == (outputs.double() + bias.double())[:, 4:]).float().tolist()
    assert within.mean() < 1 or scale < 8


@pytest.mark.parametrize("field", ["reward", "action", "obs"])
def test_what_is_not_a_number_is_not_hidden(field):
    learner = learner_of(a_training())
    inputs = read(learner, a_batch())
    spoilt = getattr(inputs, field).clone()
    spoilt[3] = torch.nan
    assert NativeUpdates(learner).learn(replace(inputs, **{field: spoilt})).isnan().any()


@pytest.mark.parametrize("critic", [0, 1])
def test_a_critic_that_is_not_a_number_is_seen_by_all(critic):
    found = []
    for way in (MTSAC.update_of, lambda learner, inputs: NativeUpdates(learner).learn(inputs)):
        learner = learner_of(a_training())
        with torch.no_grad():
            next(learner.critics[critic].parameters()).fill_(torch.nan)
        measured = way(learner, read(learner, a_batch()))
        nets = learner.policy, *learner.critics
        found.append([measured.isnan().tolist(), *(bool(next(net.parameters()).isnan().any()) for net in nets)])
    assert found[0] == found[1]
    assert found[0][1], "the actor climbs both"


@pytest.mark.parametrize(
    ("change", "is_refused"), [(lambda x: x.double(), True), (lambda x: x.t().contiguous().t(), False)]
)
def test_numbers_are_read_as_they_lie_or_refused(change, is_refused):
    learner, same = learner_of(a_training()), learner_of(a_training())
    inputs = read(learner, a_batch())
    if is_refused:
        with pytest.raises(TypeError, match=r"obs is torch.float64"):
            NativeUpdates(learner).learn(replace(inputs, obs=change(inputs.obs)))
    else:
        found = NativeUpdates(learner).learn(replace(inputs, obs=change(inputs.obs)))
        assert torch.equal(found, NativeUpdates(same).learn(inputs))


def test_batches_of_another_size_are_learned_from_as_well():
    assert_alike(both(a_training(), [a_batch(0, 12), a_batch(1, 5), a_batch(2, 12)]), 1e-5)


def test_a_learner_that_was_saved_goes_on_to_the_same_bits():
    training = a_training()
    whole, first, second = (learner_of(training) for _ in range(3))
    learn = NativeUpdates(whole).learn
    expected = [learn(read(whole, a_batch(seed))) for seed in range(5)]
    learn = NativeUpdates(first).learn
    found = [learn(read(first, a_batch(seed))) for seed in range(2)]
    second.load(first.state())
    learn = NativeUpdates(second).learn
    found += [learn(read(second, a_batch(seed))) for seed in range(2, 5)]
    assert torch.equal(torch.stack(found), torch.stack(expected))
    kept = whole.state().tensors
    assert all(torch.equal(tensor, kept[name]) for name, tensor in second.state().tensors.items())


def test_bits_do_not_depend_on_how_the_compiler_goes_about_it(tmp_path, monkeypatch):
    found = []
    for flags in (library.FLAGS, ("-O0", *library.FLAGS[1:])):
        built = find_or_build(replace(library.RECIPE, flags=flags), tmp_path / flags[0])
        monkeypatch.setattr("trainer.algorithms.common.native.update.load", lambda built=built: library.bind(built))
        learner = learner_of(a_training(grad_clip=1.0))
        learn = NativeUpdates(learner).learn
        found.append([*(learn(read(learner, a_batch(n, 77))) for n in range(3)), *learner.state().tensors.values()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_every_function_is_called_with_as_many_arguments_as_it_has():
    """ctypes takes more than were declared, as whatever they look like."""
    source = (library.SOURCES / "kernels.c").read_text()
    public = re.findall(r"^(?:WIDE )?(?:void|double|int64_t) (\w+)\(([^)]*)\)", source, re.MULTILINE)
    assert {name: len(words.split(",")) for name, words in public} == {
        name: len(arguments) for name, arguments in library._ARGUMENTS.items()
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 77])
def test_two_threads_leave_the_bits_of_one(kind, rows):
    assert_alike_by_threads(a_training(**KINDS[kind]), rows, 20)


@pytest.mark.parametrize("route", [products.PLAIN, products.ONEDNN])
def test_two_threads_leave_the_bits_of_one_where_products_are_large(route):
    used = torch.get_num_threads()
    torch.set_num_threads(1)
    products.use(route)
    try:
        assert_alike_by_threads(a_training(actor_hidden=(256, 256), critic_hidden=(256, 256)), 512, 3)
    finally:
        products.use(products.PLAIN)
        torch.set_num_threads(used)


def assert_alike_by_threads(training, rows, updates):
    found = []
    for threads in (1, 2):
        learner = learner_of(training)
        learn = NativeUpdates(learner, ThreadPair(threads)).learn
        measured = [learn(read(learner, a_batch(seed, rows))) for seed in range(updates)]
        found.append([*measured, *learner.state().tensors.values()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


class TestThreadPair:
    def test_both_are_done_at_the_same_time(self):
        meet = threading.Barrier(2, timeout=PATIENCE_S)
        ThreadPair(2).both(meet.wait, meet.wait)

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("failing", [0, 1])
    def test_an_error_of_either_is_raised(self, threads, failing):
        def fail():
            raise ZeroDivisionError

        things = [lambda: None, lambda: None]
        things[failing] = fail
        pair = ThreadPair(threads)
        with pytest.raises(ZeroDivisionError):
            pair.both(*things)
        pair.both(*[lambda: None] * 2)


class TestChoice:
    @pytest.fixture
    def no_library(self, monkeypatch):
        def load():
            raise NoLibraryError("library.compiler-not-run", compiler="cc", why="gone")

        monkeypatch.setattr(library, "load", load)

    def test_a_run_is_begun_natively_and_goes_on_so(self):
        assert library.choose_native(a_training(), None) == (NATIVE, None)
        assert library.choose_native(a_training(threads=2), NATIVE) == (NATIVE, None)

    @pytest.mark.parametrize(
        "fields", [{"threads": 2}, {"critic_net": "residual", "critic_hidden": (16, 16)}], ids=["threads", "residual"]
    )
    def test_not_where_torch_shares_the_work_or_critics_are_not_plain(self, fields):
        assert library.choose_native(a_training(**fields), None) == (KERNELS, None)

    @pytest.mark.parametrize("recorded", [KERNELS, GRAPH])
    def test_a_run_that_was_begun_otherwise_keeps_its_numbers(self, recorded):
        assert library.choose_native(a_training(), recorded) == (KERNELS, None)

    def test_without_a_library_a_run_is_begun_without_and_told(self, no_library):
        way, sentence = library.choose_native(a_training(), None)
        assert way == KERNELS
        assert "'cc' cannot be run" in sentence

    def test_without_a_library_a_run_of_one_is_refused(self, no_library):
        with refused("library.updates-gone"):
            library.choose_native(a_training(), NATIVE)
