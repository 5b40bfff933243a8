"""What slots of a group give each other: which episodes, how they are read, and how much of a batch they make up."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import numpy as np
import pytest
from daemons import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st
from suites import FIELDS, SPACES

pytest.importorskip("torch")

from train_contributed import HORIZON, made_up
from train_point_mass import section

from anchorleg.job import Job
from trainer.buffers.contributed import MAX_SHARE, Contributed
from trainer.buffers.experience import Experience, share_of_others
from trainer.config.settings import MOST_FOREIGN
from trainer.config.training import group_identity
from trainer.envs.collector import Transition
from trainer.envs.spaces import STATE
from trainer.envs.step import Step
from trainer.sharing import peers
from trainer.sharing.copies import Copies, clear_taken, read_taken
from trainer.sharing.peers import Giving, PeerReader, given_by, peers_of
from trainer.sharing.segment import encode, name_of
from trainer.training.features.giving import EpisodeGiver

pytestmark = pytest.mark.trainer
TRAINING = section(horizon=HORIZON, contribution_max_lag=500, group={"rows": True, "every": 3})
GROUP = group_identity(TRAINING)
TASKS = len(TRAINING.env.tasks)


def slot(tmp_path, number):
    made = Job.standalone(tmp_path / "run", number)
    made.start_from(None)
    return made


def episode(job, number):
    return encode(replace(made_up(job.run_id, number), slot=job.slot))


class Reader(PeerReader):
    """One that works when it is told to, and knows the first policy of each slot."""

    def __init__(self, job, **more):
        super().__init__(job, TRAINING, Copies(job), step=100, **more)

    def looked(self, *, knows=True):
        for other in peers_of(self._job) if knows else ():
            self.know(other, 0, 0, 60)
        self.look()
        return [one.sha256 for one in self.ready.take(10**9)]

    def said(self):
        found: list[str] = []
        self.notices.tell(found.append)
        return found


def give(job, *numbers, group=GROUP, **more):
    """Files of these episodes, given by `job`."""
    giving, files = Giving(job, group, **more), [episode(job, number) for number in numbers]
    for number, data in zip(numbers, files, strict=True):
        giving.give(number, data)
    return [name_of(data) for data in files]


def numbers_of(watcher, slot):
    found, is_other = given_by(watcher, slot, GROUP)
    return [int(one.path.name[:9]) for one in found], is_other


class TestReading:
    def test_what_another_slot_gives_is_taken_once_and_copied(self, tmp_path):
        one, other = slot(tmp_path, 0), slot(tmp_path, 1)
        names, reader = give(other, 0, 1, 2), Reader(one)
        assert reader.looked() == names
        assert reader.looked() == []
        assert read_taken(one, names[1]) == episode(other, 1)
        assert reader.said() == []

    def test_what_is_bad_changes_nothing_and_is_said_once(self, tmp_path):
        one, other = slot(tmp_path, 0), slot(tmp_path, 1)
        giving = Giving(other, GROUP)
        good, torn = episode(other, 0), episode(other, 1)
        giving.give(0, good)
        folder = next((other.attempt_dir).glob("episodes-*"))
        (folder / f"{1:09d}-{name_of(torn)}").write_bytes(torn[:-7])
        (folder / f"{2:09d}-{name_of(torn)}").write_bytes(torn[:-9])
        (folder / f"{3:09d}-{'0' * 64}").symlink_to(folder / "nowhere")
        (folder / "notes.txt").write_text("mine")
        forged = [encode(replace(made_up(other.run_id, number), slot=2)) for number in (4, 5)]
        diverged = encode(replace(made_up(other.run_id, 6), slot=1, reward=np.full(HORIZON, np.nan, np.float32)))
        for number, data in enumerate([*forged, diverged], 4):
            giving.give(number, data)
        reader = Reader(one)
        assert reader.looked() == [name_of(good)]
        assert reader.looked() == []
        said = reader.said()
        assert [next(word for word in ("(name)", "cannot be read", "(other_run)", "(not_finite)") if word in sentence)
                for sentence in said] == ["(name)", "cannot be read", "(other_run)", "(not_finite)"]  # fmt: skip
        assert os.listdir(one.attempt_dir / "taken") == [name_of(good)]

    def test_a_slot_that_cannot_be_read_keeps_no_other_out(self, tmp_path, monkeypatch):
        one, other, third = (slot(tmp_path, number) for number in range(3))
        names = [give(job, 0) for job in (other, third)]
        given_by = peers.given_by

        def hangs(job, number, group):
            if number == other.slot:
                raise OSError(errno.EIO, "Input/output error")
            return given_by(job, number, group)

        monkeypatch.setattr(peers, "given_by", hangs)
        reader = Reader(one)
        assert (reader.looked(), reader.looked()) == (names[1], [])
        assert reader.said() == ["what slot 1 gives cannot be used now (Input/output error); trying again"]

    @pytest.mark.parametrize("turns_up", [True, False])
    def test_a_policy_that_turns_up_late_loses_no_episode_and_one_that_never_does_is_said_once(
        self, tmp_path, turns_up
    ):
        one, other = slot(tmp_path, 0), slot(tmp_path, 1)
        give(other, 0)
        reader = Reader(one)
        for _ in range(peers.PATIENCE_ROUNDS - 1):
            assert reader.looked(knows=False) == []
        assert reader.said() == []
        assert len(reader.looked(knows=turns_up)) == turns_up
        assert ["(version_unknown)" in line for line in reader.said()] == [True] * (not turns_up)
        assert reader.looked() == reader.looked() == []
        assert reader.said() == []

    def test_a_slot_that_trains_something_else_is_left_out(self, tmp_path):
        one, other = slot(tmp_path, 0), slot(tmp_path, 1)
        give(other, 0, group="f" * 16)
        reader = Reader(one)
        assert reader.looked() == []
        assert reader.looked() == []
        assert reader.said() == ["slot 1 trains something else, so its episodes are ignored"]
        give(slot(tmp_path, 1), 1)  # its next attempt does not
        assert len(reader.looked()) == 1

    def test_a_reader_that_is_full_leaves_the_rest_where_it_is(self, tmp_path):
        one, other = slot(tmp_path, 0), slot(tmp_path, 1)
        give(other, *range(5))
        reader = Reader(one, most_ready_rows=2 * HORIZON)
        assert [len(reader.looked()) for _ in range(4)] == [2, 2, 1, 0]


class TestWhatIsGiven:
    def test_attempts_that_gave_nothing_hide_nothing(self, tmp_path):
        watcher, other = slot(tmp_path, 0), slot(tmp_path, 1)
        give(other, 0)
        for _ in range(5):
            slot(tmp_path, 1)
        assert numbers_of(watcher, 1) == ([0], False)

    def test_the_newest_that_gave_anything_says_of_which_group_it_is(self, tmp_path):
        watcher = slot(tmp_path, 0)
        for number, group in enumerate([GROUP, "f" * 16, GROUP, GROUP, "e" * 16]):
            give(slot(tmp_path, 1), number, group=group)
        assert numbers_of(watcher, 1) == ([2, 3], True)


def opened(job, training, *, finished, is_fresh):
    giver = EpisodeGiver(job, training, finished)
    giver.open(spaces_of(), is_fresh=is_fresh)
    return giver


class TestGiving:
    def test_the_newest_are_kept_and_older_attempts_folders_go(self, tmp_path):
        first, watcher = slot(tmp_path, 0), slot(tmp_path, 1)
        give(first, 0, 1, 2)
        second = slot(tmp_path, 0)
        give(second, 3, 4, 5, kept=4)
        assert numbers_of(watcher, 0) == ([2, 3, 4, 5], False)
        give(second, 6, kept=4)
        assert not list(first.attempt_dir.glob("episodes-*"))

    def test_a_ghost_gives_nothing_and_removes_nothing(self, tmp_path):
        ghost, watcher = slot(tmp_path, 0), slot(tmp_path, 1)
        give(ghost, 0, kept=1)
        Copies(ghost).keep(b"x")
        slot(tmp_path, 0)
        give(ghost, 1, kept=1)
        clear_taken(ghost)
        assert numbers_of(watcher, 0) == ([0], False)
        assert list(ghost.attempt_dir.glob("taken/*"))

    def test_what_is_taken_again_stays_and_the_rest_goes(self, tmp_path):
        job = slot(tmp_path, 0)
        names = [name_of(bytes([number])) for number in range(3)]
        for number in range(3):
            Copies(job).keep(bytes([number]))
        later = slot(tmp_path, 0)
        copies = Copies(later)
        copies.keep(bytes([1]))
        copies.begin({names[2]})
        copies.look()
        assert [read_taken(later, name) for name in names[1:]] == [bytes([1]), bytes([2])]
        copies.entered([names[1]])
        copies.counted([names[1]])
        copies.look()
        for name in names[:2]:
            with pytest.raises(FileNotFoundError):
                read_taken(later, name)
        (job.attempt_dir / "taken" / names[2]).write_bytes(b"other")
        with pytest.raises(ValueError, match="has changed since it was accepted"):
            read_taken(later, names[2])

    @pytest.mark.parametrize(
        ("is_fresh", "is_published", "expected"), [(True, True, [13, 17]), (False, True, [17]), (True, False, [])]
    )
    def test_which_whole_episodes_are_given_their_numbers_decide_once_a_policy_is_published(
        self, tmp_path, is_fresh, is_published, expected
    ):
        giver = opened(slot(tmp_path, 0), TRAINING, finished=10, is_fresh=is_fresh)
        if is_published:
            giver.on_version(0, 1, 0)
        played(giver, 2)  # four episodes at once, numbers 11 to 14, then 15 to 18
        giver._dispatch.close(PATIENCE_S)
        assert numbers_of(slot(tmp_path, 1), 0) == (expected, False)


def played(giver, rounds):
    """All environments play so many whole episodes."""
    for step in range(rounds * HORIZON):
        giver.add(one_step(ends=step % HORIZON == HORIZON - 1))


def spaces_of():
    return replace(SPACES, tasks=TRAINING.env.tasks, horizon=HORIZON)


def one_step(*, ends):
    count = TRAINING.num_envs
    zeros, no = np.zeros(count), np.zeros(count, np.bool_)
    obs = {STATE: np.zeros((count, 39), np.float32)}
    done = Step(
        obs=obs, next_obs=obs, reward=zeros.astype(np.float32), terminated=no, truncated=no | ends, success=no,
        task=np.zeros(count, np.int32), next_task=np.zeros(count, np.int32), finished=no | ends, episode_return=zeros,
        episode_length=np.zeros(count, np.int32), episode_success=no, episode_measures=np.zeros((count, 0)),
    )  # fmt: skip
    return Transition(obs, np.zeros((count, 4), np.float32), done)


def some_rows(count, value=0.0):
    return {name: np.full((count, *shape), value, kind) for name, (shape, kind) in FIELDS.items()}


def filled(own, peers, friends, **group):
    """An experience with so many rows of each task."""
    training = section(buffer_size=3000, group=group)
    made = Experience(training, SPACES)
    for task in range(TASKS):
        made.own.add(np.full(own, task), some_rows(own, 0))
        for count, ring, value in ((peers, made.join, 1), (friends, made.welcome, 2)):
            if count:
                ring().add("a", some_rows(count, value), task=task, content=f"{value}{task}", policy_step=0, step=0)
    return made


class TestShares:
    @given(
        st.integers(1, 400), st.integers(0, 400), st.integers(0, 400), st.integers(3, 300),
        st.floats(0.01, MOST_FOREIGN),
    )  # fmt: skip
    def test_own_rows_are_never_below_one_half(self, own, peers, friends, size, share):
        batch = filled(own, peers, friends, share=share).sample(size)
        kinds = np.round(batch.reward)
        assert len(kinds) == size
        assert (kinds == 1).sum() <= share * size
        assert (kinds == 2).sum() <= MAX_SHARE * size
        assert (kinds > 0).sum() <= MOST_FOREIGN * size
        assert [(batch.task == task).sum() for task in range(TASKS)] == pytest.approx([size / TASKS] * TASKS, abs=1)

    @given(st.floats(0, MOST_FOREIGN))
    def test_contributors_get_what_the_group_leaves_of_one_half(self, of_peers):
        most = share_of_others(of_peers)
        assert 0 <= most <= MAX_SHARE
        assert of_peers + (1 - of_peers) * most <= MOST_FOREIGN + 1e-12
        assert share_of_others(0.0) == MAX_SHARE

    def test_an_empty_ring_draws_nothing_and_changes_no_bit(self):
        alone, group = filled(50, 0, 20), filled(50, 0, 20)
        group.join()
        for _ in range(5):
            assert np.array_equal(alone.sample(30).reward, group.sample(30).reward)
        assert "peers" not in alone.state().numbers

    def test_the_ring_comes_back_with_its_stream_and_its_room_whatever_the_share_is_by_now(self):
        made = filled(50, 40, 20, share=0.4)
        made.given = {"a": [3, 120]}
        saved = made.state()
        again = Experience(section(buffer_size=3000), SPACES)
        again.load(saved)
        again.own.put_back(made.own.block_since((0,) * TASKS))
        again.peers.ring.put_back(made.peers.ring.block_since((0,) * TASKS))
        again.others.ring.put_back(made.others.ring.block_since((0,) * TASKS))
        again.peer_share = 0.4
        assert isinstance(again.peers, Contributed)
        assert (again.given, again.peers.capacity) == ({"a": [3, 120]}, made.peers.capacity)
        for _ in range(5):
            one, other = made.sample(30), again.sample(30)
            assert np.array_equal(one.reward, other.reward)
        assert again.group_row(30) == made.group_row(30)
