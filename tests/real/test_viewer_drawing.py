"""What the page draws is what MuJoCo draws: which body is to be seen where, from the same camera."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from browser import REPOSITORY, Pages, a_viewer
from daemons import PATIENCE_S, WORK_S, wait_for
from fake_agents import live_folder, put_scene
from mujoco_bodies import CODES, HEIGHT, WIDTH, read_codes
from needs import need
from PIL import Image
from policies import RUN, a_draft, tensors

pytest.importorskip("metaworld")

from anchorleg.live.ring import RingWriter
from syncd import store
from trainer.envs.shown import Glimpse
from trainer.errors import ConfigError
from trainer.live.scene import FrameBuffer
from trainer.machine import drawing

pytestmark = pytest.mark.trainer
#: Bodies with fewer pixels are edges alone.
LEAST_PIXELS = 150
#: Of the pixels that either of two pictures gives to a body, the part that both do. With Chromium 150 and MuJoCo
#: 3.3 it is 0.91 in the mean, and 0.76 where a rotation's numbers stand in another order. A finger is mostly edge.
ALL_ALIKE, EACH_ALIKE = 0.82, 0.5


class Model(NamedTuple):
    """As `mujoco_bodies` writes it."""

    scene: bytes
    poses: Any
    right: Any
    turned: Any


@pytest.fixture(scope="module")
def way() -> str:
    try:
        return drawing.choose_renderer().way
    except ConfigError as error:
        need("a renderer", [str(error)])
        raise


def of_mujoco(name: str, folder: Path, way: str) -> Model:
    out = folder / "drawn.npz"
    script = REPOSITORY / "tests" / "support" / "mujoco_bodies.py"
    env = {**os.environ, "MUJOCO_GL": way, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, str(script), name, str(out)], env=env, check=True, timeout=WORK_S)
    with np.load(out) as found:
        return Model(found["scene"].tobytes(), found["poses"], found["right"], found["turned"])


@contextlib.contextmanager
def standing(folder: Path, scene: bytes, poses: Any) -> Iterator[None]:
    """An agent that stands still, five batches a second."""
    over, sha256, ring = threading.Event(), put_scene(folder, scene), RingWriter(folder / "any.ring")

    def go_on() -> None:
        step = 0
        while not over.wait(0.2):
            step += 1
            glimpses = [Glimpse(1, step, 0.0, success=False, at_s=0.1 * step, poses=poses)]
            assert ring.write(*FrameBuffer("reach", 1, 30, told=True, at=1e9 + 0.2 * step, glimpses=glimpses).payload(
                sha256, "training", 1
            ))  # fmt: skip

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)


def of_the_page(pages: Pages, tmp_path: Path, scene: bytes, poses: Any) -> Any:
    """Which code each pixel of the canvas has, once two pictures of it are the same."""
    place = store.Shared(tmp_path / "mirror").slot(RUN, 0)
    store.publish(place, a_draft(place, 1, 1), store.rounded(tensors(0)))
    size = ("--width", "550", "--height", "400")
    with (
        standing(live_folder(tmp_path / "mirror", RUN, 0), scene, poses),
        a_viewer(tmp_path, str(tmp_path / "mirror"), *size) as url,
    ):
        page = pages.open(url)
        canvas = page.locator('[data-agent="0"] canvas').first
        canvas.wait_for()
        seen = [b"", b""]

        def rests() -> bool:
            seen[:] = [seen[1], canvas.screenshot()]
            return seen[0] == seen[1] and len(np.unique(codes(seen[1]))) > 2

        wait_for(rests, "a picture that stays")
        pages.close()
        return codes(seen[1])


def codes(png: bytes) -> Any:
    with Image.open(io.BytesIO(png)) as image:
        # A canvas that begins within a pixel of the page has a row more.
        return read_codes(np.asarray(image.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.NEAREST)))


def fits(page: Any, bodies: Any) -> bool:
    """Whether the page's picture is MuJoCo's: all bodies together, and each of them."""
    wanted = np.where(bodies >= 0, bodies % CODES, -1)
    shown = [code for code in range(CODES) if (wanted == code).sum() >= LEAST_PIXELS]
    assert len(shown) >= 4, "there is something to compare"
    both = [((page == code) & (wanted == code)).sum() / ((page == code) | (wanted == code)).sum() for code in shown]
    print("alike, by body:", np.round(both, 2).tolist())
    return bool(np.mean(both) > ALL_ALIKE and min(both) > EACH_ALIKE)


@pytest.mark.long
def test_the_arm_is_drawn_as_mujoco_draws_it_and_the_measure_sees_what_is_wrong(
    pages: Pages, tmp_path: Path, way: str
) -> None:
    model = of_mujoco("arm", tmp_path, way)
    page = of_the_page(pages, tmp_path / "right", model.scene, model.poses)
    assert fits(page, model.right)
    assert not fits(page, model.turned), "another azimuth"
    assert not fits(page[:, ::-1], model.right), "left and right swapped"
    largest = np.bincount(model.right[model.right >= 0]).argmax()
    assert not fits(np.where(page == largest % CODES, -1, page), model.right), "a body is missing"
    other = np.concatenate([model.poses[:, :3], np.roll(model.poses[:, 3:], -1, axis=1)], axis=1)
    assert not fits(of_the_page(pages, tmp_path / "wrong", model.scene, other), model.right), "(x, y, z, w)"
