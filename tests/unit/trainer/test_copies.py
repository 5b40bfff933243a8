"""Copies of what other slots gave: how long they stay, and what is said where they are gone."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace

import pytest
from suites import SPACES

pytest.importorskip("torch")

from train_contributed import HORIZON, made_up, send
from train_point_mass import section

from anchorleg.job import CheckpointRef, Job
from anchorleg.places import begin_id, run_id_of
from anchorleg.rollback import Rollback, roll_back
from trainer.buffers.experience import Experience
from trainer.checkpoints.resume import Start
from trainer.checkpoints.rows import PEERS
from trainer.checkpoints.saver import Saver
from trainer.sharing.copies import Copies
from trainer.sharing.journal import Adopted, Mixed, MixedPeer, Taken, TakenFromPeer, append, copies_of, inherited
from trainer.sharing.judge import Accepted
from trainer.sharing.segment import encode, name_of
from trainer.training.features.inflow.intake import Intake
from trainer.training.run import TrainingRun

pytestmark = pytest.mark.trainer


class Resumed:
    """A slot whose first attempt has checkpoints of the steps 100, 200 and 300, and whose second goes on from 300."""

    def __init__(self, tmp_path, *entries, **group):
        self.training = section(horizon=HORIZON, total_steps=4000, group=group)
        first = Job.standalone(tmp_path / "run", 1)
        first.start_from(None)
        append(first.attempt_dir, entries)
        for step in (100, 200, 300):
            (first.attempt_dir / "checkpoints" / str(step)).mkdir(parents=True)
        self.first, self.job = first, Job.standalone(tmp_path / "run", 1)
        ref = CheckpointRef(0, 300, first.attempt_dir / "checkpoints" / "300")
        self.job.start_from(ref)
        self.start = Start(ref, None, None, None, ())

    def intake(self):
        return Intake(self.job, self.training, self.start)

    def begun(self):
        """`intake`, without its thread."""
        made = self.intake()
        made.reader.begin = lambda: None
        made.open()
        made.copies.look()
        return made

    @property
    def copies(self):
        """Those that are left; an empty folder may be gone, too, or not yet: two threads clear away."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self.first.attempt_dir / "taken"))
        return []


def said_by(intake):
    said: list[str] = []
    intake.tell(said.append)
    return said


def from_peer(step, number):
    data = encode(replace(made_up("run", number), slot=0))
    return TakenFromPeer(step, 0, name_of(data), HORIZON, f"{number:064x}", 60), data


def state(step):
    made = object.__new__(TrainingRun)
    made.step, made.experience = step, Experience(section(horizon=HORIZON), SPACES)
    return made


@pytest.mark.parametrize("group", [{}, {"rows": True}, {"adopt": True}, {"rows": True, "adopt": True}])
def test_they_stay_until_two_checkpoints_have_them_whatever_the_slot_takes_by_now(tmp_path, group):
    made = [from_peer(step, step) for step in (150, 290, 350)]
    adopted = Adopted(250, 0, 0, 90, name_of(b"learner"), 0.3)
    mixed = Mixed(260, tuple(MixedPeer(0, 0, 90, name_of(data), 1.0) for data in (b"one", b"another")), 0.1)
    slot = Resumed(tmp_path, made[0][0], adopted, mixed, made[1][0], made[2][0], **group)
    for data in (*(data for _, data in made), b"learner", b"one", b"another", b"never taken"):
        Copies(slot.first).keep(data)
    intake = slot.begun()
    ahead, of_newest = [made[2][0].sha256], [made[1][0].sha256, *copies_of([adopted, mixed])]
    assert slot.copies == sorted(ahead + of_newest)
    intake.take(state(400))
    intake.on_checkpoint(400)
    intake.copies.look()
    assert slot.copies == ahead
    intake.on_checkpoint(500)
    intake.copies.look()
    assert slot.copies == []
    assert said_by(intake) == []


@pytest.mark.parametrize("again", ["ahead", "about to be", "never"])
def test_one_of_a_learner_that_is_taken_over_twice_stays_for_the_second_time(tmp_path, again):
    sha256 = name_of(b"learner")
    steps = (250, 450) if again == "ahead" else (250,)
    slot = Resumed(tmp_path, *(Adopted(step, 0, 0, 90, sha256, 0.3) for step in steps), adopt=True)
    Copies(slot.first).keep(b"learner")
    intake = slot.begun()
    if again == "about to be":
        intake.copies.keep(b"learner")
    intake.on_checkpoint(400)
    intake.copies.look()
    assert slot.copies == ([] if again == "never" else [sha256])
    assert os.path.exists(slot.job.attempt_dir / "taken" / sha256) == (again == "about to be")


def mean_of(*weights, step=310):
    return Mixed(step, tuple(MixedPeer(2 * k, 0, 90, name_of(data), 1.0) for k, data in enumerate(weights)), 0.1)


@pytest.mark.parametrize(
    ("entries", "steps", "what", "without"),
    [
        ([from_peer(step, step)[0] for step in (310, 320, 330)], (310, 320, 330), "a segment of slot 0",
         ", and 2 more up to step 330: continuing without them"),
        ([from_peer(step, step)[0] for step in (310, 900)], (310,), "a segment of slot 0", "): continuing without it"),
        # Of two files one is there: half a mean would be another mean.
        ([mean_of(b"one", b"another")], (310,), "a mean with the weights of slots 0 and 2", "): continuing without it"),
    ],
)  # fmt: skip
def test_all_that_is_gone_is_one_sentence_also_where_the_job_ends_before(tmp_path, entries, steps, what, without):
    slot = Resumed(tmp_path, *entries, rows=True)
    Copies(slot.first).keep(b"one")
    intake = slot.intake()
    for step in steps:
        intake.take(state(step))  # which has no learner to change
    intake.close()
    (sentence,) = said_by(intake)
    assert sentence.startswith(f"{what} that entered at step 310 is gone or damaged (")
    assert f"{without}; " in sentence


def test_an_adoption_that_is_lost_keeps_the_slot_from_none(tmp_path):
    slot = Resumed(tmp_path, Adopted(350, 0, 0, 90, "a" * 64, 0.3), adopt=True)
    intake = slot.intake()
    assert not intake.adoptions.may(400)
    intake.take(state(400))
    assert intake.adoptions.may(400)


@pytest.mark.parametrize(
    "entry",
    [Adopted(250, 0, 0, 90, "a" * 64, 0.3), Mixed(250, (MixedPeer(0, 0, 90, "a" * 64, 1.0),), 0.1)],
    ids=["adopted", "mixed"],
)
@pytest.mark.parametrize(
    ("step", "who", "is_said"), [(80, "mallory", True), (95, "mallory", False), (80, "bob", False)]
)
def test_a_learner_that_came_of_a_liars_rows_is_told_of(tmp_path, step, who, is_said, entry):
    giver = Job.standalone(tmp_path / "run", 0)
    giver.start_from(None)
    append(giver.attempt_dir, [Taken(step, who, "b" * 64, HORIZON, "c" * 64, 60)])
    slot = Resumed(tmp_path, entry)
    intake = slot.intake()
    assert intake._remove(state(250), "mallory")
    said = said_by(intake)
    words = "the learner of slot 0, adopted at step 250, also learned from rows of mallory: to undo it, roll back to "
    assert said == ([f"{words}before that step (docs/laptops.md)"] if is_said else [])


class Line:
    """Attempts of one slot, each with what it took and saved; the last one is about to begin."""

    def __init__(self, tmp_path, slot=1):
        self.run, self.slot = tmp_path / "run", slot

    def attempt(self, parent, *took, saved=()):
        job = Job.standalone(self.run, self.slot, accepts_contributions=True)
        job.start_from(parent and self.ref(*parent))
        if took:
            append(job.attempt_dir, took)
        for step in saved:
            (job.attempt_dir / "checkpoints" / str(step)).mkdir(parents=True)
        return job

    def ref(self, attempt, step):
        path = self.run / "slots" / str(self.slot) / "attempts" / str(attempt) / "checkpoints" / str(step)
        return CheckpointRef(attempt, step, path)

    def whole(self, attempt, step):
        return inherited(self.attempt((attempt, step)), Start(self.ref(attempt, step), None, None, None, ()))

    def inherited(self, attempt, step):
        made = self.whole(attempt, step)
        return [[entry.step for entry in part] for part in (made.counted, made.held, made.later)]


def sent(*steps, who="alice"):
    return [Taken(step, who, f"{step:064x}", HORIZON, f"{step:064x}", 60) for step in steps]


@pytest.mark.parametrize("is_walked_back_twice", [False, True])
def test_what_a_damaged_checkpoint_has_is_taken_again_whichever_attempt_took_it(tmp_path, is_walked_back_twice):
    line = Line(tmp_path)
    line.attempt(None, *sent(80, 100, 110), saved=(50, 100))
    line.attempt((0, 100), *sent(110, 120, 160), saved=(150,))  # it wrote down what it inherited
    line.attempt((1, 150), *sent(160, 170))  # and died
    if is_walked_back_twice:
        line.attempt((0, 100), *sent(110, 120, 160))  # and died, too
    assert line.inherited(0, 100) == [[], [80, 100], [110, 120, 160]]
    assert line.inherited(1, 150) == [[80, 100], [110, 120], [160]]


def test_of_one_that_goes_on_as_usual_the_last_attempt_counts(tmp_path):
    line = Line(tmp_path)
    line.attempt(None, *sent(40, 80, 110), saved=(50, 100))
    line.attempt((0, 100), *sent(110, 120, 130, 160), saved=(125, 150))
    assert line.inherited(1, 150) == [[110, 120], [130], [160]]


def test_a_walk_back_after_the_slot_went_back_on_purpose_loses_nothing_either(tmp_path):
    line = Line(tmp_path)
    first = line.attempt(None, *sent(110, who="mallory"), saved=(100, 150))
    roll_back(first.slot_dir, Rollback(0, 100, 0.0, without="mallory"))
    line.attempt((0, 100), *sent(120), saved=(140,))  # which turned out damaged
    assert line.inherited(0, 100) == [[], [], [120]]


def test_where_the_slot_went_back_on_purpose_what_later_attempts_took_is_not_taken_again(tmp_path):
    line = Line(tmp_path)
    line.attempt(None, *sent(80), *sent(110, who="mallory"), saved=(50, 100))
    second = line.attempt((0, 100), *sent(110, who="mallory"), *sent(120), saved=(150,))
    roll_back(second.slot_dir, Rollback(1, 100, 0.0, without="mallory"))
    assert line.inherited(0, 100) == [[], [80], []]
    assert {who for who, _ in line.whole(0, 100).unwanted} == {"mallory"}
    third = line.attempt((0, 100), saved=(140,))
    assert {who for who, _ in line.whole(third.attempt, 140).unwanted} == {"mallory"}  # while its hold lasts, too


def a_learner(step, *, mixes):
    peer = MixedPeer(0, 0, 90, "a" * 64, 1.0)
    return Mixed(step, (peer,), 0.1) if mixes else Adopted(step, 0, 0, 90, "a" * 64, 0.3)


@pytest.mark.parametrize("mixes", [False, True])
def test_going_back_to_before_anothers_learner_came_in_does_not_put_it_in_again(tmp_path, mixes):
    line = Line(tmp_path)
    learners = (a_learner(115, mixes=mixes), a_learner(130, mixes=mixes))
    first = line.attempt(None, *sent(110), learners[0], *sent(125), learners[1], *sent(140), saved=(100, 120, 150))
    assert line.inherited(0, 100) == [[], [], [110, 115, 125, 130, 140]]  # two damaged ones are walked past
    roll_back(first.slot_dir, Rollback(1, 120, 0.0))
    assert line.inherited(0, 120) == [[], [110, 115], [125, 140]]
    assert line.inherited(0, 100) == [[], [], [110, 115, 125, 140]]  # that of step 120 is damaged
    roll_back(first.slot_dir, Rollback(3, 100, 0.0))
    assert line.inherited(0, 100) == [[], [], [110, 125, 140]]
    line.attempt((0, 100), *sent(110), a_learner(135, mixes=mixes), saved=(150,))  # decided anew, and saved
    assert line.inherited(0, 100) == [[], [], [110, 135]]


def test_a_segment_that_the_newest_checkpoint_alone_has_stays_in_the_inbox_and_is_not_judged_again(tmp_path):
    line = Line(tmp_path, slot=0)
    begin_id(line.run)
    run_id = run_id_of(line.run)
    files = {step: encode(made_up(run_id, step)) for step in (80, 130)}
    paths = {step: send(line.run / "shared", "alice", run_id, data, state="accepted") for step, data in files.items()}
    took = [Taken(step, "alice", name_of(data), HORIZON, f"{step:064x}", 60) for step, data in files.items()]
    line.attempt(None, *took, saved=(100, 150))
    job = line.attempt((0, 150))
    intake = Intake(job, section(horizon=HORIZON), Start(line.ref(0, 150), None, None, None, ()))
    intake.ingester.one_round()
    assert [step for step, path in paths.items() if path.exists()] == [130]
    intake.on_checkpoint(200)
    intake.ingester.one_round()
    assert not paths[130].exists()
    assert intake.summary() == {"accepted": 0, "refused": 0}


def test_files_of_others_rows_are_listed_as_long_as_the_ring_has_any_of_them(tmp_path):
    """Two slots share the room: each has half of it, and its older rows went."""
    training = section(horizon=HORIZON, buffer_size=1500, group={"rows": True})
    job, experience = Job.standalone(tmp_path / "run", 1), Experience(training, SPACES)
    job.start_from(None)
    saver, peers = Saver(job, training), experience.join()
    for number in range(3 * peers.capacity // HORIZON):
        rows = made_up("run", number)
        taken = Accepted(rows, 0, f"{number:064x}", 0).rows()
        peers.add(str(2 * (number % 2)), taken, task=0, content=f"{number}", policy_step=0, step=number)
        saver.rows[PEERS] = saver._written(number, PEERS, saver.unsaved(experience)[PEERS])
        has = sum(sum(file.counts) for file in saver.rows[PEERS])
        assert peers.ring_rows <= has < peers.ring_rows + 4 * HORIZON
    assert peers.ring_rows == 2 * peers.ring.capacity
    saver.close()
