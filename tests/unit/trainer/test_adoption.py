"""When a slot takes another's learner over, whose, and what of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from suites import FIELDS, SPACES

pytest.importorskip("torch")

from train_point_mass import section

from anchorleg.job import CheckpointRef, Job
from trainer.algorithms.base import Context
from trainer.algorithms.common.adoption import UnfitLearnerError, adopt
from trainer.buffers.experience import Experience
from trainer.config.find import ALGORITHMS, find
from trainer.history.read import EVALUATIONS
from trainer.nets.average import MovingAverage
from trainer.sharing.copies import Copies, OtherLearner, read_taken
from trainer.sharing.journal import Adopted, append
from trainer.sharing.segment import name_of
from trainer.training.features.inflow import adopting
from trainer.training.features.inflow.adopting import is_allowed, put_in, whom_to_follow

pytestmark = pytest.mark.trainer


def rows(*scores, goals=50, **more):
    return [
        {"step": step, "mean_success": score, "success": {"reach": score, "push": score}, "goals_per_task": goals,
         "horizon": 500, "returns": {"reach": 0.0, "push": 0.0}, **more}
        for step, score in enumerate(scores)
    ]  # fmt: skip


class TestWhom:
    @pytest.mark.parametrize(
        ("own", "others", "followed"),
        [
            ((0.0, 0.2, 0.3), {1: (0.4, 0.5)}, [(1, 0.2)]),
            ((0.0, 0.2, 0.3), {1: (0.4, 0.5), 3: (0.9, 0.32, 0.9), 2: (0.4, 0.6)}, [(3, 0.6), (2, 0.3), (1, 0.2)]),
            ((0.0, 0.2, 0.3), {1: (0.9, 0.3, 0.9)}, []),  # once only
            ((0.0, 0.2, 0.3), {1: (0.9, 0.9, 0.39)}, []),
            ((0.0, 0.2, 0.3), {1: (0.9,)}, []),
            ((0.1,), {1: (0.9, 0.9)}, []),
            ((0.0, 0.2, 0.3), {}, []),
            ((0.0, 0.0), {1: (0.5, 0.5), 2: (0.05, 0.9), 3: (0.9, 0.9), 4: (0.5, 0.5)}, [(3, 0.9), (1, 0.5), (4, 0.5)]),
        ],
    )
    def test_those_that_led_by_more_than_a_tenth_twice_in_a_row_the_furthest_first(self, own, others, followed):
        found = whom_to_follow(rows(*own), {slot: rows(*scores) for slot, scores in others.items()})
        assert [(slot, round(lead, 3)) for slot, lead in found] == followed

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
    adoptions = adoptions_of(job)
    assert not adoptions.may(149)  # a tenth after that of step 50, which is in the line
    assert adoptions.may(150)


def adoptions_of(job, ahead=()):
    training = section(group={"adopt": True}, total_steps=1000)
    return adopting.Adoptions(job, training, Copies(job), ahead)


@pytest.fixture
def looking(tmp_path, monkeypatch):
    """Makes slots with these evaluations, and learners of those that are of the group: slot 1, and what is asked."""
    asked = []

    def make(evaluations, learners):
        jobs = [Job.standalone(tmp_path / "run", slot) for slot in range(len(evaluations))]
        for job, found in zip(jobs, evaluations, strict=True):
            job.start_from(None)
            (job.attempt_dir / EVALUATIONS).write_text("".join(json.dumps(row) + "\n" for row in found))

        def find(_folder, slot, _training, known):
            asked.append(known)
            one = learners.get(slot)
            return one if one is None or known != one.version else None

        monkeypatch.setattr(adopting, "find_learner", find)
        return jobs[1], asked

    return make


def learner(slot, data):
    return OtherLearner(slot, 3, 90, 9, data)


def later(*scores):
    return rows(0.0, *scores)[1:]


NOTHING = SimpleNamespace(weights=dict)


def test_a_slot_of_another_group_keeps_nobody_from_following_the_next(looking):
    evaluations = [later(score, score) for score in (0.5, 0.0, 0.9, 0.7)]
    job, _ = looking(evaluations, {0: learner(0, b"zero"), 3: learner(3, b"three")})
    adoptions = adoptions_of(job)
    adoptions.look()
    assert adoptions.found is not None
    assert adoptions.found[0].slot == 3
    assert read_taken(job, name_of(b"three")) == b"three"
    entry = adoptions.enter(run_of(NOTHING, step=100), lambda _: True)
    assert entry is not None
    assert (entry.adopt, adoptions.found) == (3, None)


def test_the_same_learner_is_not_taken_over_twice(looking, monkeypatch):
    """One of a slot that is away: its evaluations stay the best, and what it had learned stays the same."""
    job, asked = looking([rows(0.9, 0.9, 0.9), rows(0.1, 0.1, 0.1)], {0: learner(0, b"zero")})
    monkeypatch.setattr(adopting, "is_allowed", lambda *_: True)
    adoptions = adoptions_of(job)
    adoptions.look()
    entry = adoptions.enter(run_of(NOTHING, step=2), lambda _: True)
    resumed = adoptions_of(job, [entry])
    for one in (adoptions, resumed):
        for row in rows(0.1, 0.1, 0.1, 0.1, 0.1)[3:]:
            one.evaluated(row, 10)
        one.look()
    assert asked == [None, (3, 90), (3, 90)]
    assert (adoptions.found, resumed.found) == (None, None)


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


def _as(part, kind):
    def forge(tensors):
        ends = ("weight", "weights", "exp_avg", ".0")
        key = next(key for key in tensors if key.startswith(part) and key.endswith(ends))
        tensors[key] = tensors[key].to(kind)

    return forge


def _first_critic(tensors):
    return next(key for key in tensors if key.startswith("critics."))


MOMENTS = {"learner.moments", "learner.negative"}
#: What is done to another's tensors, and the identifiers of what is said of it (none: any).
FORGED = {
    "another shape": (lambda its: its.update({_first_critic(its): torch.zeros(3)}), {"learner.tensor"}),
    "one is missing": (lambda its: its.pop(_first_critic(its)), {"learner.tensor"}),
    **{
        f"{part} of {kind}": (_as(part, kind), {"learner.type"})
        for part in ("policy.", "critics.", "adam.critics.")
        for kind in (torch.float64, torch.int64)
    },
    "moments of another": (lambda its: its.update({"adam.critics.99.exp_avg": torch.zeros(3)}), MOMENTS),
    "moments that are missing": (lambda its: its.pop("adam.critics.0.exp_avg"), MOMENTS),
    "negative moments": (
        lambda its: its.update({"adam.critics.0.exp_avg_sq": -its["adam.critics.0.exp_avg_sq"] - 1}), MOMENTS,
    ),
    **{
        f"{more} more": (lambda its, more=more: its.update({more: torch.zeros(3)}), set())
        for more in ("policy.another", "adam.critics.0.exp_avg", "adam.actor.first.step")
    },
}  # fmt: skip


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

    @pytest.mark.parametrize("updates", [0, 3])
    @pytest.mark.parametrize(("forge", "ids"), FORGED.values(), ids=FORGED)
    def test_one_that_does_not_fit_is_a_sentence_and_changes_nothing(self, name, updates, forge, ids):
        own = made(name, 0, updates)
        before, tensors = own.state(), dict(made(name, 1).state().tensors)
        forge(tensors)
        with pytest.raises(UnfitLearnerError) as caught:
            adopt(own, tensors)
        assert not ids or caught.value.id in ids
        state = run_of(own)
        said = put_in(state, Adopted(100, 2, 0, 90, "a" * 64, 0.3), safetensors.torch.save(tensors))
        assert said.startswith("the learner of slot 2 is not adopted: ")
        after = own.state()
        assert (state.adopted, after.numbers, after.tensors.keys()) == (0, before.numbers, before.tensors.keys())
        assert all(torch.equal(tensor, before.tensors[key]) for key, tensor in after.tensors.items())
        own.update()


def test_the_average_of_the_actor_begins_anew():
    own, other = made("sac", 0), made("sac", 1)
    average = MovingAverage(own.policy, 0.999)
    state = run_of(own, average)
    said = put_in(state, Adopted(100, 2, 0, 90, "a" * 64, 0.3), safetensors.torch.save(dict(other.state().tensors)))
    assert state.adopted == 1
    assert "adopts the learner of slot 2 at its step 90, which solved 30% more" in said
    for name, tensor in average.tensors.items():
        assert torch.equal(tensor, other.policy.state_dict()[name])
