"""Old policies go: while it trains, when nothing has room, when it is over, and where nobody learns any more."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time

import pytest
from daemons import PATIENCE_S

pytest.importorskip("torch")

from point_mass import PointMasses
from test_publisher import Learning
from train_point_mass import judge, section

from anchorleg.job import Job
from syncd import store
from trainer.config.settings import GroupSettings
from trainer.sharing import publisher as publishing
from trainer.sharing.clearing import COLLECT_EVERY_S, OTHERS_EVERY_S, Clearing, clear_over
from trainer.training.begin import run
from trainer.training.features.progress import TrainingDisplay

pytestmark = pytest.mark.trainer

DAY, MINUTE = 86_400.0, 60.0
#: What the clock of `Learning.publisher` says.
NOW = 1e9
KEPT = store.LEARNERS.newest


@pytest.fixture
def learning(tmp_path):
    return Learning(tmp_path / "toy")


def past(place, now, count=300, every_s=MINUTE):
    """So many versions of attempt 0, the newest at `now`. What they say is for readers; none is there."""
    place.manifests.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = place.manifest(store.Version(0, 10_000 + number))
        path.write_text("{}")
        os.utime(path, (now - every_s * (count - 1 - number),) * 2)


def count_of(place):
    return len(store.versions(place))


def test_where_no_policy_has_room_old_ones_go_all_the_same(learning):
    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    past(learning.place, NOW - DAY)
    learning.publish(1, publish=full)
    assert count_of(learning.place) == KEPT
    assert ["the disk is full" in line for line in learning.said] == [True]


def test_it_goes_on_where_nothing_is_published_any_more(learning, monkeypatch):
    looked, again = [], threading.Event()

    def look(clearing):
        looked.append(clearing)
        if len(looked) == 3:
            again.set()
        return []

    monkeypatch.setattr(publishing, "COLLECT_EVERY_S", 0.001)
    monkeypatch.setattr(Clearing, "when_due", look)
    publisher = learning.publisher()
    publisher.offer(learning.at(100))
    assert again.wait(PATIENCE_S)
    publisher.close()


@pytest.mark.parametrize("is_complete", [True, False])
def test_when_the_training_is_over_the_newest_policies_stay_alone(learning, is_complete):
    past(learning.place, NOW)
    past(learning.place.averaged, NOW, every_s=10 * MINUTE)
    publisher = learning.publisher()
    publisher.offer(learning.at(100))
    if is_complete:
        publisher.complete()
    publisher.close()
    counts = count_of(learning.place), count_of(learning.place.averaged)
    assert counts == ((KEPT, store.AVERAGES.newest) if is_complete else (301, 145))


@pytest.mark.parametrize("asked", [None, "deadline"])
def test_clearing_away_at_the_end_is_waited_for_until_the_job_is_to_end(learning, monkeypatch, asked):
    """`close` looks for that once it would have given up a folder that hangs."""
    past(learning.place, NOW)
    looked, cleared, clear = threading.Event(), threading.Event(), publishing.clear_over

    def slow(*about):
        looked.wait(PATIENCE_S)
        troubles = clear(*about)
        cleared.set()
        return troubles

    def reason():
        if asked is None:
            looked.set()
        return asked

    monkeypatch.setattr(publishing, "clear_over", slow)
    monkeypatch.setattr(learning.job, "hand_over_reason", reason)
    publisher = learning.publisher()
    publisher.offer(learning.at(100))
    publisher.complete()
    publisher.close(wait_s=0.0)
    assert cleared.is_set() is (asked is None)
    looked.set()
    publisher._thread.join(PATIENCE_S)
    assert count_of(learning.place) == KEPT


def test_a_job_that_waits_for_clearing_away_goes_on_reporting(learning, monkeypatch):
    """Else `relay.stall_seconds`, which may be less, would end it."""
    past(learning.place, NOW)
    reports, enough, clear = [], threading.Event(), publishing.clear_over
    monkeypatch.setattr(publishing, "clear_over", lambda *about: clear(*about) if enough.wait(PATIENCE_S) else [])

    def beat():
        reports.append(None)
        if len(reports) == 3:
            enough.set()

    publisher = learning.publisher()
    publisher.offer(learning.at(100))
    publisher.complete()
    publisher.close(wait_s=0.0, beat=beat)
    assert count_of(learning.place) == KEPT


def test_a_slot_whose_group_may_be_behind_keeps_its_last_day(learning):
    past(learning.place, NOW)
    learning.job.slots = 2
    alone = learning.training
    together = alone.model_copy(update={"group": GroupSettings(rows=True)})
    assert clear_over(learning.job, together.group, lambda: NOW) == []
    assert count_of(learning.place) == 300
    assert clear_over(learning.job, alone.group, lambda: NOW) == []
    assert count_of(learning.place) == KEPT


def test_who_has_a_successor_clears_nothing(learning, tmp_path):
    past(learning.place, NOW)
    Learning(tmp_path / "toy")
    assert clear_over(learning.job, learning.training.group, lambda: NOW) == []
    assert count_of(learning.place) == 300


def test_a_learner_clears_away_what_other_slots_of_its_run_left_a_day_ago(learning):
    shared, run_id, ticks = store.Shared(learning.job.shared_dir), learning.job.run_id, [0.0]
    clearing = Clearing(learning.job, clock=lambda: NOW, monotonic=lambda: ticks[0])
    assert clearing.when_due() == []
    left, young, foreign = shared.slot(run_id, 1), shared.slot(run_id, 2), shared.slot("other-01234567", 1)
    past(left, NOW - DAY - MINUTE)
    past(left.averaged, NOW - DAY - MINUTE)
    past(young, NOW - DAY / 2)
    past(foreign, NOW - 2 * DAY)
    ticks[0] += COLLECT_EVERY_S
    assert clearing.when_due() == []
    assert count_of(left) == 300
    ticks[0] += OTHERS_EVERY_S
    assert clearing.when_due() == []
    assert (count_of(left), count_of(left.averaged)) == (KEPT, store.AVERAGES.newest)
    assert (count_of(young), count_of(foreign)) == (300, 300)


def test_what_cannot_be_cleared_away_is_said_once_while_it_lasts(learning, monkeypatch):
    ticks = [0.0]
    clearing = Clearing(learning.job, clock=lambda: NOW, monotonic=lambda: ticks[0])
    past(learning.place, NOW - 2 * DAY)
    told = []
    with monkeypatch.context() as closed:

        def refused(path, **_more):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        closed.setattr("pathlib.Path.unlink", refused)
        for _ in range(3):
            told += clearing.when_due() + clearing.when_due()
            ticks[0] += COLLECT_EVERY_S
    assert ["Permission denied" in line for line in told] == [True]
    assert clearing.when_due() == []
    assert count_of(learning.place) == KEPT


def test_a_complete_training_leaves_its_newest_policies_alone(tmp_path):
    folder = tmp_path / "toy"
    place = Learning(folder).place
    for _ in range(2):  # the second job finds nothing left to do
        shutil.rmtree(place.path, ignore_errors=True)
        past(place, time.time())
        done = run(
            Job.standalone(folder), section(total_steps=200), TrainingDisplay(), make_envs=PointMasses, evaluator=judge
        )
        assert (done, count_of(place)) == (0, KEPT)
