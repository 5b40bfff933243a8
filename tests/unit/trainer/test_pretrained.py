"""The file of weights that a training begins with: which copy of it counts, when one is made, and when none is."""

from __future__ import annotations

import builtins
import errno
import os

import pytest

pytest.importorskip("torch")

import torch
from listener import Listener
from refused import refused
from safetensors.torch import save_file

from anchorleg.job import Job
from trainer.config.section import TrainingSection, resolve
from trainer.envs.suite import spaces_of
from trainer.errors import OtherIdentityError, UndecidedError
from trainer.machine.group import Group
from trainer.nets import weights
from trainer.nets.encoders.base import encoder_for
from trainer.training import begin
from trainer.training.inputs import with_weights

pytestmark = pytest.mark.trainer
ENV = {"name": "spots:Spots", "observation": "cameras", "image_size": 16}


def asked(file=None, *, arch="drq", encoder=(), **fields):
    """Of a training that sees pictures."""
    reads = {"arch": arch, **({"weights": str(file)} if file is not None else {}), **dict(encoder)}
    few = {"random_steps": 4, "batch_size": 4, "buffer_size": 100, "random_shift": 0}
    return resolve(
        TrainingSection(
            **{
                "env": ENV,
                "algorithm": {"name": "sac", **few},
                "network": {"actor_hidden": (8,), "critic_hidden": (8,), "encoder": reads},
                "num_envs": 2, "num_workers": 0, "total_steps": 8, "checkpoint_interval": 4, "evaluation_goals": 0,
                **fields,
            }
        )
    )  # fmt: skip


def made(path, seed, **fields):
    """A file for the encoder of `asked`."""
    training = asked(**fields)
    spec = spaces_of(training).obs["image"]
    save_file(encoder_for("image", spec, training.network, torch.Generator().manual_seed(seed)).state_dict(), path)
    return path


def train(folder, file, **fields):
    """What one attempt that came to its end said."""
    listener = Listener()
    assert begin.run(Job.standalone(folder), asked(file, **fields), listener) == 0
    return listener.said


def kept_in(folder):
    return sorted(path.stem for path in (folder / "slots/0" / weights.WEIGHTS).glob("*"))


def test_of_several_copies_that_of_the_newest_checkpoint_is_taken(tmp_path):
    file, run = made(tmp_path / "a.safetensors", 1), tmp_path / "run"
    train(run, file)
    weights.kept_copy(made(tmp_path / "b.safetensors", 2), run / "slots/0" / weights.WEIGHTS)
    file.unlink()
    assert any("continuing at step 8 " in line for line in train(run, file, total_steps=12))


def test_a_file_of_another_net_is_not_kept(tmp_path):
    file, run = tmp_path / "a.safetensors", tmp_path / "run"
    save_file({"odd": torch.zeros(3)}, file)
    with refused("weights.tensor-missing", arch="drq"):
        train(run, file)
    assert kept_in(run) == []
    made(file, 1)
    train(run, file)
    assert kept_in(run) == [weights.sha256_of(file)]


def test_the_slots_own_copy_counts_as_the_file_that_it_was_made_of(tmp_path):
    file, run = made(tmp_path / "a.safetensors", 1), tmp_path / "run"
    train(run, file)
    made(file, 2)  # as `trainer demos fit --out` does
    with pytest.raises(OtherIdentityError, match=r"encoder\.weights_sha256"):
        train(run, file, total_steps=12)
    [sha256] = kept_in(run)
    copy = weights.place_of(run / "slots/0" / weights.WEIGHTS, sha256)
    assert any("continuing at step 8 " in line for line in train(run, copy, total_steps=12))
    assert kept_in(run) == [sha256]


def test_before_the_first_checkpoint_the_config_says_which_of_several_copies_it_is(tmp_path):
    job, gone = Job.standalone(tmp_path / "run"), tmp_path / "gone.safetensors"
    with refused("start.no-weights", path=gone):
        with_weights(job, asked(gone), Group.alone())
    folder = job.slot_dir / weights.WEIGHTS
    both = sorted(weights.kept_copy(made(tmp_path / f"{seed}.safetensors", seed), folder).stem for seed in (1, 2))
    with refused("start.several-copies", setting="network.encoder.weights_sha256", sums=", ".join(both)):
        with_weights(job, asked(gone), Group.alone())
    training, _ = with_weights(job, asked(gone, encoder={"weights_sha256": both[0]}), Group.alone())
    assert training.network.encoder.weights == str(weights.place_of(folder, both[0]))


def unreadable(monkeypatch, file, number, *, is_seen):
    """From now on a look at `file` fails so, or, where it `is_seen`, reading it does."""
    module, name = (builtins, "open") if is_seen else (os, "stat")
    real = getattr(module, name)

    def refuse(path, *args, **more):
        if path == file:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(module, name, refuse)


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_training_goes_on_with_its_copy_where_the_file_cannot_be_read_any_more(tmp_path, monkeypatch, is_seen):
    file, run = made(tmp_path / "a.safetensors", 1), tmp_path / "run"
    train(run, file)
    unreadable(monkeypatch, file, errno.EACCES, is_seen=is_seen)
    assert any("continuing at step 8 " in line for line in train(run, file, total_steps=12))


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE, errno.EIO])
def test_a_file_that_cannot_be_read_is_called_neither_gone_nor_damaged(tmp_path, monkeypatch, number, is_seen):
    file = made(tmp_path / "a.safetensors", 1)
    unreadable(monkeypatch, file, number, is_seen=is_seen)
    words = rf"{file} \(network\.encoder\.weights\) cannot be read \({os.strerror(number)}\), and nothing was changed"
    with pytest.raises(UndecidedError, match=words):
        train(tmp_path / "run", file)


def test_a_copy_that_cannot_be_opened_for_a_moment_has_no_other_sum(tmp_path, monkeypatch):
    """Else the training would be taken for another one."""
    file = made(tmp_path / "a.safetensors", 1)
    copy, left = weights.kept_copy(file, tmp_path / "slot"), [errno.ESTALE]
    whole = weights.sha256_of(file)

    def once(real):
        def opened(path, *args, **more):
            if path == copy and left:
                raise OSError(left.pop(), os.strerror(errno.ESTALE), str(path))
            return real(path, *args, **more)

        return opened

    monkeypatch.setattr(builtins, "open", once(open))
    monkeypatch.setattr(weights.safetensors, "safe_open", once(weights.safetensors.safe_open))
    with pytest.raises(UndecidedError, match="Stale file handle"):
        weights.sha256_of(copy)
    assert weights.sha256_of(copy) == whole


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize("number", [errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG])
def test_what_can_never_be_read_is_a_mistake_of_the_config(tmp_path, monkeypatch, number, is_seen):
    file = made(tmp_path / "a.safetensors", 1)
    unreadable(monkeypatch, file, number, is_seen=is_seen)
    with refused("weights.unreadable", file=file, why=os.strerror(number)):
        train(tmp_path / "run", file)


MIX = {"group": {"mix": True}, "init_seed": 0}
RANKS = Group(0, 2)


@pytest.mark.parametrize(("fields", "group"), [({}, RANKS), (MIX, Group.alone())], ids=["ranks", "mix"])
def test_an_encoder_with_running_statistics_is_refused_before_the_first_step(tmp_path, fields, group):
    training = asked(arch="normed:Normed", **fields)
    if group.size > 1:
        training = training.changed(shards=2)
    with refused("encoder.running-statistics", encoder="Normed", key="image", layer="BatchNorm2d"):
        begin.run(Job.standalone(tmp_path), training, Listener(), group=group)


@pytest.mark.parametrize(
    ("arch", "more", "group"),
    [
        ("normed:Normed", {}, Group.alone()),
        ("normed:Normed", {"freeze": True}, RANKS),
        ("drq", {}, RANKS),
    ],
)  # fmt: skip
def test_whose_statistics_stay_or_are_nobody_elses_may_train(arch, more, group):
    begin.must_learn_alike(asked(arch=arch, encoder=more), group)


def test_normalisation_by_a_files_numbers_is_the_same_everywhere():
    training = asked(arch="r3d18", env={**ENV, "observation": "clips", "frame_stack": 2})
    begin.must_learn_alike(training, RANKS)
