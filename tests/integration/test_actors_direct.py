"""Actors on the run's own machines, as a job: they hand in to the shared folder itself, hand over, and know the end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from daemons import PATIENCE_S, wait_for

pytest.importorskip("metaworld")

from playing_actors import UNHURRIED
from published import RUN, TASKS, publish, training_of
from suites import spaces_like

from anchorleg.job import Job
from syncd import store
from trainer.envs.suites.metaworld.shapes import BOUNDS
from trainer.sharing import notice
from trainer.sharing.judge import Accepted, Expectation, judge

pytestmark = pytest.mark.trainer
HORIZON = 10
TRAINING = training_of(horizon=HORIZON)


@pytest.fixture
def shared(tmp_path):
    """A group's shared folder of a training that takes experience."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2750)
    found = store.Shared(folder)
    publish(folder, training=TRAINING)
    store.make_incoming(found, RUN, 0)
    notice.write_notice(learner(found), 100, time.time(), {"takes": True})
    return found


def learner(shared):
    return Job(shared.path.parent / "run", 0, 1, run_id=RUN, shared_dir=shared.path, accepts_contributions=True)


class Helping:
    """`trainer actors --contribute --direct` in a job of the orchestrator's."""

    def __init__(self, folder, child):
        self.hand_over_file = folder / "hand-over"
        self.log, self.child = folder / "log.txt", child

    def said(self):
        return self.log.read_text()

    def wait_for(self, words):
        wait_for(lambda: words in self.said() or self.child.poll() is not None, words)
        assert words in self.said(), self.said()

    def ended(self):
        return self.child.wait(PATIENCE_S)


@contextmanager
def helping(shared, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    described = {
        "ANCHORLEG_RUN_DIR": str(folder / "run"),
        "ANCHORLEG_SLOT": "0",
        "ANCHORLEG_ATTEMPT": "0",
        "ANCHORLEG_HANDOVER_FILE": str(folder / "hand-over"),
        "ANCHORLEG_SCRATCH": str(folder),
        "ANCHORLEG_RUN_ID": "helping-00000000",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    words = [
        "actors",
        "--contribute",
        "--direct",
        "--shared-dir",
        str(shared.path),
        "--num-envs",
        "2",
        "--device",
        "cpu",
    ]
    command = [sys.executable, "-c", f"{UNHURRIED}import trainer.cli; trainer.cli.main()", *words]
    with open(folder / "log.txt", "w") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **described})
    try:
        yield Helping(folder, child)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait(PATIENCE_S)


def waiting(shared):
    return [path for path in shared.incoming(RUN, 0).iterdir() if not path.name.startswith(".")]


def collected(shared, most):
    with contextlib.closing(store.Incoming(shared, RUN, 0)) as incoming:
        return incoming.collect(most, now=time.time())


@pytest.mark.long
def test_a_job_hands_in_what_it_plays_and_hands_over_with_nothing_left_behind(shared, tmp_path):
    with helping(shared, tmp_path) as job:
        wait_for(lambda: len(waiting(shared)) >= 4, "segments")
        job.hand_over_file.touch()
        assert job.ended() == 75, job.said()
    assert "stopped: " in job.said()
    count = len(list(shared.incoming(RUN, 0).iterdir()))  # nothing that is half written among them
    assert len(collected(shared, count)) == count
    who = store.Deposit(shared).who
    found = list(store.Inbox.of(shared, who).place("new", RUN, 0).iterdir())
    expect = Expectation(RUN, 0, spaces_like(TASKS, HORIZON), BOUNDS, [(1, 1, 100)], 100, 0)
    judged = [judge(path.read_bytes(), path.name, expect) for path in found]
    assert [one for one in judged if not isinstance(one, Accepted)] == []
    assert not (shared.path / "outbox").exists()


@pytest.mark.long
def test_a_job_ends_well_when_the_training_is_complete(shared, tmp_path):
    with helping(shared, tmp_path) as job:
        wait_for(lambda: waiting(shared), "segments")
        notice.say_none(learner(shared), 200, print, over=True)
        assert job.ended() == 0
    assert "the training is complete; done: " in job.said()


@pytest.mark.long
def test_a_job_of_who_was_dropped_asks_for_no_other(shared, tmp_path):
    with helping(shared, tmp_path) as job:
        wait_for(lambda: waiting(shared), "segments")
        collected(shared, 1)
        store.Inbox.of(shared, store.Deposit(shared).who).drop(by="the owner", now=time.time())
        assert job.ended() == 93
    assert job.said().splitlines()[-1].endswith("[actors.dropped]")
    assert "Traceback" not in job.said()
