"""Films of agents: the command under a tile, typed, makes one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from browser import REPOSITORY, Pages, a_viewer
from daemons import PATIENCE_S, WORK_S
from fake_agents import FakeAgent, live_folder, swing
from needs import need

pytest.importorskip("torch")
pytest.importorskip("av")

import av
from published import RUN, publish

from trainer.config.section import TrainingSection, resolve
from trainer.errors import ConfigError
from trainer.machine import drawing

pytestmark = pytest.mark.trainer


@pytest.fixture(scope="module")
def eyes() -> str:
    try:
        return drawing.choose_renderer().way
    except ConfigError as error:
        need("a renderer", [str(error)])
        raise


def an_arm(shared: Path, run_id: str = RUN, horizon: int = 7, **more: Any) -> None:
    publish(shared, training=resolve(TrainingSection(preset="arm-ppo", horizon=horizon)), run_id=run_id, **more)


def typed(command: str, folder: Path) -> str:
    """What it says, in a shell."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=WORK_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_the_command_of_a_tile_makes_a_film_of_that_agent(pages: Pages, tmp_path: Path, eyes: str) -> None:
    run_id, shared = RUN, tmp_path / "my mirror"
    an_arm(shared, run_id)
    an_arm(shared, run_id, seq=2, step=200, seed=1)
    agent, over = FakeAgent(live_folder(shared, run_id, 0)), threading.Event()

    def go_on() -> None:
        k = 0
        while not over.wait(0.2):
            k += 6
            agent.pose(*(swing(k + i) for i in range(6)), task="reach")

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        with a_viewer(tmp_path, str(shared)) as url:
            page = pages.open(url)
            page.locator("summary", has_text="film").click()
            command = page.locator("details code.command").inner_text()
    finally:
        over.set()
        thread.join(PATIENCE_S)
    assert f"{run_id}/0 version 1-2 · step 200" in typed(command, tmp_path)
    [film] = tmp_path.glob("*.mp4")
    assert film.name == f"{run_id.rpartition('-')[0]}-slot0-reach.mp4"
    with av.open(str(film)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 8 + 20  # the end is held for a second
