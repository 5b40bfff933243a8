from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
from daemons import PATIENCE_S, wait_for
from hypothesis import example, given
from hypothesis import strategies as st
from suites import learner_of

pytest.importorskip("torch")

import torch
from point_mass import PointMasses
from slot_digest import slot_digest
from train_point_mass import TASKS, judge, section

from anchorleg.files import append_lines, as_line, write_json
from anchorleg.job import Job, lineage
from syncd import store
from syncd.shared import curves as chunks
from trainer.config.settings import GroupSettings
from trainer.config.training import identity
from trainer.evaluation.playable import find_playable
from trainer.history.read import read, read_evaluations
from trainer.nets.average import MovingAverage
from trainer.sharing import policies as policy
from trainer.sharing.publisher import AVERAGED_EVERY, PublishedCurves, Publisher, clear_over, snapshot
from trainer.training.begin import run
from trainer.training.features.progress import TrainingDisplay

pytestmark = pytest.mark.trainer


class Learning:
    """A learner of one attempt, without a training around it."""

    def __init__(self, run_dir, **fields):
        self.training = section(**fields)
        self.job = Job.standalone(run_dir)
        self.job.start_from(None)
        self.learner = learner_of(self.training)
        self.place = store.Shared(self.job.shared_dir).slot(self.job.run_id, 0)
        self.said = []

    def publisher(self, **more):
        made = Publisher(self.job, self.training, clock=lambda: 1e9, **more)
        made.close = partial(made.close, wait_s=PATIENCE_S)
        return made

    def at(self, step):
        with torch.no_grad():
            next(self.learner.policy.parameters()).add_(0.01)
        return snapshot(step, step // 2, self.learner.policy)

    def publish(self, *steps, **more):
        """One after the other, then the end."""
        for step in steps:
            publisher = self.publisher(**more)
            publisher.offer(self.at(step))
            publisher.close()
            publisher.tell(self.said.append)

    def versions(self):
        return [str(version) for version in store.versions(self.place)]


@pytest.fixture
def learning(tmp_path):
    return Learning(tmp_path / "toy")


def test_a_policy_can_be_loaded_and_checked_and_says_where_it_comes_from(learning):
    evaluation = {"step": 40, "mean_success": 0.25, "goals_per_task": 2, "more": "than a score"}
    learning.publish(100, evaluation=evaluation)
    manifest = store.newest(learning.place)
    policy.load(learning.place, manifest)  # bytes, architecture, golden actions
    assert (str(manifest.version), manifest.step, manifest.updates, manifest.created_at) == ("0-0", 100, 50, 1e9)
    assert (manifest.run_id, manifest.run_name) == (learning.job.run_id, "toy")
    assert manifest.lineage == store.Lineage(identity=identity(learning.training))
    assert manifest.score == store.Score(step=40, mean_success=0.25, goals_per_task=2)
    assert manifest.tasks == TASKS
    assert len(manifest.golden.action) == policy.GOLDEN_ROWS


def test_versions_follow_each_other_over_publications_and_attempts(learning, tmp_path):
    publisher = learning.publisher()
    for step in (0, 10, 20):
        publisher.offer(learning.at(step))
        until_idle(publisher)
    publisher.close()
    successor = Learning(tmp_path / "toy")
    successor.publish(30)
    assert successor.versions() == ["0-0", "0-1", "0-2", "1-0"]
    parents = [store.read_manifest(learning.place, v).lineage.parent for v in store.versions(learning.place)]
    assert parents == [None, "0-0", "0-1", "0-2"]


def until_idle(publisher):
    publisher.close()  # waits for what is under way
    publisher._closing, publisher._thread = False, None


def test_the_average_goes_out_beside_some_with_their_version_and_a_score_of_its_own(learning):
    average = MovingAverage(learning.learner.policy, 0.999)

    def at(step):
        taken = learning.at(step)
        return replace(taken, averaged=snapshot(step, step // 2, learning.learner.policy, average).averaged)

    judged = {"step": 40, "mean_success": 0.25, "goals_per_task": 2}
    publisher = learning.publisher(evaluation_averaged=judged | {"averaged": judged | {"mean_success": 0.5}})
    for seq in range(AVERAGED_EVERY + 2):
        publisher.offer(at(10 * seq))
        until_idle(publisher)
    average.follow()
    publisher.hold(at(500))
    publisher.release(500)
    publisher.close()
    last = AVERAGED_EVERY + 2
    averaged = learning.place.averaged
    assert [version.seq for version in store.versions(averaged)] == [0, AVERAGED_EVERY, last]
    assert [version.seq for version in store.versions(learning.place)] == list(range(last + 1))
    beside, raw = store.newest(averaged), store.newest(learning.place)
    assert (beside.version, beside.step, beside.lineage.checkpoint) == (raw.version, 500, raw.lineage.checkpoint)
    assert beside.score == store.Score(step=40, mean_success=0.5, goals_per_task=2)
    policy.load(averaged, beside)  # golden actions
    name = "body.layers.0.weight"
    wanted = store.rounded({name: average.tensors[name].numpy()})[name]
    assert np.array_equal(store.read(averaged, beside)[name], wanted)
    assert not np.array_equal(store.read(learning.place, raw)[name], wanted)
    assert learning.said == []
    unread = find_playable(str(learning.job.shared_dir), None, "cpu")
    assert not unread.averaged
    found = find_playable(str(learning.job.shared_dir), None, "cpu", averaged=True)
    assert found.averaged
    assert found.name.endswith(", averaged")


def test_a_policy_is_never_followed_by_an_older_one(learning):
    publisher = learning.publisher()
    publisher.hold(learning.at(100))
    publisher.offer(learning.at(110))
    publisher.release(100)
    publisher.close()
    assert store.newest(learning.place).step == 110


def test_the_newest_wins_where_one_is_still_being_written(learning):
    begun, go_on = threading.Event(), threading.Event()

    def slow(*args, **more):
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return store.publish(*args, **more)

    publisher = learning.publisher(publish=slow)
    publisher.offer(learning.at(1))
    assert begun.wait(PATIENCE_S)
    for step in (2, 3, 4):
        publisher.offer(learning.at(step))
    go_on.set()
    publisher.close()
    assert [store.read_manifest(learning.place, v).step for v in store.versions(learning.place)] == [1, 4]


def test_a_full_disk_is_said_once_and_so_is_its_end(learning):
    def full(*args, **more):
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return store.publish(*args, **more)

    is_full = True
    publisher = learning.publisher(publish=full)
    for step in (1, 2, 3):
        publisher.offer(learning.at(step))
        until_idle(publisher)
    is_full = False
    publisher.offer(learning.at(4))
    publisher.close()
    publisher.tell(learning.said.append)
    assert len(learning.said) == 2
    assert "the disk is full" in learning.said[0]
    assert learning.said[1] == "policies are published again"
    assert learning.versions() == ["0-3"]  # a version that failed is never used again


def test_weights_that_are_not_finite_are_not_published_and_nobody_says_that_the_training_goes_on(learning):
    taken = learning.at(1)
    next(iter(taken.tensors.values()))[0] = np.nan
    publisher = learning.publisher()
    publisher.offer(taken)
    publisher.close()
    publisher.tell(learning.said.append)
    assert learning.said == []
    assert learning.versions() == []


def test_a_superseded_attempt_publishes_no_more(learning, tmp_path):
    learning.publish(1)
    Learning(tmp_path / "toy")
    learning.publish(2)
    assert learning.versions() == ["0-0"]
    assert learning.said == []


def test_a_version_is_told_before_it_can_be_seen(learning):
    told = []
    learning.publish(7, on_version=lambda *version: told.append((version, learning.versions())))
    assert told == [((0, 0, 7), [])]


class Awaited(PointMasses):
    """At every tenth vector step of a training that publishes every few updates, a newer policy is waited for: where a
    training is quicker than its publisher, the newest alone is published.
    """

    #: The first 90 steps, of four environments each time, are random ones without updates.
    RANDOM = 23
    shared: store.Shared
    steps, newest = 0, -1

    def step(self, actions):
        self.steps += 1
        if self.steps % 10 == 0 and self.steps > self.RANDOM and self.shared.slots():
            wait_for(self.is_newer, "a newer policy")
        return super().step(actions)

    def is_newer(self):
        found = [store.newest(place) for place in self.shared.slots()]
        step = found[0].step if found and found[0] is not None else -1
        is_newer, self.newest = step > self.newest, max(step, self.newest)
        return is_newer


def test_publishing_changes_no_number_of_the_training_and_the_curves_go_along(tmp_path):
    often, never = tmp_path / "often", tmp_path / "never"
    Awaited.shared = store.Shared(often / "shared")
    for folder, interval, envs in ((often, 5, Awaited), (never, 0, PointMasses)):
        training = section(publish_interval=interval, total_steps=600)
        made = run(Job.standalone(folder), training, TrainingDisplay(), make_envs=envs, evaluator=judge)
        assert made == 0
    assert slot_digest(often / "slots/0") == slot_digest(never / "slots/0")
    counts = {}
    for folder in (often, never):
        (place,) = store.Shared(folder / "shared").slots()
        manifests = [store.read_manifest(place, version) for version in store.versions(place)]
        counts[folder] = len(manifests)
        assert manifests[-1].step == 600
        assert manifests[-1].lineage.checkpoint == store.Origin(attempt=0, step=600)
        assert manifests[-1].score.step == 600
        assert [manifest.step for manifest in manifests] == sorted(manifest.step for manifest in manifests)
        assert store.read_metrics(place, "metrics") == read(folder / "slots/0")
        assert store.read_metrics(place, "evaluations") == read_evaluations(folder / "slots/0")
    assert counts[often] > counts[never]


class Slot:
    """A slot whose attempts come, write, are torn and go back, and what is published of it."""

    def __init__(self, folder):
        self.folder, self.place = folder / "slot", store.Shared(folder / "shared").slot("toy-0123abcd", 0)
        self.steps, self.cut_off = [], b""
        self.curves = PublishedCurves(self.folder, self.place)
        self.attempt("scratch", 0)

    def path(self, number, name="metrics.jsonl"):
        return self.folder / "attempts" / str(number) / name

    def attempt(self, how, back):
        """A new one, `back` rows before the end of the newest of the line; or without a decision yet."""
        newest = lineage(self.folder)[-1] if self.steps else None
        from_scratch = newest is None or how == "scratch"
        step = 0 if from_scratch else max(newest.after, self.steps[newest.attempt] - 10 * back)
        self.path(len(self.steps)).parent.mkdir(parents=True)
        if how != "undecided":
            parent = {"attempt": None if from_scratch else newest.attempt, "step": step, "checkpoint": str(step)}
            write_json(self.path(len(self.steps), "parent.json"), parent)
        self.steps.append(step)
        self.cut_off = b""

    def rows(self, count, number=-1):
        """Of the newest attempt, or of a ghost of the one before."""
        number = max(0, len(self.steps) + number)
        first = self.steps[number]
        made = [{"from": s, "to": s + 10, "loss": s / 3, "by": number} for s in range(first, first + 10 * count, 10)]
        self.steps[number] = first + 10 * count
        before = b""
        if number == len(self.steps) - 1:
            before, self.cut_off = self.cut_off, b""
        append_lines(self.path(number), before, *map(as_line, made))

    def tear(self, text):
        """As a kill does, or somebody who wrote what is no row."""
        if not self.cut_off:
            with open(self.path(len(self.steps) - 1), "ab") as file:
                file.write(text)

    def refuse(self):
        """A full disk takes the last row back, which its writer appends again."""
        data = self.path(len(self.steps) - 1).read_bytes() if self.path(len(self.steps) - 1).exists() else b""
        if not self.cut_off and data.endswith(b"}\n"):
            kept = data[: data.rfind(b"\n", 0, -1) + 1]
            self.cut_off = data[len(kept) :]
            os.truncate(self.path(len(self.steps) - 1), len(kept))

    def evaluation(self, step):
        append_lines(self.path(len(self.steps) - 1, "evaluations.jsonl"), as_line({"step": step, "mean_success": 0.5}))

    def meddle(self, how, number):
        """What a ghost or a person does to the published files."""
        path = self.place.metrics / f"metrics-{number:06d}.jsonl"
        if how == "all":
            shutil.rmtree(self.place.metrics, ignore_errors=True)
        elif how == "gone":
            path.unlink(missing_ok=True)
        elif self.place.metrics.exists():
            path.with_name("other").write_bytes(path.read_bytes()[::-1] if path.exists() else b"{}\n")
            path.with_name("other").rename(path)

    def written_as_before(self):
        """File → its bytes, by the way that had every row in memory at each writing."""
        rows = []
        for stretch in lineage(self.folder):
            path = self.path(stretch.attempt)
            for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                until = 1e9 if stretch.until is None else stretch.until
                if isinstance(row, dict) and stretch.after < row["to"] <= until:
                    rows.append(row)
        return {
            f"{name}-{k:06d}.jsonl": b"".join(as_line(row) for row in found[k * 4 : (k + 1) * 4])
            for name, found in (("metrics", rows), ("evaluations", read_evaluations(self.folder)))
            for k in range(-(-len(found) // 4))
        }

    def write(self, whose):
        if whose == "a new job":
            self.curves = PublishedCurves(self.folder, self.place)
        self.curves.write()
        assert {path.name: path.read_bytes() for path in self.place.metrics.iterdir()} == self.written_as_before()


EVENTS = st.one_of(
    st.tuples(st.just("rows"), st.integers(1, 9)),
    st.tuples(st.just("rows"), st.integers(1, 3), st.just(-2)),
    st.tuples(st.just("tear"), st.sampled_from([b'{"from": 3, "to"', b"nonsense\n", b"[1]\n", b'{"to"', b"\n"])),
    st.tuples(st.just("refuse")),
    # A negative one: the rows up to its parent are written late, by a ghost.
    st.tuples(st.just("attempt"), st.sampled_from(["on", "on", "scratch", "undecided"]), st.integers(-3, 6)),
    st.tuples(st.just("evaluation"), st.integers(0, 9)),
    st.tuples(st.just("meddle"), st.sampled_from(["all", "gone", "other", "other"]), st.integers(0, 3)),
)
#: What is done to a slot, and who writes its curves then.
STORIES = st.lists(
    st.tuples(EVENTS, st.sampled_from(["this job", "this job", "this job", "a new job", ""])), max_size=30
)


@given(STORIES)
@example([(("attempt", "on", -2), "this job"), (("rows", 2, -2), "this job")])
@example([(("attempt", "scratch", 0), ""), (("rows", 9), ""), (("rows", 9), "this job")])
def test_the_files_are_those_of_whoever_reads_all_of_it_each_time(tmp_path_factory, story):
    slot = Slot(tmp_path_factory.mktemp("curves"))
    with mock.patch.object(chunks, "CHUNK_ROWS", 4):
        for (name, *words), whose in [(("rows", 11), "this job"), *story, (("rows", 1), "this job")]:
            getattr(slot, name)(*words)
            if whose:
                slot.write(whose)


def past(place, now, count=300):
    """So many versions of attempt 0, a minute apart, the newest at `now`; nobody reads what they say."""
    place.manifests.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = place.manifest(store.Version(0, 10_000 + number))
        path.write_text("{}")
        os.utime(path, (now - 60 * (count - 1 - number),) * 2)


KEPT = store.LEARNERS.newest


def full(*_args, **_more):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_where_no_policy_has_room_old_ones_go_all_the_same(learning):
    past(learning.place, 1e9 - 86_400)
    learning.publish(1, publish=full)
    assert len(store.versions(learning.place)) == KEPT
    assert ["the disk is full" in line for line in learning.said] == [True]


def test_nothing_goes_of_a_slot_with_a_successor_or_whose_group_may_be_behind(learning, tmp_path):
    past(learning.place, 1e9)
    learning.job.slots = 2
    clear_over(learning.job, GroupSettings(rows=True), lambda: 1e9)
    Learning(tmp_path / "toy")
    clear_over(learning.job, GroupSettings(), lambda: 1e9)
    assert len(store.versions(learning.place)) == 300


def test_a_complete_training_leaves_its_newest_policies_alone(tmp_path):
    place = Learning(tmp_path / "toy").place
    for _ in range(2):  # the second job finds nothing left to do
        shutil.rmtree(place.path, ignore_errors=True)
        past(place, time.time())
        training = section(total_steps=200)
        job = Job.standalone(tmp_path / "toy")
        done = run(job, training, TrainingDisplay(), make_envs=PointMasses, evaluator=judge)
        assert (done, len(store.versions(place))) == (0, KEPT)
