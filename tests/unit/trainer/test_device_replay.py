"""A replay on the learner's device (here the CPU) beside one in the machine's memory: no number may differ."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from suites import FIELDS

from trainer.buffers.experience import Experience
from trainer.buffers.replay import _FEW, Replay
from trainer.buffers.rows import with_steps
from trainer.checkpoints.rows import read_into, write_rows_file
from trainer.config.section import TrainingSection, resolve
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError
from trainer.training import memory
from trainer.training.memory import gpu_parts, host_parts, row_bytes

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
SUMMED = with_steps(FIELDS)
KINDS = {"host": lambda: Replay(12, 3, SUMMED), "device": lambda: Replay(12, 3, SUMMED, CPU)}


def rows(task, first=0):
    """Transitions whose every number tells which row they are; as the environments give them, not as they are kept."""
    mark = np.arange(first, first + len(task))
    return np.array(task), {
        "obs.state": np.repeat(mark[:, None], 39, 1).astype(np.float32),
        "action": np.repeat(mark[:, None], 4, 1).astype(np.float32),
        "reward": mark.astype(np.float64),
        "next_obs.state": np.repeat(mark[:, None] + 0.5, 39, 1).astype(np.float32),
        "terminated": mark % 2 == 0,
        "steps": (mark % 3 + 1).astype(np.uint8),
    }


def filled(kind, *additions):
    ring, marked = KINDS[kind](), 0
    for task in additions:
        ring.add(*rows(task, marked))
        marked += len(task)
    return ring


ADDED = [0, 1, 2, 0], [2, 2, 1], [0, 0, 0, 0, 1]


def same(one, other):
    return all(np.array_equal(one.arrays()[name], other.arrays()[name]) for name in SUMMED)


def test_a_batch_has_the_same_rows_wherever_they_lie():
    drawn = []
    for kind in KINDS:
        ring, rng = filled(kind, *ADDED), np.random.default_rng(3)
        drawn.append([ring.pick(ring.deal(16), rng) for _ in range(3)])
    for host, device in zip(*drawn, strict=True):
        for field in ("action", "reward", "terminated", "steps"):
            there = getattr(device, field)
            assert isinstance(there, torch.Tensor)
            assert there.dtype == torch.float32
            assert np.array_equal(there.numpy(), getattr(host, field))
        for seen in ("obs", "next_obs"):
            assert np.array_equal(getattr(device, seen)["state"].numpy(), getattr(host, seen)["state"])
        assert isinstance(device.task, np.ndarray)
        assert np.array_equal(device.task, host.task)


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_rows_of_a_task_are_found_past_the_rings_end(kind):
    ring = filled(kind, *ADDED)  # of task 0 the rows 0, 3, 7, 8, 9 and 10 in a ring of 4
    assert [ring.newest(0, most, "reward").tolist() for most in (2, 4, 9)] == [[9, 10], [7, 8, 9, 10], [7, 8, 9, 10]]
    assert ring.newest(1, 9, "steps").tolist() == [2, 1, 3]


@pytest.mark.parametrize(("written", "read"), [("host", "device"), ("device", "host"), ("device", "device")])
def test_row_files_are_the_same_wherever_the_rows_lie(tmp_path, written, read):
    ring = filled(written, *ADDED)
    segment = write_rows_file(tmp_path, tmp_path / "attempts/0", 5, ring.block_since((0, 0, 0)))
    other = write_rows_file(tmp_path, tmp_path / "attempts/1", 5, filled("host", *ADDED).block_since((0, 0, 0)))
    assert segment.sha256 == other.sha256
    again = KINDS[read]()
    again.counts = ring.counts.copy()
    read_into(again, tmp_path, (segment,))
    assert same(again, ring)


def test_rows_pass_to_the_host_in_parts(monkeypatch):
    monkeypatch.setattr("trainer.buffers.storage._AT_ONCE", 2)
    assert all(
        np.array_equal(ring, host)
        for ring, host in zip(
            filled("device", *ADDED).block_since((0, 0, 0)).arrays.values(),
            filled("host", *ADDED).block_since((0, 0, 0)).arrays.values(),
            strict=True,
        )
    )


@pytest.mark.parametrize("kind", KINDS)
def test_of_more_rows_of_a_task_than_have_room_the_last_ones_stay(kind, monkeypatch):
    """No place is written twice: which of the two a GPU would leave there is not said."""
    ring = KINDS[kind]()
    lay = ring.storage.lay

    def once(places, rows):
        assert len(set(places.tolist())) == len(places)
        lay(places, rows)

    monkeypatch.setattr(ring.storage, "lay", once)
    ring.add(*rows([1, *[0] * 6, 2, *[0] * 5]))
    assert ring.counts.tolist() == [11, 1, 1]
    # Rows 7 … 10 of the task, each where its number says: the marks of the zeros behind the first six are 8 … 12.
    assert ring.arrays()["reward"][:4].tolist() == [10, 11, 12, 9]
    assert sorted(ring.rows_of(0)["reward"].tolist()) == [9, 10, 11, 12]
    assert ring.rows_of(1)["reward"].tolist() == [0]


@given(st.lists(st.integers(0, 2), min_size=_FEW + 1, max_size=3 * _FEW), st.integers(0, 40))
def test_many_rows_are_numbered_as_few_are(tasks, before):
    many, few = Replay(900, 3, SUMMED), Replay(900, 3, SUMMED)
    for ring in (many, few):
        ring.counts[:] = before, 0, 2 * before
    numbers = many._numbered(np.array(tasks))
    one_by_one = [int(few._numbered(np.array([task]))[0]) for task in tasks]
    assert numbers.tolist() == one_by_one
    assert many.counts.tolist() == few.counts.tolist()


def training_of(**more):
    return resolve(TrainingSection(**{"tasks": ("reach-v3", "push-v3", "door-open-v3"), "buffer_size": 300, **more}))


def test_others_rows_join_a_batch_on_the_device():
    found = []
    for place in ("host", "device"):
        training = training_of(replay_on=place)
        experience = Experience(training, spaces_of(training), CPU)
        task, values = rows([0, 1, 2] * 20)
        experience.add(task, values)
        _, theirs = rows([0] * 30, 500)
        del theirs["steps"]
        experience.welcome().add("ben", theirs, task=0, content="c", policy_step=0, step=0)
        found.append(experience.sample(60))
    host, device = found
    assert (host.reward >= 500).sum() > 0
    assert isinstance(device.obs["state"], torch.Tensor)
    assert np.array_equal(device.reward.numpy(), host.reward)
    assert np.array_equal(device.obs["state"].numpy(), host.obs["state"])


def test_a_ring_on_the_cpu_takes_no_memory_before_a_row_comes():
    ring = Replay(3_000_000_000, 3, SUMMED, CPU)
    assert sum(array.nbytes for array in ring.arrays().values()) > 10**12


# --- what fits ------------------------------------------------------------------------------------------------------


def test_a_replay_on_a_gpu_counts_there_and_not_in_the_machine():
    host, device = (training_of(replay_on=place, buffer_size=1_000_000) for place in ("host", "device"))
    bytes_of = {
        (place, kind): sum(part.bytes for part in parts)
        for place, training in (("host", host), ("device", device))
        for kind, parts in (("cuda", host_parts(training, "cuda", 500)), ("gpu", gpu_parts(training)))
    }
    row = row_bytes(host)
    assert bytes_of["host", "cuda"] - bytes_of["device", "cuda"] == 500 * row
    # All at once, however many come.
    assert bytes_of["device", "gpu"] - bytes_of["host", "gpu"] == 1_000_000 * row
    assert host_parts(device, "cpu", 500) == host_parts(host, "cpu", 500)


def test_what_does_not_fit_into_the_gpu_is_refused_in_one_sentence():
    training = training_of(replay_on="device", buffer_size=20_000_000)
    lower = "lower training.algorithm.buffer_size to 11,000,000 in a new run, or set training.replay_on to host"
    with refused("memory.gpu-too-small", advice=re.compile(f"^most is for the replay, 20,000,000 rows of .*; {lower}")):
        memory.check_gpu(training, "cuda", 4 * 10**9)
    memory.check_gpu(training.changed(buffer_size=11_000_000), "cuda", 4 * 10**9)
    memory.check_gpu(training, "cpu", None)
    memory.check_gpu(training.changed(replay_on="host"), "cuda", 4 * 10**9)
    with refused("memory.gpu-too-small") as caught:  # where that would not help it is not said
        memory.check_gpu(training, "cuda", 10**6)
    assert "replay_on to host" not in caught.value.fields["advice"]
    full = str(memory.shortage(torch.OutOfMemoryError("CUDA out of memory."), training, "cuda"))
    assert "in a new run, or set training.replay_on to host, which changes no number, or" in full
    memory.check(training, "cuda", 4 * 10**9)  # the machine's own memory has to bear none of it


def test_nets_that_do_not_fit_are_refused_too():
    training = training_of(critic_hidden=(8192, 8192, 8192))
    lower = re.compile(r"the critics, .*lower training.network.critic_hidden to ")
    with refused("memory.gpu-too-small", advice=lower):
        memory.check_gpu(training, "cuda", 10**9)


def test_pictures_stay_in_the_machine():
    training = resolve(
        TrainingSection(env={"name": "arm", "observation": "cameras"}, algorithm="sac", replay_on="device")
    )
    with pytest.raises(ConfigError, match="replay_on device is for replays of states"):
        memory.check(training, "cpu", None)


def test_what_keeps_no_replay_has_none_to_place():
    with refused("replay.none-kept"):
        resolve(TrainingSection(preset="arm-ppo", replay_on="device"))
