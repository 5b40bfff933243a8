"""Watching a policy: found wherever it lies, seen the right way up, in a film that browsers play."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from daemons import WORK_S
from PIL import Image, ImageSequence

pytest.importorskip("metaworld")
pytest.importorskip("av")

from needs import is_missing, need_drawing
from point_run import PointRun
from published import RUN, publish, training_of
from refused import refused
from suites import metaworld

from syncd import store
from trainer.config.suites import Gymnasium, Metaworld
from trainer.evaluation.playable import Playable, find_playable
from trainer.evaluation.protocol import evaluate
from trainer.machine import drawing
from trainer.showing.film import with_words
from trainer.showing.play import STEPS_A_FRAME, PlayedTask, WatchedTask

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).resolve().parents[2]
HORIZON = 40


@pytest.fixture(scope="session")
def eyes():
    """The way in which this machine can draw; in CI there must be one."""
    return need_drawing()[0]


@pytest.fixture
def mirror(tmp_path):
    publish(tmp_path / "mirror", training=training_of(horizon=HORIZON), success=0.5)
    publish(tmp_path / "mirror", training=training_of(horizon=HORIZON), seq=2, step=200, success=0.6, seed=1)
    return tmp_path / "mirror"


def trainer(*words, cwd, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", "trainer", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=WORK_S, check=False)


def frames_of(path):
    """(what the film says of itself, its frames [n, height, width, 3])."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        about = (stream.codec_context.name, stream.pix_fmt, float(stream.average_rate), (stream.width, stream.height))
        return about, np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(stream)])


def test_an_environment_that_cannot_begin_is_a_sentence():
    naughty = Gymnasium(id="odd_envs:Naughty", kwargs={"fault": "old reset"})
    stage = WatchedTask(Playable("x", 0, naughty, 4, None, ()), None)
    with refused("play.episode-failed", episode=0):
        stage.reset(0)
    stage.close()


@pytest.mark.long
def test_a_mirrored_policy_becomes_a_film(tmp_path, mirror, eyes):
    done = trainer("play", mirror, "--task", "reach-v3", "--episodes", "2", "--size", "96", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert f"{RUN}/0 version 1-2 · step 200" in done.stdout
    assert done.stdout.count("return") == 2
    assert "the video: reach-v3.mp4" in done.stdout
    about, frames = frames_of(tmp_path / "reach-v3.mp4")
    assert about == ("h264", "yuv420p", 40.0, (96, 96))
    # Every second step, and its end is held for a second.
    played = HORIZON // STEPS_A_FRAME
    assert len(frames) == 2 * (played + 1 + 40)
    assert frames.std() > 10  # something is to be seen
    moved = np.abs(np.diff(frames.astype(np.int16), axis=0)).mean((1, 2, 3))
    first, second = moved[:played], moved[played + 1 : played + 40]
    assert second.max() < first.max() / 10
    assert sorted(path.name for path in tmp_path.glob("*.mp4")) == ["reach-v3.mp4"]
    assert not list(tmp_path.glob(".*.mp4"))


@pytest.mark.long
def test_a_film_may_be_a_gif_of_half_the_pictures(tmp_path, mirror, eyes):
    done = trainer("play", mirror, "--task", "reach-v3", "--size", "96", "--out", "reach.GIF", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "reach.GIF") as film:
        assert (film.format, film.size, film.n_frames) == (
            "GIF",
            (96, 96),
            (HORIZON // STEPS_A_FRAME + 1 + 40 + 1) // 2,
        )
        shown = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(film)]
        assert film.info["duration"] == 50
    assert shown[0].std() > 10
    assert (shown[0] != shown[-1]).any()


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--task", "push-v9"], "play.unknown-task"),
        ([], "play.task-missing"),
        (["--task", "reach-v3", "--camera", "corner22"], "camera.unknown"),
        (["--task", "reach-v3", "--size", "99"], "play.size"),
        (["--task", "reach-v3", "--out", "film.avi"], "film.out-suffix"),
    ],
)
def test_bad_wishes_are_refused_in_one_sentence_and_nothing_is_written(tmp_path, mirror, eyes, words, wrong):
    done = trainer("play", mirror, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert f"[{wrong}]" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mirror"]


GOLDEN = ROOT / "tests/golden/reach_corner2_osmesa.png"
#: Mean absolute difference of 8-bit colours. Another version of Mesa moves edges by a fraction of a pixel; a hand that
#: moved for ten steps more makes 2.96, another camera 65 [measured].
SAME = 1.0

FRAMES = """
import sys
import numpy as np
from PIL import Image
from trainer.showing.play import Camera
from trainer.showing.play import PlayedTask
from trainer.config.suites import Metaworld
from trainer.evaluation.playable import Playable

def act(obs, task):
    return np.array([[0.5, 1.0, -0.5, 1.0]], np.float32)

stage = PlayedTask(Playable("test", 0, Metaworld(tasks=("reach-v3",), horizon=30), 0, act, ()), None)
taken = {}
for name in ("corner2", "corner3"):
    camera = Camera(stage.simulation, name, 128)
    stage.play(0, lambda step: taken.setdefault((name, step), camera.picture()) if step in (20, 30) else None)
    camera.close()
for (name, step), picture in taken.items():
    Image.fromarray(picture).save(f"{sys.argv[1]}/{name}-{step}.png", optimize=True)
"""


@pytest.mark.long
def test_a_frame_is_the_one_that_a_person_has_looked_at(tmp_path):
    """The hand on its way to the goal of reach-v3, table, arm and all, as OSMesa draws it on any CPU."""
    from PIL import Image

    if not drawing.driver_of("osmesa"):
        is_missing("MuJoCo cannot draw with OSMesa here")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MUJOCO_GL": "osmesa"}
    command = [sys.executable, "-c", FRAMES, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=WORK_S, check=False)
    assert done.returncode == 0, done.stderr

    def difference(name):
        pictures = (np.asarray(Image.open(path).convert("RGB"), np.int16) for path in (GOLDEN, tmp_path / name))
        return float(np.abs(np.subtract(*pictures)).mean())

    assert difference("corner2-20.png") <= SAME
    # The same comparison finds another state of the same scene, and another camera.
    assert difference("corner2-30.png") > 2 * SAME
    assert difference("corner3-20.png") > 10 * SAME


SHORT = """
import resource, sys
from pathlib import Path
import numpy as np
from trainer.showing.film import film
from trainer.errors import SaveError

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
noise = np.random.default_rng(0)
try:
    with film(Path(sys.argv[1]), 96) as show:
        for _ in range(20):
            show(noise.integers(0, 255, (96, 96, 3), np.uint8))
except SaveError as error:
    sys.exit(error.with_id())
"""


@pytest.mark.parametrize("limit", [4000, 10_000_000])
def test_a_film_that_the_disk_has_no_room_for_leaves_nothing(tmp_path, limit):
    command = [sys.executable, "-c", SHORT, str(tmp_path / "film.mp4"), str(limit)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=WORK_S, check=False)
    if limit == 10_000_000:
        assert (done.returncode, done.stderr) == (0, "")
        assert len(frames_of(tmp_path / "film.mp4")[1]) == 20
    else:
        assert done.returncode == 1
        assert "[film." in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert list(tmp_path.iterdir()) == []


def test_words_stand_at_the_foot_of_a_picture_however_narrow_it_is():
    for side in (480, 96):
        picture = np.full((side, side, 3), 90, np.uint8)
        rows, columns, _ = np.nonzero(
            with_words(picture, "button-press-topdown-v3   step 1,204   success: yes") != picture
        )
        assert rows.min() > 0.8 * side
        assert columns.max() < side - 1 > rows.max()


def a_policy(act, tasks=("reach-v3",), horizon=HORIZON):
    return Playable("test", 0, Metaworld(tasks=tasks, horizon=horizon), 0, act, ())


def test_an_episode_is_what_an_evaluation_says_of_it():
    """It ends at its first success."""

    def reach(obs, task):
        seen = obs["state"]
        moves = np.concatenate([(seen[:, 36:39] - seen[:, :3]) * 10, np.zeros((len(seen), 1))], 1)
        return np.clip(moves, -1, 1).astype(np.float32)

    stage = PlayedTask(a_policy(reach, horizon=300), None)
    steps = []
    episodes = [stage.play(goal, steps.append) for goal in range(2)]
    stage.close()
    judged = evaluate(reach, metaworld(("reach-v3",), 300), 2)
    assert np.mean([episode.episode_return for episode in episodes]) == pytest.approx(judged.returns["reach-v3"])
    assert np.mean([bool(episode.success) for episode in episodes]) == judged.success["reach-v3"] == 1.0
    assert np.mean([episode.steps for episode in episodes]) == judged.steps_to_success["reach-v3"] < 300
    assert steps == [number for episode in episodes for number in range(episode.steps + 1)]


def test_a_policy_is_found_wherever_a_user_points(tmp_path, mirror):
    run = PointRun(tmp_path / "run")
    [checkpoint] = run.checkpoints(1)
    for path in (checkpoint, run.job.slot_dir, run.job.run_dir):
        assert find_playable(str(path), None, "cpu").name == str(checkpoint)
    assert find_playable(str(mirror), None, "cpu").step == 200
    for text in ("latest", "best", RUN, "toy", f"{RUN}/0", "toy/0"):
        assert find_playable(text, mirror, "cpu").step == 200


def test_what_cannot_be_found_or_trusted_is_one_sentence(tmp_path, mirror):
    place = store.Shared(mirror).slot(RUN, 0)
    for text, where, wrong in (
        (str(tmp_path / "nothing"), None, "play.no-policy"),
        (str(tmp_path / "nothing"), mirror, "play.no-policy"),
        ("runs/nothing", mirror, "play.no-policy"),
        ("toy/7", mirror, "play.none-published"),
        ("latest", tmp_path / "nowhere", "shared.no-mirror"),
    ):
        with refused(wrong):
            find_playable(text, where, "cpu")
    newest = store.newest(place)
    blob = place.blob(newest.blob.sha256)
    blob.chmod(0o600)
    blob.write_bytes(blob.read_bytes()[:-1])
    with refused("policy.not-played"):
        find_playable(str(mirror), None, "cpu")
