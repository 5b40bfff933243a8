from __future__ import annotations

import errno
import getpass
import json
import os
import secrets
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from daemons import PATIENCE_S
from hypothesis import example, given
from hypothesis import strategies as st
from suites import FIELDS, SPACES
from vector_bytes import as_bytes

pytest.importorskip("torch")

from train_contributed import HORIZON, made_up, send
from train_point_mass import section

from anchorleg.job import Job
from anchorleg.rollback import rollbacks
from syncd import store
from trainer.buffers.contributed import (
    MAX_SHARE,
    Contributed,
    RingSizes,
    capacity_of,
    parts,
    pays,
    whole,
)  # fmt: skip
from trainer.buffers.experience import Experience
from trainer.envs.spaces import ArraySpec, Box, Discrete, Spaces
from trainer.envs.suite import Bounds
from trainer.sharing import journal as intakelog
from trainer.sharing.ingest import Ingester
from trainer.sharing.journal import Adopted, Mixed, MixedPeer, Removed, Taken, TakenFromPeer
from trainer.sharing.judge import LEAST, judge, why_none
from trainer.sharing.reader import WITH_A_LIE, Reader
from trainer.sharing.segment import encode, name_of
from trainer.sharing.spotcheck import Redone
from trainer.training.features.inflow import intake as intake_module
from trainer.training.features.inflow import rollback
from trainer.training.features.inflow.intake import Intake
from trainer.training.run import TrainingRun

pytestmark = pytest.mark.trainer
#: What the senders of `made_up` send cannot be done again by anybody.
TRAINING = section(
    horizon=HORIZON,
    contribution_max_lag=500,
    trusted_contributors=("alice", "bob", "carol", "mallory", "flood", "quiet", f"user-{getpass.getuser()}"),
)
NOW = 1e9


@pytest.fixture
def job(tmp_path):
    made = Job.standalone(tmp_path / "toy", accepts_contributions=True)
    made.start_from(None)
    return made


def shape_of(training):
    return training.off_policy.buffer_size, len(training.env.tasks)


def gone_on_with(saved):
    made = Contributed(*shape_of(TRAINING), TRAINING.seed, FIELDS)
    made.put_back(saved)
    return made


def told_by(*sources):
    said: list[str] = []
    for source in sources:
        (source.tell if hasattr(source, "tell") else source.notices.tell)(said.append)
    return said


@pytest.mark.parametrize(
    ("obs", "action", "horizon", "words"),
    [
        ({"state": ArraySpec((2,))}, Box(1), 5, None),
        ({"state": ArraySpec((2,))}, Discrete(3), 5, "observations 'state' of float32 [2] and one of 3 actions"),
        ({"image": ArraySpec((1, 4, 4), "uint8")}, Box(1), 5, "'image' of uint8 [1, 4, 4] and actions of real"),
        ({"state": ArraySpec((2, 2))}, Box(1), 5, "'state' of float32 [2, 2] and actions of real numbers"),
        ({"state": ArraySpec((2,)), "b": ArraySpec((1,))}, Box(1), 5, "'b' of float32 [1], 'state' of float32"),
        ({"state": ArraySpec((70,))}, Box(1), 400, None),
        ({"state": ArraySpec((80,))}, Box(1), 400, "128 KiB"),
    ],
)
def test_experience_is_refused_in_a_sentence_where_a_segment_cannot_hold_it(obs, action, horizon, words):
    bounds = Bounds(1.0, (0.0, 1.0), False, lambda *_: None)
    why = why_none(TRAINING, SimpleNamespace(spaces=Spaces(obs, action, ("t",), horizon), bounds=bounds))
    assert why is None if words is None else words in why


class Checker:
    """Does segments again: what pays 10 in its first step is not true."""

    def redo(self, segment):
        return Redone(0.0, segment.steps, "it paid less" if segment.reward[0] == 10 else "")

    def close(self):
        pass


class Door(Ingester):
    """One that works when it is told to, and knows the first policy. `checked`: nobody but ann is trusted."""

    now = NOW

    def __init__(self, job, *, checked=False, trusted=(), **more):
        training = section(horizon=HORIZON, trusted_contributors=trusted) if checked or trusted else TRAINING
        more = ({"resimulate": Checker} if checked else {}) | more
        super().__init__(job, training, step=100, clock=lambda: self.now, **more)
        self.know(0, 0, 60)

    def round(self, rounds=1):
        for _ in range(rounds):
            self.one_round()
        return self


def a_file(job, number, **changes):
    return encode(replace(made_up(job.run_id, number), **changes))


def lie(job, number):
    return a_file(job, number, reward=np.full_like(made_up(job.run_id, number).reward, 10))


def sent(job, *numbers, who="alice", **more):
    return [send(job.shared_dir, who, job.run_id, a_file(job, number), **more) for number in numbers]


def inbox_of(job, who="alice"):
    return store.Inbox.of(store.Shared(job.shared_dir), who)


def reasons(job, who="alice"):
    return {verdict.sha256: verdict.reason for verdict in inbox_of(job, who).verdicts()}


def whos(ready):
    return [one.who for one in ready]


def rows_like(value, count=HORIZON):
    return {name: np.full((count, *shape), value, kind) for name, (shape, kind) in FIELDS.items()}


class TestTheShareOfABatch:
    @given(
        st.integers(1, 5).flatmap(
            lambda senders: st.lists(st.tuples(*[st.integers(0, 10**6)] * (2 + senders)), min_size=1, max_size=50)
        ),
        st.floats(0, 1, exclude_max=True),
    )
    @example([(46, 1, 1, 0, 0), (166, 1, 43028, 731434, 380), (4644, 5252, 187, 161, 1), (2, 1, 1, 1, 1)], 0.0)
    @example([(2, 1, *[1] * 20), (3, 1, *[1] * 20)] * 9, 0.5)
    def test_it_is_the_part_of_each_tasks_rows_and_never_above_the_cap(self, tasks, chance):
        counts, own, *each = np.array(tasks, np.int64).T
        others = np.array(each)
        counts[own == 0] = 0  # `shares` deals nothing to a task without rows
        wanted = parts(counts, own, RingSizes.of(others))
        taken = whole(wanted, chance, int(MAX_SHARE * counts.sum()))
        assert (taken >= 0).all()
        assert (taken.sum(axis=0) <= np.ceil(wanted.sum(axis=0) - 1e-6)).all()
        assert (taken.sum(axis=0) <= counts).all()
        assert (taken[others == 0] == 0).all()
        assert taken.sum() <= MAX_SHARE * counts.sum()
        assert (wanted <= others / np.maximum(1, own + others.sum(axis=0)) * counts).all()
        givers = max(1, (others.sum(axis=1) > 0).sum())
        assert (wanted.sum(axis=1) <= MAX_SHARE / givers * counts.sum() + 1e-6).all()
        assert (np.abs(taken - wanted) <= 1 + 1e-6).all()

    def test_a_part_of_a_row_is_a_row_now_and_then(self):
        wanted = np.array([0.0, 0.6, 0.25, 3.0])
        mean = np.mean([whole(wanted, chance, 100) for chance in np.linspace(0, 1, 1000, endpoint=False)], axis=0)
        assert np.allclose(mean, wanted, atol=2e-3)

    def test_who_sends_one_task_only_changes_no_tasks_weight(self):
        experience = Experience(TRAINING, SPACES)
        rows = rows_like(1)
        for task in range(3):
            experience.add(np.full(HORIZON, task), {name: 0 * array for name, array in rows.items()})
        experience.welcome().add("alice", rows, task=1, content="", policy_step=0, step=0)
        for _ in range(9):
            batch = experience.sample(TRAINING.algorithm.batch_size)
            sizes = np.bincount(batch.task, minlength=3)
            assert sizes.max() - sizes.min() <= 1
            assert 0 < batch.reward.sum() <= 0.3 * TRAINING.algorithm.batch_size
            assert (batch.task[batch.reward > 0] == 1).all()

    def test_who_pays_less_gives_less_and_the_rest_is_the_runs_own(self):
        sizes = np.array([[500, 500], [500, 500]])
        found = parts(np.full(2, 100), np.full(2, 1000), RingSizes.of(sizes, np.array([[1.0, 0.5], [0.0, 1.0]])))
        assert found.tolist() == [[15, 7.5], [0, 15]]


def rewards(values):
    return st.lists(st.integers(-3, 3), min_size=1, max_size=9).map(values)


class TestWhatRowsPay:
    @given(rewards(np.float32), rewards(np.float32), st.floats(0.5, 4), st.floats(-9, 9))
    def test_it_is_the_part_of_pairs_that_it_wins_in_whatever_it_is_counted(self, mine, own, scale, offset):
        mine, own = np.array(mine), np.array(own)
        won = np.mean([[(one > other) + (one == other) / 2 for other in own] for one in mine])
        assert pays(mine, own) == pytest.approx(won)
        assert pays(scale * mine + offset, scale * own + offset) == pytest.approx(won)
        assert pays(mine, own) + pays(own, mine) == pytest.approx(1)

    def experience(self, own):
        made = Experience(TRAINING, SPACES)
        made.add(np.zeros(len(own), np.int64), rows_like(0, len(own)) | {"reward": np.array(own, np.float32)})
        return made

    def given(self, experience, who, paid, times, task=0):
        rows = rows_like(0) | {"reward": np.full(HORIZON, paid, np.float32)}
        others = experience.welcome()
        for number in range(times):
            others.add(
                who, rows, task=task, content=str(number), policy_step=0, step=0,
                paid=experience.pays(task, rows["reward"]),
            )  # fmt: skip
        return others

    def test_who_brings_what_pays_nothing_loses_its_share_and_who_pays_alike_keeps_it(self):
        experience = self.experience([1, 2, 3, 4])
        for who, paid in (("alike", 2.5), ("better", 9), ("less", 1.5), ("useless", 0)):
            others = self.given(experience, who, paid, 2_000)
        weights = {who: others.weights_of(who)[0] for who in others.sources}
        assert weights == {
            "alike": 1,
            "better": 1,
            "less": pytest.approx(0.5, abs=1e-3),
            "useless": pytest.approx(0, abs=1e-3),
        }
        assert (others.weights_of("useless")[1:] == 1).all()
        counts, own = np.array([90, 0, 0]), experience.own.sizes
        found = parts(counts, own, others.ring_sizes).sum(axis=1)
        assert found[0] == found[1] > found[2] > 100 * found[3]

    def test_it_comes_back_with_the_checkpoint_and_one_of_an_older_version_has_none(self):
        experience = self.experience([1, 2, 3, 4])
        others = self.given(experience, "alice", 0, 30)
        saved = json.loads(json.dumps(experience.state().numbers["others"]))
        again = gone_on_with(saved)
        assert again.paid == others.paid
        assert (again.ring_sizes.weights == others.ring_sizes.weights).all()
        del saved["paid"]
        assert gone_on_with(saved).weights_of("alice").tolist() == [1, 1, 1]

    def test_a_few_rows_of_it_cost_little(self):
        others = self.given(self.experience([1, 2, 3, 4]), "honest", 0, 10)
        assert 0.9 < others.weights_of("honest")[0] < 1

    def test_without_rows_of_ones_own_task_nobody_is_judged(self):
        experience = self.experience([1])
        assert experience.pays(1, np.ones(3, np.float32)) is None
        assert self.given(experience, "alice", 0, 3, task=1).paid == {}

    def test_of_whom_nothing_is_there_nothing_is_remembered(self):
        others = self.given(self.experience([1, 2]), "alice", 0, 30)
        others.drop("alice")
        assert others.paid == {}


def rows_of(others, who):
    """Which segments' rows there are of `who`, oldest first, task by task."""
    if who not in others.sources:
        return []
    block = others.ring.block_since((0,) * others.ring.num_tasks)
    ends = np.cumsum(block.counts)
    lanes = range(3 * others.sources.index(who), 3 * others.sources.index(who) + 3)
    return [block.arrays["reward"][ends[lane] - block.counts[lane] : ends[lane]].tolist() for lane in lanes]


class TestTheRing:
    def filled(self, *senders):
        others = Contributed(*shape_of(TRAINING), TRAINING.seed, FIELDS)
        for number, who in enumerate(senders):
            segment = made_up("toy", number)
            rows = rows_like(number)
            others.add(who, rows, task=number % 3, content=segment.content(), policy_step=number, step=100)
        return others

    @given(st.lists(st.sampled_from("abc"), max_size=60), st.sampled_from("abcd"))
    def test_a_contributor_is_dropped_and_the_others_rows_keep_their_order(self, senders, dropped):
        others = self.filled(*senders)
        before = {who: rows_of(others, who) for who in "abcd"}
        others.drop(dropped)
        assert others.rows_of(dropped) == 0
        assert {who: rows_of(others, who) for who in before} == {**before, dropped: []}

    def test_a_loud_one_pushes_out_its_own_rows_only(self):
        others = self.filled("quiet")
        kept = rows_of(others, "quiet")
        rows = rows_like(1)
        for _ in range(2 * capacity_of(*shape_of(TRAINING)) // HORIZON + 2):
            others.add("loud", rows, task=0, content="", policy_step=0, step=100)
        assert rows_of(others, "quiet") == kept
        assert others.rows_of("loud") == others.ring.capacity == capacity_of(*shape_of(TRAINING)) // 2

    def test_who_gave_nothing_while_the_run_filled_its_own_ring_makes_room(self):
        others = self.filled("early", "late")
        rows = rows_like(1)
        others.add("late", rows, task=0, content="", policy_step=0, step=100 + TRAINING.algorithm.buffer_size)
        assert others.sources == ["early", "late"]
        others.add("late", rows, task=0, content="", policy_step=0, step=101 + TRAINING.algorithm.buffer_size)
        assert others.sources == ["late"]
        assert others.ring.capacity == capacity_of(*shape_of(TRAINING))

    def test_it_goes_on_from_its_state(self):
        others = self.filled(*"aabbcc")
        counts, own = np.array([9, 9, 9]), np.array([50, 60, 70])
        others.pick(others.part_of(counts, own))
        again = gone_on_with(others.state_dict())
        again.ring.put_back(others.ring.block_since((0,) * 9))
        assert again.state_dict() == others.state_dict()
        one, other = (each.pick(each.part_of(counts, own)) for each in (others, again))
        assert as_bytes(one) == as_bytes(other)
        assert again.lag_row() == {"segments": 6, "lag_min": 95, "lag_mean": 97.5, "lag_max": 100}
        assert again.lag_row() == {"segments": 0}


def leave(door, step=0):
    """Whose rows must leave the ring: they do, at this step."""
    found = []
    door.removals.take_out(lambda who: not found.append(who), step)
    return found


def told_of(job, story, **settings):
    """Play `story` on a door: who sends which segment (`*`: a lie, `'`: with another header, `?`: under a false name),
    `look`, `drop who`, `readmit who`, `day` passing twice. Returns (door, verdicts in order of the numbers by sender,
    what is ready, whose rows must leave).
    """
    door, names = Door(job, **settings), {}
    for command in story.split(";"):
        match command.split():
            case ["look", *rounds]:
                door.round(int(rounds[0]) if rounds else 1)
            case ["drop", who]:
                inbox_of(job, who).drop(by="me", now=NOW)
            case ["readmit", who]:
                assert inbox_of(job, who).readmit()
            case ["days"]:
                door.now += 2 * 86_400
            case [who, *numbers]:
                for word in numbers:
                    number = int(word.rstrip("*'?"))
                    data = lie(job, number) if word[-1] == "*" else a_file(job, number)
                    data = a_file(job, number, actor="f" * 16) if word[-1] == "'" else data
                    name = f"{number:064x}" if word[-1] == "?" else name_of(data)
                    send(job.shared_dir, who, job.run_id, data, name=name)
                    names[who, name] = f"{who} {word}"
    verdicts = [f"{told}: {reasons(job, who).get(name, 'waits') or 'ok'}" for (who, name), told in names.items()]
    ready = [names[one.who, one.sha256] for one in door.ready.take(10**6)]
    leaving = leave(door)
    return door, verdicts, ready, leaving


#: story → what became of each segment, what is ready, whose rows must leave.
STORIES = {
    "a good one is ready": ("alice 4;look", ["alice 4: ok"], ["alice 4"], []),
    "what is none is refused": ("alice 1?;look", ["alice 1?: name"], [], []),
    "the same from another sender": ("alice 1;look;bob 1;look", ["alice 1: ok", "bob 1: duplicate"], ["alice 1"], []),
    "the same with another header": ("alice 1;look;bob 1';look", ["alice 1: ok", "bob 1': duplicate"], ["alice 1"], []),
    "who was dropped": (
        "alice 1;look;drop alice;alice 2;look 2", ["alice 1: dropped", "alice 2: dropped"], [], ["alice"],
    ),
    "who was readmitted": (
        "alice 1;drop alice;look 2;readmit alice;alice 2;look", ["alice 1: dropped", "alice 2: ok"], ["alice 2"],
        ["alice"],
    ),
}  # fmt: skip
#: The same where nobody but ann is trusted, and segments can be done again.
CHECKED = {
    "one lie takes back all of its sender and nobody else's": (
        "eve 1 2;ann 3;look;eve 4*;ann 5;look",
        ["eve 1: not_reproduced", "eve 2: not_reproduced", "ann 3: ok", "eve 4*: not_reproduced", "ann 5: ok"],
        ["ann 3", "ann 5"], ["eve"],
    ),
    "its time over it is checked from the beginning": (
        "eve 1*;look;days;eve 2*;look", ["eve 1*: not_reproduced", "eve 2*: not_reproduced"], [], ["eve"],
    ),
    "while it is held its segments wait": (
        "eve 1*;look;eve 2;look", ["eve 1*: not_reproduced", "eve 2: waits"], [], ["eve"],
    ),
    "the trusted are believed": ("ann 1*;look", ["ann 1*: ok"], ["ann 1*"], []),
}  # fmt: skip


class TestTheDoor:
    @pytest.mark.parametrize(("story", "verdicts", "ready", "leaving"), STORIES.values(), ids=STORIES)
    def test_what_becomes_of_a_segment(self, job, story, verdicts, ready, leaving):
        assert told_of(job, story)[1:] == (verdicts, ready, leaving)

    @pytest.mark.parametrize(("story", "verdicts", "ready", "leaving"), CHECKED.values(), ids=CHECKED)
    def test_what_becomes_of_one_that_is_done_again(self, job, story, verdicts, ready, leaving):
        trusted = ("ann",) if "ann 1*" in story else ()
        door, *found = told_of(job, story, checked=True, trusted=trusted)
        assert found == [verdicts, ready, leaving]
        if leaving:
            assert "it paid less" in store.held(inbox_of(job, "eve").path, door.now).why
            assert [line for line in told_by(door) if "eve" in line and "it paid less" in line]
        assert store.held(inbox_of(job, "ann").path, door.now) is None
        counts = store.given_to(inbox_of(job, "ann").path, job.run_id, 0)
        assert counts.checked == counts.exact == (0 if trusted else counts.accepted)

    def test_where_nothing_can_be_done_again_only_the_trusted_give(self, job):
        assert told_of(job, "ann 1;eve 2;look", trusted=("ann",))[1:3] == (["ann 1: ok", "eve 2: untrusted"], ["ann 1"])

    @pytest.mark.parametrize("fails", ["judge", "redo"])
    def test_what_fails_on_a_segment_refuses_it_and_goes_on(self, job, fails):
        def raising(data, name, expect):
            if name == bad:
                raise RecursionError("a defect")
            return judge(data, name, expect)

        class Broken(Checker):
            def redo(self, segment):
                if segment.episode == 1:
                    raise RuntimeError("no")
                return super().redo(segment)

        bad = name_of(a_file(job, 1))
        settings = {"judge": raising} if fails == "judge" else {"checked": True, "resimulate": Broken}
        assert told_of(job, "bob 1 2;look", **settings)[1:3] == (["bob 1: defect", "bob 2: ok"], ["bob 2"])

    def test_a_good_segments_rows_are_ready_and_its_file_moved(self, job):
        (path,) = sent(job, 4)
        (ready,) = Door(job).round().ready.take(1000)
        assert not path.exists()
        assert inbox_of(job).accepted(job.run_id, 0, path.name).exists()
        assert (ready.who, ready.task, ready.count, ready.policy_step) == ("alice", 1, HORIZON, 60)
        assert np.array_equal(ready.rows["next_obs.state"], made_up(job.run_id, 4).obs[1:])

    def test_whoever_brings_mostly_what_is_none_is_held_and_the_others_are_not(self, job):
        for number in range(LEAST):
            sent(job, number, name=f"{number:064x}")
        sent(job, 1_000, who="bob")
        door = Door(job).round(LEAST)
        assert whos(door.ready.take(1000)) == ["bob"]
        why = f"{LEAST} of its last {LEAST} segments were refused, the last for name"
        assert told_by(door) == [f"nothing is accepted from alice for 1 h: {why} (`syncd readmit` ends this)"]
        (waits,) = sent(job, 1_001)
        assert door.round(3).ready.take(1000) == []
        assert waits.exists()
        assert inbox_of(job).readmit()
        assert whos(door.round(2).ready.take(1000)) == ["alice"]

    @pytest.mark.parametrize("name", ["find", "waiting", "note"])
    def test_a_folder_that_cannot_be_used_keeps_nobody_else_out(self, job, monkeypatch, name):
        real = getattr(store.Inbox, name)

        def fails(inbox, *args, **more):
            if inbox.who == "alice":
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), secrets.token_hex(4))
            return real(inbox, *args, **more)

        monkeypatch.setattr(store.Inbox, name, fails)
        (counted,) = sent(job, 9, who="carol", state="accepted")
        entries = [Taken(50, who, counted.name, HORIZON, "", 0) for who in ("alice", "carol")]
        sent(job, 1, who="alice")
        sent(job, 2, who="bob")
        door = Door(job, counted=entries).round(3)
        assert "bob" in whos(door.ready.take(1000))
        assert told_by(door) == ["the inbox of alice cannot be used now (Permission denied); trying again"]
        assert not counted.exists()

    def test_where_nothing_is_taken_any_more_a_drop_is_seen_all_the_same(self, job):
        job.accepts_contributions = False
        (left,) = sent(job, 1)
        (counted,) = sent(job, 2, state="accepted")
        inbox_of(job, "bob").drop(by="me", now=NOW)
        door = Door(job, counted=[Taken(50, "alice", counted.name, HORIZON, "", 0)])
        reader = Reader(job, [door])
        reader.begin()
        reader.close(PATIENCE_S)
        assert leave(door) == ["bob"]
        assert (left.exists(), counted.exists()) == (True, False)

    def test_contributors_take_turns_and_no_more_is_judged_than_the_loop_takes(self, job):
        sent(job, *range(30), who="flood")
        sent(job, 30, 31, who="quiet")
        door = Door(job, most_ready_rows=7 * HORIZON)
        assert door.one_round(judged=4) == 4
        assert door.round(3).ready.rows == 7 * HORIZON
        assert len(inbox_of(job, "flood").waiting(job.run_id, 0, now=0)) == 25
        taken = door.ready.take(4 * HORIZON)
        assert whos(taken) == ["flood", "quiet", "flood", "quiet"]
        door.ready.put_back(taken)
        assert door.ready.take(4 * HORIZON) == taken

    def test_policies_of_earlier_attempts_are_looked_up(self, job):
        from published import draft_of, nets_for

        fields = {"run_id": job.run_id, "attempt": 3, "seq": 7, "step": 55}
        tensors = nets_for(TRAINING)
        place = store.Shared(job.shared_dir).slot(job.run_id, 0)
        store.publish(place, draft_of(TRAINING, tensors, **fields), store.rounded(tensors))
        send(job.shared_dir, "alice", job.run_id, encode(made_up(job.run_id, 1, version=(3, 7))))
        (ready,) = Door(job).round().ready.take(1000)
        assert ready.policy_step == 55

    def test_what_a_checkpoint_counts_is_deleted_wherever_a_kill_left_it(self, job):
        paths = [*sent(job, 1, state="accepted"), *sent(job, 2)]
        Door(job, counted=[Taken(50, "alice", path.name, HORIZON, "", 0) for path in paths]).round()
        assert not any(path.exists() for path in paths)
        assert inbox_of(job).usage("new", "accepted", "quarantine").segments == 0

    def test_what_enters_again_or_is_unwanted_is_not_taken_and_what_nobody_counted_is_judged_anew(self, job):
        (scheduled,) = sent(job, 1)
        orphan, unwanted, seen = sent(job, 2, 3, 4, state="accepted")
        entry = Taken(120, "alice", scheduled.name, HORIZON, made_up(job.run_id, 1).content(), 0)
        known = [made_up(job.run_id, 4).content()]
        door = Door(job, taken=[entry], unwanted=[("alice", unwanted.name)], seen=known).round(2)
        assert [one.sha256 for one in door.ready.take(1000)] == [orphan.name]
        assert inbox_of(job).accepted(job.run_id, 0, scheduled.name).exists()
        assert (reasons(job)[unwanted.name], reasons(job)[seen.name]) == ("dropped", "duplicate")
        sent(job, 1, who="bob")  # the same bytes are not his
        door.round(2)
        assert set(reasons(job, "bob").values()) == {"duplicate"}


class TestOtherAccountsOfTheMachine:
    @pytest.fixture
    def shared(self, job):
        made = store.Shared(job.shared_dir)
        made.path.mkdir(parents=True)
        made.path.chmod(0o2750)
        made.slot(job.run_id, 0).path.mkdir(parents=True)
        return made

    def test_what_they_give_is_judged_and_counted_under_their_name(self, job, shared):
        door, deposit = Door(job).round(), store.Deposit(shared)
        assert deposit.offer(job.run_id, 0, a_file(job, 1))
        assert deposit.offer(job.run_id, 0, a_file(job, 2, task="push-v4"))
        (ready,) = door.round().ready.take(1000)
        assert (ready.who, ready.count) == (deposit.who, HORIZON)
        assert door.notice.by_contributor == {deposit.who: {"segments": 1, "transitions": HORIZON, "last_at": NOW}}
        assert (deposit.judged().accepted, deposit.judged().refused) == (1, {"other_task": 1})
        verdicts = store.Inbox.of(shared, deposit.who).verdicts()
        assert [verdict.accepted for verdict in verdicts] == [True, False]
        assert list(shared.incoming(job.run_id, 0).iterdir()) == []


def _full_disk(*_args, **_more):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _state(step):
    state = object.__new__(TrainingRun)
    state.step, state.experience = step, Experience(TRAINING, SPACES)
    return state


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 12, "who"',
        '{"step": 2, "who": "alice"}\n',
        '{"step": "two", "who": "alice", "sha256": "b", "rows": 5, "content": "c", "policy_step": 0}\n',
        '{"step": 2, "peer": null, "sha256": "b", "rows": 5, "content": "c", "policy_step": 0}\n',
        '{"step": 2, "adopt": 1}\n',
        '{"drop": "mallory"}\n',
        "{}\n",
    ],
)
def test_the_journal_is_read_as_it_was_written_but_for_torn_and_damaged_lines(tmp_path, line):
    peers = (MixedPeer(1, 0, 90, "a" * 64, 0.1), MixedPeer(3, 2, 80, "b" * 64, 1.0))
    good = [
        Taken(1, "alice", "a", 5, "b", 0),
        Removed(3, "alice"),
        TakenFromPeer(4, 2, "a", 5, "b", 0),
        Adopted(5, 2, 0, 4, "c" * 64, 0.3),
        Mixed(6, peers, 0.1 + 0.2),
    ]
    intakelog.append(tmp_path, good[:1])
    with open(tmp_path / intakelog.CONTRIBUTIONS, "a") as file:
        file.write(line)
    intakelog.append(tmp_path, good[1:])
    assert intakelog.entries(tmp_path) == good
    assert list(intakelog.copies_of(good)) == ["a", "c" * 64, "a" * 64, "b" * 64]


class TestTheLoop:
    """What enters, and leaves, at a barrier, whatever the disk refuses."""

    @pytest.fixture
    def made(self, job, monkeypatch):
        monkeypatch.setattr(intake_module, "TAKE_EVERY_S", 0.0)
        (job.attempt_dir / "checkpoints" / "100").mkdir(parents=True)
        made = Intake(job, TRAINING.changed(contribution_rollback="auto"), None)
        made.ingester = Door(job)
        return made

    def entered(self, job, made, *whose):
        state = _state(104)
        for number, who in enumerate(whose):
            sent(job, number, who=who)
        made.ingester.round(2)
        made.take(state)
        return state

    def dropped(self, job, made, *whose):
        for who in whose:
            inbox_of(job, who).drop(by="me", now=NOW)
        made.ingester.round()

    def test_nothing_enters_that_is_not_journaled(self, job, made, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(intakelog, "append_lines", _full_disk)
            state = self.entered(job, made, "alice", "bob")
            made.take(state)
        assert state.experience.others is None
        assert ["No space left" in line for line in told_by(made)] == [True]
        made.take(state)
        assert state.experience.others.ring_rows == 2 * HORIZON
        assert [entry.step for entry in intakelog.entries(job.attempt_dir)] == [104, 104]

    def test_a_removal_that_cannot_be_journaled_waits_and_the_training_goes_on(self, job, made, monkeypatch):
        state = self.entered(job, made, "alice")
        self.dropped(job, made, "alice")
        with monkeypatch.context() as patch:
            patch.setattr(intakelog, "append_lines", _full_disk)
            made.take(state)
        assert state.experience.others.rows_of("alice") == HORIZON
        made.take(state)
        assert state.experience.others.rows_of("alice") == 0
        assert any("No space left" in line for line in told_by(made))

    def test_going_back_that_the_disk_refuses_is_said_once_and_tried_again(self, job, made, monkeypatch):
        state = self.entered(job, made, "alice", "bob")
        self.dropped(job, made, "alice", "bob")
        with monkeypatch.context() as patch:
            patch.setattr(rollback, "roll_back", _full_disk)
            for _ in range(3):
                made.take(state)
        assert state.experience.others.ring_rows == 0
        assert (made.ends_unsaved, rollbacks(job.slot_dir)) == (False, [])
        refused = [line.split()[3] for line in told_by(made) if "No space left" in line and "tried again" in line]
        assert refused == ["alice", "bob"]
        made.take(state)
        assert made.ends_unsaved
        assert {(back.step, back.without) for back in rollbacks(job.slot_dir)} == {(100, "alice"), (100, "bob")}
        assert [type(entry) for entry in intakelog.entries(job.attempt_dir)] == [Taken, Taken, Removed, Removed]
        assert not made.ingester.removals

    @pytest.mark.parametrize(("lies", "reason"), [(True, "not_reproduced"), (False, "dropped")])
    def test_what_is_put_back_after_its_sender_had_to_leave_does_not_enter(self, job, lies, reason):
        door = Door(job, checked=True)
        sent(job, 1)
        taken = door.round().ready.take(1000)
        if lies:
            send(job.shared_dir, "alice", job.run_id, lie(job, 2))
        else:
            inbox_of(job).drop(by="me", now=NOW)
        door.round()
        door.removals.put_back(taken)  # the journal could not be written
        assert (leave(door), door.ready.take(1000)) == (["alice"], [])
        door.round()
        assert {*reasons(job).values()} == {reason}

    def test_a_lie_that_the_loop_did_not_come_to_is_known_to_the_next_job(self, job):
        send(job.shared_dir, "eve", job.run_id, lie(job, 1))
        Door(job, checked=True).round()  # and then the job is killed, with rows of eve in its checkpoints
        for attempt, start, whose, left_at in (
            (1, (0, 100), "eve", 120),
            (2, (1, 120), "eve", 130),  # the checkpoint of that step may be from before they left
            (3, (2, 140), None, None),
            (4, (0, 100), "eve", None),  # it walked back, and is killed
            (5, (2, 140), "eve", None),
        ):
            later = Job(job.run_dir, 0, attempt, run_id=job.run_id, accepts_contributions=True)
            again = Door(later, checked=True, start=start).round()
            assert bool(again.removals) == (whose is not None)
            if left_at is not None:
                assert leave(again, left_at) == [whose]
            again.round()
        assert store.held(inbox_of(job, "eve").path, NOW)

    def test_who_lies_again_while_the_rows_leave_must_leave_once_more(self, job):
        send(job.shared_dir, "eve", job.run_id, lie(job, 1))
        door = Door(job, checked=True).round()
        door.removals.take_out(lambda who: door.removals.begin(who, WITH_A_LIE) == [], 120)
        door.round()
        for attempt, start, whose in ((1, 130, ["eve"]), (2, 150, [])):
            later = Job(job.run_dir, 0, attempt, run_id=job.run_id, accepts_contributions=True)
            assert leave(Door(later, checked=True, start=(0, start)).round()) == whose
            assert leave(door, 140) == whose
            door.round()
