"""`trainer live`: what this machine plays itself, and that it ends with whoever started it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from daemons import PATIENCE_S, started_at, wait_for

pytest.importorskip("torch")
pytest.importorskip("metaworld")

from PIL import Image
from published import RUN, TASKS, publish, training_of
from scene_files import SceneFile

from anchorleg.live.batches import FACTS, JPEG, POSE, checked
from anchorleg.live.ring import MAX_PAYLOAD_BYTES, RingReader
from trainer.config.suites import Gymnasium
from trainer.envs.suite import SuiteRef
from trainer.errors import ConfigError
from trainer.live import player as player_module
from trainer.live.pictures import jpeg_of
from trainer.live.player import player_of

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "trainer", "live"]
ENVIRON = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests/support'}"}


class Screen:
    """All batches of a ring so far."""

    def __init__(self, path: Path) -> None:
        self.reader = RingReader(path)
        self.seen: list[tuple[int, dict, bytes]] = []

    def look(self):
        self.seen += [(cell.kind, *checked(cell.kind, cell.payload)) for cell in self.reader.newer()]
        return self.seen

    def wait(self, condition, what):
        wait_for(lambda: any(condition(header) for _, header, _ in self.look()), what)


@contextmanager
def playing(shared, ring, lane="any", fps=30, said=None):
    stop, failed = threading.Event(), []

    def work():
        try:
            player_of(shared, "toy", 0, ring, lane, fps, stop, (said if said is not None else []).append).run()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield Screen(ring / f"{lane}.ring"), failed
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_it_shows_the_tasks_in_turn_and_takes_newer_policies(tmp_path):
    publish(tmp_path, step=100)
    with playing(tmp_path, tmp_path / "ring") as (screen, failed):
        for task in TASKS:
            screen.wait(lambda header, task=task: header["task"] == task, task)
        publish(tmp_path, step=700, seq=2, seed=1)
        screen.wait(lambda header: header["facts"]["policy"] == "1-2", "the newer policy")
    assert not failed
    for kind, header, _ in screen.seen:
        assert kind == POSE
        assert (header["origin"], header["attempt"]) == ("played here", 1)
        assert header["facts"]["trained steps"] == (700 if header["facts"]["policy"] == "1-2" else 100)
        assert header["dt"] in (pytest.approx(0.0375), pytest.approx(0.025), pytest.approx(1 / 30))
        assert {"goal_x", "goal_y", "goal_z"} <= header["facts"].keys()
        scene = SceneFile((tmp_path / "ring" / f"{header['scene']}.scene").read_bytes())
        assert len(scene.header["bodies"]) == header["bodies"]
    assert sorted(header["episode"] for _, header, _ in screen.seen) == [
        header["episode"] for _, header, _ in screen.seen
    ]


def test_a_lane_of_one_task_plays_that_one_alone(tmp_path):
    publish(tmp_path)
    with playing(tmp_path, tmp_path / "ring", "t1") as (screen, _):
        screen.wait(lambda header: header["episode"] > 2, "a third episode")
    assert {header["task"] for _, header, _ in screen.seen} == {TASKS[1]}


def test_a_task_that_the_policy_does_not_have_is_a_sentence(tmp_path):
    publish(tmp_path)
    with playing(tmp_path, tmp_path / "ring", "t2") as (_, failed):
        wait_for(lambda: failed, "its end")
    assert isinstance(failed[0], ConfigError)
    assert "no task 2" in str(failed[0])


def test_a_policy_that_acts_otherwise_here_is_not_played_and_the_last_good_one_goes_on(tmp_path):
    def spoilt(draft):
        wrong = tuple(tuple(number + 0.5 for number in row) for row in draft.golden.action)
        return draft.model_copy(update={"golden": draft.golden.model_copy(update={"action": wrong})})

    publish(tmp_path, step=100)
    said: list[str] = []
    with playing(tmp_path, tmp_path / "ring", said=said) as (screen, failed):
        screen.wait(lambda header: True, "the good one")
        publish(tmp_path, step=200, seq=2, change=spoilt)
        wait_for(lambda: said, "the sentence")
        last = screen.look()[-1][1]["episode"]
        screen.wait(lambda header: header["episode"] > last + 1, "another episode")
    assert not failed
    assert {header["facts"]["policy"] for _, header, _ in screen.seen} == {"1-1"}
    assert len(said) == 1
    assert "golden" in said[0]


def test_it_waits_for_a_first_policy(tmp_path):
    publish(tmp_path, slot=1)
    (tmp_path / "v1/runs" / RUN / "0").mkdir()
    said: list[str] = []
    with playing(tmp_path, tmp_path / "ring", said=said) as (screen, failed):
        wait_for(lambda: said, "its word")
        publish(tmp_path)
        screen.wait(lambda header: True, "a picture")
    assert not failed
    assert said == [f"{RUN}/0 has no policy yet: waiting for its first one"]


def drawn(name, horizon=20, **kwargs):
    """In place of a publication: an environment of `odd_envs` that draws itself."""
    env = Gymnasium(id=f"odd_envs:{name}", tasks=(name,), horizon=horizon, kwargs=kwargs)
    suite = SuiteRef(env).open()
    return SimpleNamespace(
        tasks=env.tasks,
        env=env,
        goal_seed=0,
        suite=lambda _seed: SuiteRef(env),
        act=lambda _obs, numbers: suite.spaces.no_actions(len(numbers)),
        notes=(),
        step=5,
    )


@pytest.mark.parametrize("fps", [5, 60])
def test_what_draws_itself_is_shown_as_pictures(tmp_path, monkeypatch, fps):
    publish(tmp_path)
    monkeypatch.setattr(player_module, "of_publication", lambda *_given: drawn("Line"))
    with playing(tmp_path, tmp_path / "ring", fps=fps) as (screen, failed):
        screen.wait(lambda header: header["episode"] > 1, "a second episode")
    assert not failed
    assert {kind for kind, _, _ in screen.seen} == {JPEG}
    for _, header, body in screen.seen:
        assert Image.open(io.BytesIO(body)).format == "JPEG"
        assert header["task"] == "Line"
    first = [header["step"] for _, header, _ in screen.seen if header["episode"] == 1]
    each = 20 // min(fps, 10)  # 20 steps a second, at most ten pictures; whoever looks late misses some
    assert len({step % each for step in first}) <= 1


def test_what_cannot_draw_itself_shows_its_facts(tmp_path, monkeypatch):
    found = drawn("Line")
    suite = SuiteRef(found.env).open()
    monkeypatch.setattr(type(suite), "watched", lambda _self, _task: 1 / 0)
    publish(tmp_path)
    said: list[str] = []
    monkeypatch.setattr(player_module, "of_publication", lambda *_given: found)
    with playing(tmp_path, tmp_path / "ring", said=said) as (screen, failed):
        screen.wait(lambda header: True, "facts")
        wait_for(lambda: said, "its word")
    assert not failed
    assert {kind for kind, _, _ in screen.seen} == {FACTS}
    assert said == ["Line cannot be drawn here: division by zero"]


def test_a_picture_of_noise_fits_into_a_cell():
    noise = np.random.default_rng(0).integers(0, 256, (1000, 700, 3), np.uint8)
    data = jpeg_of(noise)
    assert len(data) < MAX_PAYLOAD_BYTES - 8192
    assert max(Image.open(io.BytesIO(data)).size) <= 480
    with pytest.raises(ValueError, match="picture"):
        jpeg_of(noise[..., 0])


def started(tmp_path, *more, **given):
    return subprocess.Popen(
        [*COMMAND, str(tmp_path), "toy", "0", "--ring", str(tmp_path / "ring"), *more],
        env=ENVIRON, stderr=subprocess.PIPE, text=True, **given,
    )  # fmt: skip


def is_shown(tmp_path):
    return (tmp_path / "ring/any.ring").exists() and RingReader(tmp_path / "ring/any.ring").newer()


@pytest.mark.parametrize("how", ["its input ends", "SIGTERM"])
def test_it_ends_well_when_it_is_no_longer_wanted(tmp_path, how):
    publish(tmp_path, training=training_of())
    with started(tmp_path, stdin=subprocess.PIPE) as child:
        wait_for(lambda: is_shown(tmp_path), "a picture")
        assert child.stdin is not None
        if how == "SIGTERM":
            child.send_signal(signal.SIGTERM)
        else:
            child.stdin.close()
        assert child.wait(PATIENCE_S) == 0
        assert child.stderr.read() == ""


def test_it_does_not_outlive_a_parent_that_is_killed(tmp_path):
    publish(tmp_path)
    command = [*COMMAND, str(tmp_path), "toy", "0", "--ring", str(tmp_path / "ring")]
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({command!r}, stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=ENVIRON, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        at = started_at(pid)
        wait_for(lambda: is_shown(tmp_path), "a picture")
        parent.kill()
        wait_for(lambda: started_at(pid) != at, "its end")


@pytest.mark.parametrize(
    ("more", "words", "code"),
    [
        (["nowhere", "0"], "there is no nowhere/0", 2),
        (["toy", "7"], f"it has {RUN}/0", 2),
        (["toy", "0", "--lane", "x1"], "use any, or t and the number of a task", 2),
        (["toy", "0", "--lane", "t9"], "there is no task 9", 2),
        (["toy", "0", "--ring", "/dev/null/x"], "/dev/null/x cannot be written", 5),
    ],
)
def test_what_cannot_be_is_one_sentence(tmp_path, more, words, code):
    publish(tmp_path)
    ring = [] if "--ring" in more else ["--ring", str(tmp_path / "ring")]
    done = subprocess.Popen(
        [*COMMAND, str(tmp_path), *more, *ring],
        env=ENVIRON, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with done:
        assert done.wait(PATIENCE_S) == code
        told = done.stderr.read()
    assert words in told
    assert told.count("\n") == 1
