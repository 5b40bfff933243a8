"""How weights of other slots become own ones: the rule, what of a learner is mixed, and what keeps it out."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_adoption import made

pytest.importorskip("torch")

from train_point_mass import section

from anchorleg.job import Job
from trainer.algorithms.common.parts import copied
from trainer.sharing.copies import Copies, OtherLearner, read_taken
from trainer.sharing.journal import Mixed, MixedPeer, append
from trainer.sharing.segment import name_of
from trainer.state import State
from trainer.training.features.inflow import mixing
from trainer.training.features.inflow.mixing import (
    FALL,
    LOSS,
    RATE,
    Mixes,
    counted,
    is_harmless,
    mix_in,
    mixed,
    share_of,
)

pytestmark = pytest.mark.trainer

NUMBERS = st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6)


def nets(numbers, offset=10.0):
    """Weights of two nets and a temperature, which fit to each other whatever the numbers are."""
    tensor = torch.tensor(numbers, dtype=torch.float32) + offset
    return {
        "policy.a": tensor[:2].clone(),
        "log_temperature": tensor[2:3].clone(),
        "critics.b": tensor[3:].view(3, 1).clone(),
    }


def peers(*numbers, counts=1.0):
    return [(nets(one), counts) for one in numbers]


def are_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class TestTheRule:
    @given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
    def test_a_step_lies_on_the_way_and_is_no_longer_than_what_each_net_has_moved_itself(self, own, since, one, other):
        here, there = nets(own), peers(one, other)
        share = share_of(here, nets(since), there)
        assert 0 <= share <= RATE * 2 / 3
        after = mixed(here, there, share)
        assert are_equal(here, nets(own))
        for names in (("policy.a", "log_temperature"), ("critics.b",)):
            step, moved = (
                sum(float((a[name] - b[name]).double().square().sum()) for name in names) ** 0.5
                for a, b in ((after, here), (here, nets(since)))
            )
            assert step <= moved + 1e-4

    def test_who_counts_less_pulls_less_and_nobody_pulls_nobody(self):
        here, since = nets([0.0] * 6), nets([5.0] * 6)
        assert share_of(here, since, peers([1.0] * 6)) == pytest.approx(RATE / 2)
        assert share_of(here, since, peers([1.0] * 6, counts=0.5)) == pytest.approx(RATE / 3)
        assert share_of(here, since, []) == 0
        assert share_of(here, here, peers([1.0] * 6)) == 0  # it has not moved
        two = [(nets([0.0] * 6), 3.0), (nets([4.0] * 6), 1.0)]
        assert torch.allclose(mixed(here, two, 1.0)["policy.a"], torch.tensor([11.0, 11.0]))
        assert [counted(4000, its, 1000) for its in (4000, 9000, 1000, 999)] == [1.0, 1.0, 0.5, 0.0]

    def test_harm_is_a_larger_loss_or_a_lower_q_on_own_rows(self):
        before = (2.0, torch.tensor([0.0, 2.0]))  # a mean of 1, a deviation of 1
        assert is_harmless(before, (2.0 * LOSS - 1e-6, torch.tensor([0.96, 0.96])))
        for harm in (
            (2.0 * LOSS + 1e-3, torch.tensor([1.0])),
            (2.0, torch.tensor([1.0 - FALL - 1e-3])),
            (float("nan"), torch.tensor([1.0])),
            (2.0, torch.tensor([float("inf")])),
        ):
            assert not is_harmless(before, harm)


@pytest.mark.parametrize("name", ["mtsac", "sac", "td3"])
class TestALearner:
    def test_gives_all_that_it_learns_and_is_judged_without_a_number_being_changed_or_drawn(self, name):
        learner = made(name, 0)
        parts = {key.partition(".")[0] for key in learner.weights()}
        assert parts == {"policy", "critics", "targets"} | ({"target_actor"} if name == "td3" else {"log_temperature"})
        assert "policy.free" not in learner.weights()
        before = learner.state()
        assert learner.probe(40)[0] == learner.probe(40)[0] != learner.probe(41)[0]
        after = learner.state()
        assert are_equal(after.tensors, before.tensors)
        assert after.numbers == before.numbers

    def test_goes_on_from_what_is_written_into_its_weights(self, name):
        """As one that was loaded with it: no net has a second copy of them."""
        one, same, other = made(name, 0), made(name, 0), made(name, 1)
        mixing._put(one, copied(other.weights()))
        kept = {key: tensor for key, tensor in same.state().tensors.items() if key not in other.weights()}
        same.load(State({**kept, **copied(other.weights())}, same.state().numbers))
        assert torch.equal(one.update(), same.update())
        assert torch.equal(one.probe(1)[1], same.probe(1)[1])


EVERY = 10


@pytest.fixture
def slot(tmp_path):
    """A slot that stands at update 5, whose next mean is due at update 10: (its run, its mixes, what it journaled)."""
    job = Job.standalone(tmp_path / "run", 0)
    job.start_from(None)
    training = section(algorithm="sac", init_seed=7, group={"mix": True, "mix_every": EVERY})
    learner = made("sac", 0, updates=3, init_seed=7)
    state = SimpleNamespace(algorithm=learner, average=None, updates=5, step=50, mixed=0)
    journal, dropped = [], []
    mixes = Mixes(job, training, Copies(job), [], dropped.extend)

    def write(new):
        journal.extend(new)
        return True

    assert mixes.enter(state, write) is None  # from here on it is known how far it moves
    for _ in range(2):
        learner.update()
    return SimpleNamespace(
        state=state, mixes=mixes, journal=journal, write=write, learner=learner, job=job, dropped=dropped
    )


def other(slot=1, updates=10, seed=1, **changes):
    """Of another slot; `changes`: what becomes of a tensor, by its name."""
    weights = copied(made("sac", seed, updates=5, init_seed=7).weights())
    weights |= {name: change(weights[name]) for name, change in changes.items()}
    return OtherLearner(slot, 0, 100, updates, safetensors.torch.save(weights))


def due(slot, *found, updates=EVERY, monkeypatch=None):
    """`monkeypatch`: own rows speak against nothing."""
    if monkeypatch is not None:
        monkeypatch.setattr(mixing, "is_harmless", lambda *_: True)
    slot.mixes.found, slot.state.updates = list(found), updates
    before = copied(slot.learner.weights())
    entry = slot.mixes.enter(slot.state, slot.write)
    said = []
    slot.mixes.notices.tell(said.append)
    return entry, are_equal(before, slot.learner.weights()), said


class TestABarrier:
    def test_what_is_due_is_mixed_journaled_and_done_again_to_the_bit(self, slot, monkeypatch):
        again, before = made("sac", 0, updates=3, init_seed=7), slot.learner.state()
        again.load(before)
        found = [other(1), other(2, seed=2)]
        entry, is_same, said = due(slot, *found, monkeypatch=monkeypatch)
        assert not is_same
        assert said == ["the weights of slots 1 and 2 are mixed in from step 50 on"]
        assert slot.journal == [entry]
        assert [(one.slot, one.of, one.sha256) for one in entry.mix] == [
            (one.slot, 100, name_of(one.data)) for one in found
        ]
        assert (slot.state.mixed, slot.dropped) == (1, [])
        state = SimpleNamespace(algorithm=again, mixed=0)
        assert mix_in(state, entry, [one.data for one in found]) == ""
        after = slot.learner.state()
        assert are_equal(again.state().tensors, after.tensors)
        changed = {key for key in after.tensors if not torch.equal(after.tensors[key], before.tensors[key])}
        assert changed <= slot.learner.weights().keys()  # no moments, no streams
        assert after.numbers == before.numbers

    @pytest.mark.parametrize("updates", [6, 9])
    def test_before_it_is_due_it_waits(self, slot, updates, monkeypatch):
        entry, is_same, _ = due(slot, other(), updates=updates, monkeypatch=monkeypatch)
        assert (entry, is_same, len(slot.mixes.found)) == (None, True, 1)

    @pytest.mark.parametrize(
        ("changes", "is_said"),
        [
            ({"updates": -21}, False),  # too old
            ({"log_temperature": lambda its: its * torch.nan}, True),
            ({"log_temperature": lambda its: its.repeat(2)}, True),
            ({"log_temperature": lambda its: its.double()}, True),
        ],
    )
    def test_who_is_old_diverged_or_of_other_nets_changes_nothing_and_keeps_nobody_out(
        self, slot, changes, is_said, monkeypatch
    ):
        odd = other(**changes)
        entry, is_same, said = due(slot, odd, monkeypatch=monkeypatch)
        assert (entry, is_same, slot.journal) == (None, True, [])
        assert ["slot 1 has other nets" in line for line in said] == [True] * is_said
        assert slot.dropped == [name_of(odd.data)]
        slot.learner.update()
        entry, _, _ = due(slot, odd, other(2, updates=2 * EVERY), updates=2 * EVERY, monkeypatch=monkeypatch)
        assert [peer.slot for peer in entry.mix] == [2]

    def test_a_mean_that_own_rows_speak_against_is_undone(self, slot):
        """A lie that is finite and near: critics that call everything 1.8 worse than it is."""
        slot.mixes._since = {key: tensor + 1 for key, tensor in slot.mixes._since.items()}  # its step is not clipped
        biases = [name for name in slot.learner.weights() if name.startswith("critics.") and name.endswith("1.bias")]
        entry, is_same, said = due(slot, other(**dict.fromkeys(biases, lambda its: its - 1.8)))
        assert (entry, is_same, slot.journal) == (None, True, [])
        assert [words.partition(" was undone")[0] for words in said] == ["the mean with slot 1 at step 50"]

    def test_what_a_mean_or_an_adoption_moved_is_no_way_of_its_own(self, slot, monkeypatch):
        assert due(slot, other(), monkeypatch=monkeypatch)[0] is not None
        there = other(updates=2 * EVERY)
        assert due(slot, there, updates=2 * EVERY, monkeypatch=monkeypatch)[0] is None  # it has not learned since
        slot.learner.update()
        slot.mixes.begin_anew()
        there = other(updates=3 * EVERY)
        assert due(slot, there, updates=3 * EVERY, monkeypatch=monkeypatch)[0] is None


class TestLooking:
    def saved(self, slot, monkeypatch, **changes):
        """Slots 1 to 3 have a checkpoint each, as far as `find_learner` can tell."""
        learners = {1: other(1), 2: other(2), 3: other(3)} | changes.pop("learners", {})

        def find(_folder, number, _training, _wanted, known):
            one = learners[number]
            if isinstance(one, Exception):
                raise one
            return None if one is None or known == (one.attempt, one.step) else one

        monkeypatch.setattr(mixing, "find_learner", find)
        monkeypatch.setattr(mixing, "peers_of", lambda _: sorted(learners))
        slot.mixes.found = []
        slot.mixes.ask()
        slot.mixes.look()
        return [one.slot for one in slot.mixes.found]

    def test_what_is_found_is_copied_in_the_order_of_slots_and_each_checkpoint_once(self, slot, monkeypatch):
        assert self.saved(slot, monkeypatch) == [1, 2, 3]
        assert read_taken(slot.job, name_of(other(2).data)) == other(2).data
        newer = replace(other(2), step=200)
        assert self.saved(slot, monkeypatch, learners={1: OSError(5, "torn"), 2: newer}) == [2]
        said = []
        slot.mixes.notices.tell(said.append)
        assert said == ["the weights of slot 1 cannot be used now (torn); trying again"]

    def test_a_checkpoint_that_was_mixed_in_before_the_job_began_does_not_count_again(self, slot):
        gone = Mixed(20, (MixedPeer(1, 0, 100, "a" * 64, 1.0), MixedPeer(2, 0, 90, "b" * 64, 1.0)), 0.1)
        append(slot.job.attempt_dir, [gone])
        ahead = Mixed(60, (MixedPeer(1, 1, 200, "c" * 64, 1.0),), 0.1)
        training = section(algorithm="sac", init_seed=7, group={"mix": True})
        assert Mixes(slot.job, training, Copies(slot.job), [ahead], print)._known == {1: (1, 200), 2: (0, 90)}

    def test_it_begins_in_the_middle_of_an_interval_unless_something_waits(self, slot):
        for updates, is_idle in ((6, True), (12, True), (14, True), (15, False)):  # 5 was before the slot was there
            slot.state.updates = updates
            slot.mixes.enter(slot.state, slot.write)
            assert slot.mixes.is_idle is is_idle
        slot.mixes.look()
        slot.mixes.found = [other(1)]
        slot.state.updates = 25
        slot.mixes._at = 24
        slot.mixes.enter(slot.state, slot.write)
        assert slot.mixes.is_idle
