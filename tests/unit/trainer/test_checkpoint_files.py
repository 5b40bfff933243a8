from __future__ import annotations

import errno
import os
import re
from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from point_run import PointRun
from refused import refused
from slot_digest import digest_of

from anchorleg.job import Job
from trainer.checkpoints import checkpoint, resume, rows, saver
from trainer.checkpoints.checkpoint import (
    AVERAGED_NETS,
    ENVS,
    LEARNER,
    MANIFEST,
    NETS,
    STATE,
    downgrade,
    read_averaged,
    read_manifest,
)
from trainer.checkpoints.resume import find_policy, find_start
from trainer.checkpoints.retention import tidy
from trainer.config.section import TrainingSection, resolve
from trainer.envs.spaces import PRIVILEGED, ArraySpec, Box, Spaces
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import (
    SaveError,
)
from trainer.evaluation.playable import of_checkpoint
from trainer.training.run import advance, capture, fresh

pytestmark = pytest.mark.trainer
FILES = (NETS, AVERAGED_NETS, LEARNER, ENVS, STATE, MANIFEST)


@pytest.fixture
def run(tmp_path):
    return PointRun(tmp_path)


def successor(run, **more):
    return find_start(Job.standalone(run.job.run_dir), run.training, **more)


def lengthen(path):
    with open(path, "ab") as file:
        file.truncate(2**40)  # nobody reads a terabyte to see that it is not what was written


def a_pipe(path):
    path.unlink()
    os.mkfifo(path)  # which nobody writes to


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


def fewer_rows(path):
    """The manifest lists not all of the ring's."""
    manifest = read_manifest(path.parent)
    fewer = manifest.model_copy(update={"segments": manifest.segments[1:]}).sealed()
    path.write_text(fewer.model_dump_json())


def another_step(path):
    path.write_text(path.read_text().replace('"step": 200', '"step": 201'))


ROWS = f"{200:012d}.safetensors"
DAMAGES = [truncate, flip_a_bit, os.unlink, lengthen, a_pipe]


@pytest.mark.parametrize(
    ("damage", "name", "told"),
    [
        *((damage, name, name) for damage in DAMAGES for name in (*FILES, ROWS)),
        (fewer_rows, MANIFEST, r"its row files contain \d+ of the ring's \d+ rows"),
        (another_step, MANIFEST, "digest"),
    ],
)
def test_damage_sends_the_loader_one_back_and_it_says_which_why_and_what_instead(run, damage, name, told):
    _, newest = run.checkpoints(2)
    damage((run.job.attempt_dir / "rows" if name == ROWS else newest) / name)
    start = successor(run)
    assert start.ref.step == 100
    [note] = start.notes
    assert re.search(rf"step 200 of attempt 0 \(.*{told}.*resuming from step 100 of attempt 0", note)


def test_when_every_checkpoint_is_damaged_nothing_starts_from_scratch(run):
    for folder in run.checkpoints(2):
        truncate(folder / STATE)
    with refused("checkpoint.none-good", damaged=re.compile("step 200.*step 100")):
        successor(run)


def unread(monkeypatch, name, number, times):
    """The next so many reads of files of this name fail."""
    left = [number] * times

    def reading(path, *args, real=checkpoint.read_regular, **more):
        if path.name == name and left:
            raise OSError(left.pop(), os.strerror(number))
        return real(path, *args, **more)

    for module in (checkpoint, rows):
        monkeypatch.setattr(module, "read_regular", reading)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("name", [MANIFEST, ENVS, f"{100:012d}.safetensors"])
def test_what_cannot_be_read_for_a_moment_is_read_again_and_nothing_is_passed_over(run, monkeypatch, name, number):
    run.checkpoints(2)
    unread(monkeypatch, name, number, times=3)
    pauses = []
    start = successor(run, pause=pauses.append)
    assert (start.ref.step, start.notes, len(pauses)) == (200, (), 3)
    assert digest_of(start.experience.own.arrays()) == digest_of(run.state.experience.own.arrays())


def test_what_stays_unread_decides_nothing_and_is_gone_on_from_when_it_can_be_read(run, monkeypatch):
    *_, newest = run.checkpoints(2)
    with monkeypatch.context() as patch:
        unread(patch, MANIFEST, errno.ESTALE, times=99)
        with refused("checkpoint.unread", step=200, why=re.compile("manifest.json: Stale file handle")):
            successor(run, pause=lambda _: None)
    assert successor(run).ref.path == newest


def test_another_identity_is_refused_and_nothing_is_touched(run, tmp_path):
    run.checkpoints(1)
    with refused("checkpoint.other-training", what="seed 0 → 1"):
        find_start(Job.standalone(tmp_path), run.training.model_copy(update={"seed": 1}))


@pytest.mark.parametrize("algorithm", ["sac", "ppo"])
def test_an_environment_that_shows_its_critics_something_else_is_refused_too(tmp_path, monkeypatch, algorithm):
    env = {"name": "spots:Spots", "observation": "cameras", "image_size": 16, "critic_sees": "state"}
    nets = {"actor_hidden": (8,), "critic_hidden": (8,), "encoder": {"arch": "spots:Eye"}}
    training = resolve(TrainingSection(env=env, algorithm=algorithm, network=nets, num_envs=2))
    job = Job.standalone(tmp_path)
    with closing(VectorEnv(VectorSpec(suite_of(training), 2, 0))) as envs:
        state = fresh(training, resume.CPU, envs)
        for _ in range(3):
            advance(state)
        keeps = saver.Saver.after(job, training, None)
        keeps.start(capture(state, {}), keeps.unsaved(state.experience))
        keeps.finish(print)
        keeps.close()
    now = Spaces({**envs.spaces.obs, PRIVILEGED: ArraySpec((5,), privileged=True)}, Box(2), ("touch",), 20)
    assert now.of_policy == envs.spaces.of_policy
    assert find_start(Job.standalone(tmp_path), training).ref.step == state.step
    monkeypatch.setattr(resume, "spaces_of", lambda training: now)
    told = {"then": re.compile(r"privileged \[4\]"), "now": re.compile(r"privileged \[5\]")}
    with refused("checkpoint.other-spaces", **told):
        find_start(Job.standalone(tmp_path), training)


def test_a_diverged_net_is_not_captured(run):
    run.steps(30)
    next(run.state.algorithm.policy.parameters()).data[0] = float("nan")
    with refused("learning.parameter-not-finite", what=re.compile("^policy"), step=120):
        capture(run.state, {})


def test_a_loss_that_is_not_finite_is_noticed_at_the_next_step_and_no_environment_gets_such_an_action(tmp_path):
    run, asked = PointRun(tmp_path, updates_per_step=1.0).steps(30), []
    replay, before, step = run.state.experience.own, run.state.updates, run.state.collector.envs.step
    replay.arrays()["reward"][: int(replay.sizes[0])] = float("nan")
    run.state.collector.envs.step = lambda actions: asked.append(actions) or step(actions)
    with refused("learning.loss-not-finite", update=before + 1, what="critic_loss, actor_loss"):
        run.steps(20)
    assert len(asked) == 1
    assert np.isfinite(asked[0]).all()


def test_a_full_disk_leaves_the_one_before_and_no_part_of_the_new_one(run, monkeypatch):
    run.checkpoints(1)
    run.steps()
    real, calls = os.fsync, []
    for failing in range(1, 50):
        calls.clear()

        def full(fd, failing=failing):
            calls.append(fd)
            if len(calls) >= failing:  # also at the second try
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(fd)

        monkeypatch.setattr(os, "fsync", full)
        try:
            run.publish()
        except SaveError as error:
            told = error.fields
            assert told["step"] == 200
            assert os.listdir(run.job.attempt_dir / "checkpoints") == [f"{100:012d}"]
            assert os.listdir(run.job.attempt_dir / "rows") == [f"{100:012d}.safetensors"]
            assert run.saver.published_step == 100
        else:
            break
    monkeypatch.setattr(os, "fsync", real)
    assert failing > 8
    assert successor(run).ref.step == 200
    assert successor(run).notes == ()


def test_a_ghost_whose_unfinished_folder_was_cleared_away_has_published_nothing(run, monkeypatch):
    run.checkpoints(1)
    write = checkpoint._write

    def cleared_away_before_the_last_file(path, data):
        if path.name == MANIFEST:
            successor_job = Job.standalone(run.job.run_dir)
            assert tidy(successor_job, keep_exact=3, keep_milestones=0, needed=set()) == []
        write(path, data)

    monkeypatch.setattr(checkpoint, "_write", cleared_away_before_the_last_file)
    run.steps()
    with refused("checkpoint.unwritten", step=200):
        run.publish()
    assert run.saver.published_step == 100


def test_a_policy_is_found_from_any_folder_above_it(run):
    *_, newest = run.checkpoints(2)
    for path in (newest, run.job.attempt_dir, run.job.slot_dir, run.job.run_dir):
        ref, manifest, nets, _ = find_policy(path)
        assert (ref.step, manifest.step) == (200, 200)
        assert "policy.body.layers.0.weight" in nets


def test_nets_alone_are_played_but_never_resumed(run):
    for folder in run.checkpoints(2):
        downgrade(folder, read_manifest(folder))
        assert sorted(os.listdir(folder)) == sorted([NETS, AVERAGED_NETS, MANIFEST])
    assert find_policy(run.job.run_dir)[0].step == 200
    assert of_checkpoint(folder, "cpu", averaged=True).averaged
    assert successor(run) is None


def test_the_average_follows_each_update_and_is_no_part_of_what_learns(run, tmp_path):
    parameters = dict(run.state.algorithm.policy.named_parameters())
    name = "body.layers.0.weight"
    wanted, update = parameters[name].detach().clone(), run.state.algorithm.update

    def noted():
        measured = update()
        wanted.lerp_(parameters[name].detach(), 1 - 0.999)
        return measured

    run.state.algorithm.update = noted
    run.steps(60)
    assert run.state.updates > 10
    folder = run.publish()
    found = read_averaged(folder, read_manifest(folder))
    assert set(found) == set(parameters)
    assert torch.equal(found[name], wanted)
    assert not torch.equal(found[name], parameters[name])
    without = PointRun(tmp_path / "without", averaging=0).steps(60)
    assert without.state.average is None
    with_it, plain = (each.state.algorithm.state().tensors for each in (run, without))
    assert digest_of(with_it) == digest_of(plain)


def test_a_checkpoint_without_an_average_is_gone_on_with_from_its_actor_and_not_played_averaged(tmp_path):
    old = PointRun(tmp_path, averaging=0)
    [folder] = old.checkpoints(1)
    with refused("play.checkpoint-not-averaged"):
        of_checkpoint(folder, "cpu", averaged=True)
    again = PointRun(tmp_path)
    actor = dict(again.state.algorithm.policy.named_parameters())
    assert again.start is not None
    assert all(torch.equal(mean, actor[name]) for name, mean in again.state.average.tensors.items())
