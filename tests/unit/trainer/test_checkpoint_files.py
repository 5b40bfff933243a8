from __future__ import annotations

import errno
import gc
import json
import os
import re
import weakref
from contextlib import closing

import pytest

pytest.importorskip("torch")

import torch
from point_run import PointRun
from refused import refused
from slot_digest import digest_of, parts_of

from anchorleg.job import Job
from trainer.buffers.replay import Ring
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
from trainer.checkpoints.find import find_policy
from trainer.checkpoints.resume import find_start, training_of
from trainer.checkpoints.retention import tidy
from trainer.config.section import TrainingSection, resolve
from trainer.envs.spaces import PRIVILEGED, ArraySpec, Box, Spaces
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import (
    SaveError,
    SupersededError,
)
from trainer.evaluation.playable import of_checkpoint
from trainer.machine import device
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


def test_what_was_published_is_what_is_read(run):
    run.checkpoints(2)
    wanted, _ = run.captured()
    start = successor(run)
    assert start.ref.step == run.state.step
    assert json.loads(json.dumps(parts_of(start.contents))) == json.loads(json.dumps(parts_of(wanted)))
    assert digest_of(start.experience.own.arrays()) == digest_of(run.state.experience.own.arrays())
    assert start.notes == ()


def test_nothing_is_pickled(run):
    [folder] = run.checkpoints(1)
    assert sorted(os.listdir(folder)) == sorted(FILES)
    for path in [*folder.iterdir(), *(run.job.attempt_dir / "rows").iterdir()]:
        data = path.read_bytes()
        header = data[8 : 8 + int.from_bytes(data[:8], "little")] if path.suffix == ".safetensors" else data
        json.loads(header)


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
        (fewer_rows, MANIFEST, r"its row files hold \d+ of the ring's \d+ rows"),
        (another_step, MANIFEST, "digest"),
    ],
)
def test_damage_sends_the_loader_one_back_and_it_says_which_why_and_what_instead(run, damage, name, told):
    _, newest = run.checkpoints(2)
    damage((run.job.attempt_dir / "rows" if name == ROWS else newest) / name)
    start = successor(run)
    assert start.ref.step == 100
    [note] = start.notes
    assert re.search(rf"step 200 of attempt 0 \(.*{told}.*going back to step 100 of attempt 0", note)


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


def test_a_disk_that_stays_bad_stops_no_slot(run, monkeypatch):
    run.checkpoints(2)
    unread(monkeypatch, f"{200:012d}.safetensors", errno.EIO, times=99)
    start = successor(run, pause=lambda _: None)
    assert start.ref.step == 100
    assert "Input/output error" in start.notes[0]


def test_a_slot_without_checkpoints_starts_from_scratch(run):
    assert successor(run) is None


def test_another_identity_is_refused_and_nothing_is_touched(run, tmp_path):
    run.checkpoints(1)
    with refused("checkpoint.other-training", what="seed 0 → 1"):
        find_start(Job.standalone(tmp_path), run.training.model_copy(update={"seed": 1}))


def test_an_environment_that_gives_something_else_by_now_is_refused_before_a_row_is_read(run, monkeypatch):
    run.checkpoints(1)
    now = Spaces({"state": ArraySpec((40,))}, Box(4), run.training.env.tasks, 10)
    monkeypatch.setattr(resume, "spaces_of", lambda training: now)
    monkeypatch.setattr(resume, "read_into", lambda *_: pytest.fail("it was read"))
    told = {"then": "state [39] float32 for 4 numbers", "now": "state [40] float32 for 4 numbers"}
    with refused("checkpoint.other-spaces", **told):
        successor(run)


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


def test_a_diverged_loss_is_not_captured(run):
    run.steps(30)
    run.state.experience.own.arrays()["reward"][:] = float("inf")
    before = run.state.updates
    run.steps(1)
    with refused("learning.loss-not-finite", what=re.compile("critic_loss"), update=before + 1):
        capture(run.state, {})


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


def test_after_a_full_disk_the_next_publication_has_all_rows(run, monkeypatch):
    run.checkpoints(1)
    run.steps()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(errno.EDQUOT, "quota")))
        with refused("checkpoint.unwritten"):
            run.publish()
    run.steps().publish()
    assert digest_of(successor(run).experience.own.arrays()) == digest_of(run.state.experience.own.arrays())


class FullFor:
    """The disk is full for `times` checkpoints, each 100 rows after the one before; what was copied meanwhile."""

    def __init__(self, run, monkeypatch, times):
        self.copied, self.left = [], []
        real = Ring.block_since

        def copying(*args, **more):
            block = real(*args, **more)
            self.copied.append(sum(block.counts))
            self.left.append(weakref.ref(block))
            return block

        def full(_fd):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Ring, "block_since", copying)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            for _ in range(times):
                run.steps()
                with pytest.raises((SaveError, OSError), match=r"disk is full|No space left"):
                    run.publish()


@pytest.fixture
def roomy(tmp_path):
    """Its ring has room for all rows that it makes."""
    return PointRun(tmp_path, buffer_size=3000)


def test_while_the_disk_is_full_and_after_it_no_more_than_an_interval_s_rows_are_copied(roomy, monkeypatch):
    roomy.checkpoints(1)
    full = FullFor(roomy, monkeypatch, 5)
    assert os.listdir(roomy.job.attempt_dir / "rows") == [f"{100:012d}.safetensors"]
    folder = roomy.steps().publish()
    an_interval = roomy.training.checkpoint_interval + len(roomy.training.env.tasks)
    assert max(full.copied) <= an_interval
    listed = [segment.path for segment in read_manifest(folder).segments]
    assert set(listed) == {f"attempts/0/rows/{name}" for name in os.listdir(roomy.job.attempt_dir / "rows")}
    roomy.checkpoints(1)  # which lists what was written late, too
    assert digest_of(successor(roomy).experience.own.arrays()) == digest_of(roomy.state.experience.own.arrays())


def test_rows_that_could_not_be_written_do_not_stay_in_memory_beside_the_next_ones(roomy, monkeypatch):
    gc.collect()
    gc.disable()
    try:
        full = FullFor(roomy, monkeypatch, 1)
        roomy.saver.close()  # its thread lets go of what it wrote a moment after it has said so
        assert [block() for block in full.left] == [None]
    finally:
        gc.enable()


def test_rows_that_were_written_late_go_with_an_attempt_that_ends_before_it_has_saved(roomy, monkeypatch, tmp_path):
    roomy.checkpoints(1)
    FullFor(roomy, monkeypatch, 3)
    roomy.saver.unsaved(roomy.state.experience)
    assert len(os.listdir(roomy.job.attempt_dir / "rows")) > 1
    again = PointRun(tmp_path, buffer_size=3000)
    assert again.start.ref.step == 100
    again.checkpoints(1)
    assert os.listdir(roomy.job.attempt_dir / "rows") == [f"{100:012d}.safetensors"]


def test_an_attempt_that_is_superseded_writes_nothing_late(roomy, monkeypatch):
    roomy.checkpoints(1)
    FullFor(roomy, monkeypatch, 3)
    Job.standalone(roomy.job.run_dir)
    with pytest.raises(SupersededError):
        roomy.saver.unsaved(roomy.state.experience)
    assert os.listdir(roomy.job.attempt_dir / "rows") == [f"{100:012d}.safetensors"]


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


def test_a_folder_that_cannot_be_read_for_a_moment_costs_one_checkpoint_at_most(run, monkeypatch):
    run.checkpoints(1)

    def stale(*_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patch:
        patch.setattr(run.job, "superseded_by", stale)
        run.steps()
        with refused("checkpoint.unwritten", step=200, why="Stale file handle"):
            run.publish()
    run.steps()
    run.saver.start(*run.captured(), stale)
    said = []
    run.saver.finish(said.append)
    assert run.saver.published_step == 300
    assert "could not be looked through: Stale file handle" in said[0]
    run.steps().publish()
    assert digest_of(successor(run).experience.own.arrays()) == digest_of(run.state.experience.own.arrays())


def test_settings_that_nothing_reads_are_a_mistake_of_whoever_begins_and_of_no_checkpoint(run):
    [folder] = run.checkpoints(1)
    manifest = read_manifest(folder)
    network = {**manifest.training["network"], "encoder": {"weights_sha256": "ab" * 32}}
    told = {**manifest.training, "network": network}
    with refused("weights.sum-without-file"):
        TrainingSection.model_validate(told)
    assert training_of(manifest.model_copy(update={"training": told})).network.encoder.weights_sha256 == "ab" * 32


def test_a_checkpoint_of_another_version_is_refused_in_one_sentence(run):
    [folder] = run.checkpoints(1)
    manifest = read_manifest(folder)
    changed = manifest.model_copy(update={"training": {**manifest.training, "of_tomorrow": 1}}).sealed()
    (folder / MANIFEST).write_text(changed.model_dump_json())
    with refused("checkpoint.not-played", why=re.compile(r"another version .*of_tomorrow")):
        of_checkpoint(folder, "cpu")


def test_a_device_that_is_not_there_is_no_fault_of_the_checkpoint(run, monkeypatch):
    [folder] = run.checkpoints(1)
    monkeypatch.setattr(device, "devices_here", lambda: {"cuda": False, "mps": False, "cpu": True})
    with refused("device.none-here", asked_by="--device", device="cuda"):
        of_checkpoint(folder, "cuda")


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


def test_what_is_played_averaged_is_the_average_in_the_place_of_what_is_learned(run):
    [folder] = run.checkpoints(1)
    raw, averaged = (of_checkpoint(folder, "cpu", averaged=each).policy.net.state_dict() for each in (False, True))
    means = run.state.average.tensors
    assert set(means) <= set(averaged)
    for name, tensor in averaged.items():
        assert torch.equal(tensor, means.get(name, raw[name]))
    assert any(not torch.equal(averaged[name], raw[name]) for name in means)


def test_a_folder_without_a_policy_is_an_error_in_one_sentence(tmp_path):
    with refused("checkpoint.none"):
        find_policy(tmp_path)


def test_a_policy_whose_line_cannot_be_read_is_one_sentence(run):
    run.checkpoints(1)
    (run.job.attempt_dir / "parent.json").write_text("{")
    with refused("history.foreign"):
        find_policy(run.job.run_dir)


def test_a_damaged_policy_falls_back_too(run):
    first, newest = run.checkpoints(2)
    flip_a_bit(newest / NETS)
    ref, *_, notes = find_policy(run.job.run_dir)
    assert ref.path == first
    assert "going back to step 100" in notes[0]


def test_the_manifest_lists_the_rows_of_older_attempts_by_path(run, tmp_path):
    run.checkpoints(1)
    again = PointRun(tmp_path)
    [folder] = again.checkpoints(1)
    paths = [segment.path for segment in read_manifest(folder).segments]
    assert paths == [f"attempts/0/rows/{100:012d}.safetensors", f"attempts/1/rows/{200:012d}.safetensors"]


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        (100_000, 100_000, ()),
        (100_000, 200_000, ("100,000 → 200,000", " 50% ")),
        (100_000, 50_000, (" 0% ",)),
        (0, 0, ()),
    ],
)
def test_a_rate_that_falls_until_another_end_is_told(then, now, words):
    notes = resume.rate_notes(100_000, then, now)
    assert len(notes) == bool(words)
    assert all(word in notes[0] for word in words)


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({"preset": "arm-a2c"}, 100_000),
        ({"preset": "arm-a2c", "learning_rate_steps": 7, "total_steps": 200_000}, 7),
        ({"algorithm": "a2c"}, 0),
    ],
)
def test_a_rate_falls_over_all_steps_or_as_many_as_are_said(fields, steps):
    assert resolve(TrainingSection(**fields)).falling_steps == steps
