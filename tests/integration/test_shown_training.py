"""A training that is watched: what is shown is true, and not one bit of the training differs."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest
from daemons import wait_for

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from scene_files import SceneFile
from slot_digest import slot_digest
from suites import metaworld
from vector_bytes import as_bytes

from anchorleg.job import Job
from anchorleg.live.batches import FACTS, POSE, checked
from anchorleg.live.ring import RingReader
from anchorleg.live.wanted import FILE, Asking, Wish
from trainer.config.section import TrainingSection, resolve
from trainer.config.suites import Arm, Gymnasium
from trainer.envs.shown import bodies_shown, parts_of, poses_of
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.live.recorder import LiveFolder
from trainer.training.begin import run
from trainer.training.features import publication
from trainer.training.features.progress import TrainingDisplay

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "door-open-v3", "drawer-open-v3")
HORIZON = 15
#: How environments are stepped → (workers, stepper).
WAYS = {"native": (0, "auto"), "native, two threads": (2, "auto"), "python": (0, "python"), "workers": (2, "python")}
SUITES = {
    "metaworld": metaworld(TASKS, HORIZON),
    "arm": SuiteRef(Arm(horizon=HORIZON)),
    "pendulum": SuiteRef(Gymnasium(id="InvertedPendulum-v5", tasks=("pendulum",), horizon=HORIZON)),
}


def rollout(suite, way, watched, steps=50):
    """Bytes of every step, and (step, glimpse) of environment 1."""
    workers, stepper = WAYS[way]
    with VectorEnv(VectorSpec(suite, 4, 3), workers, stepper) as envs:
        envs.reset()
        rng = np.random.default_rng(5)
        seen, glimpses = [], []
        for number in range(steps):
            if watched:
                envs.watch({1} if number % 3 else {1, 3})
            if watched and number % 7 == 0:
                assert envs.look(1) is not None
            step = envs.step(rng.uniform(-1, 1, (4, *envs.spaces.action.shape)).astype(np.float32))
            seen.append(as_bytes(step))
            if watched:
                glimpses.append((step, envs.glimpse(1)))
        state = envs.snapshot()
        tensors = {name: array.tobytes() for name, array in state.tensors.items()}
        return seen, tensors, state.numbers, glimpses


PAIRS = [
    ("metaworld", "native"), ("metaworld", "workers"), ("arm", "native, two threads"), ("arm", "python"),
    ("pendulum", "python"), ("pendulum", "workers"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "way"), PAIRS)
def test_environments_that_are_watched_come_to_the_same_bits(name, way):
    *alone, _ = rollout(SUITES[name], way, watched=False)
    *watched, glimpses = rollout(SUITES[name], way, watched=True)
    assert watched == alone
    total = 0.0
    for step, glimpse in glimpses:
        total = 0.0 if step.finished[1] else total + float(step.reward[1])
        assert glimpse.step == 0 or glimpse.total == pytest.approx(total, rel=1e-5)
        assert (glimpse.step == 0) == bool(step.finished[1]) == (len(glimpse.poses) == 0)
    ends = np.cumsum([bool(step.finished[1]) for step, _ in glimpses])
    assert [glimpse.episode for _, glimpse in glimpses] == ends.tolist()
    assert len({glimpse.poses.tobytes() for _, glimpse in glimpses}) > len(glimpses) * 3 / 4


@pytest.mark.long
@pytest.mark.parametrize("way", ["native", "workers"])
def test_the_poses_of_a_glimpse_are_mujocos(way):
    """Those of an environment of one's own that does the same."""
    suite = SUITES["metaworld"]
    *_, glimpses = rollout(suite, way, watched=True, steps=HORIZON - 1)
    workers, stepper = WAYS[way]
    with VectorEnv(VectorSpec(suite, 4, 3), workers, stepper) as envs:
        first = envs.reset()
        parts = envs.look(1)
    env = suite.open().make(int(first.task[1]))
    for start in range(50):
        if np.array_equal(env.reset(start, 0)["state"], first.obs["state"][1]):
            break
    else:
        pytest.fail("no start is that of the episode")
    assert parts.bodies == parts_of(env).bodies
    rng = np.random.default_rng(5)
    model, data = env.simulation
    for step, glimpse in glimpses:
        env.step(rng.uniform(-1, 1, (4, 4)).astype(np.float32)[1])
        assert not step.finished[1]
        assert glimpse.poses.tobytes() == poses_of(data, bodies_shown(model)).tobytes()
        assert glimpse.at_s == data.time
        assert glimpse.goal == tuple(env.upstream.upstream._target_pos)


def test_a_goal_is_told_while_it_is_known_and_of_who_says_none_there_is_none():
    for name, is_known in (("metaworld", True), ("arm", False), ("pendulum", False)):
        *_, glimpses = rollout(SUITES[name], "python", watched=True)
        assert {(glimpse.goal is not None) for _, glimpse in glimpses if glimpse.step} == {is_known}, name
        assert {glimpse.goal for _, glimpse in glimpses if not glimpse.step} == {None}
        assert len({glimpse.goal for _, glimpse in glimpses if glimpse.step}) == (4 if is_known else 1)


FIELDS = {
    "preset": "debug",
    "tasks": TASKS,
    "horizon": HORIZON,
    "num_envs": 3,
    "total_steps": 900,
    "batch_size": 12,
    "buffer_size": 600,
    "actor_hidden": (16,),
    "critic_hidden": (16,),
    "random_steps": 60,
    "updates_per_step": 0.2,
    "checkpoint_interval": 300,
    "metrics_interval": 90,
    "evaluation_goals": 0,
}


@contextmanager
def watcher(job, *wishes):
    """Somebody who asks until the end."""
    place = job.shared_dir / "v1/runs" / job.run_id / FILE
    place.parent.mkdir(parents=True, exist_ok=True)
    asking, over = Asking(place), threading.Event()

    def renew():
        while not over.is_set():
            asking.renew(wishes)
            over.wait(1.0)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def train(run_dir, way, monkeypatch, *, watched=True, said=None, **fields):
    """(the slot's digest, where its agents are shown)."""
    workers, stepper = WAYS[way]
    training = resolve(TrainingSection(**{**FIELDS, **fields}))
    job = Job.standalone(run_dir)

    def eager(*given, recorder_of=publication.frame_recorder_of):
        recorder = recorder_of(*given)
        if recorder is not None:
            wait_for(lambda: recorder._wanted, "the recorder hears of the wish")
        return recorder

    folder = job.shared_dir / "v1/runs" / job.run_id / "0/live"
    with monkeypatch.context() as patched:
        display = TrainingDisplay()
        if said is not None:
            patched.setattr(display, "say", said.append)
        make_envs = lambda spec, _workers: VectorEnv(spec, workers, stepper)  # noqa: E731
        if not watched:
            assert run(job, training, display, make_envs=make_envs) == 0
        else:
            patched.setattr(publication, "frame_recorder_of", eager)
            with watcher(job, Wish(0, "any", 30), Wish(0, "t1", 60)):
                assert run(job, training, display, make_envs=make_envs) == 0
    return slot_digest(run_dir / "slots/0"), folder


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory):
    known = {}

    def of(way):
        if way not in known:
            folder = tmp_path_factory.mktemp("unwatched")
            known[way], shown = train(folder, way, pytest.MonkeyPatch(), watched=False)
            assert not shown.exists()
        return known[way]

    return of


@pytest.mark.long
@pytest.mark.parametrize("way", ["native", "workers"])
def test_a_training_that_is_watched_trains_the_same_and_what_is_shown_is_its_own(tmp_path, monkeypatch, unwatched, way):
    digest, folder = train(tmp_path, way, monkeypatch)
    assert digest == unwatched(way)
    for lane in ("any", "t1"):
        [cell] = RingReader(folder / f"{lane}.ring").newer()
        header, _ = checked(cell.kind, cell.payload)
        assert cell.kind == POSE
        assert (header["origin"], header["attempt"]) == ("training", 0)
        assert header["task"] in (TASKS if lane == "any" else TASKS[1:2])
        assert 0 < header["step"] < HORIZON
        assert 0 < header["facts"]["trained steps"] <= 900
        assert header["facts"]["goal_y"] > 0.4, "every goal of Meta-World is before the robot"
        scene = SceneFile((folder / f"{header['scene']}.scene").read_bytes())
        assert len(scene.header["bodies"]) == header["bodies"]


@pytest.mark.long
def test_a_training_that_may_not_be_watched_is_not(tmp_path, monkeypatch, unwatched):
    folder = tmp_path / "own"
    with watcher(Job.standalone(folder), Wish(0, "any", 30)):
        digest, shown = train(folder, "native", monkeypatch, watched=False, stream=False)
    assert digest == unwatched("native")
    assert not shown.exists()


def test_a_full_disk_shows_nothing_and_the_training_goes_on(tmp_path, monkeypatch, unwatched):
    def full(*_given):
        raise OSError(28, "No space left on device")

    said: list[str] = []
    monkeypatch.setattr(LiveFolder, "write", full)
    digest, _ = train(tmp_path, "native", monkeypatch, said=said)
    assert digest == unwatched("native")
    [words] = [words for words in said if "not shown now" in words]
    assert "No space left on device" in words


def test_what_has_no_bodies_shows_its_facts(tmp_path, monkeypatch):
    fields = {
        **FIELDS,
        "tasks": None,
        "env": {"name": "gymnasium", "id": "Pendulum-v1", "horizon": HORIZON},
        "algorithm": "sac",
        "total_steps": 300,
    }
    fields.pop("horizon")
    training = resolve(TrainingSection(**{name: value for name, value in fields.items() if value is not None}))
    assert training.stream
    _, folder = train(tmp_path, "python", monkeypatch, **fields)
    [cell] = RingReader(folder / "any.ring").newer()
    header, _ = checked(cell.kind, cell.payload)
    assert cell.kind == FACTS
    assert header["success"] is None
    assert header["return"] < 0
