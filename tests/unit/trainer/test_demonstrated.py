"""Demonstrations as a second buffer: what is drawn from them, how much of it, and what cannot be learned from."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("av")

import torch
from hypothesis import given
from hypothesis import strategies as st
from listener import Listener
from point_demos import POINTS, SIZE, recorded
from refused import refused

from anchorleg.job import Job
from trainer.buffers.demonstrated import Demonstrated
from trainer.buffers.frames import FrameReplay
from trainer.config.section import TrainingSection, resolve
from trainer.config.suites import Arm
from trainer.demos.matching import episodes_of, rows_of
from trainer.demos.store import ACTION, BLOCKS, MANIFEST, REWARD, TERMINATED, DamagedDemosError, Demos
from trainer.envs.collector import Transition
from trainer.envs.frames import FrameStacks
from trainer.envs.spaces import IMAGE, STATE, Spaces
from trainer.envs.step import Step, VectorSpec
from trainer.envs.suite import spaces_of, suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import UndecidedError
from trainer.machine.group import Group
from trainer.training import begin
from trainer.training.inputs import DEMOS, with_demos
from trainer.training.run import advance, fresh

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("demos") / "out")


def training(demos, env=(), **algorithm):
    small = {"name": "sac", "random_steps": 20, "batch_size": 12, "buffer_size": 300}
    where = {} if demos is None else {"demos": str(demos.folder)}
    return resolve(
        TrainingSection(
            env={"name": POINTS, **dict(env)},
            algorithm={**small, **where, **algorithm},
            network={"actor_hidden": (8,), "critic_hidden": (8,), "encoder": {"arch": "anchorleg_toys.glance:Glance"}},
            num_envs=3,
        )
    )


def run_of(asked, steps=30):
    run = fresh(asked, CPU, VectorEnv(VectorSpec(suite_of(asked), asked.num_envs, asked.seed)))
    for _ in range(steps):
        advance(run)
    return run


def as_steps(spaces: Spaces, arrays, task):
    """The transitions of an episode, one environment at a time, as a training would be told them."""
    stacks = FrameStacks(spaces, 1)
    frames = [{key: arrays[key][t : t + 1] for key in spaces.obs} for t in range(len(arrays[ACTION]) + 1)]
    before = stacks.begin(frames[0])
    for t, action in enumerate(arrays[ACTION]):
        is_last = t == len(arrays[ACTION]) - 1
        after, _ = stacks.push(frames[t + 1], frames[t + 1], np.zeros(1, np.bool_))
        no, number = np.zeros(1, np.bool_), np.full(1, task, np.int32)
        step = Step(
            obs=after, next_obs=after, reward=arrays[REWARD][t : t + 1], terminated=arrays[TERMINATED][t : t + 1],
            truncated=no, success=no, task=number, next_task=number, finished=np.full(1, is_last),
            episode_return=np.zeros(1), episode_length=number, episode_success=no,
        )  # fmt: skip
        yield Transition(before, action[None], step)
        before = {key: array.copy() for key, array in after.items()}


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    "env",
    [
        {"observation": "both", "image_size": SIZE, "critic_sees": "state"},
        {"observation": "clips", "image_size": SIZE, "frame_stack": 3, "frame_stride": 2},
    ],
    ids=["both", "clips"],
)
def test_a_recording_is_kept_as_its_steps_would_have_been(demos, env, steps):
    spaces = spaces_of(training(demos, env))
    rows = rows_of(demos.manifest, spaces)
    whole, one_by_one = (FrameReplay(int(rows.max()) * 3, 3, spaces, steps, 0.9) for _ in range(2))
    for shown in episodes_of(demos, spaces, spaces, dict):
        whole.add_episode(*shown)
    for episode, arrays in demos.read():
        for transition in as_steps(spaces, arrays, episode.task):
            one_by_one.add(transition)
    assert whole.counts.tolist() == one_by_one.counts.tolist() == rows.tolist()
    for name, array in whole.arrays().items():
        assert np.array_equal(array, one_by_one.arrays()[name]), name
    for k in range(3):
        numbers = whole.whole(k)
        assert len(numbers) == sum(e.actions for e in demos.manifest.episodes if e.task == k)
        mine, other = whole.transitions(k, numbers), one_by_one.transitions(k, one_by_one.whole(k))
        assert np.array_equal(mine.reward, other.reward)
        assert all(np.array_equal(mine.next_obs[key], other.next_obs[key]) for key in spaces.obs)


def test_each_batch_has_its_share_of_each_task_and_what_is_owned_is_what_it_was(demos):
    asked = training(demos, demos_share=0.25)
    run = run_of(asked, steps=30)
    marked = {float(reward) for _, arrays in demos.read() for reward in arrays[REWARD]}
    shown = []
    for _ in range(300):
        batch = run.experience.sample(12)
        of_demos = np.isin(batch.reward, list(marked))
        shown.append([int(of_demos[batch.task == k].sum()) for k in range(3)])
        assert [int((batch.task == k).sum()) for k in range(3)] == [4, 4, 4]
    assert np.mean(shown, axis=0) == pytest.approx([1, 1, 1], abs=0.1)


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any),
    share=st.floats(0.01, 0.5),
    data=st.data(),
)
def test_whatever_friends_take_half_stays_and_no_task_gives_more_than_it_has(counts, share, data):
    counts = np.array(counts)
    taken = np.array([data.draw(st.integers(0, int(count))) for count in counts])
    asked = resolve(TrainingSection(env="arm", algorithm={"name": "sac", "demos": "x", "demos_share": share}))
    shown = Demonstrated(asked.off_policy, asked.seed).part_of(counts, counts - taken)
    assert (shown >= 0).all()
    assert (shown <= counts - taken).all()
    assert shown.sum() <= np.ceil(share * counts).sum()
    own = (counts - taken - shown).sum()
    assert own >= counts.sum() / 2 or shown.sum() == 0
    if not taken.any() and counts.min() >= 8:
        assert abs(shown - share * counts).max() < 2


def test_the_runs_own_rows_are_drawn_as_without_demonstrations(demos):
    """Each has a stream of its own, and one that is not there leaves nothing in a checkpoint."""
    with_them, without = run_of(training(demos), steps=5).experience, run_of(training(None), steps=5).experience
    assert without.demos is None
    assert "demos" not in without.state().numbers
    one, other = with_them.sample(12), without.sample(6)
    assert [int((one.task == k).sum()) for k in range(3)] == [4, 4, 4]
    assert np.array_equal(one.obs[STATE][:6], other.obs[STATE])


def changed(demos, **more):
    return Demos(demos.folder, demos.manifest.model_copy(update=more))


def test_what_values_cannot_be_learned_from_is_refused_in_a_sentence(demos, tmp_path):
    asked = spaces_of(training(demos))
    for manifest, spaces, wrong in (
        (changed(demos, told=("success",)).manifest, asked, "demos.no-rewards"),
        (changed(demos, spaces=None, told=()).manifest, asked, "demos.no-actions"),
        (recorded(tmp_path / "one", task="left").manifest, asked, "demos.task-missing"),
        (recorded(tmp_path / "three", pushes="three").manifest, asked, "demos.other-actions"),
        (demos.manifest, replace(asked, tasks=("left", "up")), "demos.other-tasks"),
        (demos.manifest, replace(asked, tasks=("reach",)), "demos.other-tasks"),
        (demos.manifest, seen(image_size=32), "demos.other-pictures"),
    ):
        with refused(wrong):
            rows_of(manifest, spaces)


def seen(**more):
    return spaces_of(training(None, {"observation": "both", **more}))


def test_actions_that_no_environment_takes_are_refused(demos, tmp_path):
    teacher_of_more = recorded(tmp_path / "out", episodes=1)
    spaces = spaces_of(training(demos))
    read = teacher_of_more.read

    def wild():
        for episode, arrays in read():
            yield episode, {**arrays, ACTION: 3 * np.ones_like(arrays[ACTION])}

    wilder = type("Wild", (), {"manifest": teacher_of_more.manifest, "read": staticmethod(wild)})()
    with refused("demos.actions-outside"):
        list(episodes_of(wilder, spaces, spaces, dict))


def test_a_file_of_a_copy_that_is_gone_or_cut_is_made_anew(demos, tmp_path):
    demos.copy_to(tmp_path / "copy")
    block = tmp_path / "copy" / BLOCKS / demos.manifest.blocks[0].path
    whole = block.read_bytes()
    block.unlink()
    demos.copy_to(tmp_path / "copy")
    assert block.read_bytes() == whole
    block.write_bytes(whole[:-1])
    demos.copy_to(tmp_path / "copy")
    assert block.read_bytes() == whole


def test_of_several_copies_that_of_the_newest_checkpoint_is_taken(demos, tmp_path):
    folder, slot = tmp_path / "demos", tmp_path / "run/slots/0"
    other = recorded(tmp_path / "other", seed=1)
    demos.copy_to(folder)
    few = {"demos": str(folder), "evaluation_goals": 0, "num_workers": 0, "checkpoint_interval": 20}
    asked = training(demos).changed(**few, total_steps=40)
    listener = Listener()
    assert begin.run(Job.standalone(tmp_path / "run"), asked, listener) == 0
    shutil.rmtree(folder)
    other.copy_to(slot / DEMOS / other.manifest.digest)
    assert begin.run(Job.standalone(tmp_path / "run"), asked.changed(total_steps=60), listener) == 0
    assert any("continuing at step 42 " in line for line in listener.said)


def unreadable(monkeypatch, file, number):
    """From now on `file` cannot be read."""
    real = Path.read_bytes

    def refuse(path):
        if path == file:
            raise OSError(number, os.strerror(number), str(path))
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE])
def test_what_cannot_be_read_now_is_called_neither_gone_nor_damaged_and_the_slots_copy_is_enough(
    demos, tmp_path, monkeypatch, number
):
    folder = tmp_path / "demos"
    demos.copy_to(folder)
    job, asked = Job.standalone(tmp_path / "run"), training(demos).changed(demos=str(folder))
    words = rf"cannot be read \({os.strerror(number)}\), and nothing was changed: .* slot's copy"
    with monkeypatch.context() as patch:
        unreadable(patch, folder / BLOCKS / demos.manifest.blocks[0].path, number)
        with pytest.raises(UndecidedError, match=words):
            with_demos(job, asked, Group.alone())[1]()
    unreadable(monkeypatch, folder / MANIFEST, number)
    with pytest.raises(UndecidedError, match=words):
        with_demos(job, asked, Group.alone())
    demos.copy_to(job.slot_dir / DEMOS / demos.manifest.digest)
    with pytest.raises(UndecidedError, match=words):  # a copy of which nobody knows that it is theirs
        with_demos(job, asked, Group.alone())
    told, _ = with_demos(job, asked.changed(demos_sha256=demos.manifest.digest), Group.alone())
    assert told.demos == str(job.slot_dir / DEMOS / demos.manifest.digest)


@pytest.mark.parametrize(("number", "is_manifest"), [(errno.EISDIR, True), (errno.ELOOP, False)])
def test_what_can_never_be_read_is_damaged(demos, tmp_path, monkeypatch, number, is_manifest):
    demos.copy_to(tmp_path / "demos")
    block = tmp_path / "demos" / BLOCKS / demos.manifest.blocks[0].path
    unreadable(monkeypatch, tmp_path / "demos" / MANIFEST if is_manifest else block, number)
    words = rf"cannot be read: {os.strerror(number)}[.] Remove it if it is a slot's copy"
    with pytest.raises(DamagedDemosError, match=words):
        list(Demos.open(tmp_path / "demos").read())


def paid_otherwise(demos, folder, paid_by):
    """The same in `folder`, which says that so was paid."""
    shutil.copytree(demos.folder, folder)
    source = demos.manifest.source.model_copy(update={"paid_by": paid_by})
    manifest = demos.manifest.model_copy(update={"source": source})
    (folder / MANIFEST).write_text(manifest.model_dump_json())
    return Demos.open(folder)


def test_steps_that_were_paid_otherwise_are_refused_where_that_is_said(demos, tmp_path):
    job, asked = Job.standalone(tmp_path / "run"), training(demos)
    assert demos.manifest.source.paid_by == asked.env.paid_by == {"name": POINTS, "pushes": "any"}
    other = paid_otherwise(demos, tmp_path / "other", {"name": POINTS, "pushes": "three"})
    with refused("demos.other-rewards", other="env.pushes three → any"):
        with_demos(job, training(other), Group.alone())
    untold = paid_otherwise(demos, tmp_path / "untold", None)
    with_demos(job, training(untold), Group.alone())  # nobody can tell
    assert untold.manifest.digest == demos.manifest.digest  # what was recorded before it was said is what it was


@pytest.mark.parametrize(
    ("changes", "is_alike"),
    [
        ({"reward": "sparse"}, False),
        ({"observation": "cameras", "cameras": ("top",), "image_size": 32, "frame_stack": 2}, True),
    ],
)
def test_an_arms_rewards_and_ends_are_decided_by_these(changes, is_alike):
    assert (Arm().paid_by == Arm(**changes).paid_by) == is_alike
    ending = Arm(end_on_success=True)  # its end pays for the steps that are left
    assert ending.paid_by != Arm(end_on_success=True, horizon=50).paid_by


def test_frames_that_a_frozen_encoder_reads_are_read_as_they_are_seen(demos):
    look = {"observation": "clips", "image_size": SIZE, "frame_stack": 3, "frame_stride": 2}
    asked = training(demos, look).changed(encoder={"arch": "anchorleg_toys.glance:Glance", "freeze": True})
    run = run_of(asked, steps=1)
    ring, policy = run.experience.demos.ring, run.algorithm.policy
    plain = FrameReplay(1000, 3, spaces_of(asked))
    for shown in episodes_of(demos, spaces_of(asked), spaces_of(asked), dict):
        plain.add_episode(*shown)
    numbers = plain.whole(1)
    expected = policy.features(IMAGE, torch.from_numpy(plain.transitions(1, numbers).obs[IMAGE].copy())).numpy()
    assert np.allclose(ring.transitions(1, numbers).obs[IMAGE], expected, atol=1e-6)
