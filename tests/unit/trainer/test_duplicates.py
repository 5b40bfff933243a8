"""One true episode that is sent without end, through the real inbox, judge and simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from suites import metaworld

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from hypothesis import given
from hypothesis import strategies as st
from segments_of import TASKS, beginning, honest
from train_contributed import send
from train_point_mass import section

from anchorleg.job import Job
from trainer.sharing.duplicates import FILE, TakenBefore, Trace, Traces
from trainer.sharing.ingest import Ingester
from trainer.sharing.segment import encode
from trainer.sharing.spotcheck import Resimulator

pytestmark = pytest.mark.trainer
HORIZON = 40
#: As much as honest machines are allowed to differ, nearly.
MOST = 9.5e-3
TIMES = 60


@pytest.fixture
def job(tmp_path):
    made = Job.standalone(tmp_path / "toy", accepts_contributions=True)
    made.start_from(None)
    return made


def door_of(job, **more):
    training = section(tasks=TASKS, horizon=HORIZON, contribution_max_lag=500)
    door = Ingester(job, training, step=100, resimulate=lambda: Resimulator(metaworld(TASKS, HORIZON, 42)), **more)
    door.know(0, 0, 60)
    return door


def played(job, count=6):
    return honest(count, run_id=job.run_id, tasks=TASKS, horizon=HORIZON, version=(0, 0))


def moved(one, by):
    """Hand, gripper and object elsewhere by `by` [18], in the frame now and in the one before."""
    obs = one.obs.copy()
    obs[:, :18] += by
    obs[:, 18:36] += by
    return replace(one, obs=obs)


def _place(rng):
    """Of what moves: the second object's numbers are 0 in these tasks."""
    return np.append(rng.uniform(-MOST, MOST, 11), np.zeros(7)).astype(np.float32)


#: Each leaves what the simulation believes.
AGAIN = {
    "moved": lambda one, rng: moved(one, _place(rng)),
    "paid otherwise": lambda one, rng: replace(one, reward=one.reward + rng.uniform(0, MOST, one.steps).astype("f4")),
    "cut off earlier": lambda one, rng: beginning(one, int(rng.integers(HORIZON // 2 + 1, HORIZON))),
    "moved and cut off": lambda one, rng: beginning(moved(one, _place(rng)), int(rng.integers(21, HORIZON))),
}


@pytest.mark.parametrize("again", AGAIN)
def test_one_true_episode_enters_once_however_it_is_changed(job, again):
    rng = np.random.default_rng(0)
    one = played(job)[0]
    one = replace(one, reward=one.reward.clip(0, 9.9))
    door = door_of(job)
    sent = {send(job.shared_dir, "mallory", job.run_id, encode(AGAIN[again](one, rng))) for _ in range(TIMES)}
    while door.one_round():
        pass
    assert (door.accepted, dict(door.refused)) == (1, {"duplicate": len(sent) - 1})


def test_another_job_knows_what_was_taken_and_another_contributor_sends_it_in_vain(job):
    rng = np.random.default_rng(0)
    one, other = played(job)[:2]
    send(job.shared_dir, "mallory", job.run_id, encode(one))
    assert door_of(job).one_round() == 1
    later = Job.standalone(job.slot_dir.parents[1], accepts_contributions=True)
    assert later.attempt > job.attempt
    for who in ("mallory", "carol"):
        send(job.shared_dir, who, job.run_id, encode(moved(one, _place(rng))))
    send(job.shared_dir, "carol", job.run_id, encode(other))
    door = door_of(later)
    while door.one_round():  # at first what an elder had accepted, which does not count against itself
        pass
    assert (door.accepted, dict(door.refused)) == (2, {"duplicate": 2})


@pytest.mark.parametrize("column", [11, 14, 17])
def test_what_a_task_has_no_number_for_is_0(job, column):
    by = np.zeros(18, np.float32)
    by[column] = MOST
    send(job.shared_dir, "mallory", job.run_id, encode(moved(played(job)[0], by)))
    door = door_of(job)
    assert door.one_round() == 1
    assert dict(door.refused) == {"discontinuous": 1}


def trace(seed, steps=10, task="reach-v3", start=0.0):
    actions = np.random.default_rng(seed).integers(-100, 101, (steps, 4)).astype(np.int8)
    return Trace(task, np.full(3, start, np.float32), actions)


def test_only_what_begins_alike_and_goes_on_alike_for_half_of_its_rows_is_near():
    known, one = Traces(), trace(0)
    known.add(one)
    assert known.has(one)
    assert not known.has(trace(1))
    assert not known.has(replace(one, task="push-v3"))
    assert [known.has(trace(0, start=start)) for start in (0.02, 0.021)] == [True, False]
    longer = np.concatenate([one.actions, trace(1).actions, trace(2).actions[:1]])
    assert [known.has(replace(one, actions=longer[:steps])) for steps in (1, 10, 20, 21)] == [True, True, True, False]


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from(["a", "b"])), max_size=60))
def test_the_newest_rows_are_remembered_however_they_come(lengths):
    known, added = Traces(100), []
    for seed, (steps, task) in enumerate(lengths):
        added.append(trace(seed, steps, task, start=float(seed)))
        known.add(added[-1])
        rows = np.cumsum([len(one.actions) for one in reversed(added)])[::-1]
        kept = [known.has(one) for one in added]
        assert kept == [bool(total <= 100) for total in rows]
        assert known.rows == sum(len(one.actions) for one, is_kept in zip(added, kept, strict=True) if is_kept)


def test_the_files_of_many_attempts_are_bounded_and_a_torn_end_is_left_out(tmp_path):
    jobs = [Job(tmp_path / "toy", 0, number, run_id="toy-0123abcd") for number in range(4)]
    for job in jobs[:3]:
        job.attempt_dir.mkdir(parents=True)
        before = TakenBefore(job, (), most_rows=50)
        for seed in range(12):
            before.add(f"{seed}", trace(100 * job.attempt + seed))
    with open(jobs[2].attempt_dir / FILE, "ab") as file:
        file.write(trace(7).packed()[:-1])
    known = TakenBefore(jobs[3], (), most_rows=50).traces
    assert [seed for seed in range(12) if known.has(trace(200 + seed))] == [7, 8, 9, 10, 11]
    assert not known.has(trace(7))
    assert [path.name for job in jobs[:3] for path in job.attempt_dir.iterdir()] == [FILE]


@given(st.integers(0, 100), st.lists(st.integers(-5, 5), min_size=40, max_size=40))
def test_no_edge_of_a_unit_hides_what_is_near(seed, shift):
    known, one = Traces(), trace(seed)
    known.add(one)
    moved = (one.actions.astype(np.int16) + np.array(shift).reshape(10, 4)).clip(-100, 100).astype(np.int8)
    assert known.has(replace(one, actions=moved))
