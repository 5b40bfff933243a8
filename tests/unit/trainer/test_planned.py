"""Updates by the engine against the same by torch, which the algorithms' own tests compare to the textbook."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import is_missing

pytest.importorskip("torch")

import torch
from refused import refused

from trainer.algorithms.base import Context
from trainer.algorithms.common.compiled import choose_engine
from trainer.algorithms.common.cuda_graph import ENGINE, GRAPH, KERNELS
from trainer.algorithms.common.sharding import Sample
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.find import ALGORITHMS, find
from trainer.config.section import TrainingSection, resolve
from trainer.envs.spaces import STATE, ArraySpec, Box, Discrete, Spaces
from trainer.machine.building import NoLibraryError, UnreadLibraryError
from trainer.nets.engine import library

try:
    library.load()
except NoLibraryError as error:
    is_missing(str(error))

pytestmark = pytest.mark.trainer
SPACES = {
    "box": Spaces({STATE: ArraySpec((5,))}, Box(3), ("a", "b"), 10),
    "discrete": Spaces({STATE: ArraySpec((5,))}, Discrete(4), ("a", "b"), 10),
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def a_training(name, network=None, **more):
    network = {"actor_hidden": (8, 7), "critic_hidden": (9,), **(network or {})}
    section = TrainingSection(
        env="anchorleg_toys.points:Points", algorithm={"name": name, **more}, num_envs=2, network=network
    )
    return resolve(section)


def a_batch(spaces, rng, rows):
    obs, next_obs = rng.standard_normal((2, rows, 5)).astype(np.float32)
    numbers = rng.uniform(-1, 1, (rows, 3)).astype(np.float32)
    action = numbers if isinstance(spaces.action, Box) else rng.integers(0, spaces.action.n, rows)
    reward, ended = rng.standard_normal(rows).astype(np.float32), (rng.random(rows) < 0.2).astype(np.float32)
    return Batch({STATE: obs}, action, reward, {STATE: next_obs}, ended, rng.integers(0, 2, rows))


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["sac", "td3"]), discrete=st.booleans(), tanh=st.booleans(), clipped=st.booleans(),
    rows=st.integers(3, 70), actor=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    critic=st.lists(st.integers(1, 40), min_size=1, max_size=3), seed=st.integers(0, 1000),
)  # fmt: skip
def test_both_ways_come_to_the_same(name, discrete, tanh, clipped, rows, actor, critic, seed):
    """Steps are tiny: the smallest gradient makes a whole one, whose sign would be chance."""
    spaces = SPACES["discrete" if discrete and name == "sac" else "box"]
    network = {"actor_hidden": actor, "critic_hidden": critic, "activation": "tanh" if tanh else "relu"}
    more = {"batch_size": rows, "learning_rate": 1e-6, "grad_clip": 0.05 if clipped else 0.0}
    training, found = a_training(name, network, **more), []
    for way in (KERNELS, ENGINE):
        algorithm, rng = (
            find(ALGORITHMS, name)(
                Context(training, spaces, 2, torch.device("cpu"), Experience(training, spaces), way)
            ),
            np.random.default_rng(seed),
        )
        batches = [a_batch(spaces, rng, rows) for _ in range(4)]
        measured = [algorithm.learn(Sample(batch, algorithm.draw(batch, algorithm.noise))) for batch in batches]
        found.append({**algorithm.state().tensors, "measured": torch.stack(measured)})
    one, other = found
    assert one.keys() == other.keys()
    for at in one:
        torch.testing.assert_close(one[at], other[at], rtol=2e-5, atol=5e-6, msg=lambda why, at=at: f"{at}: {why}")


def test_a_state_that_is_put_back_goes_on_with_its_own_moments():
    training, spaces = a_training("sac", batch_size=12), SPACES["box"]
    context = Context(training, spaces, 2, torch.device("cpu"), Experience(training, spaces), ENGINE)
    algorithm, again = (find(ALGORITHMS, "sac")(context) for _ in range(2))
    rng = np.random.default_rng(0)

    def learn(learner, batch):
        return learner.learn(Sample(batch, learner.draw(batch, learner.noise)))

    for batch in (a_batch(spaces, rng, 12) for _ in range(6)):
        learn(again, a_batch(spaces, rng, 12))
        again.load(algorithm.state())
        assert torch.equal(learn(algorithm, batch), learn(again, batch))
    one, other = algorithm.state().tensors, again.state().tensors
    assert all(torch.equal(one[name], other[name]) for name in one)


class TestChoice:
    def without(self, recorded):
        def loads():
            raise NoLibraryError("library.compiler-not-run", compiler="cc", why="gone")

        return choose_engine(a_training("ppo"), recorded, is_plain=True, loads=loads)

    def test_a_run_of_plain_nets_is_begun_by_the_engine_and_goes_on_so(self):
        assert choose_engine(a_training("ppo"), None, is_plain=True) == (ENGINE, None)
        assert choose_engine(a_training("ppo"), ENGINE, is_plain=True) == (ENGINE, None)

    def test_not_where_nets_are_not_plain_or_torch_shares_the_work(self):
        assert choose_engine(a_training("ppo"), None, is_plain=False) == (KERNELS, None)
        assert choose_engine(a_training("ppo").changed(threads=2), None, is_plain=True) == (KERNELS, None)

    @pytest.mark.parametrize("recorded", [KERNELS, GRAPH])
    def test_a_run_that_was_begun_otherwise_keeps_its_numbers(self, recorded):
        assert choose_engine(a_training("ppo"), recorded, is_plain=True) == (KERNELS, None)

    def test_without_a_library_a_run_is_begun_without_and_told(self):
        way, sentence = self.without(None)
        assert way == KERNELS
        assert "'cc' cannot be run" in sentence

    def test_without_a_library_a_run_of_one_is_refused(self):
        with refused("library.updates-gone"):
            self.without(ENGINE)

    def test_where_it_is_not_known_whether_there_is_one_nothing_is_decided(self):
        def loads():
            raise UnreadLibraryError("library.folder-unread", folder="f", why="stale")

        with refused("library.updates-unread"):
            choose_engine(a_training("ppo"), None, is_plain=True, loads=loads)
