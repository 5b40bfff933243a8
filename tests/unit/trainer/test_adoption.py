"""When a slot takes another's learner over, whose, and what of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from suites import FIELDS, SPACES

pytest.importorskip("torch")

from refused import refused
from train_point_mass import section

from anchorleg.job import CheckpointRef, Job
from trainer.algorithms.base import Context
from trainer.algorithms.common.adoption import UnfitLearnerError, adopt
from trainer.buffers.experience import Experience
from trainer.config.find import ALGORITHMS, find
from trainer.history.journal import EVALUATIONS
from trainer.nets.average import MovingAverage
from trainer.sharing.adoption import LEAD, OtherLearner, is_allowed, is_finite, tensors_in, whom_to_follow
from trainer.sharing.episodes import read_taken
from trainer.sharing.journal import Adopted, append, entries
from trainer.training.features.inflow import adopting
from trainer.training.features.inflow.adopting import put_in
from trainer.training.features.inflow.intake import rows_from_outside
from trainer.training.run import TrainingRun

pytestmark = pytest.mark.trainer


def rows(*scores, goals=50, **more):
    return [
        {"step": step, "mean_success": score, "success": {"reach": score, "push": score}, "goals_per_task": goals,
         "horizon": 500, "returns": {"reach": 0.0, "push": 0.0}, **more}
        for step, score in enumerate(scores)
    ]  # fmt: skip


def slot_of(*args):
    return next(((found.slot, round(found.lead, 3)) for found in whom_to_follow(*args)), None)


class TestWhom:
    def test_the_one_that_led_by_more_than_a_tenth_at_two_evaluations_in_a_row(self):
        own = rows(0.0, 0.2, 0.3)
        assert slot_of(own, {1: rows(0.4, 0.5)}) == (1, 0.2)
        assert slot_of(own, {1: rows(0.4, 0.5), 3: rows(0.9, 0.32, 0.9), 2: rows(0.4, 0.6)}) == (3, 0.6)
        assert slot_of(own, {1: rows(0.9, 0.3, 0.9)}) is None  # once only
        assert slot_of(own, {1: rows(0.9, 0.9, 0.39)}) is None
        assert slot_of(own, {1: rows(0.9)}) is None
        assert slot_of(rows(0.1), {1: rows(0.9, 0.9)}) is None
        assert slot_of(own, {}) is None

    def test_all_who_led_so_come_in_the_order_of_their_leads(self):
        others = {1: rows(0.5, 0.5), 2: rows(0.05, 0.9), 3: rows(0.9, 0.9), 4: rows(0.5, 0.5)}
        assert [found.slot for found in whom_to_follow(rows(0.0, 0.0), others)] == [3, 1, 4]

    def test_equal_leads_go_to_the_lower_number(self):
        assert slot_of(rows(0.0, 0.0), {2: rows(0.5, 0.5), 1: rows(0.5, 0.5)}) == (1, 0.5)

    @pytest.mark.parametrize(
        ("own", "other"),
        [
            (rows(0.0, 0.0, goals=20), rows(1.0, 1.0, goals=20)),  # 40 episodes of 100
            (rows(0.0, 0.0), rows(1.0, 1.0, goals=20)),
            (rows(0.0, 0.0), rows(1.0, 1.0, horizon=200)),
            (rows(0.0, 0.0), rows(1.0, 1.0, score="return")),
            (rows(0.0, 0.0, score="return"), rows(1.0, 1.0, score="return")),
            (rows(0.0, 0.0), [row | {"success": {"reach": 1.0}} for row in rows(1.0, 1.0)]),
            (rows(0.0, 0.0), rows(float("inf"), float("inf"))),
            (rows(0.0, 0.0), rows(1.0, float("nan"))),
            (rows(0.0, 0.0), rows(1.5, 1.5)),
            (rows(-1.0, float("-inf")), rows(1.0, 1.0)),
        ],
    )
    def test_nobody_where_evaluations_say_too_little_or_are_of_two_kinds(self, own, other):
        assert whom_to_follow(own, {1: other}) == []

    @given(st.lists(st.floats(0, 1), max_size=5), st.dictionaries(st.integers(0, 5), st.lists(st.floats(0, 1))))
    def test_whoever_is_followed_was_better_twice(self, own, others):
        for found in whom_to_follow(rows(*own), {slot: rows(*scores) for slot, scores in others.items()}):
            assert others[found.slot][-1] - own[-1] == found.lead > LEAD
            assert others[found.slot][-2] - own[-2] > LEAD

    def test_at_most_once_in_a_tenth_of_the_training_and_never_the_first_slot(self):
        assert is_allowed(1, 10, 1000, None)
        assert not is_allowed(0, 10, 1000, None)
        assert not is_allowed(1, 199, 1000, 100)
        assert is_allowed(1, 200, 1000, 100)


def test_what_was_adopted_in_an_attempt_that_is_lost_counts_no_more(tmp_path):
    """Attempt 1 adopted and died before its first checkpoint: attempt 2 goes on from attempt 0, as if not."""
    run_dir, checkpoint = tmp_path / "run", CheckpointRef(0, 100, tmp_path / "run/slots/1/attempts/0/checkpoints/100")
    for number, (parent, step) in enumerate([(None, 50), (checkpoint, 150)]):
        job = Job(run_dir, 1, number)
        job.attempt_dir.mkdir(parents=True)
        job.start_from(parent)
        append(job.attempt_dir, [Adopted(step, 0, 0, 90, "a" * 64, 0.3)])
    job = Job(run_dir, 1, 2)
    job.attempt_dir.mkdir()
    job.start_from(checkpoint)
    adoptions = adopting.Adoptions(job, section(group={"adopt": True}, total_steps=1000), [])
    assert not adoptions.may(149)  # a tenth after that of step 50, which is in the line
    assert adoptions.may(150)


def test_a_row_of_metrics_says_that_a_learner_came_in():
    run = TrainingRun(None, None, None, None, None, adopted=2)
    assert rows_from_outside(run)["group"] == {"adopted": 2}
    run.adopted = 0
    assert "group" not in rows_from_outside(run)


def test_whoever_is_of_another_group_keeps_nobody_from_following_the_next(tmp_path, monkeypatch):
    jobs = [Job.standalone(tmp_path / "run", slot) for slot in range(4)]
    for job, score in zip(jobs, (0.5, 0.0, 0.9, 0.7), strict=True):
        job.start_from(None)
        (job.attempt_dir / EVALUATIONS).write_text(
            "".join(json.dumps(row) + "\n" for row in rows(0.0, score, score)[1:])
        )
    of_group = {0: OtherLearner(0, 0, 90, 9, b"zero"), 3: OtherLearner(3, 0, 90, 9, b"three")}
    monkeypatch.setattr(adopting, "find_learner", lambda _folder, slot, _training, known=None: of_group.get(slot))
    adoptions = adopting.Adoptions(jobs[1], section(group={"adopt": True}), [])
    adoptions._look()
    assert adoptions.found is not None
    assert adoptions.found[0].slot == adoptions.found[1].slot == 3
    assert read_taken(jobs[1], adoptions.kept) == b"three"
    entry = adoptions.enter(run_of(SimpleNamespace(weights=dict), step=100), lambda _: True)
    assert entry is not None
    assert (entry.adopt, adoptions.found, adoptions.kept) == (3, None, "")  # the entry says what is needed


@pytest.mark.parametrize("broken", ["step", "goals_per_task", "mean_success"])
def test_a_row_that_lacks_something_keeps_nobody_from_following_another(tmp_path, monkeypatch, broken):
    jobs = [Job.standalone(tmp_path / "run", slot) for slot in range(3)]
    for job, score in zip(jobs, (0.9, 0.0, 0.9), strict=True):
        job.start_from(None)
        found = rows(0.0, score, score)[1:]
        for one in found if job.slot == 0 else ():
            del one[broken]
        (job.attempt_dir / EVALUATIONS).write_text("".join(json.dumps(row) + "\n" for row in found))
    learner = OtherLearner(2, 0, 90, 9, b"two")
    monkeypatch.setattr(
        adopting, "find_learner", lambda _folder, slot, _training, known=None: learner if slot == 2 else None
    )
    adoptions = adopting.Adoptions(jobs[1], section(group={"adopt": True}), [])
    adoptions._look()
    assert adoptions.found is not None
    assert adoptions.found[0] is learner


def test_the_same_learner_is_not_taken_over_twice(tmp_path, monkeypatch):
    """One of a slot that is away: its evaluations stay the best, and what it had learned stays the same."""
    jobs = [Job.standalone(tmp_path / "run", number) for number in (0, 1)]
    for job, success in zip(jobs, (0.9, 0.1), strict=True):
        job.start_from(None)
        (job.attempt_dir / EVALUATIONS).write_text(
            "".join(json.dumps(row) + "\n" for row in rows(success, success, success))
        )
    learner, asked = OtherLearner(0, 3, 90, 9, b"zero"), []

    def find(_folder, _slot, _training, known):
        asked.append(known)
        return learner if known != (3, 90) else None

    monkeypatch.setattr(adopting, "find_learner", find)
    monkeypatch.setattr(adopting, "is_allowed", lambda *_: True)
    monkeypatch.setattr(adopting, "put_in", lambda *_: "done")
    adoptions = adopting.Adoptions(jobs[1], section(group={"adopt": True}), [])
    adoptions._look()
    entry = adoptions.enter(run_of(SimpleNamespace(weights=dict), step=2), lambda _: True)
    later = {row["step"]: row for row in rows(0.1, 0.1, 0.1, 0.1, 0.1)}
    adoptions._new = later
    adoptions._look()
    resumed = adopting.Adoptions(jobs[1], section(group={"adopt": True}), [entry])
    resumed._new = later
    resumed._look()
    assert asked == [None, (3, 90), (3, 90)]
    assert (adoptions.found, resumed.found) == (None, None)


def test_nobody_is_looked_for_when_the_job_is_about_to_end(tmp_path):
    job = Job.standalone(tmp_path / "run", 1)
    job.start_from(None)
    training = section(group={"adopt": True})
    adoptions = adopting.Adoptions(job, training, [])
    adoptions.evaluated(rows(0.0)[0], training.total_steps)
    assert adoptions._thread is None
    adoptions.evaluated(rows(0.0)[0], 10)
    assert adoptions._thread is not None
    adoptions.close(60.0)
    assert adoptions.is_idle()


def made(name, seed, updates=3, **fields):
    training = section(algorithm=name, seed=seed, **fields)
    experience = Experience(training, SPACES)
    rng = np.random.default_rng(seed)
    for task in range(len(SPACES.tasks)):
        drawn = {
            field: rng.uniform(0, 1, (30, *shape)).astype(kind) if kind == np.float32 else np.zeros((30, *shape), kind)
            for field, (shape, kind) in FIELDS.items()
        }
        experience.add(np.full(30, task), drawn)
    algorithm = find(ALGORITHMS, name)(Context(training, SPACES, 4, torch.device("cpu"), experience))
    for _ in range(updates):
        algorithm.update()
    return algorithm


def run_of(algorithm, average=None, step=0):
    return SimpleNamespace(algorithm=algorithm, average=average, adopted=0, step=step)


@pytest.mark.parametrize("name", ["mtsac", "sac", "td3"])
class TestALearner:
    def test_is_taken_over_whole_and_streams_and_counters_stay(self, name):
        own, other = made(name, 0), made(name, 1, updates=5)
        before, learned = own.state(), other.state()
        adopt(own, learned.tensors)
        after = own.state()
        kept = {"noise", "deviations", "actor_loss"}
        for key, tensor in after.tensors.items():
            source = before if key in kept else learned
            assert torch.equal(tensor, source.tensors[key]), key
        assert any(key.startswith("adam.") for key in after.tensors)
        assert after.numbers == before.numbers

    def test_it_goes_on_as_one_that_was_loaded_with_it(self, name):
        one, same, other = made(name, 0), made(name, 0), made(name, 1)
        adopt(one, other.state().tensors)
        same.load(one.state())
        assert torch.equal(one.update(), same.update())

    def test_one_of_another_shape_changes_nothing(self, name):
        own = made(name, 0)
        before = own.state()
        tensors = dict(made(name, 1).state().tensors)
        key = next(key for key in tensors if key.startswith("critics."))
        for broken in ({key: torch.zeros(3)}, {}):
            rest = {name: tensor for name, tensor in tensors.items() if name != key}
            with refused("learner.tensor"):
                adopt(own, {**rest, **broken})
        assert all(torch.equal(tensor, before.tensors[key]) for key, tensor in own.state().tensors.items())

    @pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.int64, torch.uint8, torch.complex64])
    @pytest.mark.parametrize("part", ["policy.", "critics.", "adam.critics."])
    @pytest.mark.parametrize("updates", [0, 3])
    def test_numbers_of_another_kind_change_nothing(self, name, updates, part, kind):
        own = made(name, 0, updates)
        before, tensors = own.state(), dict(made(name, 1).state().tensors)
        key = next(
            key for key in tensors if key.startswith(part) and key.endswith(("weight", "weights", "exp_avg", ".0"))
        )
        with refused("learner.type"):
            adopt(own, {**tensors, key: tensors[key].to(kind)})
        assert all(torch.equal(tensor, before.tensors[key]) for key, tensor in own.state().tensors.items())

    @pytest.mark.parametrize("updates", [0, 3])
    @pytest.mark.parametrize("forged", ["another", "a count of another", "missing", "negative"])
    def test_moments_that_no_optimizer_has_are_a_sentence_and_change_nothing(self, name, updates, forged):
        own = made(name, 0, updates)
        before, tensors = own.state(), dict(made(name, 1).state().tensors)
        if forged == "missing":
            del tensors["adam.critics.0.exp_avg"]
        elif forged == "negative":
            tensors["adam.critics.0.exp_avg_sq"] = -tensors["adam.critics.0.exp_avg_sq"] - 1
        else:
            kind, shape = ("exp_avg", (3,)) if forged == "another" else ("step", ())
            tensors[f"adam.critics.99.{kind}"] = torch.zeros(shape)
        with pytest.raises(UnfitLearnerError):
            adopt(own, tensors)
        after = own.state()
        assert after.tensors.keys() == before.tensors.keys()
        assert all(torch.equal(tensor, before.tensors[key]) for key, tensor in after.tensors.items())
        own.update()

    @pytest.mark.parametrize("more", ["policy.another", "adam.critics.0.exp_avg", "adam.actor.first.step"])
    def test_one_with_something_else_in_it_is_a_sentence_and_changes_nothing(self, name, more):
        own = made(name, 0)
        before = own.state()
        learned = dict(made(name, 1).state().tensors)
        learned[more] = torch.zeros(3)
        state = run_of(own)
        said = put_in(state, Adopted(100, 2, 0, 90, "a" * 64, 0.3), safetensors.torch.save(learned))
        assert state.adopted == 0
        assert said.startswith("what slot 2 has learned is not taken over: ")
        after = own.state()
        assert after.tensors.keys() == before.tensors.keys()
        assert all(torch.equal(tensor, before.tensors[key]) for key, tensor in after.tensors.items())
        assert after.numbers == before.numbers
        own.update()


def test_the_average_of_the_actor_begins_anew():
    own, other = made("sac", 0), made("sac", 1)
    average = MovingAverage(own.policy, 0.999)
    state = run_of(own, average)
    said = put_in(state, Adopted(100, 2, 0, 90, "a" * 64, 0.3), safetensors.torch.save(dict(other.state().tensors)))
    assert state.adopted == 1
    assert "goes on with what slot 2 had learned by its step 90, which solved 30% more" in said
    for name, tensor in average.tensors.items():
        assert torch.equal(tensor, other.policy.state_dict()[name])


def test_what_comes_to_nothing_is_a_sentence():
    entry = Adopted(100, 2, 0, 90, "a" * 64, 0.3)
    assert (
        put_in(run_of(SimpleNamespace(weights=dict)), entry, b"")
        == "what slot 2 has learned is not taken over: this algorithm cannot"
    )
    assert put_in(run_of(made("sac", 0, 0)), entry, b"torn").startswith("what slot 2 has learned is not taken over: ")
    with pytest.raises(ValueError, match=r"\S"):
        tensors_in(b"torn")


def test_an_adoption_comes_back_from_the_journal(tmp_path):
    entry = Adopted(100, 2, 0, 90, "a" * 64, 0.3)
    append(tmp_path, [entry])
    assert entries(tmp_path) == [entry]


def test_a_learner_that_diverged_is_seen():
    assert is_finite({"a": torch.ones(2), "n": torch.ones(2, dtype=torch.uint8)})
    assert not is_finite({"a": torch.tensor([1.0, float("nan")])})
